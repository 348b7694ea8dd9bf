# A source begins another incarnation, because its numbering was lost: a consumer knows entries of the present
# one that were never given here.
#
# Promise: nothing of the former incarnation is left, and flash knows the new one before it holds an entry
# of it.

from .batch import RESTART
from .keyspace import F_INC


def begin_again(source):
    port = source.port
    port.inc = port.inc + 1 & 0xFFFFFFFFFFFFFFFF
    port.host.store.put(F_INC + source.vertex.index, port.inc.to_bytes(8, "little"))
    _restart(port)
    source.why = RESTART


def _restart(port):
    port.host.scratch.forget()
    port.host.store.forget(port.stream)
    port.ring.reset(0)
    port.sealed = port.trim_to = 0
    port.crs = []
    for r in port.readers:
        r.forget()
        port.save(r)
    from . import gaps

    gaps.forget(port)
