# Absence: an input whose stream is silent for too long is closed by decision, and opened again when the
# stream speaks, where the process file asks for that (Edge.absent_ms).
#
# The host where the consumer runs notices the silence, since there the merge waits. The gateway gives the
# content of the decision, or this host does where the edge is `local`. The operator gives the place: a
# stream that has spoken by then is not closed (`stays`).
#
# What counts as silence: no entry and no boundary arrived, none waits to be taken, and no boundary reaches
# beyond the present time (a host that sleeps has promised when it will wake). It is counted by this host's
# own clock, from the start of this boot. Unless the edge is local, time in which this host hears no other one
# does not count, since its own link may be at fault, and the count begins again after it.
#
# A host of a process without such edges never loads this module.

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol.sessions import TAKEN
from .instance import EXPOSED, RUNNING

if TYPE_CHECKING:
    from .host import Host
    from .inputs import InEdge

_AGAIN_US = const(2000000)  # a decision that has not come is asked for again


class Silent:
    def __init__(self, e: "InEdge", runs: bool) -> None:
        self.input = e
        self.runs = runs  # its operator
        self.sign = (0, 0, 0)  # incarnation, last entry, boundary
        self.us = 0  # without a sign
        self.noted = e.noted
        self.gave_us = 0  # when the last entry was seen that it has dropped while it was closed
        self.ask_us = 0  # when a decision is asked for next

    # This much time passed. True where there was a sign of the stream.
    def passes(self, us: int, sign: tuple[int, int, int], speaks: bool) -> bool:
        if sign != self.sign or speaks:
            self.sign = sign
            self.us = 0
            return True
        self.us += us
        return False

    def again(self) -> None:
        self.us = 0

    # Whether it has dropped an entry while it was closed, within so long.
    def gives(self, now: int, us: int) -> bool:
        e = self.input
        if e.noted != self.noted:
            self.noted = e.noted
            self.gave_us = now if e.closed else 0
        return self.gave_us > 0 and now - self.gave_us < us

    # Whether the decision is to be asked for now.
    def asks(self, now: int) -> bool:
        if now < self.ask_us:
            return False
        self.ask_us = now + _AGAIN_US
        return True


class Absence:
    def __init__(self, host: "Host") -> None:
        self.host = host
        self.now = host.now
        self.heard = 0  # genuine frames of others
        self.near = 0  # since one came
        self.inputs: dict[int, Silent] = {}  # by edge: of operators that run here

    # To be called a few times in each step.
    def tick(self) -> None:
        host = self.host
        gone = host.now - self.now
        self.now = host.now
        deaf = self._deaf(gone)
        for e in list(host.inputs.values()):
            if not e.edge.absent_ms:
                continue
            s = self.inputs.get(e.edge.index)
            runs = e.sink.status in (RUNNING, EXPOSED)
            if s is None or s.input is not e or not runs or not s.runs:
                s = self.inputs[e.edge.index] = Silent(e, runs)  # it counts from when its operator runs
                s.passes(0, _sign(e), False)
                continue
            if deaf and not e.edge.local:
                s.again()
                continue
            if s.passes(gone, _sign(e), self._speaks(e)) and e.edge.local:
                e.stay()
            gives = s.gives(self.now, e.edge.absent_ms * 1000)
            if e.closed:
                # What it drops says enough: the clock of its board may be behind, or not known here.
                if (self._speaks(e) or gives) and s.asks(self.now):
                    self._give(e, ["open", e.sink.inputs.index(e), e.inc, 0])
            elif s.us >= e.edge.absent_ms * 1000 and s.asks(self.now):
                self._give(e, ["close", e.sink.inputs.index(e)])

    # Whether no other host was heard for long, until now or until one was heard again since the last call.
    def _deaf(self, gone: int) -> bool:
        heard = 0
        for link in self.host.exchange.links.values():
            heard += link.peer.counts[TAKEN]
        self.near += gone
        deaf = self.near > self.host.pace[0] + self.host.pace[2]
        if heard != self.heard:
            self.heard = heard
            self.near = 0
        return deaf

    # Whether an input is not to be closed now, although that was asked for: its stream has spoken since.
    def stays(self, e: "InEdge") -> bool:
        s = self.inputs.get(e.edge.index)
        if not e.edge.absent_ms:
            return False
        return not s or s.us < e.edge.absent_ms * 1000 or s.sign != _sign(e) or self._speaks(e)

    # Whether the stream gives something now: entries wait, or it has promised something of the present.
    def _speaks(self, e: "InEdge") -> bool:
        if not e.contact:
            return False
        if e.waiting() > 0:
            return True
        late = e.edge.absent_ms * 1000 if e.closed else 0
        return bool(self.host.clock.synced) and _bound(e) + late > self.host.site()

    def _give(self, e: "InEdge", content: "list[object]") -> None:
        v = e.edge.dst
        if e.edge.local:
            if content[0] == "close":
                e.close_soon()  # no answer of its producer is waited for
            self.host.decide(v, content)
        else:
            from . import decisions

            decisions.request(self.host, v, content)


def _bound(e: "InEdge") -> int:
    return max(e.limit, e.port.bound) if e.port else e.limit


# What changes with every entry and every boundary.
def _sign(e: "InEdge") -> tuple[int, int, int]:
    ring = e.port.ring if e.port else e.ring
    return e.inc, ring.last if ring else 0, _bound(e)
