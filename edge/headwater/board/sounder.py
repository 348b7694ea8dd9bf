# What sounds the alarms of a board: its buzzer and its LED, as its settings describe them.
#
# An actuator may serve several alarms: it is on while any of them sounds. A board whose settings lack one
# runs its process all the same, and its status says which alarm cannot be heard.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.signals import BY_LEVEL

if TYPE_CHECKING:
    from typing import Any

    from ..runtime.signals import Signals
    from .program import Node


class Sounder:
    def __init__(self, node: "Node", signals: "Signals") -> None:
        self.node = node
        self.signals = signals
        self.made: "dict[str, Any]" = {}  # name -> actuator, or None where the board has none
        self.on: dict[str, bool] = {}
        for s in signals.mine:
            name = s.alarm.driver
            if name not in self.made:
                self.made[name] = self._make(name)
                self.on[name] = False

    def _make(self, name: str) -> "Any":
        node = self.node
        settings = node.config["actuators"].get(name)
        makers = getattr(node.board, "actuators", {})
        if settings is None or name not in makers:
            node.board.say("%s: no %s in its settings: an alarm cannot be heard" % (node.name, name))
            return None
        try:
            made = makers[name](settings)
            made.set(False)
            return made
        except (OSError, ValueError, KeyError, TypeError) as e:
            node.board.say("%s: %s: %s: an alarm cannot be heard" % (node.name, name, e))
        return None

    # To be called a few times a second, after the host.
    def tick(self) -> None:
        for name in self.made:
            on = False
            why = ""
            for s in self.signals.mine:
                if s.alarm.driver == name and s.sounds():
                    on = True
                    what = "level" if s.cause & BY_LEVEL else "silent"
                    why += " %s (%s)" % (s.alarm.name, what)
            if on != self.on[name]:
                self.on[name] = on
                self.node.board.say("%s %s: %s" % (self.node.name, name, "alarm" + why if on else "quiet"))
                if self.made[name]:
                    self._set(name, on)

    def _set(self, name: str, on: bool) -> None:
        try:
            self.made[name].set(on)
        except (OSError, ValueError) as e:
            self.node.board.say("%s: %s: %s" % (self.node.name, name, e))

    # Of each alarm: its number, why it is on, seconds that it stays muted, whether it can be heard.
    def status(self) -> list[list[int]]:
        return [
            [s.alarm.index, s.cause, (s.muted + 999) // 1000, int(bool(self.made[s.alarm.driver]))]
            for s in self.signals.mine
        ]
