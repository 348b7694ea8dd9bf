# A source begins another incarnation, because its numbering was lost: a consumer knows entries of the present
# one that were never made here.
#
# Promise: nothing of the former incarnation is left, and flash knows the new one before it holds an entry
# of it.

from ..offboard.compat import TYPE_CHECKING
from ..storage.keyspace import F_INC

if TYPE_CHECKING:
    from .source import Source


def begin_again(source: "Source") -> None:
    port = source.port
    host = port.host
    inc = port.inc + 1 & 0xFFFFFFFFFFFFFFFF
    host.store.put(F_INC + source.vertex.index, inc.to_bytes(8, "little"))
    host.scratch.forget()
    host.store.forget(port.stream)
    port.renumber(inc)
    for r in port.readers:
        port.save(r)
    from . import gaps

    gaps.forget(port)
    source.restarted()
    assert port.first() == 0 == port.ring.last and not any([r.safe or r.gaps for r in port.readers])
