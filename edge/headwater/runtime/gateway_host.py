# The host of a gateway: what a person, or the gateway itself, has the hosts of a process do. A board never
# loads this.

from ..offboard.compat import TYPE_CHECKING
from .host import Host

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Params


class GatewayHost(Host):
    def __init__(self, *args: "Any") -> None:
        Host.__init__(self, *args)
        self.safe_us = 0  # when any end of an edge to the lake acknowledged last

    # An end of an edge to the lake acknowledges now. The others wait for it, and do it at the same time.
    def acknowledged(self) -> None:
        self.safe_us = self.now

    # ---- planned moves

    # Let the gateway ask the host of operator v to hand it over; `asked` has the outcome.
    def ask_move(self, v: int, to: int, now: int) -> None:
        from . import moving

        self.now = now
        moving.ask(self, v, to)
        self.pump()

    # ---- hosts that are lost

    # A person says that this host is lost, with all that it stored under that log number.
    def lose(self, number: int, log: int) -> None:
        from . import losses

        losses.declare(self, number, log)

    # Operator v waits at host `at`, under an epoch with this number, for a checkpoint that only lost hosts
    # have. It goes on without.
    def give_up(self, v: int, at: int, number: int, now: int) -> None:
        from . import giving_up

        self.now = now
        giving_up.say(self, v, at, number)
        self.pump()

    # ---- decisions. ValueError says why a change cannot be made, or not now.

    # Change parameters of an operator while it runs; the number of the change.
    def configure(self, v: int, params: "Params") -> int:
        from .. import operators
        from . import decisions

        vertex = self.plan.vertices[v]
        # What it refuses here, with all changes that are made already, it would refuse later.
        op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, 1)
        decisions.follow(self, v, op)
        op.configure(params)
        return decisions.config(self, v, ["set", params])

    # Let a join go on without an input whose producer is dead, and take it back.
    def close(self, v: int, port: int) -> int:
        return self._config(v, ["close", port])

    def reopen(self, v: int, port: int, inc: int, from_ts: int) -> int:
        return self._config(v, ["open", port, inc, from_ts])

    def _config(self, v: int, content: "list[Any]") -> int:
        from . import decisions

        return decisions.config(self, v, content)

    # True while it is not known of every operator what changes have set.
    @property
    def learning(self) -> bool:
        return bool(self.unlearned)
