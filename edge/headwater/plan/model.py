# The plan: a process as a board loads it, without the builder.
#
# Plain numbered lists: vertices, edges, placement. Everything a host sends or stores names
# vertices and edges by these numbers. `Plan.process_hash` names the version of the process: it covers
# everything but the placement, since operators move. `Plan.hash` names the deployment: the version
# and the number under which the gateway deployed it. That number is never used again, so a version
# that is deployed twice is two deployments, and their outputs two streams. The bytes: reader.py.
#
# Vertices are ordered so that producers come first, feedback aside: src < dst or delay_us > 0.

from ..board.unload import unload
from ..offboard.compat import TYPE_CHECKING
from ..protocol.position import EPOCH_MAX, FAR, inputs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..data.alphabet import Alphabet
    from ..offboard.interfaces import Epoch, Params, Position, Readable
    from .alarms import Alarm

UNSAFE, UNCOORDINATED, ECOC, EXTENDED = 0, 1, 2, 3
LOCAL, PEER, PEERS2 = 0, 1, 2
BLOCK, SPILL, DROP_OLDEST, DROP_NEWEST = 0, 1, 2, 3
FLASH, GATEWAY, LAKE = 0, 1, 2
OUTSIDE = -1  # Edge.dst of an edge to the lake
GAPS_MAX = 4  # declared on an edge and not safe yet; a port that would need more drops nothing
OPEN_MAX = 8  # changes of an operator that the gateway has made, and that the operator has not taken yet
CONTENT_MAX = 200  # bytes of a change


class PlanError(ValueError):
    pass


class Vertex:
    give_up_s = (
        0  # on the class: few operators have their own, and a board pays for each field of each vertex
    )

    # index     number of the vertex in the plan
    # name      as the author wrote it
    # kind      name of the operator type, or "" for a source
    # version   of the operator type's state
    # params    dict name -> value; what is missing has its default
    # ins, outs tuples of Alphabet; None for a disabled input port
    # rate_mhz  for a source: samples in a thousand seconds, 0 when it is irregular (a button)
    # hosts     host numbers, best first: hosts[0] runs it, the others hold its checkpoints and
    #           may take it over. Host 0 is the gateway.
    # log_bytes for a source: most bytes of log it may fill; 0: what there is
    # state_bytes, changed_bytes: of an operator's state, and of all its parameters in a checkpoint, at most
    # give_up_s of an operator: how long it waits for a checkpoint that only lost hosts have; 0: until a
    #           person says so
    def __init__(
        self,
        index: int,
        name: str,
        kind: str,
        version: int,
        params: "Params",
        ins: "tuple[Alphabet | None, ...]",
        outs: "tuple[Alphabet, ...]",
        rate_mhz: int,
        hosts: tuple[int, ...],
        log_bytes: int,
        state_bytes: int = 0,
        changed_bytes: int = 0,
        give_up_s: int = 0,
    ) -> None:
        self.index = index
        self.name = name
        self.kind = kind
        self.version = version
        self.params = params
        self.ins = ins
        self.outs = outs
        self.rate_mhz = rate_mhz
        self.hosts = hosts
        self.log_bytes = log_bytes
        self.state_bytes = state_bytes
        self.changed_bytes = changed_bytes
        if give_up_s:
            self.give_up_s = give_up_s


class Edge:
    absent_ms = 0  # on the class: few edges have their own, and a board pays for each field of each edge
    local = False

    # index      number of the edge in the plan
    # src, sport producer vertex and its output port
    # dst, dport consumer vertex and its input port; dst is OUTSIDE for an edge to the lake
    # delay_us   0, or D of a feedback edge
    # cap        limit of the transfer state in elements (the largest of a port's edges counts)
    # policy     BLOCK or SPILL inside; at the lake also DROP_OLDEST, DROP_NEWEST
    # lake       table stream name, like "cardio/ecg", or ""
    # durable    of an edge to the lake: FLASH, GATEWAY or LAKE
    # within_ms  of an edge to the lake: delay limit, 0 if there is none
    # cyclic     True if the edge lies inside a cycle (a strongly connected component)
    # absent_ms  the consumer goes on without this input after so long a silence; 0: it waits
    # local      ... and its host gives that decision itself, without the gateway
    def __init__(
        self,
        index: int,
        src: int,
        sport: int,
        dst: int,
        dport: int,
        delay_us: int,
        cap: int,
        policy: int,
        lake: str,
        durable: int,
        within_ms: int,
        cyclic: bool,
        absent_ms: int = 0,
        local: bool = False,
    ) -> None:
        self.index = index
        self.src = src
        self.sport = sport
        self.dst = dst
        self.dport = dport
        self.delay_us = delay_us
        self.cap = cap
        self.policy = policy
        self.lake = lake
        self.durable = durable
        self.within_ms = within_ms
        self.cyclic = cyclic
        if absent_ms:
            self.absent_ms = absent_ms
            self.local = local

    # It lies inside a cycle.
    def in_cycle(self) -> None:
        self.cyclic = True


class Plan:
    # name, strategy, every (interval in elements), level, batch (most elements per batch),
    # vertices, edges, order (vertices so that producers come first, feedback aside),
    # hosts (names by number; 0 is "gateway"), hash (8 bytes of SHA-256 over process and deployment),
    # batch_ms (a batch that is not full waits no longer than this), deployment (its number; 0: not
    # deployed yet), process_hash (8 bytes of SHA-256 over the process alone), alarms (of boards)
    def __init__(
        self,
        name: str,
        strategy: int,
        every: int,
        level: int,
        batch: int,
        vertices: list[Vertex],
        edges: list[Edge],
        order: tuple[int, ...],
        hosts: tuple[str, ...],
        hash_: bytes,
        batch_ms: int = 1000,
        deployment: int = 0,
        process_hash: bytes = b"",
        alarms: "Sequence[Alarm]" = (),
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.every = every
        self.level = level
        self.batch = batch
        self.vertices = vertices
        self.edges = edges
        self.order = order
        self.hosts = hosts
        self.hash = hash_
        self.batch_ms = batch_ms
        self.deployment = deployment
        self.process_hash = process_hash
        self.alarms = alarms

    # Edges into vertex v, by input port.
    def ins(self, v: int) -> list[Edge]:
        out = []
        for port in range(len(self.vertices[v].ins)):
            for e in self.edges:
                if e.dst == v and e.dport == port:
                    out.append(e)
        return out

    # Hosts that an operator may run on: its candidates, and the gateway.
    def may_run(self, v: int, host: int) -> bool:
        hosts = self.vertices[v].hosts
        return host in hosts or (host == 0 and self.vertices[v].kind != "")

    # How many hosts beside its own store the checkpoints of operator v. One that several hosts may run has at
    # least one, at level local too: what it was when its host fell silent has to be known elsewhere.
    def level_of(self, v: int) -> int:
        if self.strategy == UNSAFE:
            return 0
        return self.level or int(len(self.vertices[v].hosts) > 1)

    # Hosts that keep the checkpoints of an operator: its candidates, and if these are few the first
    # hosts of the plan: enough that the level can be met after as many deaths as it covers.
    def keepers(self, v: int) -> list[int]:
        hosts = list(self.vertices[v].hosts)
        level = self.level_of(v)
        if level:
            for h in range(len(self.hosts)):
                if len(hosts) > 2 * level:
                    break
                if h not in hosts:
                    hosts.append(h)
        return hosts

    # Edges out of port `port` of vertex v, in plan order.
    def outs(self, v: int, port: int) -> list[Edge]:
        out = []
        for e in self.edges:
            if e.src == v and e.sport == port:
                out.append(e)
        return out

    # The epoch under which the consumer of an edge begins.
    def first_epoch(self, e: "Edge") -> "Epoch":
        return (1, self.vertices[e.dst].hosts[0] if e.dst != OUTSIDE else 0)

    # Whether a list of numbers can be a position of operator v.
    def is_position(self, v: int, pos: "Position") -> bool:
        return len(pos) == inputs_of(self.vertices[v]) + 2 and max(pos) < FAR and pos[-1] <= EPOCH_MAX

    # Whether this can be the name of a checkpoint of operator v, or of the lake, and who holds it: none, or a
    # position and hosts.
    def is_name(self, v: int, name: "Position", holders: "Sequence[int]") -> bool:
        if holders and max(holders) >= len(self.hosts):
            return False
        return not name or (v != OUTSIDE and self.is_position(v, name))


# The plan in `data`. Total: gives a plan whose every number is in range, or raises PlanError.
def loads(data: "Readable") -> Plan:
    from . import reader

    try:
        return reader.plan(data)
    finally:
        unload("plan.reader", "data.msgpack_reader")
