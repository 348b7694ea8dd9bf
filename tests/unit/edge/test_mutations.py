"""The core of the runtime with one rule of the protocol broken, many times over: the simulator must see it.

A checker that no defect turns red checks nothing. A defect replaces a piece in the source of a method.
Where that piece is gone the test says so: the rule stands elsewhere now, and the defect must follow it.
Each defect names a few histories, each of which is green without it; one must turn red with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from defects import Change, first_error, seeded
from headwater.plan.model import Plan
from headwater.process import Debounce, Process, Union
from headwater.process.check import Needs
from headwater.protocol.clock import Clock
from headwater.runtime import (
    absence,
    checkpoint_transfer,
    decisions,
    incoming,
    lifecycle,
    receiver,
    relocation,
    restore,
    routing,
    startup,
)
from headwater.runtime.checkpoints import Checkpoints
from headwater.runtime.exchange import Exchange
from headwater.runtime.host import Host
from headwater.runtime.inputs import InEdge
from headwater.runtime.instance import Instance
from headwater.runtime.lake_sink import LakeSink
from headwater.runtime.merge import Joined
from headwater.runtime.outputs import OutPort, Reader
from headwater.runtime.source import Source
from headwater.runtime.words import Words
from headwater_gateway.site_clock import SiteClock
from headwater_tools.examples import diamond, sp2, sp3, sp4
from headwater_tools.simulator.directed import SCHEDULES
from headwater_tools.simulator.scenario import Scenario

pytestmark = pytest.mark.slow

SEEDS = range(6)
SECONDS = 12  # of a history, until its faults stop


@dataclass(frozen=True)
class Defect:
    name: str
    prevented: str  # what the rule that it breaks prevents
    changes: list[Change]
    where: list[str]  # processes and schedules in which it shows


def _buttons(level: str = "peer") -> Plan:
    """Irregular sources, timers above a join, one source that goes to the lake as well."""
    p = Process("buttons", checkpoints="ecoc", every=20, level=level, batch=8, batch_ms=500)
    for host in ("left", "right"):
        p.host(host, heap_kb=256)
    a = p.source("a", "v:i16", most_hz=10, on="left")
    b = p.source("b", "v:i16", most_hz=10, on="right")
    counted = a >> Debounce(us=300_000).named("counted").on("left")
    second = b >> Debounce(us=500_000).named("second").on("right")
    both = Union().named("both").on("right", backup=["left", "gateway"])(counted, second)
    p.lake("buttons/both", both >> Debounce(us=200_000).named("calm").on("left", backup=["right", "gateway"]))
    p.lake("buttons/a", a, durable="lake")
    return p.plan()


def _tight(process: Process) -> Plan:
    """Buffers as small as the check lets them be: they fill up, and press for checkpoints."""
    least = Needs(process)
    for wire in process.wires:
        if wire.vertex is not None:
            wire.cap = least.cap[wire]
    return process.plan()


PLANS: dict[str, Callable[[], Plan]] = {
    "sp2": lambda: sp2.build(every=60, batch=36).plan(),
    "sp2 extended": lambda: sp2.build("extended", every=36, batch=12).plan(),
    "sp2 uncoordinated": lambda: sp2.build("uncoordinated", every=60, batch=36).plan(),
    "sp2 spare": lambda: sp2.build(every=36, batch=12, hosts=("left", "right", "spare", "spare")).plan(),
    "sp3": lambda: sp3.build(every=60, batch=36, threshold=0).plan(),
    "sp3 tight": lambda: _tight(sp3.build(every=60, batch=36, threshold=0)),
    "sp4 spare": lambda: sp4.build(
        every=36, batch=12, threshold=100, hosts=("left", "right", "spare", "spare")
    ).plan(),
    "diamond": lambda: diamond.build(every=60, batch=36).plan(),
    "buttons": _buttons,
}

# Taken out where the checkers are to see what it would have stopped.
_NEXT = 'assert xi == e.cur.xi + 1, "a block that is not the next one"'

DEFECTS = [
    Defect(
        "a keeper takes the furthest checkpoint whatever its epoch",
        "an operator whose keepers hold on to a course that it has left",
        [
            (
                incoming,
                "_on_piece",
                "and have and not newer(here, have):",
                "and have and (further(have[1], pos) or (have[1] == pos and have[0] >= here[0])):",
            ),
            (
                incoming,
                "newest",
                "not newer(best[1], have)",
                "(further(have[1], best[1][1]) or (have[1] == best[1][1] and have[0] >= best[1][0]))",
            ),
        ],
        ["further and over"],
    ),
    Defect(
        "an operator under a new epoch does not recall",
        "an operator that begins anew where its producer lost the name of its checkpoint",
        [(incoming, "begin_recall", "UNSAFE, True)", "UNSAFE, False)")],
        ["erased home", "course left"],
    ),
    Defect(
        "an erased keeper does not say so",
        "an operator that goes on from an earlier checkpoint than the one that was acknowledged",
        [(lifecycle, "lost", "bool(host.again and host.again[v] & LOST)", "False")],
        ["erased holder"],
    ),
    Defect(
        "trimmed to the maximum over consumers",
        "the slower consumer of a port asks for what is gone",
        [(OutPort, "trim", "min([r.safe", "max([r.safe")],
        ["sp4 spare", "diamond", "sp2"],
    ),
    Defect(
        "trimmed on Got",
        "what was only received is let go, and is lost with the receiver",
        [
            (
                OutPort,
                "hear_got",
                "self.on_got(r, m[4])\n",
                "r.safe = max(r.safe, m[4])\n        self.trim()\n        self.on_got(r, m[4])\n",
            )
        ],
        ["sp2", "buttons", "sp4 spare"],
    ),
    Defect(
        "Safe before the checkpoint is stored at its holders",
        "a host dies for good and takes the only checkpoint with it",
        [(Checkpoints, "store_at_level", "if not self.need():", "if True:")],
        ["sp2", "buttons", "sp4 spare"],
    ),
    Defect(
        "a holder confirms what it did not store",
        "a named checkpoint that nobody holds",
        [(incoming, "_put", "arrival.store(host.store, checkpoint_key(v, HELD), inc)", "pass")],
        ["sp2", "buttons", "sp4 spare"],
    ),
    Defect(
        "a Check-Request is not sent again",
        "a round that waits for ever for an answer to what was lost",
        [
            (OutPort, "send_again", "r.crs_sent = 0\n", "pass\n"),
            (OutPort, "on_hello", "r.crs_sent = 0\n", "pass\n"),
        ],
        ["request lost"],
    ),
    Defect(
        "a holder lets an earlier checkpoint replace a later one",
        "a named checkpoint that nobody holds",
        [(incoming, "_on_piece", "and have and not newer(here, have):", "and have == here:")],
        ["overtaken"],
    ),
    Defect(
        "merged by arrival",
        "a second life computes something else than the first",
        [(Joined, "_take", " or bounds[q] < t or (bounds[q] == t and q < best):", ":")],
        ["sp2", "buttons", "sp4 spare"],
    ),
    Defect(
        "ties go to the higher port",
        "two implementations of the merge that differ",
        [(Joined, "_take", "if best < 0 or v < t:", "if best < 0 or v <= t:")],
        ["sp2", "sp2 uncoordinated", "sp4 spare", "diamond"],
    ),
    Defect(
        "a boundary lets its own ts through on any port",
        "entries of the same ts in another order in each life",
        [(Joined, "_take", " or (bounds[q] == t and q < best):", ":")],
        ["sp2", "sp2 uncoordinated", "sp4 spare", "diamond"],
    ),
    Defect(
        "a boundary is applied before its xi",
        "a join that goes past entries which are still on their way",
        [(receiver, "on_bound", "if e.ring.last < m[3]:", "if False:")],
        ["boundary first"],
    ),
    Defect(
        "the cycle rule of the thesis: from what the consumer has pending",
        "loss where both ends of a feedback edge die",
        [
            (Checkpoints, "on_extend", "min(r.safe if mode == NOWAIT else base,", "min(base,"),
            (
                Checkpoints,
                "_satisfied",
                "for r in p.readers:",
                "for r in [r for r in p.readers if not (r.edge.cyclic and r.edge.index in c.since)]:",
            ),
        ],
        ["both ends"],
    ),
    Defect(
        "acknowledgements of an older epoch are accepted",
        "an old instance trims what the new one needs",
        [
            (OutPort, "fence", "if epoch < r.epoch:\n        return False\n    if epoch", "if epoch"),
            (Exchange, "hear", "if m[3] < r.epoch:", "if False:"),
        ],
        ["zombie"],
    ),
    Defect(
        "first contact does not raise the epoch",
        "an old instance trims what the new one needs",
        [(OutPort, "fence", "r.epoch = epoch", "pass")],
        ["zombie"],
    ),
    Defect(
        "the epoch is not persisted",
        "an old instance trims what the new one needs, after a restart of the producer",
        [
            (OutPort, "fence", "self.save(r)", "pass"),
            (OutPort, "record", "r.epoch[0], r.epoch[1]", "1, 0"),
            (
                incoming,
                "_on_piece",
                "and have and not newer(here, have):",
                "and have and not further(pos, have[1]):",
            ),
        ],
        ["zombie after restart"],
    ),
    Defect(
        "an operator with only an edge to the lake commits at once",
        "last results that exist nowhere",
        [
            (
                Checkpoints,
                "_satisfied",
                "for r in p.readers:",
                "for r in [r for r in p.readers if r.edge.dst != OUTSIDE]:",
            )
        ],
        ["lake away"],
    ),
    Defect(
        "permanent before it is acknowledged",
        "a restart that owes its consumers what it cannot make again",
        [(Checkpoints, "settle", "if self._satisfied(c):", "if True:")],
        ["sp4 spare", "diamond", "sp2"],
    ),
    Defect(
        "a block passes through to the lake though it repeats entries",
        "rows of the lake that come twice",
        [
            (receiver, "on_data", "if not skip and e.sink.is_lake", "if skip < n and e.sink.is_lake"),
            (LakeSink, "pass_on", _NEXT, ""),
        ],
        ["cut elsewhere"],
    ),
    Defect(
        "a block passes through to the lake though another is missing before it",
        "rows of the lake that never come",
        [
            (receiver, "on_data", "if xi > ring.last + 1:", "if xi > ring.last + 1 and not e.sink.is_lake:"),
            (receiver, "on_data", "if not skip and e.sink.is_lake", "if skip <= 0 and e.sink.is_lake"),
            (LakeSink, "pass_on", _NEXT, ""),
        ],
        ["buttons", "sp2"],
    ),
    Defect(
        "a block passes by entries that still wait for the outbox",
        "rows of the lake that never come, or out of order",
        [(LakeSink, "pass_on", "if e.ring.count:", "if False:"), (LakeSink, "pass_on", _NEXT, "")],
        ["spoiled", "buttons"],
    ),
    Defect(
        "a block passes through to the lake, and is not noted as taken",
        "rows of the lake that come twice",
        [
            (LakeSink, "pass_on", "e.skip(xi + n - 1)", "e.ring.reset(xi - 1)"),
            (LakeSink, "pass_on", _NEXT, ""),
        ],
        ["spoiled", "buttons"],
    ),
    Defect(
        "a full outbox takes what passes through",
        "a gateway whose memory or disk has no bound",
        [(LakeSink, "pass_on", "self.outbox.full or n", "n")],
        ["spoiled", "buttons"],
    ),
    Defect(
        "the lake's end says Safe before the outbox is durable",
        "rows lost with the power of the gateway",
        [(LakeSink, "announce", "xi = self.outbox.durable(e.edge.index, e.inc)", "xi = e.cur.xi")],
        ["sp2", "sp4 spare"],
    ),
    Defect(
        "the lake's end says Safe before the lake has it",
        'durable="lake" that means the outbox',
        [(LakeSink, "announce", "self.outbox.lake(e.edge.index, e.inc)", "e.cur.xi")],
        ["buttons", "sp2", "sp4 spare"],
    ),
    Defect(
        "a boundary above the floor",
        "a reboot that stamps behind the frontier of a join",
        [
            (Source, "tick", "self.host.raise_floor(ts)\n", "pass\n"),
            (Source, "tick", "self.promise(self.host.floor.cap(ts))", "self.promise(ts)"),
        ],
        ["buttons", "sp2", "sp4 spare"],
    ),
    Defect(
        "the floor is not logged",
        "a reboot that stamps behind the frontier of a join",
        [(Host, "raise_floor", 'self.store.put(F_FLOOR, floor.to_bytes(8, "little"))', "pass")],
        ["buttons", "sp2", "sp4 spare"],
    ),
    Defect(
        "parameters changed by decisions are not in the checkpoint",
        "a parameter that one life knows and the next does not",
        [(restore, "_operator", "op.configure(found.changed)", "pass")],
        ["changes"],
    ),
    Defect(
        "names are forgotten in a restart",
        "a restart that knows an older name than it has trimmed for",
        [(Reader, "adopt", "if further(name, self.name):", "if False:")],
        ["unreadable"],
    ),
    Defect(
        "a pending checkpoint is restored that nobody acknowledged",
        "outputs that no life makes again",
        [
            (
                lifecycle,
                "expire",
                "inst.become(RUNNING)\n",
                "inst.ck.pending and inst.ck.commit(inst.ck.pending[-1], False); inst.become(RUNNING)\n",
            )
        ],
        ["sp3", "buttons", "sp2", "sp4 spare"],
    ),
    Defect(
        "duplicates are taken",
        "an element that counts twice",
        [
            (receiver, "on_data", "skip = ring.last + 1 - xi\n", "skip = 0\n"),
            (receiver, "on_data", "if not skip and e.sink.is_lake", "if xi > ring.last and e.sink.is_lake"),
            (receiver, "on_data", "ring.append(b, skip", "b.xi = ring.last + 1\n    ring.append(b, skip"),
        ],
        ["buttons", "sp4 spare", "sp2"],
    ),
    Defect(
        "a gap is taken for nothing",
        "an element that counts never",
        [
            (receiver, "on_data", "if xi > ring.last + 1:", "if False:"),
            (receiver, "on_data", "skip = ring.last + 1 - xi\n", "skip = max(0, ring.last + 1 - xi)\n"),
            (
                receiver,
                "on_data",
                "ring.append(b, skip",
                "b.xi = ring.last + 1 - skip\n    ring.append(b, skip",
            ),
        ],
        ["sp4 spare", "sp2 uncoordinated", "sp2"],
    ),
    Defect(
        "uncoordinated without transfer state",
        "outputs that no life makes again",
        [(Checkpoints, "_transfer", "if whole:", "if False:")],
        ["sp2 uncoordinated", "sp3", "sp4 spare", "sp2"],
    ),
    Defect(
        "an extended checkpoint without transfer state",
        "outputs that no life makes again",
        [(Checkpoints, "_transfer", "start = min(start, max(c.since[r.edge.index], r.safe))", "pass")],
        ["sp3", "sp4 spare", "sp2"],
    ),
    Defect(
        "entries do not wait for a timer that one before them sets",
        "what comes in one go gives something else than what comes one by one, after a change of a parameter",
        [(Instance, "_single", "if op.ARMS:", "if False:")],
        ["timer set earlier"],
    ),
    Defect(
        "a timer fires late, on one input",
        "a window that contains what came after its end",
        [
            (
                Instance,
                "_single",
                "if (w.ts_of(0) if n else e.bound()) >= due:",
                "if not n and e.bound() >= due:",
            ),
            (Instance, "_single", "if w.ts_of(n - 1) >= due:", "if False:"),
        ],
        ["buttons", "sp2", "sp4 spare"],
    ),
    Defect(
        "the output boundary ignores what waits",
        "an output behind the frontier of a join",
        [(Instance, "bound", "if e.waiting() > 0:", "if False:")],
        ["sp4 spare", "diamond", "sp2"],
    ),
    Defect(
        "timers fire although no input is open",
        "an operator that runs on to the end of all time, without end",
        [(Joined, "_merge", "if frontier == FAR:", "if False:")],
        ["no input open"],
    ),
    Defect(
        "feedback is merged without its delay",
        "a loop whose order depends on latency",
        [
            (
                Joined,
                "_look",
                "if n and w.ts_of(0) + e.edge.delay_us < base:",
                "if n and w.ts_of(0) < base:",
            ),
            (Joined, "_look", "base = w.ts_of(0) + e.edge.delay_us", "base = w.ts_of(0)"),
            (
                Joined,
                "_merge",
                "d = self.window[p].ts + e.edge.delay_us - base",
                "d = self.window[p].ts - base",
            ),
        ],
        ["sp4 spare", "sp3", "sp2"],
    ),
    Defect(
        "a restart leaves no hole",
        "a loss window that never reaches the lake",
        [(Source, "__init__", "self.why = RESTART if port.ring.last else 0", "self.why = 0")],
        ["buttons", "sp4 spare", "sp2"],
    ),
    Defect(
        "a hole that does not reach back to the last sample",
        "a loss window that is told too short",
        [(Source, "_close_hole", "back = ts - self.sampled_to if self.sampled_to else 0", "back = 0")],
        ["buttons", "sp4 spare", "sp2"],
    ),
    Defect(
        "a source's entries leave before they are sealed",
        "one xi with two contents",
        [
            (
                Source,
                "_seal",
                "while not port.seal(batch, n):",
                "port.has_room(n)\n    port.ring.append(batch, 0, n); self.host.pump()\n"
                "    while not port.seal(batch, n):",
            ),
            (
                Source,
                "_seal",
                "port.has_room(n)\n    port.ring.append(batch, 0, n, True)\n    ts",
                "ts",
            ),
        ],
        ["cut while sealing"],
    ),
    Defect(
        "a source goes on at its rate from where it began after a restart",
        "times that never come back to the clock, and every restart adds to them",
        [(Source, "take", "self._squeeze(batch, clock.at, mono, ts)", "pass")],
        ["restarts"],
    ),
    Defect(
        "a source in a loop goes on while its clock stands still",
        "a loop with more entries of one time than its buffers hold, which waits for itself",
        [(Source, "take", "self.loops and behind", "False and behind")],
        ["still in a loop"],
    ),
    Defect(
        "a floor is logged a step ahead of a clock that is ahead already",
        "a hundred brownouts that push ts a thousand seconds ahead",
        [(Clock, "ahead_us", "- max(0, self.site(mono_us) - self.true_us(mono_us))", "")],
        ["restarts"],
    ),
    Defect(
        "the gateway keeps its time a step ahead",
        "each restart of the gateway moves the site's time",
        [(SiteClock, "keep", '"site": self.site(mono)', '"site": self.site(mono) + 10_000_000')],
        ["restarts"],
    ),
    Defect(
        "a time that is hours ahead is slewed to",
        "boards that stay behind for weeks after the gateway got the time",
        [(Clock, "exchange", " or away < -self.step_us", "")],
        ["late time"],
    ),
    Defect(
        "contact before the producer has answered",
        "an old instance trims what the new one needs",
        [(routing, "connect", "e.lose()", "e.contact = True")],
        ["sp4 spare", "buttons", "sp2"],
    ),
    Defect(
        "a name further than the consumer stands is ignored",
        "a new instance that asks for what is gone",
        [
            (
                routing,
                "contact",
                "if name and not sink.is_lake and further(name, sink.position()):",
                "if False:",
            )
        ],
        ["unreadable"],
    ),
    Defect(
        "the unsynchronised bit differs in a retransmission",
        "one xi with two contents",
        [
            (
                Exchange,
                "_put_entries",
                "n = p.read(r.cur, batch, min(n, batch.size))\n",
                "n = p.read(r.cur, batch, min(n, batch.size))\n    batch.unsync ^= 1 if r.rto_us else 0\n",
            )
        ],
        ["cut elsewhere", "sp2", "sp2 uncoordinated", "sp4 spare"],
    ),
    Defect(
        "ts differ in a retransmission",
        "one xi with two contents",
        [
            (
                Exchange,
                "_put_entries",
                "n = p.read(r.cur, batch, min(n, batch.size))\n",
                "n = p.read(r.cur, batch, min(n, batch.size))\n    batch.ts += 1 if r.rto_us else 0\n",
            )
        ],
        ["cut elsewhere", "sp2", "sp2 uncoordinated", "buttons", "sp4 spare"],
    ),
    Defect(
        "any number of pending checkpoints",
        "26,000 pending checkpoints after ten hours without the lake",
        [(Checkpoints, "plan", "if len(self.pending) == 2:", "if False:")],
        ["sp2", "sp4 spare"],
    ),
    Defect(
        "Safe names where the operator stands, not its checkpoint",
        "a named checkpoint that nobody holds",
        [
            (
                Checkpoints,
                "announce",
                "xi, self.safe_pos,",
                "e.cur.xi, self.inst.position(),",
            )
        ],
        ["sp2", "buttons", "sp4 spare"],
    ),
    Defect(
        "an acknowledgement of another incarnation is taken",
        "fresh samples that count as acknowledged, or an incarnation begun once more",
        [(Exchange, "hear", "if m[2] != port.inc and kind != frames.HELLO:", "if False:")],
        ["erased"],
    ),
    Defect(
        "what was lost with an incarnation is no hole for its operator",
        "a timer that fires below a boundary: the lost samples had stopped it",
        [(Instance, "apply", "self.op.hole(e.edge.dport)", "pass")],
        ["erased behind a timer"],
    ),
    Defect(
        "a checkpoint of another incarnation is announced",
        "an incarnation begun once more, and again",
        [(Checkpoints, "safe", "if pos and pos[-1] >= e.since else -1", "if pos else -1")],
        ["erased"],
    ),
    Defect(
        "a restart below the floor",
        "a reboot that stamps behind the frontier of a join",
        [(startup, "_boot", 'floor = int.from_bytes(data, "little") if data else 0', "floor = 0")],
        ["behind"],
    ),
    Defect(
        "a full log without a hole",
        "samples that were never taken, and nobody says so",
        [(Source, "_refuse", "self.why = LOG_FULL", "pass")],
        ["full"],
    ),
    Defect(
        "a hole before there is room for what follows",
        "a hole for every refused batch, in the last of the room",
        [(Source, "take", "while not self.host.store.takes(", "while False and self.host.store.takes(")],
        ["full"],
    ),
    Defect(
        "an urgent checkpoint without transfer state",
        "outputs that no life makes again",
        [
            (
                Checkpoints,
                "due",
                "self.commit(self._take(cid, 0), True)",
                "self.commit(self._take(cid, 0), False)",
            )
        ],
        ["sp3 tight"],
    ),
    Defect(
        "a port in a loop lets go into its log what a checkpoint must carry",
        "a loop that waits for a checkpoint of itself, which cannot be",
        [(OutPort, "_evict", "if self.loops:", "if False:")],
        ["logged loop"],
    ),
    Defect(
        "a log counts by what this boot has trimmed",
        "a checkpoint that carries neither what a consumer lacks nor knows that the log has it",
        [(OutPort, "covered", "self.first() <= r.safe", "self.first() <= self.trim_to")],
        ["spilled before"],
    ),
    Defect(
        "a producer holds on to a consumer that has ended",
        "a host that cannot start, since it asks what has ended what it needs",
        [(relocation, "_end", "if r and r.local is e:", "if False:")],
        ["stopped at start"],
    ),
    Defect(
        "what an edge may drop makes room, however little it was",
        "two holes side by side, because the batch behind the first one has no room",
        [
            (
                Source,
                "take",
                "if not self._drop(port):\n                return self._refuse(n)",
                "if self._drop(port):\n                break\n            return self._refuse(n)",
            )
        ],
        ["full and dropping"],
    ),
    Defect(
        "an operator that was to begin when power went is forgotten",
        "an operator that runs nowhere, because each host believes that another one runs it",
        [
            (startup, "_go_on", "if w[0] > 1 and", "if False and"),
            (Words, "suspected", "if there == host.me or self.dead(there):", "if self.dead(there):"),
            (Words, "suspected", "return self.named[i] == there and", "return False and"),
        ],
        ["erased and told"],
    ),
    Defect(
        "no reserve at all",
        "a log so full of samples that a checkpoint or a decision has no room",
        [(startup, "start", "host.store.ensure_reserve(sizes)", "pass")],
        ["least log, large state", "least log, greenhouse"],
    ),
    Defect(
        "a holder that stores nothing is asked first each time",
        "checkpoints that each wait for a host that never stores them",
        [
            (checkpoint_transfer, "push_again", "host.late[h] = host.now + _LATE_US", "pass"),
            (checkpoint_transfer, "push", "old[2] if old else 0", "0"),
        ],
        ["full holder"],
    ),
    Defect(
        "a gap stays in the flash of the host that declared it",
        "a stream that ends for good where its operator moved",
        [(Checkpoints, "commit", "p.record(r) + [r.gaps]", "p.record(r) + [[]]")],
        ["drop and move"],
    ),
    Defect(
        "a pending checkpoint that waited in vain stays in flash",
        "a life that goes on from a checkpoint which nobody acknowledged",
        [(lifecycle, "expire", "inst.ck.discard()", "inst.ck.pending = []")],
        ["stale pending"],
    ),
    Defect(
        "a pending checkpoint that is committed stays in flash",
        "a reserve that fills up with what nobody will ever use",
        [(Checkpoints, "_over", "self._drop(old.slot)", "pass")],
        ["sp2"],
    ),
    Defect(
        "a lost database is not noticed",
        "an edge to the lake that waits for good for what is gone",
        [(routing, "contact", "sink.lost(first)", "return")],
        ["gateway erased"],
    ),
    Defect(
        "what an input held is passed over out of its turn",
        "an entry whose like the first life passed over, taken by the second as if nothing waited before it",
        [
            (
                Joined,
                "_look",
                "n = before(w, n, e.from_ts)",
                "while n and w.ts_of(0) < e.from_ts:\n"
                "                    n = e.until_request(1) and (e.taken(1), e.read(w, self.size))[1]",
            ),
            (Joined, "_look", "self.old[p] = True", "pass"),
        ],
        ["passed over"],
    ),
    Defect(
        "an input is taken back in the incarnation that is named, though that is none",
        "a join that begins an input again, at its first entry",
        [(decisions, "_opens", "inc = e.other or e.inc or inc", "pass")],
        ["taken back unnamed"],
    ),
    Defect(
        "an input is taken back below a boundary that was given without it",
        "a union that has gone past what comes then",
        [
            (decisions, "_opens", " + [p.bound for p in inst.ports]", ""),
            (decisions, "_opens", "    if e.closed:", "    if False:"),
        ],
        ["taken back late"],
    ),
    Defect(
        "a keeper that told of a checkpoint is waited for until it gives it",
        "an operator that waits for a dead host for ever",
        [(incoming, "fetch", "if inst.target_epoch[0] and", "if 0 and")],
        ["tells and dies"],
    ),
    Defect(
        "what follows a decision is put out before that is stored at the level",
        "an operator that is lost with its host takes another course than others have seen",
        [(lifecycle, "expose", "inst.become(EXPOSED)", "pass")],
        ["gateway erased after a restart"],
    ),
    Defect(
        "a boot does not know that its last decision is not stored at the level",
        "an operator that is lost with its host takes another course than others have seen",
        [(startup, "_begin", "if not inst.ck.pending:", "if False:")],
        ["decision unconfirmed"],
    ),
    Defect(
        "an epoch puts something out before a checkpoint of it is stored at the level",
        "a decision of an earlier epoch that a later one finds, when others have seen the course without it",
        [(lifecycle, "go_on", "EXPOSED if inst.unsettled and not handed or inst.deciding else", "")],
        ["decided by few"],
    ),
    Defect(
        "a decision is taken where a consumer has more than was put out in this boot",
        "a decision at a place that others have seen without it",
        [(decisions, "_may_decide", "inst.depth < len(host.plan.vertices)", "False")],
        ["changes", "course left", "erased at rest"],
    ),
    Defect(
        "a decision is taken before it is known where a source begins, and no other one says it",
        "an operator that does not know which incarnation of its source others have seen",
        [
            (decisions, "answered", "e.contact or e.cur.xi or", "True or"),
            (routing, "meet", "(e.closed or not (sink.decided or", "(1 or not (sink.decided or"),
        ],
        ["changed unmet"],
    ),
    Defect(
        "the number of the last change is not in the checkpoint",
        "a change that is taken twice",
        [(restore, "_set", "found.given", "(0, 0)")],
        ["changes"],
    ),
    Defect(
        "a closed input keeps what comes",
        "a producer that stands, with all its other consumers, because one of them goes on without it",
        [(InEdge, "drop", "if self.waiting()", "if 0")],
        ["closed, and it lives"],
    ),
    Defect(
        "a closed input drops without remembering up to when",
        "an entry that an opened input takes in one boot, and has dropped in another",
        [
            (InEdge, "drop", "b.ts_of(n - 1) >= now", "0"),
            (InEdge, "drop", "max(self.from_ts, b.ts_of(n - 1) + 1)", "self.from_ts"),
            (decisions, "_opens", "max(from_ts, e.from_ts, host.site())", "0"),
        ],
        ["closed, and it lives, opened"],
    ),
    Defect(
        "an output that nobody takes is kept",
        "an operator that stands as soon as that output is full, and a source whose log it fills",
        [(OutPort, "has_room", "if not self.readers:", "if 0:")],
        ["unused output"],
    ),
    Defect(
        "an operator that has dropped entries and taken none opens no input",
        "a change that is never taken, and an operator that never begins",
        [
            (
                decisions,
                "take",
                "if not _may_decide(host, inst):",
                'if not _may_decide(host, inst) or content[0] == "open" and not inst.front:',
            )
        ],
        ["closed unmet"],
    ),
    Defect(
        "elements are told by the place of their input",
        "an operator that takes the elements of one port for those of another",
        [(Joined, "_take", "which[n] = named[best]", "which[n] = best")],
        ["disabled ports"],
    ),
    Defect(
        "a host that does not know the time takes what it drops for old",
        "an input that stays closed although its source is back",
        [(absence.Absence, "tick", " or gives)", ")")],
        ["absent, and no time"],
    ),
    Defect(
        "changes are taken in any order",
        "a change that is never taken",
        [(decisions, "_on_config", "if number == last + 1:", "if number > last:")],
        ["dead source moved"],
    ),
    Defect(
        "an input that was opened before it met its source takes any incarnation",
        "an operator that restarts without the incarnation of which it has put something out",
        [(routing, "meet", "(e.closed or not (sink.decided or", "(1 or not (sink.decided or")],
        ["opened unmet"],
    ),
    Defect(
        "a gateway that lost its database believes the numbers of the former one",
        "changes that are never offered",
        [(decisions, "_on_stand", "if log != host.store.log_number:", "if False:")],
        ["gateway erased after changes"],
    ),
    Defect(
        "a keeper forgets the checkpoint of a decision",
        "an operator that goes on without a change whose results others have seen",
        [(incoming, "newest", "for slot in (HELD, PERMANENT):", "for slot in (PERMANENT,):")],
        ["gateway erased with an operator"],
    ),
]


def history(name: str, seed: int) -> str:
    """The first error of a history, or nothing. What the core asserts of itself counts too."""
    scenario = SCHEDULES[name](seed) if name in SCHEDULES else Scenario(PLANS[name](), seed, SECONDS)
    return first_error(scenario)


@pytest.mark.parametrize(
    ("name", "seed"), sorted({(name, seed) for d in DEFECTS for name in d.where for seed in SEEDS})
)
def test_the_core_as_it_is_passes(name: str, seed: int) -> None:
    assert history(name, seed) == ""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_checker_sees(defect: Defect) -> None:
    with seeded(defect.changes):
        assert any(history(name, seed) for seed in SEEDS for name in defect.where), defect.prevented
