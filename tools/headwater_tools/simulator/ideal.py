"""The ideal run: the same process on one immortal machine, an entry at a time.

An independent statement of what the runtime promises: it shares the operators and nothing else. The
real lake must hold a prefix of what comes out here with every boundary at infinity, and at least
what comes out with the boundaries that the sources really gave.
"""

from __future__ import annotations

from typing import Any

from headwater import operators
from headwater.data.batch import Batch
from headwater.plan.model import FLASH, OUTSIDE, SPILL, Edge, Plan, Vertex
from headwater.runtime.merge import Merged
from headwater.runtime.operator import OperatorError

from .world import Entry

FAR = 1 << 62
_AFTER_US = 1000000000  # timers are due within this after the last entry
Ends = dict[int, tuple[int, int]]  # edge -> (incarnation, or 0: any; entries of it that can be had)


class Line:
    """One output stream: its entries, all of them kept."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []


class Machine:
    """One operator."""

    def __init__(self, run: Ideal, v: Vertex) -> None:
        self.run = run
        self.vertex = v
        self.op = operators.find(v.kind)(v.params, v.ins, v.outs, 1)
        self.edges = run.plan.ins(v.index)
        self.closed = [False] * len(self.edges)
        self.shut = [0] * len(self.edges)  # entries that an input had taken when it was closed
        self.from_ts = [0] * len(self.edges)
        self.incs = [run.first(v.index, p, e) for p, e in enumerate(self.edges)]
        self.taken = [run.begun.get((e.src, inc), 0) for e, inc in zip(self.edges, self.incs, strict=True)]
        # Of an input: up to which entry all that follows what was taken is older than its reopening, with
        # that and its incarnation; and up to which it was skipped, with the number of decisions then.
        self.older = [(0, 0, 0)] * len(self.edges)
        self.gone = [(0, 0)] * len(self.edges)
        self.fired = 0
        self.decided = 0
        self.windows = [Batch(run.plan.vertices[e.src].outs[e.sport], 1) for e in self.edges]
        self.single = len(self.vertex.ins) == 1 and not self.edges[0].delay_us
        self.full: list[tuple[int, list[Entry], list[tuple[Machine, int]]]] = []  # of outputs with a bound
        self.course = list(run.courses.get(v.index, ()))
        self.lines = [run.lines[v.index, k] for k in range(len(v.outs))]

    def head(self, p: int) -> Entry | None:
        e = self.edges[p]
        line = self.run.entries(e.src, e.sport, self.incs[p])
        at = self.ahead(p)
        return line[at] if at < self.last(p) and not self.closed[p] else None

    def last(self, p: int) -> int:
        """Entries of an input that there are."""
        e = self.edges[p]
        end = self.end(p)
        have = len(self.run.entries(e.src, e.sport, self.incs[p]))
        return min(end, have) if end >= 0 else have

    def ahead(self, p: int) -> int:
        """The next entry of an input that counts: entries older than the reopening of the input are skipped,
        and when that happens makes no difference."""
        e = self.edges[p]
        at = self.taken[p]
        if self.from_ts[p] and not self.closed[p]:
            line = self.run.entries(e.src, e.sport, self.incs[p])
            last = self.last(p)
            if self.older[p][1:] == (self.from_ts[p], self.incs[p]):
                at = max(at, self.older[p][0])
            while at < last and line[at][0] < self.from_ts[p]:
                at += 1
            self.older[p] = (at, self.from_ts[p], self.incs[p])
        return at

    def stands_at(self, pos: list[int]) -> bool:
        """Whether this is the position, except for entries that are skipped, or dropped by a closed input."""
        if pos[-2:] != [self.fired, self.decided]:
            return False
        streams = zip(pos[:-2], self.edges, self.incs, strict=True)
        # 0 is before its first entry, also if that has another number.
        place = [max(xi, self.run.begun.get((e.src, inc), 0)) for xi, e, inc in streams]
        for p, xi in enumerate(place):
            if xi != self.taken[p] and not self.taken[p] < xi <= (xi if self.closed[p] else self.ahead(p)):
                return False
        self.taken = place
        return True

    def end(self, p: int) -> int:
        """How many entries of an input exist if its producer's log is gone, else -1."""
        inc, end = self.run.ends.get(self.edges[p].index, (-1, 0))
        return end if inc in (0, self.incs[p]) else -1

    def produced(self, p: int) -> int:
        """Nothing below this follows on input p, delays left aside."""
        e = self.edges[p]
        end = self.end(p)
        line = self.run.entries(e.src, e.sport, self.incs[p])
        if end < 0 or end > len(line):
            return self.run.bound(e.src, self.incs[p])
        return line[end - 1][0] if end else 0

    def bound(self, p: int) -> int:
        return FAR if self.closed[p] else self.produced(p) + self.edges[p].delay_us

    def frontier(self) -> int:
        low = FAR
        for p, e in enumerate(self.edges):
            h = self.head(p)
            low = min(low, h[0] + e.delay_us if h else self.bound(p))
        return low

    def out_bound(self) -> int:
        low = FAR
        for p, e in enumerate(self.edges):
            if not e.delay_us and not self.closed[p]:
                h = self.head(p)
                low = min(low, h[0] if h else self.produced(p))
        # A timer fires no more where no input will ever be open. An earlier boot may have had entries, lost
        # with their source since, that moved it, and so have promised more.
        later = [content[0] for _, content in self.course[self.decided :]]
        fires = low < FAR or "open" in later or "anew" in later
        if low == FAR:
            low = self.run.shut
        # What follows an input that will be taken back, or go on in another incarnation, is still to come.
        for _, content in self.course[self.decided :]:
            if content[0] == "open":
                low = min(low, content[3])
        if fires and self.op.timer and self.fires():
            low = min(low, self.op.timer)
        # What an input brings that is taken back later: the operator has promised nothing above that.
        for _, content in self.course[self.decided :]:
            if content[0] == "open" and not self.edges[content[1]].delay_us:
                low = min(low, content[3])
        return low

    def fires(self) -> bool:
        """Whether the timer puts something out although no entry waits for it. In a drained process it need
        not, except if a decision follows it, here or at a consumer: that has no position without it."""
        run = self.run
        own = self.course[self.decided :]
        if not run.drained or any(pos[-2] >= self.op.timer for pos, _ in own):
            return True
        for k in range(len(self.vertex.outs)):
            many = len(self.lines[k].entries)
            for e in run.plan.outs(self.vertex.index, k):
                port = -1 if e.dst == OUTSIDE else run.plan.ins(e.dst).index(e)
                if port >= 0 and any(pos[port] > many for pos, _ in run.decisions.get(e.dst, ())):
                    return True
        return False

    def no_room(self) -> bool:
        """Whether an output is full: a consumer does not take it."""
        for cap, entries, consumers in self.full:
            if len(entries) >= cap and len(entries) - min([m.passed(p) for m, p in consumers]) >= cap:
                return True
        return False

    def passed(self, p: int) -> int:
        """Entries of an input that fill its producer's output no more: a closed one drops what comes. What is
        older than the reopening of an input is skipped in its turn, long before anything after it is taken.
        """
        if self.closed[p]:
            return self.last(p)
        at = self.taken[p]
        end = self.ahead(p)
        if at < end:
            e = self.edges[p]
            line = self.run.entries(e.src, e.sport, self.incs[p])
            if self.gone[p][1] == self.decided:
                at = max(at, self.gone[p][0])
            while at < end and self.in_turn(p, line[at][0] + e.delay_us):
                at += 1
            self.gone[p] = (at, self.decided)
        return at

    def in_turn(self, p: int, ts: int) -> bool:
        """Whether no other input can still deliver what goes before an entry of input p with this ts."""
        for q, e in enumerate(self.edges):
            if q != p:
                h = self.head(q)
                b = h[0] + e.delay_us if h else self.bound(q)
                if b < ts or (b == ts and q < p):
                    return False
        return True

    def waits_for(self) -> set[int]:
        """Operators that do not take what fills an output."""
        return {
            m.vertex.index
            for cap, entries, consumers in self.full
            for m, p in consumers
            if len(entries) - m.passed(p) >= cap
        }

    def step(self) -> bool:
        """Take one entry or fire one timer, if allowed."""
        for pos, content in self.course[self.decided : self.decided + 1]:
            if self.stands_at(pos):
                self.decided += 1
                self.decide(content)
                return True
        if self.no_room():
            return False
        best = -1
        best_ts = 0
        for p, e in enumerate(self.edges):
            h = self.head(p)
            if h and (best < 0 or h[0] + e.delay_us < best_ts):
                best, best_ts = p, h[0] + e.delay_us
        due = self.op.timer and self.op.timer <= self.frontier() < FAR
        if due and (best >= 0 or self.fires()):
            self.fire()
            return True
        if best < 0 or not self.in_turn(best, best_ts):
            return False
        self.take(best, best_ts)
        return True

    def decide(self, content: list[Any]) -> None:
        if content[0] == "anew":
            self.anew(content)
        elif content[0] == "set":
            self.configure(content[1])
        elif content[0] == "close":
            self.closed[content[1]] = True
            self.shut[content[1]] = self.taken[content[1]]
            self.op.closed(self.edges[content[1]].dport)
        elif content[0] == "open":
            p = content[1]
            if self.closed[p] or self.incs[p] != content[2]:
                if self.closed[p]:
                    e = self.edges[p]
                    line = self.run.entries(e.src, e.sport, self.incs[p])[self.shut[p] : self.taken[p]]
                    if any(entry[0] >= content[3] for entry in line):
                        text = "%s has dropped entries of its input %d from after the time of its opening"
                        self.run.wrong.append(text % (self.vertex.name, p))
                self.closed[p] = False
                self.from_ts[p] = content[3]
                if self.incs[p] != content[2]:
                    self.incs[p] = content[2]
                    self.taken[p] = 0
                    self.op.hole(self.edges[p].dport)
                self.op.opened(self.edges[p].dport, content[3])

    def anew(self, content: list[Any]) -> None:
        """The operator gives up: it goes on where it says, in its state there or in its first one, and its
        outputs begin another incarnation."""
        _, inc, first, places, changed = content
        op = operators.find(self.vertex.kind)(self.vertex.params, self.vertex.ins, self.vertex.outs, 1)
        op.configure(changed)
        if not first:
            state = bytearray(self.op.state_size())
            self.op.snapshot(state, 0)
            op.restore(bytes(state), op.VERSION)
        for p, closed in enumerate(self.closed):
            if first and closed:
                op.closed(self.edges[p].dport)
        self.op = op
        self.taken = [xi for xi, _ in places]
        self.incs = [of for _, of in places]
        before = [line.entries for line in self.lines]
        self.run.leave(self.vertex, self.decided, inc)
        self.lines = [self.run.lines[self.vertex.index, k] for k in range(len(self.lines))]
        self.full = [
            (cap, line.entries, consumers)
            for cap, entries, consumers in self.full
            for had, line in zip(before, self.lines, strict=True)
            if had is entries
        ]

    def configure(self, params: Any) -> None:
        """Values that the type refuses change nothing."""
        try:
            self.op.configure(params)
        except OperatorError:
            pass

    def fire(self) -> None:
        due = self.op.timer
        for y in self.op.outs:
            y.n = 0
        m = self.op.fire()
        self.fired = due
        self.emit(m, due, 0)

    def take(self, p: int, ts: int) -> None:
        h = self.head(p)
        assert h is not None
        self.taken[p] = self.ahead(p) + 1
        silent = bool(self.edges[p].delay_us)
        if len(h) > 2 and h[2] == "hole":
            if self.op.hole(self.edges[p].dport) and not silent:
                for k in range(len(self.op.outs)):
                    self.lines[k].entries.append(h)
            return
        window = self.windows[p]
        for column, value in zip(window.cols, h[2:], strict=True):
            column[0] = value
        window.n = 1
        window.dt = -1
        window.ts = ts
        x: Any = window
        if not self.single:
            x = Merged(1)
            x.port[0] = self.edges[p].dport
            x.n = 1
            x.ts = ts
            x.cols = [()] * len(self.vertex.ins)
            for e, w in zip(self.edges, self.windows, strict=True):
                x.cols[e.dport] = w.cols
        for y in self.op.outs:
            y.n = 0
        m = self.op.run(x, 1)
        self.emit(m, ts, h[1])

    def emit(self, m: int, ts: int, unsync: int) -> None:
        for k, y in enumerate(self.op.outs):
            n = y.n if k else m
            assert n <= 1, "%s: more than one output for one entry" % self.vertex.kind
            if n:
                self.lines[k].entries.append((ts, unsync, *y.row(0)))


class Ideal:
    """Run `plan` over what the sources accepted: `accepted` by source vertex, each of its incarnations in
    their order, with its entries; `bounds` by source vertex; `ends` of streams whose source was lost;
    `taken`: (edge, incarnation) of which anything was ever taken; `shut`: up to where an operator has given
    boundaries of which no input is open; `buffers`: whether outputs have a bound; `begun`: (source,
    incarnation) of which an earlier version took so many entries; `drained`: what timers give that no entry
    waits for is left out; `reopened`: (operator, number of a decision) by which an input was opened again ->
    the incarnation that it had until then, 0 if it had met none; `left`: (operator, number of a decision) by
    which it gave up -> what it had decided since in the course that it left; `until`: ... -> what all
    operators had decided by then.

    An incarnation that an operator has given up is that of a run of its own, in which nothing was lost and
    nothing is decided that was not decided by then: the lake and consumers may have what followed from
    entries that were lost with their source, and after which others decide otherwise now."""

    def __init__(
        self,
        plan: Plan,
        accepted: dict[int, dict[int, list[Entry]]],
        bounds: dict[int, int],
        decisions: Any,
        ends: Ends,
        taken: set[tuple[int, int]],
        shut: int = 0,
        buffers: bool = False,
        begun: dict[tuple[int, int], int] | None = None,
        drained: bool = False,
        reopened: dict[tuple[int, int], int] | None = None,
        left: dict[tuple[int, int], Any] | None = None,
        until: dict[tuple[int, int], Any] | None = None,
        courses: Any = None,
    ) -> None:
        self.plan = plan
        self.left = left or {}
        self.until = until or {}
        self.courses = decisions if courses is None else courses
        self.incs: dict[int, int] = {}  # operator -> the incarnation of its outputs, once it has given up
        # Operator -> its former incarnations, each with the run that gave it, in order.
        self.former: dict[int, dict[int, Ideal]] = {}
        self.shut = shut
        self.ends = ends
        self.taken = taken
        self.begun = begun or {}
        self.reopened = reopened or {}
        self.drained = drained
        self.accepted = accepted
        self.bounds = bounds
        self.decisions = decisions
        self.wrong: list[str] = []  # what no run may have done, in words
        self.lines: dict[tuple[int, int], Line] = {}
        self.machines: dict[int, Machine] = {}
        for v in plan.vertices:
            for k in range(len(v.outs)):
                self.lines[(v.index, k)] = Line()
            if v.kind:
                self.machines[v.index] = Machine(self, v)
            else:
                # What the lake needs of it: its last incarnation.
                self.lines[(v.index, 0)].entries = [*accepted.get(v.index, {}).values(), []][-2:][0]
        if buffers:
            self.buffers()
        self.known: dict[int, int] = {}
        busy = True
        while busy:
            busy = False
            for i in plan.order:
                machine = self.machines.get(i)
                self.known.clear()
                while machine and machine.step():
                    self.known.clear()
                    busy = True

    def full_loops(self) -> set[int]:
        """Operators that wait for themselves: each output on the way round a loop is full."""
        waits = {v: machine.waits_for() for v, machine in self.machines.items()}
        found = set()
        for v in waits:
            after = list(waits[v])
            for u in after:
                after += [w for w in waits[u] if w not in after]
            if v in after:
                found.add(v)
        return found

    def leave(self, v: Vertex, number: int, inc: int) -> None:
        """By its decision of this number an operator begins another incarnation of its outputs."""
        stamps = [line[-1][0] for lines in self.accepted.values() for line in lines.values() if line]
        far = max(stamps, default=0) + _AFTER_US
        before = Ideal(
            self.plan, self.accepted, dict.fromkeys(self.bounds, far), self.decisions, {}, self.taken, far,
            begun=self.begun, reopened=self.reopened, left=self.left, until=self.until,
            courses=self.until.get((v.index, number), {}),
        )  # fmt: skip
        self.former.setdefault(v.index, {})[self.incs.get(v.index, 0)] = before
        self.incs[v.index] = inc
        for k in range(len(v.outs)):
            self.lines[v.index, k] = Line()

    def line(self, v: int, port: int, inc: int) -> list[Entry]:
        """What an operator put out in an incarnation."""
        if inc == self.incs.get(v, 0):
            return self.lines[v, port].entries
        before = self.former.get(v, {}).get(inc)
        return before.line(v, port, inc) if before else []

    def buffers(self) -> None:
        """An output holds this many entries until all consumers inside have taken them, unless it spills; in
        a cycle none spills."""
        for v, machine in self.machines.items():
            for k in range(len(machine.vertex.outs)):
                edges = self.plan.outs(v, k)
                inside = [e for e in edges if e.dst != OUTSIDE]
                logged = any(e.dst == OUTSIDE and e.durable == FLASH for e in edges)
                spills = logged or any(e.policy == SPILL for e in edges)
                if inside and (not spills or any(e.cyclic for e in edges)):
                    cap = max(self.plan.batch, *[e.cap for e in edges])
                    consumers = [(self.machines[e.dst], self.plan.ins(e.dst).index(e)) for e in inside]
                    machine.full.append((cap, self.lines[v, k].entries, consumers))

    def first(self, v: int, port: int, e: Edge) -> int:
        """The incarnation that an input begins with: the one before that to which it changes by decision. An
        input that was closed is taken back in the same one, perhaps: where nothing of it was taken, only the
        operator knows whether it had met its source."""
        incs = list(self.accepted.get(e.src, {}))
        given_up = [content[1] for _, content in self.decisions.get(e.src, ()) if content[0] == "anew"]
        if given_up:
            incs = [0, *given_up]
        took = [inc for inc in incs if (e.index, inc) in self.taken]
        course = list(self.decisions.get(v, ()))
        anew = next((n for n, (_, content) in enumerate(course, 1) if content[0] == "anew"), 0)
        if anew:  # with which it begins then, that decision says
            course = [*course[: anew - 1], *self.left.get((v, anew), ())]
        decided = enumerate(course, 1)
        changes = [(n, pos, content) for n, (pos, content) in decided if content[0] in ("open", "close")]
        changes = [change for change in changes if change[2][1] == port]
        again = next((k for k, (_, _, content) in enumerate(changes) if content[0] == "open"), 0)
        opens = bool(changes) and changes[again][2][0] == "open" and (v, changes[again][0]) in self.reopened
        if opens and (given_up or again and not changes[again][1][port]):
            return self.reopened[v, changes[again][0]]
        closed = False
        for _, pos, content in changes:
            if content[0] == "open" and content[2] in incs:
                before = incs[: incs.index(content[2])]
                had = [inc for inc in before if inc in took and len(self.accepted[e.src][inc]) >= pos[port]]
                return (had or ([] if closed else before) or [content[2]])[-1]
            closed = content[0] == "close"
        # An operator's first checkpoint tells with which one it begins, although nothing of it was taken.
        inc, _ = self.ends.get(e.index, (0, 0))
        if anew or given_up and took and e.index not in self.ends:
            return (took or [0])[0]  # of its producer it may have met the second one first
        return ([0, *incs] if not took else took)[-1] if inc not in incs else inc

    def entries(self, src: int, port: int, inc: int) -> list[Entry]:
        return self.accepted[src].get(inc, []) if src in self.accepted else self.line(src, port, inc)

    def bound(self, v: int, inc: int = 0) -> int:
        """Nothing below this follows on the outputs of v, in that incarnation."""
        if v in self.machines and inc != self.incs.get(v, 0):
            before = self.former.get(v, {}).get(inc)
            return before.bound(v, inc) if before else 0
        if v in self.bounds:
            return self.bounds[v]
        if v not in self.known:
            self.known[v] = FAR
            self.known[v] = self.machines[v].out_bound()
        return self.known[v]
