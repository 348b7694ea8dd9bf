# A stream begins another incarnation: of a source, because its numbering was lost (a consumer knows entries
# of the present one that were never made here); of an operator, because it has given up (giving_up.py).
#
# Promise: nothing of the former incarnation is left. Of a source, flash knows the new one before it holds an
# entry of it; of an operator, the checkpoint with which it begins names it.

from ..offboard.compat import TYPE_CHECKING
from ..storage.keyspace import F_INC

if TYPE_CHECKING:
    from .outputs import OutPort
    from .source import Source


def begin_again(source: "Source") -> None:
    port = source.port
    host = port.host
    inc = port.inc + 1 & 0xFFFFFFFFFFFFFFFF
    host.store.put(F_INC + source.vertex.index, inc.to_bytes(8, "little"))
    begin(port, inc)
    source.restarted()
    assert port.first() == 0 == port.ring.last and not any([r.safe or r.gaps for r in port.readers])


# Nothing of the stream is here: entry 1 of this incarnation is the next one.
def begin(port: "OutPort", inc: int) -> None:
    from . import gaps

    port.host.scratch.forget()
    port.host.store.forget(port.stream)
    port.renumber(inc)
    for r in port.readers:
        port.save(r)
    gaps.forget(port)
