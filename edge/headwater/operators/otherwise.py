# An alternative for a stream that falls silent.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Merged, Params, Port, Ports


class Otherwise(Operator):
    """Elements of input 0 while it is open, those of input 1 while a decision has closed input 0, both of one
    alphabet. When input 0 is opened again, what is older than that is still taken from input 1: no time
    is left out, and none comes twice.

    At a hole: the one of the input that is given passes.
    """

    STATE = "away:u8 since:i64"
    CATEGORY = "joins"
    away: int
    since: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a, b = fields.inputs("Otherwise", ins, 2)
        if a.text != b.text:
            raise OperatorError(
                "input port 1 of Otherwise is '%s' and port 0 is '%s': give them one alphabet, with Map"
                % (b.text, a.text)
            )
        return (a.text, b.text), (a.text,)

    def run(self, x: "Merged", n: int) -> int:
        port = x.port
        at = self.y.at
        # What of input 1 is given comes first: all of it, or what precedes `since`.
        j = k = 0
        until = n if self.away else 0
        if not until and self.since > x.ts:
            left = self.since - x.ts
            while until < n and x.at[until] < left:
                until += 1
        for i in range(n):
            if not port[i] or i < until:
                at[j] = i
                j += 1
        for f in range(len(self.y.cols)):
            o = self.y.cols[f]
            c0 = x.cols[0][f]
            c1 = x.cols[1][f]
            j = k = 0
            for i in range(n):
                if not port[i]:
                    o[j] = c0[i - k]
                    j += 1
                else:
                    if i < until:
                        o[j] = c1[k]
                        j += 1
                    k += 1
        return j

    def hole(self, port: int) -> bool:
        return port == 0 or self.away == 1

    def closed(self, port: int) -> None:
        if port == 0:
            self.away = 1

    def opened(self, port: int, ts: int) -> None:
        if port == 0 and self.away:
            self.away = 0
            self.since = ts
