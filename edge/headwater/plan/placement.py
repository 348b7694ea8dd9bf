# Batteries and placement: how long hosts last, and where operators should run so that they last longest.
#
# Everything here is pure and integer: the same case gives the same answer at the gateway and in the
# simulator. A board does without it: it needs draws.py alone.
#
#   time left = charge left / (base draw + work of its operators + traffic to and from other hosts)
#
# `place` makes the time until the first battery is empty as long as possible, then the time until the
# second, and so on; of equals it takes one that moves the fewest operators. It never leaves an operator's
# candidates, their float width, or the heap and the log of a host. Latency is no limit here: validation
# has proven every delay for the slowest placement within the candidates.
#
# The units are those of draws.py.

from ..offboard.compat import TYPE_CHECKING
from . import draws as drawn
from .draws import FOREVER, FRAME_BYTES, NOWHERE, OUTSIDE, gains

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .draws import Link, Places

__all__ = ["FOREVER", "FRAME_BYTES", "MAINS", "OUTSIDE", "Edge", "Host", "Link", "Places", "Vertex", "gains"]
MAINS = -1  # charge left of a host without a battery
TRIALS = 4000  # placements that `place` looks at, unless it is told otherwise

NO_CANDIDATE, WIDTH, LINK, HEAP, LOG = 1, 2, 3, 4, 5  # which limit a placement breaks
_MUCH = 1 << 20  # weight of a limit that has no size, beside bytes
_MOST_STARTS = 64


class Host:
    # left_mc     charge left, or MAINS
    # base_na     what it draws before it runs an operator or sends a byte for one
    # unit_pc     what a unit of work costs
    # links       name -> (pc to send a byte, pc to receive one, nc for a frame)
    # radio_na    what its radio draws at most for frames: it is on all the time
    # heap_bytes, log_bytes: for operators
    # floats      width of its floats in bits
    def __init__(
        self,
        left_mc: int,
        base_na: int,
        unit_pc: int,
        links: "dict[str, Link]",
        radio_na: int,
        heap_bytes: int = FOREVER,
        log_bytes: int = FOREVER,
        floats: int = 32,
    ) -> None:
        self.left_mc = left_mc
        self.base_na = base_na
        self.unit_pc = unit_pc
        self.links = links
        self.radio_na = radio_na
        self.heap_bytes = heap_bytes
        self.log_bytes = log_bytes
        self.floats = floats


class Vertex:
    # hosts       candidates, best first; a source has one
    # units_mhz   units of work a second
    # heap_bytes  of its state and buffers, without the queues of its inputs
    # log_bytes   of its checkpoints where it runs
    # moved_bytes of its checkpoint with its transfer state: what a move sends
    # width       of floats that it needs; 0: any
    # state_bytes of its state: a host that takes it over has that twice more while it reads the checkpoint
    def __init__(
        self,
        hosts: "Sequence[int]",
        units_mhz: int,
        heap_bytes: int = 0,
        log_bytes: int = 0,
        moved_bytes: int = 0,
        width: int = 0,
        state_bytes: int = 0,
    ) -> None:
        self.hosts = hosts
        self.units_mhz = units_mhz
        self.heap_bytes = heap_bytes
        self.log_bytes = log_bytes
        self.moved_bytes = moved_bytes
        self.width = width
        self.state_bytes = state_bytes


class Edge:
    # src, dst     vertices; dst is OUTSIDE for an edge to the lake
    # bytes_mhz, frames_mhz: that cross if its ends are on two hosts
    # queue_bytes  heap that its consumer needs for it then
    def __init__(self, src: int, dst: int, bytes_mhz: int, frames_mhz: int, queue_bytes: int = 0) -> None:
        self.src = src
        self.dst = dst
        self.bytes_mhz = bytes_mhz
        self.frames_mhz = frames_mhz
        self.queue_bytes = queue_bytes


class Case:
    # Hosts (0 is the gateway), vertices and edges of a process.
    def __init__(self, hosts: list[Host], vertices: list[Vertex], edges: list[Edge]) -> None:
        self.hosts = hosts
        self.vertices = vertices
        self.edges = edges
        self.ins = [[e for e in edges if e.dst == v] for v in range(len(vertices))]

    # -- what hosts draw: see draws.py -----------------------------------------------------------------

    def links(self, a: int, b: int, bytes_mhz: int, frames_mhz: int) -> "tuple[str, str] | None":
        return drawn.ways(self._hosts(), a, b, bytes_mhz, frames_mhz)

    def traffic(self, places: "Places") -> "dict[int, list[int]]":
        return drawn.traffic(len(self.hosts), self._streams(), places)

    def draws(self, places: "Places") -> "list[int] | None":
        units = [vertex.units_mhz for vertex in self.vertices]
        return drawn.draws(self._hosts(), units, self._streams(), places)

    def _hosts(self) -> "list[drawn.Host]":
        return [(h.left_mc == MAINS, h.base_na, h.unit_pc, h.links, h.radio_na) for h in self.hosts]

    def _streams(self) -> "list[drawn.Stream]":
        return [(e.src, e.dst, e.bytes_mhz, e.frames_mhz) for e in self.edges]

    # -- time left -----------------------------------------------------------------------------------

    # Seconds until each host's battery is empty; FOREVER on mains. [] where hosts cannot speak.
    def lives(self, places: "Places") -> list[int]:
        draws = self.draws(places)
        if draws is None:
            return []
        return [life_s(host.left_mc, draw) for host, draw in zip(self.hosts, draws)]

    # What a placement is worth: the times until the first battery is empty, the second, ...
    def worth(self, places: "Places") -> list[int]:
        lives = self.lives(places)
        out = [lives[h] for h in range(len(lives)) if self.hosts[h].left_mc != MAINS]
        out.sort()
        return out

    # -- limits --------------------------------------------------------------------------------------

    # The limits that a placement breaks: (reason, vertex or host, by how much). [] where it keeps all.
    def breaks(self, places: "Places") -> "list[tuple[int, int, int]]":
        hosts = self.hosts
        out = []
        for v in range(len(places)):
            vertex = self.vertices[v]
            if places[v] == NOWHERE:
                continue
            if places[v] not in vertex.hosts:
                out.append((NO_CANDIDATE, v, _MUCH))
            if vertex.width and hosts[places[v]].floats != vertex.width:
                out.append((WIDTH, v, _MUCH))
        heaps = self.heaps(places)
        logs = self.logs(places)
        for h in range(len(hosts)):
            if heaps[h] > hosts[h].heap_bytes:
                out.append((HEAP, h, heaps[h] - hosts[h].heap_bytes))
            if logs[h] > hosts[h].log_bytes:
                out.append((LOG, h, logs[h] - hosts[h].log_bytes))
        crossing = self.traffic(places)
        for pair in sorted(crossing):
            a = pair // len(hosts)
            if self.links(a, pair % len(hosts), 0, 0) is None:
                out.append((LINK, a, _MUCH))
        return out

    # Heap of each host: for what it runs, and for any one operator that it may take over.
    def heaps(self, places: "Places") -> list[int]:
        total = [0] * len(self.hosts)
        spare = [0] * len(self.hosts)
        for v in range(len(places)):
            for h in self.vertices[v].hosts:
                need = self.vertices[v].heap_bytes
                for e in self.ins[v]:
                    if places[e.src] != h and places[e.src] != NOWHERE:
                        need += e.queue_bytes
                if places[v] == h:
                    total[h] += need
                else:
                    spare[h] = max(spare[h], need + 2 * self.vertices[v].state_bytes)
        return [a + b for a, b in zip(total, spare)]

    # Log of each host for the checkpoints of what it runs.
    def logs(self, places: "Places") -> list[int]:
        out = [0] * len(self.hosts)
        for v in range(len(places)):
            if places[v] != NOWHERE:
                out[places[v]] += self.vertices[v].log_bytes
        return out

    # -- a planned move --------------------------------------------------------------------------------

    # Charge in nc that handing operator v over from host a to host b costs the two.
    def handover_nc(self, v: int, a: int, b: int) -> "tuple[int, int]":
        size = self.vertices[v].moved_bytes
        names = self.links(a, b, size, 1)
        if names is None:
            return 0, 0
        sent = self.hosts[a].links[names[0]]
        taken = self.hosts[b].links[names[1]]
        return size * sent[0] // 1000 + sent[2], size * taken[1] // 1000 + taken[2]

    # Times left of giver and taker, (giver now, taker now, giver then, taker then), if operator v moves to
    # host `to`; what the move itself costs is gone from both batteries then.
    def moved(self, places: "Places", v: int, to: int) -> "tuple[int, int, int, int]":
        giver = places[v]
        after = list(places)
        after[v] = to
        now = self.draws(places)
        then = self.draws(after)
        if now is None or then is None:
            return 0, 0, 0, 0
        cost = self.handover_nc(v, giver, to)
        out = []
        for draws, spent in ((now, (0, 0)), (then, cost)):
            for h, nc in ((giver, spent[0]), (to, spent[1])):
                left = self.hosts[h].left_mc
                if left != MAINS:
                    left = max(0, left - (nc + 999999) // 1000000)
                out.append(life_s(left, draws[h]))
        return out[0], out[1], out[2], out[3]

    # Charge in mc below which host h hands over what it runs: twice what that costs to the cheapest
    # candidate of each, and what its log still has to send, `waiting_bytes`.
    def flee_mc(self, places: "Places", h: int, waiting_bytes: int = 0) -> int:
        nc = 0
        for v in range(len(places)):
            others = [c for c in self.vertices[v].hosts if c != h]
            if places[v] == h and others:
                nc += 2 * min([self.handover_nc(v, h, c)[0] for c in others])
        dear = max([link[0] for link in self.hosts[h].links.values()] or [0])
        return (nc + waiting_bytes * dear // 1000 + 999999) // 1000000

    # The same as a time left: host h flees when it has less.
    def flee_s(self, places: "Places", h: int, waiting_bytes: int = 0) -> int:
        draws = self.draws(places)
        if draws is None or self.hosts[h].left_mc == MAINS:
            return 0
        return min(FOREVER, -(-self.flee_mc(places, h, waiting_bytes) * 1000000 // max(1, draws[h])))


# Seconds that so much charge lasts.
def life_s(left_mc: int, draw_na: int) -> int:
    if left_mc == MAINS or draw_na <= 0:
        return FOREVER
    return min(FOREVER - 1, left_mc * 1000000 // draw_na)


# ---- placement


# The best placement of a case that it finds with at most `trials` looks, or None if it finds none that
# keeps the limits. All placements are looked at where there are no more than that. `first`: where the
# operators run now, or shall run if nothing else is better. `each` is called after each look, so that a
# thread can leave the processor to others; it changes nothing here.
def place(
    case: Case, first: "Places", trials: int = TRIALS, each: "Callable[[], object] | None" = None
) -> "list[int] | None":
    search = _Search(case, first, trials, each)
    if search.space() <= trials:
        search.all()
    else:
        search.left = trials // 2
        search.climb()
        search.left += trials - trials // 2
        search.descend()
    return search.best


class _Search:
    def __init__(
        self, case: Case, first: "Places", trials: int, each: "Callable[[], object] | None" = None
    ) -> None:
        self.case = case
        self.first = list(first)
        self.left = trials
        self.each = each
        self.best: "list[int] | None" = None
        self.best_worth: list[int] = []
        self.mixed = 1
        # Vertices that have a choice, and where each may run.
        self.free: list[int] = []
        self.choices: "list[list[int]]" = []
        for v in range(len(self.first)):
            vertex = case.vertices[v]
            may = [h for h in vertex.hosts if not vertex.width or case.hosts[h].floats == vertex.width]
            if len(may) > 1 or may != [self.first[v]]:
                self.free.append(v)
                self.choices.append(may)

    # How many placements there are.
    def space(self) -> int:
        n = 1
        for may in self.choices:
            n *= len(may)
        return n

    # What a placement is worth beside others. One that breaks limits is worth less than any that keeps them,
    # and less the more it breaks them: a search that starts outside finds the way in. The last item
    # decides between equals: how many operators stay where they are.
    def look(self, places: list[int]) -> list[int]:
        self.count()
        broken = self.case.breaks(places)
        if broken:
            return [0, -sum([much for _, _, much in broken])]
        worth = [1]
        worth += self.case.worth(places)
        worth.append(sum([places[v] == self.first[v] for v in self.free]))
        if worth > self.best_worth:
            self.best_worth = worth
            self.best = list(places)
        return worth

    def count(self) -> None:
        self.left -= 1
        if self.each:
            self.each()

    # Every placement, the candidates of the last vertex turning fastest.
    def all(self) -> None:
        if not self.space():
            return
        at = [0] * len(self.free)
        places = list(self.first)
        for i in range(len(at)):
            places[self.free[i]] = self.choices[i][0]
        while True:
            self.look(places)
            i = len(at) - 1
            while i >= 0:
                at[i] += 1
                if at[i] < len(self.choices[i]):
                    break
                at[i] = 0
                i -= 1
            if i < 0:
                return
            for k in range(i, len(at)):
                places[self.free[k]] = self.choices[k][at[k]]

    # From several starts, better neighbours as long as there are any: where everything is now; everything
    # that may on one host, for each host; then, in turn, any placement, and the best one so far with three
    # operators elsewhere. What is random about these follows a fixed rule.
    def climb(self) -> None:
        if not self.space():
            return
        self.ascend(list(self.first))
        for h in range(len(self.case.hosts)):
            places = list(self.first)
            for v, may in zip(self.free, self.choices):
                if h in may:
                    places[v] = h
            self.ascend(places)
        for k in range(_MOST_STARTS):
            if self.left <= 0:
                return
            places = list(self.best or self.first)
            chosen = list(range(len(self.free)))
            if k % 2 and self.best:
                chosen = [self.drawn(len(self.free)) for _ in range(3)]
            for i in chosen:
                places[self.free[i]] = self.choices[i][self.drawn(len(self.choices[i]))]
            self.ascend(places)

    # A number below n, by a fixed rule.
    def drawn(self, n: int) -> int:
        self.mixed = (self.mixed * 1103 + 12345) & 0xFFFFF
        return (self.mixed >> 7) % n

    def ascend(self, places: list[int]) -> None:
        if self.left <= 0:
            return
        worth = self.look(places)
        better = True
        while better and self.left > 0:
            better = False
            for moves in (self.singles, self.pairs):
                found, worth = moves(places, worth)
                if found:
                    better = True
                    break

    # One operator to another candidate. Takes every step that is better.
    def singles(self, places: list[int], worth: list[int]) -> "tuple[bool, list[int]]":
        better = False
        for i in range(len(self.free)):
            v = self.free[i]
            for h in self.choices[i]:
                was = places[v]
                if h == was:
                    continue
                if self.left <= 0:
                    return better, worth
                places[v] = h
                found = self.look(places)
                if found > worth:
                    worth = found
                    better = True
                else:
                    places[v] = was
        return better, worth

    # Two operators at once: both to one host, or each to where the other runs.
    def pairs(self, places: list[int], worth: list[int]) -> "tuple[bool, list[int]]":
        for i in range(len(self.free)):
            for k in range(i):
                v = self.free[i]
                u = self.free[k]
                a = places[v]
                b = places[u]
                turns = [(h, h) for h in self.choices[i] if h in self.choices[k]]
                if a != b and a in self.choices[k] and b in self.choices[i]:
                    turns.append((b, a))
                for to_v, to_u in turns:
                    if to_v == a or to_u == b:
                        continue
                    if self.left <= 0:
                        return False, worth
                    places[v] = to_v
                    places[u] = to_u
                    found = self.look(places)
                    if found > worth:
                        return True, found
                    places[v] = a
                    places[u] = b
        return False, worth

    # Every placement, vertex by vertex, without those whose beginning breaks a limit or draws so much already
    # that nothing better can come of it. What is placed later adds to what hosts draw and hold, except where
    # more traffic makes two hosts take another link: so it may miss a placement, and `climb` comes first.
    def descend(self) -> None:
        n = len(self.free)
        places = list(self.first)
        for v in self.free:
            places[v] = NOWHERE
        at = [-1] * n
        i = 0 if self.space() else -1
        while i >= 0 and self.left > 0:
            v = self.free[i]
            at[i] += 1
            if at[i] == len(self.choices[i]):
                places[v] = NOWHERE
                at[i] = -1
                i -= 1
                continue
            places[v] = self.choices[i][at[i]]
            if i == n - 1:
                self.look(places)
            elif self.promises(places):
                i += 1

    # Whether something better may come of a placement that is not complete.
    def promises(self, places: list[int]) -> bool:
        self.count()
        if self.case.breaks(places):
            return False
        most = [1]
        most += self.case.worth(places)
        most.append(len(self.free))
        return most > self.best_worth
