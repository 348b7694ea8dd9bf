"""A simulated history: a process, faults drawn from a seed, then peace, then the comparison.

The same seed always gives the same history; `Result.trace` records it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwater import operators
from headwater.plan.model import DROP_NEWEST, DROP_OLDEST, LOCAL, OUTSIDE, SPILL, UNSAFE, Plan
from headwater.plan.reader import LEVELS, STRATEGIES
from headwater.runtime import decisions
from headwater.runtime.instance import RUNNING
from headwater.storage import reserve

from .absence import Absence
from .arrivals import Arrivals
from .checkers import (
    Bounds,
    Clocks,
    Held,
    Holes,
    Sameness,
    at_the_end,
    behind,
    blocked,
    instance,
    undecided,
    wanted,
)
from .closings import Closings
from .flights import Flights
from .handovers import Handovers
from .ideal import Ideal
from .recorder import Recorder
from .soundings import Soundings
from .storm import DECLARED_LOST, SHARE, Storm
from .takeovers import Takeovers
from .world import MISTAKEN, SECOND, SITE_US, Hardware, Node, World

# Sensors go on for this long: every board has heard the site's time again before its last samples, or
# a join would wait forever for a board whose ts lag behind.
AFTERWARDS_US = 8 * SECOND
# When faults have stopped, everything accepted arrives within this: small buffers drain slowly.
CALM_US = 240 * SECOND
SECTOR_BYTES = 4096
SMALL_SECTORS = 48  # a log that is declared this small is simulated as declared
DRIFT_PPM_MAX = 100  # the worst clock that headwater.protocol.clock promises to tolerate
MTUS = (256, 512, 1400)
# Of several histories the most counts, not the sum: how long an operator ran nowhere after faults stopped,
# and which part that is of what the rules allow.
MOST = ("nowhere_ms", "nowhere_percent")


@dataclass
class Result:
    seed: int
    process: str
    errors: list[str]
    trace: list[str]
    counts: dict[str, int]
    stats: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)  # kind of fault -> times drawn

    @property
    def ok(self) -> bool:
        return not self.errors

    def json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "process": self.process,
            "ok": self.ok,
            **self.counts,
            **self.stats,
            "drawn": self.drawn,
            "errors": self.errors,
        }


def hardware(plan: Plan, seed: int, declared_kb: dict[str, int]) -> Hardware:
    """What the boards of a seed are made of. declared_kb: flash that the process file gives them, by name."""
    r = random.Random("hardware %d" % seed)
    sectors: dict[int, int] = {}
    kind = r.choice(("least", "declared", "plenty", "plenty"))
    for number, name in enumerate(plan.hosts):
        least = reserve.sectors(plan, number)
        declared = declared_kb.get(name, 0) * 1024 // SECTOR_BYTES
        if number and kind == "least":
            sectors[number] = least
        elif number and kind == "declared" and least <= declared <= SMALL_SECTORS:
            sectors[number] = declared
    bad_clocks = r.random() < SHARE
    return Hardware(
        sectors,
        r.choice((*MTUS, MTUS[-1])),
        DRIFT_PPM_MAX if bad_clocks else 60,
        bool(sectors) or r.random() < 0.1,
    )


class Scenario:
    def __init__(
        self,
        plan: Plan,
        seed: int,
        seconds: int = 25,
        faults: bool = True,
        made_of: Hardware | None = None,
        world: World | None = None,
    ) -> None:
        self.plan = plan
        self.world = world or World(plan, seed, hardware=made_of)
        self.seed = seed
        self.random = self.world.random
        self.storm_us = seconds * SECOND
        self.faults = faults
        self.likely: dict[str, float] = {}  # kind of fault -> its share, if it is not the usual one
        self.kills = 0
        self.declares = False  # a person declares boards lost
        self.declared: set[int] = set()
        self.saying = False
        self.wanted: tuple[int, dict[int, int], Ideal] | None = None
        self.unplanned = 0
        self.epochs = {v.index: 1 for v in plan.vertices if v.kind}
        self.place = {v.index: v.hosts[0] for v in plan.vertices if v.kind}
        self.ran = {v: {host} for v, host in self.place.items()}  # every host that it ever ran on
        self.closed: set[tuple[int, int]] = set()  # inputs that a decision closed, to be reopened
        self.ended: set[tuple[int, int]] = set()  # inputs whose producer is lost
        self.kills_max = max([plan.level_of(v.index) for v in plan.vertices if v.kind], default=0)
        world = self.world
        world.on_left.append(self.has_left)
        self.sameness = Sameness(world, self.epochs, self.place)
        self.clocks = Clocks(world)
        self.sameness.ran = self.ran
        self.takeovers = Takeovers(world, self.place)
        self.handovers = Handovers(world)
        self.flights = Flights(world)
        self.absence = Absence(world, self.place)
        world.checks = [self.handovers, self.sameness, Bounds(world), self.clocks, Held(world), Holes(world)]
        world.checks.append(Arrivals(world))
        self.closings = Closings(world)
        if any(e.absent_ms for e in plan.edges):
            world.checks.append(self.closings)
        self.soundings = Soundings(world)
        if plan.alarms:
            world.checks.append(self.soundings)

    @property
    def trace(self) -> list[str]:
        return self.world.trace

    @property
    def drawn(self) -> dict[str, int]:
        return self.world.drawn

    def record(self) -> None:
        """Keep what a timeline shows."""
        Recorder(self.world)

    @property
    def recorder(self) -> Recorder | None:
        return self.world.recorder

    def run(self) -> Result:
        world = self.world
        for node in world.nodes:
            world.after(self.random.randrange(SECOND // 2), partial(world.boot, node))
        world.start_sensors()
        if self.faults:
            self.told_hardware()
            storm = Storm(self)
            self.declares = DECLARED_LOST in storm.kinds
            storm.start()
        world.run(self.storm_us)
        self.peace()
        return self.finish()

    def finish(self) -> Result:
        """Faults have stopped: everything must arrive now."""
        world = self.world
        end = self.storm_us + CALM_US
        self.absence.begin()
        world.run(self.storm_us + AFTERWARDS_US)
        while world.now < end and not world.errors and world.refusing:
            world.run(world.now + SECOND)
        self.all_accept()
        self.soundings.in_the_calm(self.place)
        self.closings.in_the_calm(self.place)
        world.sampling = False
        gone = -1
        while not world.errors and not self.arrived():
            if world.now >= end:
                # A small buffer to a slow lake takes long: what still advances is slow, and not stuck.
                if self.progress() == gone or world.now >= end + 3 * CALM_US:
                    break
                gone = self.progress()
            world.run(world.now + max(SECOND, (world.now - self.storm_us - 2 * AFTERWARDS_US) // 2))
        counts = {}
        if not world.errors:
            world.run(max(world.now, self.storm_us + self.takeovers.calm_us()))
        if not world.errors:
            self.takeovers.at_the_end()
            self.handovers.at_the_end()
        if not world.errors:
            self.nothing_open()
            self.clocks.at_the_end()
            counts = at_the_end(world, self.place, True)
        drawn = dict(sorted(world.drawn.items()))
        return Result(self.seed, str(self.plan.name), world.errors, world.trace, counts, self.stats(), drawn)

    def stats(self) -> dict[str, int]:
        hosts = [n.host for n in self.world.nodes if n.host]
        instances = [i for h in hosts for i in h.instances.values()]
        return {
            "migrations_planned": self.handovers.count,
            "replayed_planned": self.handovers.replayed,
            "flights": self.flights.count,
            "balanced": self.flights.balanced,
            "migrations_unplanned": self.unplanned + self.takeovers.count,
            "takeovers": self.takeovers.count,
            "takeovers_needless": self.takeovers.needless,
            "replayed": self.world.taken.again,
            "duplicates": self.world.outbox.duplicates,
            "out_of_order": self.world.outbox.out_of_order,
            "boots": sum(n.boots for n in self.world.nodes),
            "frames": self.world.frames,
            "checkpoints": sum(i.ck.committed for i in instances),
            "nowhere_ms": self.absence.longest_us // 1000,
            "nowhere_percent": self.absence.share,
        }

    def told_hardware(self) -> None:
        world, made_of = self.world, self.world.hardware
        for number, sectors in sorted(made_of.sectors.items()):
            world.draw(
                "log as small as declared", "the log of %s has %d sectors" % (world.name(number), sectors)
            )
        if made_of.mtu < MTUS[-1]:
            world.draw("short frames", "frames have %d bytes at most" % made_of.mtu)
        if made_of.drift_ppm == DRIFT_PPM_MAX:
            world.draw("bad clocks", "clocks go wrong by up to %d ppm" % DRIFT_PPM_MAX)
        crowd = max(
            sum(1 for v in self.plan.vertices if v.kind and v.hosts[0] == h) for h in range(len(world.nodes))
        )
        for policy, kind in ((DROP_OLDEST, "drop_oldest"), (DROP_NEWEST, "drop_newest"), (SPILL, "spill")):
            if any(e.policy == policy for e in self.plan.edges):
                world.draw("process with " + kind)
        if crowd >= 12:
            world.draw("many operators on a host", "%d operators on one host" % crowd)

    # ---- hosts that are lost

    def covered(self) -> int:
        """How many losses the level covers: fewer once boards have left, because then fewer hosts hold each
        checkpoint. A board that takes the place of one that has left is no keeper."""
        plan, left = self.plan, self.world.left
        movable = [v.index for v in plan.vertices if v.kind and plan.level_of(v.index)]
        return min([self.kills_max, *(len(set(plan.keepers(v)) - left) - 1 for v in movable)])

    def spare(self, node: Node | None = None) -> bool:
        """Whether a host may die: enough remain to hold checkpoints at the level, and to run operators."""
        living = len([n for n in self.world.nodes if not n.lost])
        if self.plan.level == LOCAL:
            return living > 2 and node is not None and (self.kills < self.kills_max or not self.keeps(node))
        if self.declares:
            return self.kills < self.covered() and living > 2
        return self.kills < self.kills_max and living - 1 >= 1 + self.kills_max

    def may_lose(self, node: Node) -> bool:
        """Whether the level covers the loss of its flash."""
        if self.plan.level == LOCAL:
            may = self.kills < self.kills_max or not self.keeps(node)
            return may and node.number not in self.place.values() and not self.has_only_copy(node)
        return self.kills < self.covered()

    def keeps(self, node: Node) -> bool:
        """Whether it keeps checkpoints of an operator that several hosts may run."""
        plan = self.plan
        movable = [v.index for v in plan.vertices if v.kind and plan.level_of(v.index)]
        return any(node.number in plan.keepers(v) for v in movable)

    def has_only_copy(self, node: Node) -> bool:
        """Whether an operator that ran on this host runs elsewhere by now, and may still need the checkpoint
        that was stored here: at level local no other host has it."""
        for v, at in self.place.items():
            host = self.world.nodes[at].host
            inst = host.instances.get(v) if host else None
            if node.number in self.ran[v] - {at} and (inst is None or inst.unsettled):
                return True
        return False

    def can_lose(self, node: Node) -> bool:
        """Whether a board may be lost for good: its flash is covered, its operators have other candidates,
        and another sensor remains."""
        sensors = {v.hosts[0] for v in self.plan.vertices if not v.kind}
        living = {n.number for n in self.world.nodes if not n.lost}
        if node.number in sensors and len(living & sensors) < 2:
            return False
        return self.may_lose(node) and self.spare(node) and not self.stranded(node)

    def lose(self, node: Node) -> None:
        if self.keeps(node):
            self.kills += 1

    # ---- what a person says

    def declare(self, node: Node) -> None:
        """A person declares a board lost; from now on it is, whether it is dead or asleep."""
        self.declared.add(node.number)
        if not node.lost:
            self.lose(node)
        self.world.declare(node)
        self.say_lost()

    def say_lost(self) -> None:
        """Tell the gateway, again until it knows: it may be away, or lose its database."""
        world = self.world
        gateway = world.nodes[0].host
        told = gateway.lost if gateway else {}
        for number in sorted(self.declared):
            node = world.nodes[number]
            if node.revoked and told.get(number, [0])[0] != node.revoked and world.nodes[0].up:
                world.call(world.nodes[0], partial(self.say_one, node), "lose")
        if not self.saying:
            self.saying = True
            world.after(2 * SECOND, self.say_again)

    def say_one(self, node: Node, host: Any) -> None:
        host.lose(node.number, node.revoked)

    def say_again(self) -> None:
        self.saying = False
        self.say_lost()

    def declare_dead(self) -> None:
        """In peace a person declares every dead board lost."""
        for node in self.world.nodes[1:]:
            if node.dead and node.number not in self.declared:
                self.world.draw(DECLARED_LOST)
                self.declare(node)

    def has_left(self, number: int) -> None:
        """Every host knows that this one is lost, and stores elsewhere what it held: another may die."""
        if self.keeps(self.world.nodes[number]):
            self.kills -= 1

    # ---- operators that start elsewhere

    def stranded(self, node: Node) -> bool:
        """Whether an operator would have no candidate left without this host."""
        lost = {n.number for n in self.world.nodes if n.lost} | {node.number}
        return any(v.kind and lost.issuperset(v.hosts) for v in self.plan.vertices)

    def activate(self, v: int, away: int, to: int = -1) -> None:
        """A candidate that is wrong starts operator v without asking: not on host `away`, or on host `to`."""
        world = self.world
        if self.place[v] != away:
            return
        ready = self.ready(v, away)
        if to in ready:
            ready = [to]
        if not ready:
            return
        target = world.nodes[ready[0]]
        number = self.moved(v, target.number)
        self.unplanned += 1
        self.sameness.untaken(v, away)
        self.tell(v, target, number)

    def ready(self, v: int, away: int) -> list[int]:
        up = [n.number for n in self.world.nodes if n.up and not n.lost and n.number != away]
        return [h for h in self.plan.vertices[v].hosts if h in up]

    def moved(self, v: int, to: int, number: int = 0) -> int:
        number = number or self.sameness.tops[v] + 1
        self.epochs[v] = self.sameness.tops[v] = number
        if self.world.recorder:
            self.world.recorder.moved(v, self.place[v], to, MISTAKEN)
        self.place[v] = to
        self.ran[v].add(to)
        name = self.plan.vertices[v].name
        self.world.note("%s starts at %s, epoch %d" % (name, self.world.name(to), number))
        return number

    def tell(self, v: int, target: Node, number: int) -> None:
        self.world.call(target, lambda host: host.activate(v, number, target.mono()), "activate")

    def clash(self, v: int) -> None:
        """Two hosts are activated under one number."""
        away = self.place[v]
        up = {n.number for n in self.world.nodes if n.up and not n.lost and n.number != away}
        both = sorted(up & {*self.plan.vertices[v].hosts})[-2:]
        if len(both) < 2:
            return
        number = self.sameness.tops[v] + 1
        self.world.draw("two activations with one number")
        for host in both:
            self.moved(v, host, number)
        self.unplanned += 1
        self.sameness.untaken(v, away)
        for host in both:
            self.tell(v, self.world.nodes[host], number)

    # ---- peace

    def peace(self) -> None:
        world = self.world
        world.note("faults stop")
        if world.recorder:
            world.recorder.calm()
        world.loss = world.duplication = 0.0
        world.delay_us = (1_000, 10_000)
        world.cut.clear()
        world.broker_us = 0
        world.asleep.clear()
        world.mute_until.clear()
        world.dozing.clear()
        for stop in world.on_peace:
            stop()
        world.wall.right()
        world.outbox.lake_open = True
        world.outbox.full = False
        for node in world.nodes:
            node.flash.disarm()
            if not node.up and not node.dead:
                world.boot(node)
        for v, p in sorted(self.closed):
            world.after(SECOND, partial(self.reopen, v, p))
        if self.faults:
            world.after(2 * SECOND, self.close_ended)
            world.after(2 * SECOND, self.reopen_forgotten)
        if self.declares:
            self.declare_dead()

    def reopen(self, v: int, p: int) -> None:
        """Reopen a closed input, repeatedly until the gateway has recorded it."""
        world = self.world
        gateway = world.nodes[0]
        if (v, p) not in self.closed:
            return
        e = self.plan.ins(v)[p]
        inc = world.current(-1, e.src)

        def ask(host: Any) -> int:
            try:
                host.reopen(v, p, inc, host.site())
            except ValueError:
                return 0
            return 1

        if gateway.up and world.call(gateway, ask, "reopen"):
            self.closed.discard((v, p))
            world.draw("input reopened", "%s reopens its input %d" % (self.plan.vertices[v].name, p))
        else:
            world.after(SECOND, lambda: self.reopen(v, p))

    def reopen_forgotten(self) -> None:
        """A gateway that lost its database may have forgotten that an input was to be reopened, and one that
        lost power while it was asked to close one may have done so. A person who manages the site sees the
        closed input, and asks again."""
        world = self.world
        for v in sorted(self.place):
            inst = instance(world, self.place, v)
            for p, e in enumerate(inst.inputs if inst else ()):
                if e.closed and not e.edge.absent_ms and (v, p) not in self.ended | self.closed:
                    self.closed.add((v, p))
                    self.reopen(v, p)
        if world.now < self.storm_us + CALM_US // 2:
            world.after(2 * SECOND, self.reopen_forgotten)

    def close_ended(self) -> None:
        """Inputs whose source died are closed by a person's request. Then joins continue without them, and
        changes do not wait for a producer that never answers. In a loop that takes two decisions, for the
        join and for the operator in the loop that has lost its source: while that one waits for its source
        it does not take its feedback, until all operators of the loop wait for free space.
        """
        world = self.world
        dead = {v.index for v in self.plan.vertices if not v.kind and world.nodes[v.hosts[0]].lost}
        for i in self.plan.order:
            ins = list(enumerate(self.plan.ins(i)))
            gone = [(p, e) for p, e in ins if e.src in dead and not e.delay_us]
            if gone and len(gone) == len([e for _, e in ins if not e.delay_us]):
                dead.add(i)
            for p, _ in gone:
                if (i, p) not in self.ended and not self.plan.ins(i)[p].absent_ms:
                    self.close_one(i, p)
        if world.now < self.storm_us + CALM_US // 2:
            world.after(2 * SECOND, self.close_ended)

    def close_one(self, v: int, p: int) -> None:
        world = self.world

        def ask(host: Any) -> int:
            try:
                host.close(v, p)
            except ValueError:
                return 0
            return 1

        if world.nodes[0].up and world.call(world.nodes[0], ask, "close"):
            self.ended.add((v, p))
            world.draw(
                "input of a dead source closed",
                "%s goes on without input %d" % (self.plan.vertices[v].name, p),
            )

    # ---- what must hold in the calm

    def all_accept(self) -> None:
        """No source of a living board refuses samples forever, unless a join waits for what is lost."""
        world = self.world
        waits = blocked(world, self.place)
        for v, since in sorted(world.refusing.items()):
            vertex = self.plan.vertices[v]
            if v in waits:
                world.draw("source that waits for samples that are lost", vertex.name)
            elif not world.nodes[vertex.hosts[0]].lost and not world.errors:
                age = (world.now - since) // SECOND
                world.error("source %s refuses samples since %d s" % (vertex.name, age))

    def progress(self) -> int:
        """How much has ever been taken: it stays the same if everything waits forever."""
        streams = self.world.outbox.streams.values()
        return sum(self.world.taken.furthest.values()) + sum(s.durable for s in streams)

    def nothing_open(self) -> None:
        """Every change that the gateway accepted is taken."""
        for v, taken, asked in self.open():
            name = self.plan.vertices[v].name
            if asked:
                self.world.error("%s: change %d of %d is not taken" % (name, taken + 1, asked))
            else:
                self.world.error("%s: the gateway never learned what is in force" % name)
        self.values_known()

    def values_known(self) -> None:
        """The gateway knows the parameters with which an operator runs: it judges the next change by them."""
        gateway = self.world.nodes[0].host
        if gateway is None or self.world.errors:
            return
        for v, at in sorted(self.place.items()):
            host = self.world.nodes[at].host
            inst = host.instances.get(v) if host else None
            if inst is None or inst.status != RUNNING or not inst.decided or v in gateway.unlearned:
                continue
            vertex = self.plan.vertices[v]
            op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, 1)
            same = inst.given == (gateway.store.log_number, decisions.taken(gateway, v))
            known = decisions.follow(gateway, v, op, True) if same else inst.changed
            if known != inst.changed:
                name = vertex.name
                text = "%s runs with %r, and the gateway believes %r"
                self.world.error(text % (name, inst.changed, known))

    def open(self) -> list[tuple[int, int, int]]:
        """Operators with changes that they have not taken, unless what they wait for is lost: how many are
        taken, and how many were made."""
        world = self.world
        gateway = world.nodes[0].host
        found: list[tuple[int, int, int]] = []
        if gateway is None:
            return found
        for v in sorted(self.place):
            asked, taken = decisions.made(gateway, v), decisions.taken(gateway, v)
            if v in gateway.unlearned:
                taken = asked = 0
            if (asked > taken or v in gateway.unlearned) and not undecided(world, self.place, v):
                found.append((v, taken, asked))
        return found

    def arrived(self) -> bool:
        """True once nothing is missing: a quick check before the thorough one."""
        world = self.world
        if any(not n.up and not n.dead for n in world.nodes):
            return False
        if world.now < self.storm_us + AFTERWARDS_US + 2 * SECOND:
            return False
        decided = sum(len(d) for d in world.decisions().values())
        if self.wanted is None or self.wanted[0] != decided or world.lost:
            self.wanted = (decided, *wanted(world, self.place))
        for e, n in self.wanted[1].items():
            s = world.outbox.streams.get((e, world.current(e)))
            if n and (s is None or s.durable < n):
                return False
        return not self.open() and not behind(world, self.place, self.wanted[2])


__all__ = ["LEVELS", "OUTSIDE", "SITE_US", "STRATEGIES", "UNSAFE", "Result", "Scenario"]
