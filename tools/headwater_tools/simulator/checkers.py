"""What must hold at every step, and at the end. Each checker checks one kind of property; each is itself
proven by a defect that it catches (tests/unit/edge/test_mutations.py)."""

from __future__ import annotations

from typing import Any

from headwater.data.alphabet import Alphabet
from headwater.data.batch import GAP_EARLIER, GAP_FULL, GAP_GATEWAY_LOST, GAP_GIVEN_UP, RESTART, Batch
from headwater.data.ring import Cursor, Ring
from headwater.plan.model import DROP_OLDEST, FLASH, OUTSIDE, UNSAFE, Edge
from headwater.plan.reader import reach
from headwater.protocol.clock import STEP_US
from headwater.protocol.position import further
from headwater.runtime import checkpoint_transfer
from headwater.runtime.instance import EXPOSED, PAUSED, RUNNING
from headwater.storage.keyspace import F_FLOOR, HELD, PENDING, PERMANENT, checkpoint_key

from .ideal import Ends, Ideal
from .outbox import UNREADABLE
from .world import SECOND, SITE_US, Entry, Node, Place, World, entry

CLOCK_SLACK_US = SECOND  # errors that clocks declare: half a round trip, drift since the last exchange
STAMP_SLACK_US = SECOND // 20  # a batch may end this much later than it did: slewing, a microsecond a sample

Stands = tuple[tuple[int, int], int]  # epoch of a consumer, and the xi that it has taken


class Sameness:
    """Equal (stream, incarnation, xi) anywhere means equal bytes; ts never falls on a port.

    A decision may be taken at a position that some boot has passed without it, as long as no consumer has
    taken what that boot put out there: such entries are dropped here. So is what an instance computes that a
    newer epoch has superseded. Entries that a consumer took are checked, and the lake is compared in any
    case. An instance and its checkpoint do not count as a consumer any more once a later epoch of it has a
    checkpoint at the plan's level, or its host is declared lost: no instance continues from there, and its
    own consumers have taken what it put out.
    """

    def __init__(self, world: World, epochs: dict[int, int], place: dict[int, int]) -> None:
        self.world = world
        self.epochs = epochs  # operator -> number of its newest epoch
        self.place = place  # operator -> the host of it
        edges = world.plan.edges
        self.below = {v: reach(edges, v) for v in epochs}
        self.known: dict[tuple[int, int, int], list[Entry | None]] = {}
        self.seen: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.batches: dict[str, Batch] = {}
        self.ran: dict[int, set[int]] = {}  # operator -> every host that it ever ran on
        self.tops = dict(epochs)  # operator -> the highest number of any epoch
        # How far consumers were before the present event: in it, something may be decided and what follows
        # from it be taken at once. By host: life, inputs and for which epoch, checkpoints; and the outbox.
        self.stood: dict[int, tuple[int, dict[int, Stands], dict[int, Place]]] = {}
        self.settled: dict[int, tuple[int, int]] = {}  # operator -> its newest epoch that is settled
        self.safe: dict[int, list[int]] = {}  # ... -> the furthest position that any epoch acknowledged
        self.outside: dict[tuple[int, int], int] = {}
        world.decided.looks.append(lambda v: self.untaken(v, -1))

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None:
            return
        self.check(node, host)
        curs = {k: (e.sink.epoch, e.cur.xi) for k, e in host.inputs.items()}
        self.stood[node.number] = (node.boots, curs, dict(node.blobs))
        if node.number == 0:
            self.outside = {k: s.taken for k, s in self.world.outbox.streams.items()}

    def check(self, node: Node, host: Any) -> None:
        for v, inst in host.instances.items():
            self.acknowledged(v, inst)
            if not inst.unsettled and inst.epoch > self.settled.get(v, (0, 0)):
                self.settled[v] = inst.epoch
            if inst.epoch > (self.epochs[v], self.place[v]):
                self.restarted(v, inst.epoch, node.number)
        for v in self.epochs:
            at = self.world.nodes[self.place[v]]
            if at.lost or (at is node and v not in host.instances):
                self.ended(v)
        for (v, k), port in host.ports.items():
            key = (node.number, v, k)
            inst = host.instances.get(v)
            if inst is not None and inst.epoch < (self.epochs[v], self.place[v]):
                continue
            life, seen = self.seen.get(key, (-1, 0))
            ring = port.ring
            if life != node.boots or seen > ring.last:
                seen = ring.first
            start = max(seen, ring.first)
            if start < ring.last:
                self.look(port.vertex.name, (v, k, port.inc), ring, start, port.alphabet)
            self.seen[key] = (node.boots, ring.last)

    def acknowledged(self, v: int, inst: Any) -> None:
        """An epoch goes on from what earlier ones have acknowledged, or from further on; or it gives up, and
        begins another incarnation. Only an operator whose host alone has its checkpoints begins again where
        that host was erased."""
        world = self.world
        if not world.plan.level_of(v) and world.gone:
            return
        before = self.safe.get(v, [])
        begins = not inst.unsettled and inst.epoch > self.settled.get(v, (0, 0))
        if begins and inst.began_anew():
            before = self.safe[v] = []
        if begins and further(before, inst.ck.pos):
            text = "%s: epoch %r begins at %r, and %r was acknowledged"
            world.error(text % (world.plan.vertices[v].name, inst.epoch, inst.ck.pos, before))
        if further(inst.ck.safe_pos, before):
            self.safe[v] = list(inst.ck.safe_pos)

    def restarted(self, v: int, epoch: tuple[int, int], number: int) -> None:
        """A host has started an operator by itself."""
        self.world.note("%s starts itself at %s, epoch %d" % (
            self.world.plan.vertices[v].name, self.world.name(number), epoch[0]
        ))  # fmt: skip
        away, self.place[v] = self.place[v], number
        self.epochs[v] = epoch[0]
        self.tops[v] = max(self.tops[v], epoch[0])
        self.ran.setdefault(v, set()).add(number)
        self.untaken(v, away)

    def ended(self, v: int) -> None:
        """The newest instance has ended, or never began: the one before it counts again, if it lives."""
        hosts = [node.host for node in self.world.nodes if node.host and not node.lost]
        living = [host.instances[v].epoch for host in hosts if v in host.instances]
        if living and max(living)[1] != self.place[v]:
            self.epochs[v], self.place[v] = max(living)

    def untaken(self, v: int, away: int) -> None:
        """Drop what no consumer, except perhaps on host `away`, has taken of v and of all after it."""
        world = self.world
        for stream, known in self.known.items():
            if stream[0] not in self.below[v]:
                continue
            taken = 0
            for e in world.plan.edges:
                if (e.src, e.sport) != stream[:2]:
                    continue
                if e.dst == OUTSIDE:
                    key = (e.index, stream[2])
                    s = world.outbox.streams.get(key)
                    taken = max(taken, min(s.taken, self.outside.get(key, 0)) if s else 0)
                    continue
                k = [i.index for i in world.plan.ins(e.dst)].index(e.index)
                for node in world.nodes:
                    if node.lost:  # nobody goes on from what it has
                        continue
                    life, curs, blobs = self.stood.get(node.number, (0, {}, {}))
                    if life != node.boots or not node.host:
                        curs, blobs = {}, node.blobs
                    found = [
                        (at[0], at[1][k])
                        for at in (blobs.get(checkpoint_key(e.dst, slot)) for slot in (PERMANENT, HELD))
                        if at
                    ]
                    if node.number != away and e.index in curs:
                        found.append(curs[e.index])
                    for epoch, xi in found:
                        if epoch >= self.settled.get(e.dst, (0, 0)):
                            taken = max(taken, xi)
            del known[taken:]

    def look(
        self, name: str, stream: tuple[int, int, int], ring: Ring, start: int, alphabet: Alphabet
    ) -> None:
        known = self.known.setdefault(stream, [])
        batch = self.batches.get(alphabet.text)
        if batch is None:
            batch = self.batches[alphabet.text] = Batch(alphabet, self.world.plan.batch)
        cur = Cursor(start)
        while cur.xi < ring.last:
            n = ring.read(cur, batch, batch.size)
            for i in range(n):
                xi = batch.xi + i
                what = entry(batch, i)
                while len(known) < xi:
                    known.append(None)
                had = known[xi - 1]
                if had is None:
                    known[xi - 1] = what
                    before = known[xi - 2] if xi > 1 else None
                    if before is not None and what[0] < before[0]:
                        self.world.error("%s xi %d: ts falls from %d to %d" % (name, xi, before[0], what[0]))
                elif had != what:
                    self.world.error("%s xi %d: %r here, %r elsewhere" % (name, xi, what, had))
                    return
            cur.xi += n


class Bounds:
    """Every buffer within its limit; no boundary above the floor in flash; never more than two pending
    checkpoints, and in flash none that the host does not wait for."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None:
            return
        for inst in host.instances.values():
            if len(inst.ck.pending) > 2:
                self.world.error("%s: %d pending checkpoints" % (inst.vertex.name, len(inst.ck.pending)))
        for v in self.world.plan.vertices:
            here = host.instances.get(v.index)
            waits = {c.slot for c in here.ck.pending} if here else set()
            for slot in (PENDING, PENDING + 1):
                if v.kind and slot not in waits and host.store.blob_size(checkpoint_key(v.index, slot)):
                    text = "%s: flash keeps a pending checkpoint of %s that nothing waits for"
                    self.world.error(text % (self.world.name(node.number), v.name))
        data = host.store.get(F_FLOOR)
        floor = int.from_bytes(data, "little") if data else 0
        for source in host.sources.values():
            floor = max(floor, host.store.tail(source.port.stream)[1] + 1)
        for source in host.sources.values():
            if source.port.bound > floor:
                self.world.error(
                    "%s: boundary %d above the floor %d" % (source.vertex.name, source.port.bound, floor)
                )


class Clocks:
    """No clock is further ahead of the true time than a step, whatever was restarted how often, and than the
    clock of the gateway's machine ever was; nor is a floor in flash. No source is ahead of its clock. At the
    end, when the gateway has the time again, no clock is further behind than a step either."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.early: dict[str, tuple[int, int]] = {}  # host -> its boot, how long before its time it began

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None:
            return
        world = self.world
        now = SITE_US + world.now
        name = world.name(node.number)
        promised = world.promised.get(name, 0)
        if name not in self.early or self.early[name][0] != node.boots:
            # It had promised to sleep, and power was back before that was over. No stamp goes back after
            # that, so it stays ahead in later boots.
            self.early[name] = (node.boots, max(self.early.get(name, (0, 0))[1], promised - now))
        most = max(now + self.early[name][1], promised) + STEP_US + world.wall.most_us + CLOCK_SLACK_US
        for what, ts in (("clock", host.clock.site(node.mono())), ("floor", host.floor.flash_us)):
            if ts > most:
                world.error("the %s of %s is %.3f s ahead" % (what, name, (ts - now) / SECOND))
        shown = max(host.clock.site(node.mono()), world.promised.get(name, 0))
        for source in host.sources.values():
            ts = host.store.tail(source.port.stream)[1]
            if ts > shown + STAMP_SLACK_US:
                text = "%s: the last element is stamped %.3f s ahead of the clock"
                world.error(text % (source.vertex.name, (ts - shown) / SECOND))

    def at_the_end(self) -> None:
        world = self.world
        for node in world.nodes:
            if node.host is not None and not node.lost:
                behind = SITE_US + world.now - node.host.clock.site(node.mono())
                if behind > STEP_US + CLOCK_SLACK_US:
                    text = "the clock of %s is %.3f s behind the true time"
                    world.error(text % (world.name(node.number), behind / SECOND))


class Holes:
    """What a source missed while its board was down, and what it refused, is one hole, from its last sample
    on; never two holes side by side for one reason."""

    def __init__(self, world: World) -> None:
        self.world = world
        # By (source, incarnation): boot and entries before it; samples refused and entries before
        # them; entries that were checked.
        self.begun: dict[tuple[int, int], tuple[int, int]] = {}
        self.refused: dict[tuple[int, int], tuple[int, int]] = {}
        self.looked: dict[tuple[int, int], int] = {}

    def __call__(self, node: Node) -> None:
        if node.host is None:
            return
        for v, source in node.host.sources.items():
            key = (v, source.port.inc)
            line = self.world.accepted.get(key, [])
            life, n = self.begun.get(key, (-1, 0))
            if life != node.boots:
                self.begun[key] = (node.boots, len(line))
            elif 0 < n < len(line):
                self.begun[key] = (node.boots, 0)
                last, first = line[n - 1], line[n]
                if first[2:3] != ("hole",) or first[0] - first[4] != last[0]:
                    self.world.error(
                        "%s: %r follows %r across a restart, not a hole" % (source.vertex.name, first, last)
                    )
            refused, n = self.refused.get(key, (0, 0))
            if source.refused != refused:
                self.refused[key] = (source.refused, len(line))
            elif n and n < len(line):
                self.refused[key] = (refused, 0)
                if line[n][2:3] != ("hole",):
                    self.world.error(
                        "%s: %r follows refused samples, not a hole" % (source.vertex.name, line[n])
                    )
            for i in range(max(1, self.looked.get(key, 0)), len(line)):
                before, here = line[i - 1][2:4], line[i][2:4]
                if before == here and here[0] == "hole" and here[1] != RESTART:
                    self.world.error("%s: two holes side by side at xi %d" % (source.vertex.name, i))
            self.looked[key] = len(line)


class Held:
    """What remains when hosts die suffices: for every operator the furthest checkpoint that the others hold
    is at or after what its producers have trimmed, and every name is held."""

    def __init__(self, world: World, every: int = 7) -> None:
        self.world = world
        self.every = every
        self.count = 0

    def __call__(self, node: Node) -> None:
        self.count += 1
        world = self.world
        if self.count % self.every or world.plan.strategy == UNSAFE or node.host is None:
            return
        for port in node.host.ports.values():
            for r in port.readers:
                if r.edge.dst == OUTSIDE:
                    if r.safe > self.safe_outside(r.edge, port.inc, r):
                        world.error(
                            "%s: the lake acknowledged xi %d, which it has not" % (port.vertex.name, r.safe)
                        )
                elif r.name:
                    self.name(port, r)

    def safe_outside(self, e: Edge, inc: int, r: Any) -> int:
        s = self.world.outbox.streams.get((e.index, inc))
        told = max([g[1] for g in r.gaps] or [0])
        return max(s.ever if s else 0, told, self.world.begun.get((e.src, inc), 0))

    def name(self, port: Any, r: Any) -> None:
        world = self.world
        v = r.edge.dst
        k = [e.index for e in world.plan.ins(v)].index(r.edge.index)
        if r.safe > r.name[k]:
            world.error(
                "%s: xi %d is safe, the named checkpoint stands at %d" % (port.vertex.name, r.safe, r.name[k])
            )
        number, when = world.decided.given_up.get(v, (0, -1))
        if r.name[-1] < number or world.lost_beyond(v, when):
            return  # what it names is given up, or is to be
        holding = []
        for h in world.nodes:
            best = world.held(h, v)
            if best and not further(r.name, best):
                holding.append(h.number)
        # One that was declared lost counts for nothing, under its next log number too.
        living = [n for n in holding if not (world.nodes[n].dead or world.nodes[n].revoked)]
        # A level counts hosts, and no more of them than there are keepers that have not left.
        keepers = [h for h in world.plan.keepers(v) if h not in world.left]
        need = min(1 + world.plan.level_of(v), len(keepers))
        if len(living) < need - len([h for h in keepers if h in world.gone]):
            world.error(
                "%s: edge to %s names %r, held only by %r of %r"
                % (port.vertex.name, world.plan.vertices[v].name, r.name, living, r.holders)
            )


def accepted(world: World) -> tuple[dict[int, dict[int, list[Entry]]], dict[int, int]]:
    """What the sources accepted in each incarnation, and the boundaries that they have given at least."""
    entries: dict[int, dict[int, list[Entry]]] = {}
    bounds: dict[int, int] = {}
    for v in world.plan.vertices:
        if not v.kind:
            lines = {inc: world.accepted[v.index, inc] for inc in world.order.get(v.index, [])}
            entries[v.index] = lines
            last = next((line[-1][0] for line in reversed(lines.values()) if line), 0)
            bounds[v.index] = last + 1 if last and v.rate_mhz else last
    if world.drained:
        bounds = dict.fromkeys(bounds, max(bounds.values()))
    return entries, bounds


def instance(world: World, place: dict[int, int], v: int) -> Any:
    """The operator where it runs now, or None."""
    host = world.nodes[place[v]].host
    return host.instances.get(v) if host else None


def stuck(world: World, place: dict[int, int], inst: Any) -> bool:
    """Samples of a log that is gone would be needed for what it must put out again because others have it
    already: so it waits forever, unless it is told to give up."""
    if inst.status not in (RUNNING, PAUSED) or inst.unsettled:
        return False  # not known yet
    return any(_ahead(p) for p in inst.ports) and inst.vertex.index in _starved(world, place)


def _starved(world: World, place: dict[int, int]) -> set[int]:
    """Operators that lack entries which were lost with a source, at an input or above. An instance that began
    after its source died knows none of its incarnations."""
    found: set[int] = set()
    for v in place:
        inst = instance(world, place, v)
        for i in inst.inputs if inst else ():
            source = world.plan.vertices[i.edge.src]
            never = not i.inc and not source.kind and _begun_anew(world, source)
            if not i.closed and (never or i.inc and world.past(i.edge.src, i.inc)):
                found.update(reach(world.plan.edges, v))
    return found


def _begun_anew(world: World, source: Any) -> bool:
    """The log that a source had first is gone."""
    return world.nodes[source.hosts[0]].lost or len(world.order.get(source.index, ())) > 1


def _ahead(port: Any) -> bool:
    """Whether a consumer has entries that the operator has not put out in this boot."""
    readers = [r.local.cur.xi if r.local else r.got for r in port.readers]
    return max([port.sealed, *readers]) > port.ring.last


def undecided(world: World, place: dict[int, int], v: int) -> bool:
    """A change of operator v never gets a position: it waits for samples that are lost, or for an operator
    after it that does, because nothing is decided before all later outputs have been put out again, nor
    if no checkpoint can be made."""
    inst = instance(world, place, v)
    if inst is None or stuck(world, place, inst):
        return inst is not None
    waits, _ = waiting(world, place)
    if any(_spilled(p, waits) for p in inst.ports) or not _storable(world, inst):
        return True
    behind = [instance(world, place, w) for w in reach(world.plan.edges, v) if w in waits]
    every = len(world.plan.vertices)
    return inst.depth < every and any(other.depth < every for other in behind if other)


def _storable(world: World, inst: Any) -> bool:
    """Whether enough hosts live that may store its checkpoint: one that died and was not declared lost still
    counts for the level."""
    host = inst.host
    v = inst.vertex.index
    keepers = [h for h in checkpoint_transfer.keepers(host, v) if h != host.me]
    return len([h for h in keepers if not world.nodes[h].dead]) >= checkpoint_transfer.needed(host, v)


def waiting(world: World, place: dict[int, int]) -> tuple[set[int], dict[int, Any]]:
    """Operators that wait forever, those that consume from one that does, those before one that may therefore
    accept no new incarnation of a source or store no checkpoint, and those whose buffers are full because
    one of these does not consume; the last ones with their instances."""
    waits: set[int] = set()
    full: dict[int, Any] = {}
    insts = {v: inst for v in place if (inst := instance(world, place, v))}
    new = [v for v, inst in insts.items() if stuck(world, place, inst)]
    while new:
        for v in new:
            waits.update(reach(world.plan.edges, v))
        new = [v for v, inst in insts.items() if v not in full and _no_room(inst, waits)]
        full.update((v, insts[v]) for v in new)
        new += [
            v
            for v, inst in insts.items()
            if v not in waits
            and (_shut(world, insts, v, waits) or any(_spilled(p, waits) for p in inst.ports))
        ]
    return waits, full


def _shut(world: World, insts: dict[int, Any], v: int, waits: set[int]) -> bool:
    """A source of this operator is lost, and no decision to go on without its samples can be taken."""
    inst, every = insts[v], len(world.plan.vertices)
    lost = any(i.inc and not i.closed and world.past(i.edge.src, i.inc) for i in inst.inputs)
    behind = [insts[w] for w in reach(world.plan.edges, v) if w in waits and w in insts]
    return lost and inst.depth < every and any(other.depth < every for other in behind)


def _no_room(inst: Any, waits: set[int]) -> bool:
    """It cannot continue: its buffers are full, or the checkpoint that must follow a decision is missing."""
    if inst.status == EXPOSED and any(_spilled(p, waits) for p in inst.ports):
        return True
    return any(_full(p, waits) for p in inst.ports)


def _full(port: Any, waits: set[int]) -> bool:
    """This port is full, and an operator that waits has not made its content safe."""
    pins = [r for r in port.readers if r.edge.dst in waits and r.safe <= port.ring.first]
    return port.ring.room() == 0 and bool(pins)


def _spilled(port: Any, waits: set[int]) -> bool:
    """More of this port is in the log than a checkpoint may carry, and an operator that waits has not made
    it safe: so there is no checkpoint, and nothing is acknowledged to those before."""
    pins = [
        r for r in port.readers if r.edge.dst in waits and port.ring.last - port.carried(r) > port.ring.cap
    ]
    return port.spills and bool(pins)


def blocked(world: World, place: dict[int, int]) -> set[int]:
    """Sources for which an operator waits forever, and those whose log holds what a consumer does not take.
    Where such a log is full, also the others that share it, and those of a join that gets nothing more from
    it."""
    waits, full = waiting(world, place)
    waits |= set(full)
    ports = [(n.number, p) for n in world.nodes if n.host for p in n.host.ports.values() if p.spills]
    pinned = {h for h, p in ports for r in p.readers if r.edge.dst in waits and r.safe < p.ring.last}
    edges = world.plan.edges
    sources = [v for v in world.plan.vertices if not v.kind]
    found = {v.index for v in sources if v.hosts[0] in pinned}
    found |= {e.src for e in edges if e.dst in waits} - set(place)
    while True:
        refusing = found & set(world.refusing)
        logs = {world.plan.vertices[v].hosts[0] for v in refusing}
        fed = {e.dst for e in edges if e.src in refusing and e.dst != OUTSIDE}
        joins = fed | {u for v in fed for u in reach(edges, v)}
        more = {v.index for v in sources if v.hosts[0] in logs or joins & set(reach(edges, v.index))} - found
        if not more:
            return found
        found |= more


def ends(world: World, place: dict[int, int]) -> Ends:
    """Streams that end for an operator: the log of their source is gone, and it has this many entries, or
    their operator is full. Edge -> (incarnation or 0, entries)."""
    found: Ends = {}
    _, full = waiting(world, place)
    for e in world.plan.edges:
        v = world.plan.vertices[e.src]
        if e.src in full and e.dst != OUTSIDE:
            found[e.index] = (0, full[e.src].ports[e.sport].ring.last)
        if v.kind or e.dst == OUTSIDE:
            continue
        inst = instance(world, place, e.dst)
        i = next((i for i in inst.inputs if i.edge is e), None) if inst else None
        if i is None or (_begun_anew(world, v) and not i.inc):
            found[e.index] = (0, 0)
        elif i.inc and world.past(e.src, i.inc):
            found[e.index] = (i.inc, i.cur.xi)
    return found


def reopened(world: World) -> dict[tuple[int, int], int]:
    """By decision: the incarnation that an input had when it was opened again."""
    return {key: inc for key, (_, inc) in world.taken.reopened.items()}


def least(world: World, place: dict[int, int]) -> Ideal:
    """The ideal run with what is known for certain: the boundaries that the sources gave, and of a stream
    whose log is lost what its consumers have. No operator puts out more than its buffers hold: a join that
    waits for a board whose last samples are old blocks the producers of its other inputs."""
    entries, bounds = accepted(world)
    taken = set(world.taken.furthest)
    found = ends(world, place)
    decisions = world.decisions()
    return Ideal(
        world.plan, entries, bounds, decisions, found, taken,
        buffers=True, begun=world.begun, drained=world.drained, reopened=reopened(world),
        left=world.decided.left, until=world.decided.until,
    )  # fmt: skip


def wanted(world: World, place: dict[int, int]) -> tuple[dict[int, int], Ideal]:
    """How many entries every edge to the lake must deliver in the end, and the run that shows it."""
    run = least(world, place)
    _, full = waiting(world, place)
    return {e.index: must(world, run, full, e, world.current(e.index)) for e in world.lake_edges()}, run


def must(world: World, run: Ideal, full: dict[int, Any], e: Edge, inc: int) -> int:
    """How many entries of an incarnation the lake must have in the end."""
    if world.plan.vertices[e.src].kind:
        if inc != run.incs.get(e.src, 0):
            return 0  # given up: it ends where the lake has it
        many = len(run.lines[(e.src, e.sport)].entries)
        return min(many, full[e.src].ports[e.sport].ring.last) if e.src in full else many
    return 0 if world.past(e.src, inc) else len(world.accepted.get((e.src, inc), ()))


def at_the_end(world: World, place: dict[int, int], complete: bool) -> dict[str, int]:
    """Compare the lake with the ideal run. Counts; errors go to the world."""
    plan = world.plan
    entries, _ = accepted(world)
    far = SITE_US + world.now + 1000 * SECOND
    taken = set(world.taken.furthest)
    bounds = dict.fromkeys(entries, far)
    ideal = Ideal(
        plan, entries, bounds, world.decisions(), {}, taken, far,
        begun=world.begun, reopened=reopened(world),
        left=world.decided.left, until=world.decided.until,
    )  # fmt: skip
    for text in ideal.wrong:
        world.error(text)
    run = least(world, place)
    _, full = waiting(world, place)
    counts = {"accepted": 0, "delivered": 0, "lost": 0, "divergent": 0, "gaps_declared": 0}
    for lines in entries.values():
        counts["accepted"] += sum(len(line) for line in lines.values())
    for e in world.lake_edges():
        source = not plan.vertices[e.src].kind
        for inc in entries[e.src] if source else world.incarnations(e.src):
            want = entries[e.src][inc] if source else ideal.line(e.src, e.sport, inc)
            least_many = must(world, run, full, e, inc) if complete else 0
            compare(world, e, inc, want, least_many, counts)
    for edge, inc in world.outbox.streams:
        src = plan.edges[edge].src
        if plan.vertices[src].kind and inc not in world.incarnations(src):
            world.error("%s: incarnation %d of an operator" % (plan.edges[edge].lake, inc))
    if complete and world.drained:
        used(world)
    elif complete:
        positions(world, place, run)
    return counts


def compare(world: World, e: Edge, inc: int, want: list[Entry], must: int, counts: dict[str, int]) -> None:
    """One stream of the lake, in one incarnation, with what the ideal run has of it."""
    stream = world.outbox.streams.get((e.index, inc))
    rows = stream.rows if stream else {}
    gaps = stream.gaps if stream else []
    declared = {xi for first, last, _ in gaps for xi in range(first, last + 1)}
    for gap in gaps:
        if not may_declare(world, e, inc, gap):
            world.error("%s: declared gap %r, which its author never allowed" % (e.lake, gap))
    counts["delivered"] += len(rows)
    counts["gaps_declared"] += len(gaps)
    for xi, row in rows.items():
        if xi > len(want):
            world.error("%s xi %d: a row that the ideal run does not have" % (e.lake, xi))
            counts["divergent"] += 1
            break
        if row != want[xi - 1]:
            world.error("%s xi %d: %r, ideal %r" % (e.lake, xi, row, want[xi - 1]))
            counts["divergent"] += 1
            break
    end = max(must, max(rows, default=0))
    missing = [xi for xi in range(1, end + 1) if xi not in rows and xi not in declared]
    if missing:
        counts["lost"] += len(missing)
        world.error("%s: %d of %d missing, the first is xi %d" % (e.lake, len(missing), end, missing[0]))


def may_declare(world: World, e: Edge, inc: int, gap: tuple[int, int, int]) -> bool:
    """Whether a gap may be declared for this reason: see headwater.runtime.outputs."""
    reason = gap[2]
    if reason == UNREADABLE:
        return all((e.index, inc, xi) in world.spoiled for xi in range(gap[0], gap[1] + 1))
    if reason == GAP_EARLIER:
        return gap[1] <= world.begun.get((e.src, inc), 0)
    if reason == GAP_GATEWAY_LOST:
        return world.databases_lost > 0
    return e.policy == DROP_OLDEST if reason == GAP_FULL else reason == GAP_GIVEN_UP and e.durable == FLASH


def used(world: World) -> None:
    """A checkpoint of every operator has everything that the sources have given it."""
    for e in world.plan.edges:
        v = world.plan.vertices[e.src]
        if v.kind or e.dst == OUTSIDE:
            continue
        entries = len(world.accepted.get((v.index, world.current(e.index)), ()))
        k = [i.index for i in world.plan.ins(e.dst)].index(e.index)
        taken = max((pos[k] for pos in (world.held(node, e.dst) for node in world.nodes) if pos), default=0)
        if taken < entries and entries > world.begun.get((v.index, world.current(e.index)), 0):
            text = "%s: the version ends, and %s has taken %d of %d entries"
            world.error(text % (v.name, world.plan.vertices[e.dst].name, taken, entries))


def positions(world: World, place: dict[int, int], run: Ideal) -> None:
    """Every operator is at least as far as the ideal run: none lags behind its producers forever."""
    for v in run.machines:
        inst = instance(world, place, v)
        if inst and stuck(world, place, inst):
            world.draw("operator that waits for samples that are lost", inst.vertex.name)
    for text in behind(world, place, run):
        world.error(text)


def behind(world: World, place: dict[int, int], run: Ideal) -> list[str]:
    """Operators that are not at the ideal run's position, that lack a decision, or that wait for
    themselves, in words."""
    names = [world.plan.vertices[v].name for v in sorted(run.full_loops())]
    found = ["%s: the buffers of its loop are full, and so they stay" % name for name in names]
    decided = world.decisions()
    _, full = waiting(world, place)
    for v, machine in run.machines.items():
        if v in full:
            continue
        inst = instance(world, place, v)
        name = world.plan.vertices[v].name
        if inst is None:
            found.append("%s runs nowhere" % name)
            continue
        wrong = world.decided.wrong(v, world.many(v))
        if wrong:
            found.append("%s: %s" % (name, wrong))
        course = decided.get(v, [])
        if inst.decided < len(course) and not stuck(world, place, inst):
            text = "%s: stands at %r, and takes decision %d at %r"
            found.append(text % (name, inst.position(), inst.decided + 1, course[inst.decided][0]))
        for p, e in enumerate(inst.inputs):
            same = e.inc == machine.incs[p]
            if same and e.cur.xi < machine.taken[p]:
                text = "%s: stands at xi %d of input %d, the ideal run at xi %d"
                found.append(text % (name, e.cur.xi, p, machine.taken[p]))
    return found
