# Words: what hosts tell each other of the operators that run on them, and how long each host was silent.
#
# Any genuine frame shows that its sender lives. Once per beat a host also says a word (WORD) to the hosts
# that care for its operators: which run there, under which epoch, whether each is in touch, and which hosts
# it has heard directly. Suspicion follows from silence and words alone (watching.py has what comes after it).
#
# Only operators with a backup host matter, and of those only the ones that this host may run, keeps
# checkpoints of, or may produce for. A host of a process without such operators never loads this module.
#
# All times are counted in milliseconds of this host's own clock, while it is awake. Time in which it hears no
# host at all counts one tenth: its own radio may be at fault. A host that sleeps counts its own period for
# each wake in which it heard any host (`sleep`, `hear`).
#
# Invariants.
#   - No clock of another host is compared with one of this host.
#   - A word counts only if it is newer than the last one of its sender's present boot.
#   - A word of an instance that is out of touch changes no belief about where an operator runs.
#   - What is kept is bounded: 17 bytes for each host and 11 for each operator that matter, and what
#     watching.py keeps of an operator while that is suspected.

from array import array

from ..board.unload import unload
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.moves import TAKEOVER
from ..protocol.position import EPOCH_MAX
from ..protocol.refusals import CONTENT
from ..storage.keyspace import F_SILENT
from .instance import STOPPED

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Message
    from .host import Host
    from .instance import Instance
    from .recoveries import Recovery
    from .watching import Suspect

_FAR = const(1 << 29)  # milliseconds; more is not counted
_NONE = const(255)
_NAMED_MAX = const(32)  # operators in one word: a field of a message has 64 numbers
_SLEEPS = const(1)  # flags of a word: its sender sleeps; it does not name all that run there
_MORE = const(2)
_NAMED = const(1)  # of an operator: the newest word of that host names it;
_MET = const(2)  # ... it was in touch under that epoch
_TENTH = const(10)  # of the time in which no host is heard counts


class Words:
    # The operators and the hosts that matter to this one: see relations.py.
    def __init__(self, host: "Host", operators: list[int], hosts: list[int]) -> None:
        self.host = host
        self.operators = bytes(operators)
        plan = host.plan
        _, dead, step = host.pace
        self.beat = host.period_us // 1000
        self.step = step // 1000
        self.took: list[int] = []  # how long the last operators took that began here, in milliseconds
        self.recovery: "Recovery | None" = None  # while operators begin here
        from . import recoveries

        self.least = recoveries.least(host, self.took)  # a host is not taken for dead sooner
        # Host number -> its place in the arrays; place 0 is of all hosts that do not matter.
        self.at = bytearray(len(plan.hosts))
        self.hosts = bytes(hosts)
        for i in range(len(self.hosts)):
            self.at[self.hosts[i]] = i + 1
        n = len(self.hosts) + 1
        self.silent = array("I", bytes(4 * n))  # since a sign of life, of the host itself or at one hop;
        self.mute = array("I", bytes(4 * n))  # ... of the host itself
        self.counts = array("I", bytes(4 * n))  # number of the newest word of the present boot, 0: none
        # Seconds between two reports: until it has told, those of this host.
        self.period = array("H", [min(65535, (self.beat + 999) // 1000)] * n)
        self.heard = bytearray(n)  # directly, since the last word of this host
        # Of each operator: the host that names it, or was to name it, number of the epoch there, _NAMED and
        # _MET, and for how long it has not been in touch there.
        k = len(operators)
        self.named = bytearray(b"\xff" * k)
        self.number = array("I", bytes(4 * k))
        self.state = bytearray(k)
        self.away = array("I", bytes(4 * k))
        self.count = 0  # of the words of this host
        self.listened = 0  # for how long this host has listened
        self.begun: dict[int, int] = {}  # operator here -> ... when it began in this boot
        self.apart: dict[int, int] = {}  # ... and has been out of touch since
        self.why: dict[int, int] = {}  # ... and why, until other hosts know (protocol/moves.py)
        self.near = 0  # since any host was heard
        self.now = host.now
        self.sleeps = 0  # seconds of its own period, where this host sleeps
        self.slept = 0  # to be counted when it hears any host
        self.suspects: "dict[int, Suspect]" = {}
        kept = host.store.get(F_SILENT)
        if kept:
            from . import sleeping

            sleeping.woken(self, kept)

    # ---- time

    # A genuine frame of this host arrived.
    def hear(self, sender: int) -> None:
        if self.slept:
            slept = self.slept
            self.slept = 0
            self._pass(slept)
        if self.near > self.least:
            self._deaf()
        k = self.at[sender]
        self.silent[k] = self.mute[k] = 0
        self.heard[k] = 1
        self.near = 0

    # This host hears again, after it heard none for longer than the patience with any: it knows nothing of
    # the others, as after a boot. Else those that come back last after a broker was away would count as dead.
    def _deaf(self) -> None:
        for k in range(len(self.silent)):
            if self.near <= self.patience(k):
                return
        for k in range(len(self.silent)):
            self.silent[k] = self.mute[k] = 0
        self.listened = 0
        self.begun.clear()
        self.apart.clear()

    # It was declared lost: nothing is waited for.
    def bury(self, number: int) -> None:
        k = self.at[number]
        if k:
            self.silent[k] = self.mute[k] = _FAR

    # It began a new boot: its words are counted from 1 again.
    def begins(self, sender: int) -> None:
        self.counts[self.at[sender]] = 0

    # To be called a few times in each step.
    def tick(self) -> None:
        host = self.host
        gone = (host.now - self.now) // 1000
        self.now += gone * 1000
        self.near = min(_FAR, self.near + gone)
        if self.near > self.beat + self.step:
            gone //= _TENTH
        self._pass(gone)
        if self.recovery and not self.recovery.goes_on(self, gone):
            from . import recoveries

            self.took = recoveries.last(self.took + self.recovery.took)
            self.least = recoveries.least(host, self.took)
            self.recovery = recoveries = None  # type: ignore[assignment]
            unload("runtime.recoveries")
        for i in range(len(self.operators)):
            v = self.operators[i]
            inst = host.instances.get(v)
            if inst is None:
                if self.suspected(i):
                    from . import watching

                    watching.look(host, self, v)
                else:
                    self.suspects.pop(v, None)
            elif inst.blind:
                from . import watching

                watching.look_late(host, self, inst)
            elif inst.epoch > host.where[v][:2] and self.touching(inst, True):
                from . import relocation

                # Every producer that lives has answered: the others may know of it.
                relocation.moved(host, v, inst.epoch, host.me, self.why.pop(v, TAKEOVER))
                self.say()
            elif self._apart(v, inst):
                from . import moving

                moving.apart(host, v)

    # Whether an operator here has been out of touch for as long as a silent host is waited for. Then again
    # only after as long.
    def _apart(self, v: int, inst: "Instance") -> bool:
        if self.touching(inst, False):
            self.apart.pop(v, None)
        elif self.listened - self.apart.setdefault(v, self.listened) > self.least:
            self.apart[v] = self.listened
            return True
        return False

    def _pass(self, ms: int) -> None:
        for times in (self.silent, self.mute, self.away):
            for i in range(len(times)):
                times[i] = min(_FAR, times[i] + ms)
        self.listened = min(_FAR, self.listened + ms)
        for s in self.suspects.values():
            s.wait(ms)

    # For how long a host is silent before it is taken for dead: so long that the delay that is asked for is
    # kept, if a recovery begins then; not so soon that three reports, or a message that is on its way, may be
    # missing.
    def patience(self, k: int) -> int:
        return max(self.least, 3 * max(self.beat, 1000 * self.period[k]), 2 * self.step)

    # Whether that host is silent for longer.
    def dead(self, number: int) -> bool:
        if number == self.host.me:
            return False
        k = self.at[number]
        return self.silent[k] > self.patience(k)

    # Operator v begins on this host: whoever waits for it hears of that before it is asked.
    def begin(self, v: int, why: int) -> None:
        self.begun[v] = self.listened
        self.why[v] = why
        if self.recovery is None:
            from . import recoveries

            self.recovery = recoveries.Recovery()
        self.recovery.begin(v)
        self.say()

    # The same for a host that this one hears itself, whatever others say.
    def unheard(self, number: int) -> bool:
        k = self.at[number]
        return number != self.host.me and self.mute[k] > self.patience(k)

    # ---- sleep: see sleeping.py

    # This host sleeps from now on, for so many seconds: the others learn that first.
    def sleeps_for(self, s: int) -> None:
        self.sleeps = s
        self.say()

    # It did sleep, and goes on with what it had counted: for how long it had listened, and [seconds, host] of
    # the hosts that were silent.
    def woke(self, sleeps: int, listened: int, silent: list[list[int]]) -> None:
        self.sleeps = sleeps
        self.slept = sleeps * 1000
        self.listened = listened * 1000
        for s, h in silent:
            self.silent[self.at[h]] = self.mute[self.at[h]] = s * 1000

    # ---- what this host says

    # Whether all open inputs of an operator here have answered, from hosts that are heard. least: those
    # count that are no feedback, and whose host is not silent.
    def touching(self, inst: "Instance", least: bool) -> bool:
        for e in inst.inputs:
            if e.closed:
                continue
            if least and (e.edge.delay_us or (e.port is None and self.dead(e.producer))):
                continue
            if e.port is None and self.unheard(e.producer) or not (e.contact or e.other):
                return False
        return not inst.blind

    # Say the word of this host, to every host that it concerns.
    def say(self) -> None:
        host = self.host
        plan = host.plan
        self.count += 1
        named: list[int] = []
        to = bytearray(len(plan.hosts))
        for v in self.operators:
            hosts: "Any" = plan.vertices[v].hosts if host.me in plan.vertices[v].hosts else ()
            inst = host.instances.get(v)
            if inst and inst.status != STOPPED and not inst.blind:
                named += [inst.epoch[0], 2 * v + int(self.touching(inst, False))]
                hosts = plan.keepers(v)
                for e in inst.inputs:
                    if e.port is None and not e.closed:
                        to[e.producer] = 1
            for h in hosts:
                to[h] = 1
        told = 4 * max((self.beat + 999) // 1000, self.sleeps)
        if self.sleeps:
            told += _SLEEPS
        if len(named) > 2 * _NAMED_MAX:
            named = named[: 2 * _NAMED_MAX]
            told += _MORE
        heard = 0
        for h in self.hosts:
            if self.heard[self.at[h]]:
                heard |= 1 << h
                self.heard[self.at[h]] = 0
        for h in range(len(to)):
            if to[h] and h != host.me:
                host.exchange.say(h, frames.WORD, 0, self.count, told, heard, named)

    # ---- what others say

    # A word of that host.
    def take(self, sender: int, count: int, told: int, heard: int, named: list[int]) -> None:
        k = self.at[sender]
        if not k or count <= self.counts[k]:
            return
        self.counts[k] = count
        self.period[k] = min(told >> 2, 65535)
        if not told & _SLEEPS:
            for h in self.hosts:  # one hop: what it heard directly counts as heard here
                if heard >> h & 1 and h not in self.host.lost:
                    self.silent[self.at[h]] = 0
        for i in range(len(self.operators)):
            v = self.operators[i]
            number = 0
            for j in range(0, len(named), 2):
                if named[j + 1] >> 1 == v:
                    number = named[j]
                    self._name(i, sender, number, named[j + 1] & 1)
            if number or told & _MORE:
                continue
            if self.named[i] == sender:
                self.state[i] = 0  # `away` goes on
            elif self.host.where[v][2] == sender and not self.runs(i):
                self.named[i] = sender
                self.number[i] = self.state[i] = self.away[i] = 0

    # The word names operator i. One out of touch replaces none that is in touch.
    def _name(self, i: int, sender: int, number: int, touches: int) -> None:
        v = self.operators[i]
        epoch = (number, sender)
        here = self.named[i]
        if here != sender:
            newer = epoch > (self.number[i], here)
            if here != _NONE and self.runs(i) and not (touches and newer):
                return
            self.named[i] = sender
            self.state[i] = 0
        if self.number[i] != number or not self.state[i]:
            self.state[i] = self.away[i] = 0  # it has begun, and has this long to come in touch
        self.number[i] = number
        self.state[i] |= _NAMED
        if touches:
            self.state[i] |= _MET
            self.away[i] = 0
            self.host.heard_where(v, epoch, sender)

    # ---- what follows

    # Whether words say that operator i runs in touch.
    def runs(self, i: int) -> bool:
        h = self.named[i]
        if h == _NONE or self.state[i] != _NAMED + _MET or self.dead(h):
            return False
        return self.away[i] <= self.patience(self.at[h])

    # What words say of operator v: the host that names it, or was to name it, -1 if none; number of the epoch
    # there; whether the newest word names it; for how long it has not been in touch.
    def known(self, v: int) -> tuple[int, int, bool, int]:
        i = self.operators.find(bytes((v,)))
        h = self.named[i]
        named = h != _NONE and self.state[i] & _NAMED > 0
        return -1 if h == _NONE else h, self.number[i], named, self.away[i]

    # Whether operator i, which does not run here, is suspected of running nowhere, and this host may run it.
    def suspected(self, i: int) -> bool:
        host = self.host
        v = self.operators[i]
        if host.me not in host.plan.vertices[v].hosts:
            return False
        there = host.where[v][2]
        if there == host.me or self.dead(there):
            return True
        return self.named[i] == there and self.away[i] > self.patience(self.at[there])


def _on_word(host: "Host", sender: int, m: "Message") -> None:
    _, count, told, heard, named = m
    plan = host.plan
    ok = len(named) % 2 == 0 and 0 < count <= EPOCH_MAX and told < 1 << 20
    for j in range(0, len(named) - 1, 2):
        v = named[j + 1] >> 1
        ok = ok and v < len(plan.vertices) and plan.may_run(v, sender) and 0 < named[j] <= EPOCH_MAX
    if ok:
        host.words.take(sender, count, told, heard, named)
    else:
        host.count(CONTENT)


HANDLERS = {frames.WORD: _on_word}
