# HealthAnalyzer: an alarm when a combination of inputs leaves its limits.
#
# Each input has one name and two limits, smallest and largest; it is outside while its newest value
# is. The alarm goes on when at least `need` inputs are outside (0: all of them) and off when fewer
# are; an element is put out at each change only: alarm 1 or 0, the inputs that are outside as bits (port
# 0 is bit 0), and the value that made the difference. An input without a value yet is inside.
#
# A hole changes nothing: an input that was outside stays so until its next value. New limits judge
# the next value of each input.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..data.alphabet import Alphabet
    from ..offboard.interfaces import Params, Port, Ports


class HealthAnalyzer(Operator):
    """An alarm when at least `need` inputs are outside their limits: `HealthAnalyzer(rate=(40,
    180), effort=(0, 900))(rate, effort)`. An element is given at each change only: `alarm` 1 or 0,
    the inputs that are outside as bits, and the value that made the difference. An input that has
    given nothing yet is inside.

    Parameters: limits of each input by name, `need=1` ("any", "all" or a number)

    At a hole: passes, and changes nothing.
    """

    PARAMS = "names:text limits:ints need:u8=1"
    STATE = "outside:u16 alarm:u8"
    CATEGORY = "alarms"
    names: str
    limits: "Sequence[int]"
    need: int
    outside: int
    alarm: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        names = params["names"].split()
        ins = fields.inputs("HealthAnalyzer", ins, 1, True)
        if len(ins) != len(names):
            raise OperatorError(
                "HealthAnalyzer has limits for %d inputs (%s) and is connected to %d streams"
                % (len(names), ", ".join(names), len(ins))
            )
        for p in range(len(ins)):
            cls.place(ins[p], names[p], p)
        return tuple([a.text for a in ins]), ("alarm:u8 inputs:u16 value:i32",)

    # Of an input with several fields, the one with the input's name counts.
    @classmethod
    def place(cls, a: "Alphabet", name: str, port: int) -> int:
        return fields.index("HealthAnalyzer", a, name if name in a.names else "", port)

    def setup(self) -> None:
        names = self.names.split()
        fields.within("HealthAnalyzer", "number of inputs", len(names), 1, 16)
        fields.within("HealthAnalyzer", "need", self.need, 0, len(names))
        if len(names) != len(self.ins):
            raise OperatorError("HealthAnalyzer: the inputs cannot change at run time")
        if len(self.limits) != 2 * len(names):
            raise OperatorError(
                "HealthAnalyzer: %d limits for %d inputs; give two for each" % (len(self.limits), len(names))
            )
        for p in range(len(names)):
            if self.limits[2 * p] > self.limits[2 * p + 1]:
                raise OperatorError(
                    "HealthAnalyzer: limits of '%s' are %d to %d: the smaller one comes first"
                    % (names[p], self.limits[2 * p], self.limits[2 * p + 1])
                )
        self.at_fields = [self.place(self.ins[p], names[p], p) for p in range(len(names))]
        self.next = [0] * len(names)

    def run(self, x: "Any", n: int) -> int:
        ports = len(self.next)
        # One input is no merge: its batch has no port column.
        single = ports == 1
        port: "Any" = None if single else x.port
        limits = self.limits
        nxt = self.next
        at_fields = self.at_fields
        need = self.need or ports
        outside = self.outside
        alarm = self.alarm
        on, inputs, value = self.y.cols
        at = self.y.at
        for p in range(ports):
            nxt[p] = 0
        j = 0
        p = 0
        for i in range(n):
            if single:
                v = x.cols[at_fields[0]][i]
            else:
                p = port[i]
                v = x.cols[p][at_fields[p]][nxt[p]]
                nxt[p] += 1
            if limits[2 * p] <= v <= limits[2 * p + 1]:
                outside &= ~(1 << p)
            else:
                outside |= 1 << p
            many = 0
            b = outside
            while b:
                b &= b - 1
                many += 1
            if (many >= need) != alarm:
                alarm = 1 - alarm
                on[j] = alarm
                inputs[j] = outside
                value[j] = -2147483648 if v < -2147483648 else 2147483647 if v > 2147483647 else v
                at[j] = i
                j += 1
        self.outside = outside
        self.alarm = alarm
        return j
