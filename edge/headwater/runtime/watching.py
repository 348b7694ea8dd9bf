# Watching: an operator is suspected of running nowhere. This host, a candidate, asks before it takes it over.
#
#   suspected     its host is silent, or does not name it, or names it as out of touch (words.py)
#   asking        TAKE goes to the hosts of the producers of its open inputs, once per step
#   taking over   after (rank + 1) steps, if one answered SILENT and none ALIVE; or where all answered, one of
#                 them SILENT for three times the patience: then its host has lost that link permanently
#   blind         no producer answered for ten times the patience. What this host keeps may be the only copy
#                 of results, so the operator begins here, for consumers on this host, and tells no other one
#   blind, asking it asks every host that it hears, and lets go at ALIVE. At SILENT it begins in earnest: soon
#                 if a producer said so, if it owes another host results, or if all other candidates were
#                 declared lost; else after ten times the patience
#
# The answers. ALIVE: the instance itself speaks to this producer, or words say that it runs in touch. UNKNOWN
# is no answer: this host has not listened for long enough since its boot, or since the producer began here.
# SILENT: otherwise. Asking changes nothing.
#
# Invariants.
#   - No operator is taken over while a producer that was reached says ALIVE, but for the second rule above.
#   - Two candidates of an operator have different ranks.
#   - The epoch of a takeover is above every epoch that was told.
#   - A blind instance has raised no epoch at any other host: letting it go leaves no trace there.
#   - An instance of which a candidate hears, and whose epoch is over, hears of the newer one.

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.refusals import NO_HEAP
from .instance import STOPPED

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Message
    from .host import Host
    from .instance import Instance
    from .words import Words

UNKNOWN = 0
SILENT = 1
ALIVE = 2
_BLIND_TIMES = const(10)
_FULL_TIMES = const(3)
_BLIND = const(1)  # what is waited for, beside the rank: no producer has answered
_FULL = const(2)  # all have, and not all of them hear the instance
_NO_HEAP_US = const(60000000)  # a host without room for an operator leaves it to others for so long


# What is known of a suspected operator. Times are counted by Words.
class Suspect:
    def __init__(self, v: int) -> None:
        self.v = v
        self.age = 0  # since it was suspected
        self.waits = 0  # _BLIND, _FULL or 0, and for how long
        self.long = 0
        self.asked = -1  # when producers were asked last
        self.since = -1  # when the first answer came to a blind instance
        self.answers: dict[int, tuple[int, int]] = {}  # host -> state, when
        self.epoch: "Epoch" = (0, 0)  # the newest that any has told
        self.hosts: list[int] = []  # of the producers of its open inputs,
        self.back: list[int] = []  # and others that may say ALIVE

    def wait(self, ms: int) -> None:
        self.age += ms
        if self.waits:
            self.long += ms

    # What is waited for from now on; the wait begins again where that is something else.
    def wait_for(self, what: int) -> None:
        if self.waits != what:
            self.waits = what
            self.long = 0

    # Producers are asked now.
    def ask(self, hosts: list[int], back: list[int]) -> None:
        self.hosts = hosts
        self.back = back
        self.asked = self.age

    # The parts of an answer, as `lives` gives them.
    def answer(self, sender: int, state: int, epoch: "Epoch") -> None:
        self.answers[sender] = (state, self.age)
        self.epoch = max(self.epoch, epoch)

    # A blind instance has had its first answer.
    def begin(self) -> None:
        if self.since < 0:
            self.since = self.age

    # The answers that count, of these hosts.
    def fresh(self, hosts: list[int], ms: int) -> list[int]:
        found = []
        for h in hosts:
            state, at = self.answers.get(h, (UNKNOWN, 0))
            if state != UNKNOWN and self.age - at <= ms:
                found.append(state)
        return found

    # What a host that sleeps keeps of it.
    def kept(self) -> list[int]:
        return [self.v, self.age // 1000, self.waits, self.long // 1000]

    # ... and goes on with.
    def resume(self, age: int, waits: int, long: int) -> None:
        self.age = age * 1000
        self.waits = waits
        self.long = long * 1000


def again(words: "Words", kept: list[int]) -> None:
    v, age, waits, long = kept
    s = words.suspects[v] = Suspect(v)
    s.resume(age, waits, long)


# ---- what words say


# Whether the newest word of that host, or of any, names operator v, in touch or not, and it is heard.
def named_by(words: "Words", v: int, number: int = -1) -> bool:
    h, _, named, _ = words.known(v)
    return number in (-1, h) and named and not words.dead(h)


# Whether a newer epoch of operator v than the one that is believed to run has begun somewhere, and may yet
# come to be in touch.
def begins_anew(words: "Words", v: int) -> bool:
    h, number, _, away = words.known(v)
    if not named_by(words, v) or (number, h) <= words.host.where[v][:2]:
        return False
    return away <= words.patience(words.at[h])


# ---- at a candidate


# The place of this host among those that may run it. One that sleeps comes after all others. Each host's
# depends on itself alone, so no two are equal whatever they believe of each other.
def rank(words: "Words", v: int) -> int:
    hosts = words.host.plan.vertices[v].hosts
    return hosts.index(words.host.me) + (len(hosts) if words.sleeps else 0)


# Operator v is suspected: ask, or take it over.
def look(host: "Host", words: "Words", v: int) -> None:
    if host.refused_by.get(v * 256 + host.me, 0) > host.now:
        return
    s = words.suspects.get(v)
    if s is None:
        s = words.suspects[v] = Suspect(v)
    if s.asked < 0 or s.age - s.asked >= words.step // 2:
        hosts, back = producers(host, v)
        if s.waits == _BLIND:
            # Another candidate may have begun blind: it says so if it is asked.
            others = host.plan.vertices[v].hosts
            back += [h for h in others if h not in hosts + back + [host.me] and not words.dead(h)]
        s.ask(hosts, back)
        _ask(host, words, s, s.hosts + s.back, host.where[v][:2])
    ranked = rank(words, v) * words.step
    patience = words.patience(words.at[host.where[v][2]])
    answers = s.fresh(s.hosts, words.step)
    if begins_anew(words, v):
        s.wait_for(0)
        return
    if ALIVE in answers or ALIVE in s.fresh(s.back, words.step):
        s.wait_for(_FULL if SILENT in answers and len(answers) == len(s.hosts) else 0)
        if not s.waits or s.long < _FULL_TIMES * patience + ranked:
            return
    elif named_by(words, v, host.where[v][2]) and not answers:
        s.wait_for(0)  # it lives, and nothing would feed it here either
        return
    elif answers:
        s.wait_for(0)
        if s.age < ranked + words.step:
            return
    else:
        s.wait_for(_BLIND)
        if s.long < (_BLIND_TIMES + rank(words, v)) * patience:
            return  # the next one waits until this one is known, which takes longer than where producers are
    take(host, words, s, not answers)


# Begin here, above every epoch that is known.
def take(host: "Host", words: "Words", s: Suspect, blind: bool) -> None:
    from . import lifecycle

    v = s.v
    known = lifecycle.noted(host, v)
    number = max(host.where[v][0], s.epoch[0], known[0][0] if known else 0) + 1
    assert v not in host.instances, "an operator that runs here is taken over"
    del words.suspects[v]
    try:
        host.takeover(v, number, blind)
    except MemoryError:
        if v in host.instances:
            raise  # it has begun: a restart has more room for it
        host.count(NO_HEAP)
        host.refused_by[v * 256 + host.me] = host.now + _NO_HEAP_US


# The hosts of the producers of its open inputs, as the furthest checkpoint here defines them; and the hosts
# that only feed back to it: an instance that hears no other producer could take nothing, so their silence is
# no reason to begin one.
def producers(host: "Host", v: int) -> tuple[list[int], list[int]]:
    from ..storage import checkpoint_file
    from . import incoming

    closed: "list[Any]" = []
    key = incoming.newest(host, v)[0]
    found = checkpoint_file.read_beginning(host.plan.vertices[v], host.store, key) if key else None
    if found:
        closed = [flag[0] for flag in found.inputs]
    hosts: list[int] = []
    back: list[int] = []
    ins = host.plan.ins(v)
    for k in range(len(ins)):
        src = ins[k].src
        at = host.me if (src, ins[k].sport) in host.ports else host.where[src][2]
        if not (closed and closed[k]):
            (back if ins[k].delay_us else hosts).append(at)
    return sorted(set(hosts)), [h for h in back if h not in hosts]


def _ask(host: "Host", words: "Words", s: Suspect, hosts: list[int], epoch: "Epoch") -> None:
    v = s.v
    for h in hosts:
        if h == host.me:
            s.answer(h, *lives(host, words, v, epoch))
        else:
            host.exchange.say(h, frames.TAKE, v, v, epoch)


def _on_lives(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, state = m
    if host.taking:
        host.taking.heard(sender, v, tuple(epoch))
    s = host.words.suspects.get(v)
    if s is None:
        return
    s.answer(sender, state, tuple(epoch))
    inst = host.instances.get(v)
    if state == ALIVE and not inst:
        if tuple(epoch) < host.where[v][:2]:
            host.tell_where(epoch[1], v)  # else it lives on, and who knows better never hears it
        else:
            host.heard_where(v, tuple(epoch), epoch[1])


# ---- an instance that began without any producer


# Ask every host that is heard and may know of it.
def look_late(host: "Host", words: "Words", inst: "Instance") -> None:
    v = inst.vertex.index
    s = words.suspects.get(v)
    if s is None:
        s = words.suspects[v] = Suspect(v)
    plan = host.plan
    asked = [e.producer for e in inst.inputs if e.port is None] + plan.keepers(v)
    asked += [host.where[e.dst][2] for e in plan.edges if e.src == v and e.dst >= 0] + [0]
    asked = [h for h in asked if h >= 0 and h != host.me and not words.dead(h)]
    if s.asked < 0 or s.age - s.asked >= words.step // 2:
        s.ask(asked, [])
        _ask(host, words, s, asked, inst.epoch)
    answers = s.fresh(asked, words.step)
    if ALIVE in answers or named_by(words, v):
        from . import relocation

        relocation.release(host, inst)
        del words.suspects[v]
        return
    # Where a person has declared all others lost that may run it, nobody is left to answer.
    alone = not [h for h in inst.vertex.hosts if h != host.me and h not in host.lost]
    if answers or alone:
        s.begin()
        # Where it owes other hosts nothing, nothing is lost while it waits for its host to come back.
        hosts = [e.producer for e in inst.inputs]
        soon = alone or s.fresh(hosts, words.step) or _owes(inst)
        long = 2 * words.step if soon else _BLIND_TIMES * words.patience(words.at[host.where[v][2]])
        if s.age - s.since >= long:
            from . import relocation

            del words.suspects[v]
            relocation.reveal(host, inst)


# Whether a consumer on another host has not all that a blind instance has put out.
def _owes(inst: "Instance") -> bool:
    return any([not r.local and r.safe < p.ring.last for p in inst.ports for r in p.readers])


# ---- at a producer, and at any host that a blind instance asks


# (state, epoch): of the instance that lives, otherwise the newest epoch that is known here.
# asked: the epoch of the blind instance that asks; of two of them the higher one stays.
def lives(host: "Host", words: "Words", v: int, asked: "Epoch") -> "tuple[int, Epoch]":
    inst = host.instances.get(v)
    if inst and inst.status != STOPPED and (not inst.blind or inst.epoch > asked):
        return ALIVE, inst.epoch
    i = words.operators.find(bytes((v,)))
    if i >= 0 and words.runs(i):
        # What lives may be over, and not have heard of that.
        return ALIVE, max((words.number[i], words.named[i]), host.where[v][:2])
    epoch = host.where[v][:2]
    began = -1
    for e in host.plan.ins(v):
        port = host.ports.get((e.src, e.sport))
        if port is None:
            continue
        r = port.reader(e)
        if _speaks(words, i, r):
            return ALIVE, r.epoch
        epoch = max(epoch, r.epoch)
        at = words.begun.get(e.src, 0)
        began = at if began < 0 else min(began, at)
    if words.listened - max(0, began) <= _longest(words, i, v):
        return UNKNOWN, epoch
    return SILENT, epoch


# Whether the consumer has spoken to this port, and its host lives and does not deny that it runs there.
def _speaks(words: "Words", i: int, r: "Any") -> bool:
    if not r.live or words.unheard(r.host):
        return False
    denied = i >= 0 and words.named[i] == r.host and not words.state[i]
    return not denied or words.away[i] <= words.patience(words.at[r.host])


# The patience with the host of the operator.
def _longest(words: "Words", i: int, v: int) -> int:
    return words.patience(words.at[words.host.where[v][2]])


def _on_take(host: "Host", sender: int, m: "Message") -> None:
    v = m[1]
    asked = tuple(m[2])
    for e in host.plan.ins(v):
        port = host.ports.get((e.src, e.sport))
        r = port.reader(e) if port else None
        if r and r.live and r.host == sender and r.epoch <= asked:
            r.lose()  # whoever asks does not run it any more
    state, epoch = lives(host, host.words, v, asked)
    host.exchange.say(sender, frames.LIVES, v, v, epoch, state)


HANDLERS = {frames.TAKE: _on_take, frames.LIVES: _on_lives}
