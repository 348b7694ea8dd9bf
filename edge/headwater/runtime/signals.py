# Signals: alarms that a board raises itself, by a buzzer or an LED, also while the gateway is dead.
#
# The host where the stream is produced tells the board of the alarm (ALARM) as long as the stream goes on: by
# an entry, or by a boundary, which says that none was due. It tells at once when the field of the newest
# entry becomes zero, or is not zero any more, and otherwise a few times in `silent_ms`. The board counts by
# its own clock how long it has heard nothing.
#
# This is an effect outside the merge: it has no log and no stream time, no checkpoint waits for it, and a
# board that does not listen delays nobody. What is lost is told again.
#
# Promises.
#   - What sounds is in flash, so it sounds again after a restart, until the cause is known to be over.
#   - A mute is not in flash: after a restart the board sounds.
#   - A host whose process has no alarm that concerns it never loads this module.

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..storage.keyspace import F_ALARMS
from .instance import RUNNING

if TYPE_CHECKING:
    from ..offboard.interfaces import Message
    from ..plan.alarms import Alarm
    from .host import Host

LEVEL = (
    0  # what an ALARM tells: the stream goes on, and its field is not zero (1), zero (0), or as it was (2);
)
MUTE = 1  # the gateway: no sound for so many seconds
BY_LEVEL = 1  # why an alarm sounds, added up
BY_SILENCE = 2

_FAR = const(1 << 29)  # milliseconds; more is not counted
_MUTE_S_MAX = const(86400)
_AS_IT_WAS = const(2)
_PARTS = const(3)  # of silent_ms: a sign of life is told this often


# What a boot begins with is no sign of life, nor is the first boundary that it computes from that.
def _begins(old: "tuple[int, int, int] | None", sign: tuple[int, int, int]) -> bool:
    return old is None or old[2] == 0 and sign[:2] == old[:2]


# An alarm of this board.
class Sounding:
    def __init__(self, alarm: "Alarm", cause: int) -> None:
        self.alarm = alarm
        self.cause = cause  # BY_LEVEL and BY_SILENCE, as they are in flash
        self.level = cause & BY_LEVEL
        self.silent = alarm.silent_ms if cause & BY_SILENCE else 0  # milliseconds without a sign
        self.muted = 0  # milliseconds that it stays so
        self.sign: "tuple[int, int, int] | None" = None  # of a stream that is produced here

    def hear(self, what: int, value: int) -> None:
        if what == MUTE:
            self.muted = value * 1000
            return
        self.silent = 0
        if self.alarm.field >= 0 and value != _AS_IT_WAS:
            self.level = value

    # Whether a stream that is produced here has gone on.
    def here(self, sign: tuple[int, int, int]) -> bool:
        gone = not _begins(self.sign, sign) and sign != self.sign
        self.sign = sign
        return gone

    # Time passes. True where it sounds for another reason than before, or does not any more.
    def passes(self, ms: int) -> bool:
        self.silent = min(_FAR, self.silent + ms)
        self.muted = max(0, self.muted - ms)
        limit = self.alarm.silent_ms
        cause = self.level + (BY_SILENCE if limit and self.silent >= limit else 0)
        if not cause:
            self.muted = 0  # the next one is another alarm
        if cause == self.cause:
            return False
        self.cause = cause
        return True

    def sounds(self) -> bool:
        return self.cause > 0 and not self.muted


# What is told of a stream that is produced here.
class Told:
    def __init__(self) -> None:
        self.sign: "tuple[int, int, int] | None" = None  # incarnation, last entry, boundary
        self.level = _AS_IT_WAS
        self.us = 0  # when it was told last

    # Whether it is to be told now.
    def tells(self, sign: tuple[int, int, int], level: int, now: int, every_us: int) -> bool:
        if _begins(self.sign, sign):
            self.sign = sign
        if sign == self.sign or level == self.level and now - self.us < every_us:
            return False
        self.sign = sign
        self.level = level
        self.us = now
        return True


class Signals:
    def __init__(self, host: "Host") -> None:
        self.host = host
        self.now = host.now
        plan = host.plan
        kept = host.store.get(F_ALARMS) or b""
        self.mine = [
            Sounding(a, kept[a.index] if a.index < len(kept) else 0) for a in plan.alarms if a.host == host.me
        ]
        self.told = {
            a.index: Told() for a in plan.alarms if a.host != host.me and plan.may_run(a.src, host.me)
        }

    # To be called a few times a second.
    def tick(self) -> None:
        host = self.host
        gone = (host.now - self.now) // 1000
        self.now += gone * 1000
        for a in host.plan.alarms:
            if a.index in self.told:
                self._tell(a)
        changed = False
        for s in self.mine:
            self._listen(s)
            changed = s.passes(gone) or changed
        if changed:
            kept = bytearray(len(host.plan.alarms))
            for s in self.mine:
                kept[s.alarm.index] = s.cause
            host.store.put(F_ALARMS, bytes(kept))

    # The sign of life of a stream that is produced here, and its level as LEVEL tells it; None where it is
    # produced elsewhere.
    def _look(self, a: "Alarm") -> "tuple[tuple[int, int, int], int] | None":
        host = self.host
        port = host.ports.get((a.src, a.sport))
        if port is None:
            return None
        inst = host.instances.get(a.src)
        if inst and (inst.status != RUNNING or inst.blind):
            return None
        value = port.ring.newest(a.field) if a.field >= 0 else None
        return (port.inc, port.ring.last, port.bound), _AS_IT_WAS if value is None else int(value != 0)

    def _tell(self, a: "Alarm") -> None:
        found = self._look(a)
        told = self.told[a.index]
        every = self.host.pace[0]
        if a.silent_ms:
            every = min(every, a.silent_ms * 1000 // _PARTS)
        if found:
            level = told.level if found[1] == _AS_IT_WAS else found[1]
            if told.tells(found[0], level, self.host.now, every):
                self.host.exchange.say(a.host, frames.ALARM, (a.index, LEVEL), a.index, LEVEL, level)

    # The same where the stream is produced on the board of the alarm.
    def _listen(self, s: Sounding) -> None:
        found = self._look(s.alarm)
        if found and s.here(found[0]):
            s.hear(LEVEL, found[1])

    # Whether the entries or boundaries of this stream are of interest although no consumer waits for them.
    def watches(self, v: int) -> bool:
        return any([a.src == v for a in self.host.plan.alarms])

    # Whether a host may say this to this one.
    def may_say(self, sender: int, m: "Message") -> bool:
        plan = self.host.plan
        if m[1] >= len(plan.alarms) or plan.alarms[m[1]].host != self.host.me:
            return False
        if m[2] == MUTE:
            return sender == 0 and m[3] <= _MUTE_S_MAX
        return m[2] == LEVEL and m[3] <= _AS_IT_WAS and plan.may_run(plan.alarms[m[1]].src, sender)

    def hear(self, m: "Message") -> None:
        for s in self.mine:
            if s.alarm.index == m[1]:
                s.hear(m[2], m[3])

    # At the gateway: let an alarm of a board be silent for so long, as it may hear or not.
    def mute(self, index: int, seconds: int) -> None:
        a = self.host.plan.alarms[index]
        self.host.exchange.say(a.host, frames.ALARM, (index, MUTE), index, MUTE, min(seconds, _MUTE_S_MAX))


def _on_alarm(host: "Host", sender: int, m: "Message") -> None:
    host.signals.hear(m)


HANDLERS = {frames.ALARM: _on_alarm}
