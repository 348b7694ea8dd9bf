# A plan from its bytes: every number is checked against its range, once, and nothing else needs to.
# A board unloads all of this when the plan is read.
#
# Encoding, msgpack in the canonical form of data/msgpack.py:
#   plan      [FORMAT, bin(process), placement, deployment]
#   process   [name, strategy, every, level, batch, batch_ms, [host name ..], [alphabet text ..],
#              [vertex ..], [edge ..]], and where boards raise alarms one field more: [alarm ..]
#   vertex    [name, kind, version, {parameter: value}, [alphabet number of each input port ..],
#              [.. of each output port], rate_mhz, log_bytes,
#              state_bytes, changed_bytes], and where it gives up by itself one field more: give_up_s;
#              -1 for a disabled input port;
#              a parameter that has its default is left out. In a value that is a list, a list inside
#              it stands as false, its length, its items: trees are deeper than msgpack lists may be
#   edge      [src, sport, dst, dport, delay_us, cap, policy, lake, durable, within_ms], and where the
#              consumer goes on without a silent input two fields more: absent_ms, local (0 or 1)
#   alarm     [name, src, sport, host number, driver, silent_ms, field]; -1: no field raises it
#   placement [[host number, best first ..] of each vertex ..]
#   deployment  the gateway's number of this deployment; 0: not deployed yet

from hashlib import sha256

from ..data import msgpack
from ..data.alphabet import Alphabet, AlphabetError, is_name
from ..offboard.compat import TYPE_CHECKING
from .model import OUTSIDE, SPILL, Edge, Plan, PlanError, Vertex

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..offboard.interfaces import Readable
    from .alarms import Alarm

FORMAT = 2
STRATEGIES = ("unsafe", "uncoordinated", "ecoc", "extended")
LEVELS = ("local", "peer", "peers=2")
POLICIES = ("block", "spill", "drop_oldest", "drop_newest")
DURABLE = ("flash", "gateway", "lake")
ACTUATORS = ("buzzer", "led")  # what the settings of a board may name, as the driver of an alarm

BYTES_MAX = 16384  # of an encoded plan: what a 64 KiB heap can take in
VERTICES_MAX = 100
EDGES_MAX = 200
ALARMS_MAX = 16
HOSTS_MAX = 64
PORTS_MAX = 16
OUT_PORTS_MAX = 8
PLACES_MAX = 16  # hosts of one vertex
EVERY_MAX = 1000000
BATCH_MAX = 4096
BATCH_MS_MAX = 60000
CAP_MAX = 1 << 20
TREE_DEPTH_MAX = 20
DELAY_US_MAX = 1000000000  # a small integer on a board
WITHIN_MS_MAX = 1000000000
RATE_MHZ_MAX = 1000000000
LOG_BYTES_MAX = 1 << 29
STATE_BYTES_MAX = 65535
GIVE_UP_S_MAX = 1000000000
LAKE_NAME_MAX = 64
DEPLOYMENT_MAX = (1 << 63) - 1  # what a database can hold


# The hash of a deployment: of a process under a number.
def plan_hash(process: bytes, deployment: int) -> bytes:
    sha = sha256(process)
    sha.update(deployment.to_bytes(8, "little"))
    return sha.digest()[:8]


# The bytes of a plan as deployment `number`; `data` is a plan's.
def numbered(data: "Readable", number: int) -> bytes:
    form, process, placement, _ = msgpack.loads(data)
    return msgpack.dumps([form, process, placement, number])


# True where two plans are the same process in the same places, whatever their numbers.
def alike(data: "Readable", other: "Readable") -> bool:
    return msgpack.loads(data)[:3] == msgpack.loads(other)[:3]


# True for what may name a table's stream: names with '/' between them.
def is_lake_name(s: str) -> bool:
    return len(s) <= LAKE_NAME_MAX and all([is_name(part) for part in s.split("/")])


# Vertices that can be reached from `start`, in the order found; `start` comes first.
def reach(edges: list[Edge], start: int) -> list[int]:
    seen = [start]
    for v in seen:
        for e in edges:
            if e.src == v and e.dst >= 0 and e.dst not in seen:
                seen.append(e.dst)
    return seen


# Fields of a row, in their order. One text each: a word that is a text of its own takes RAM as long as a
# board runs, and so does an attribute of that name (tools/headwater_tools/image/names.py).
_VERTEX = "name kind version params ins outs rate_mhz log_bytes state_bytes changed_bytes give_up_s"
_EDGE = "src sport dst dport delay_us cap policy lake durable within_ms absent_ms local"
_PLAN = "name strategy every level batch batch_ms hosts"


def _fail(what: str, where: str, value: object) -> "NoReturn":
    raise PlanError("plan: %s of %s is %r" % (what, where, value))


def _int(what: str, where: str, value: "Any", low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        _fail(what, where, value)
    return value


def _text(what: str, where: str, value: "Any", empty: bool = False) -> str:
    if type(value) is not str or not (is_name(value) or empty and value == ""):
        _fail(what, where, value)
    return value


def _list(what: str, where: str, value: "Any", low: int, high: int) -> "Any":
    if type(value) not in (list, tuple) or not low <= len(value) <= high:
        _fail(what, where, value if type(value) not in (list, tuple) else "%d long" % len(value))
    return value


# The list that `flat` encodes, from pos on: n items, or with n < 0 all there are.
def _tree(where: str, flat: "list[Any]", pos: int, n: int, depth: int) -> "tuple[list[Any], int]":
    out = []
    while n and (n > 0 or pos < len(flat)):
        if pos >= len(flat) or depth > TREE_DEPTH_MAX:
            _fail("parameters", where, "a list that does not end")
        v = flat[pos]
        pos += 1
        if v is False:
            if pos >= len(flat):
                _fail("parameters", where, "a list that does not end")
            v, pos = _tree(where, flat, pos + 1, _int("list", where, flat[pos], 0, len(flat)), depth + 1)
        elif type(v) is not int and type(v) is not str:
            _fail("parameters", where, type(v))
        out.append(v)
        n -= 1
    return out, pos


def _vertex(i: int, row: "Any", alphabets: list[Alphabet], hosts: tuple[int, ...]) -> Vertex:
    where = "vertex %d" % i
    names = _VERTEX.split(" ")
    row = list(_list("fields", where, row, 10, 11))
    if len(row) == 10:
        row.append(0)
    else:
        _int(names[10], where, row[10], 1, GIVE_UP_S_MAX if row[1] else 0)
    name, kind, version, params, ins, outs, rate_mhz, log_bytes, state_bytes, changed_bytes, give_up_s = row
    _text(names[0], where, name)
    _text(names[1], where, kind, True)
    _int(names[2], where, version, 0, 65535)
    if type(params) is not dict or len(params) > 64:
        _fail("parameters", where, type(params))
    for key in params:
        _text("parameter", where, key)
        value = params[key]
        if type(value) is list:
            params[key] = _tree(where, value, 0, -1, 0)[0]
        elif type(value) not in (int, str, float):
            _fail("parameters", where, type(value))
    top = len(alphabets) - 1
    _list("input ports", where, ins, 1 if kind else 0, PORTS_MAX if kind else 0)
    _list("output ports", where, outs, 1, OUT_PORTS_MAX if kind else 1)
    ins = tuple([None if _int("input", where, a, -1, top) < 0 else alphabets[a] for a in ins])
    outs = tuple([alphabets[_int("output", where, a, 0, top)] for a in outs])
    _int(names[6], where, rate_mhz, 0, 0 if kind else RATE_MHZ_MAX)
    _int(names[7], where, log_bytes, 0, 0 if kind else LOG_BYTES_MAX)
    _int(names[8], where, state_bytes, 0, STATE_BYTES_MAX if kind else 0)
    _int(names[9], where, changed_bytes, 0, STATE_BYTES_MAX if kind else 0)
    row = (rate_mhz, hosts, log_bytes, state_bytes, changed_bytes, give_up_s)
    return Vertex(i, name, kind, version, params, ins, outs, *row)


def _edge(i: int, row: "Any", vertices: list[Vertex], taken: list[tuple[int, int]], lakes: list[str]) -> Edge:
    where = "edge %d" % i
    names = _EDGE.split(" ")
    row = list(_list("fields", where, row, 10, 12))
    absent = len(row) > 10
    if absent:
        _list("fields", where, row, 12, 12)
    else:
        row += [0, 0]
    src, sport, dst, dport, delay_us, cap, policy, lake, durable, within_ms, absent_ms, local = row
    top = len(vertices) - 1
    _int(names[0], where, src, 0, top)
    _int(names[1], where, sport, 0, len(vertices[src].outs) - 1)
    _int(names[2], where, dst, OUTSIDE, top)
    _int(names[5], where, cap, 1, CAP_MAX)
    if dst == OUTSIDE:
        _int(names[3], where, dport, 0, 0)
        _int(names[4], where, delay_us, 0, 0)
        _int(names[6], where, policy, 0, len(POLICIES) - 1)
        if type(lake) is not str or not is_lake_name(lake) or lake in lakes:
            _fail(names[7], where, lake)
        lakes.append(lake)
        _int(names[8], where, durable, 0, len(DURABLE) - 1)
        _int(names[9], where, within_ms, 0, WITHIN_MS_MAX)
    else:
        _int(names[3], where, dport, 0, len(vertices[dst].ins) - 1)
        _int(names[4], where, delay_us, 0, DELAY_US_MAX)
        _int(names[6], where, policy, 0, SPILL)
        if lake != "" or durable != 0 or within_ms != 0:
            _fail(names[7], where, lake)
        if src >= dst and not delay_us:
            _fail("order", where, (src, dst))
        port = (dst, dport)
        if port in taken:
            _fail("input port", where, port)
        taken.append(port)
        if vertices[src].outs[sport] != vertices[dst].ins[dport]:
            _fail("alphabet", where, vertices[src].outs[sport])
    if absent:
        _int(names[10], where, absent_ms, 1, WITHIN_MS_MAX if dst != OUTSIDE and not delay_us else 0)
        _int(names[11], where, local, 0, 1)
    rest = (cap, policy, lake, durable, within_ms, False, absent_ms, local == 1)
    return Edge(i, src, sport, dst, dport, delay_us, *rest)


def _alarm(i: int, row: "Any", vertices: list[Vertex], hosts: int, names: list[str]) -> "Alarm":
    from .alarms import Alarm

    where = "alarm %d" % i
    name, src, sport, host, driver, silent_ms, field = _list("fields", where, row, 7, 7)
    _text("name", where, name)
    if name in names:
        _fail("name", where, name)
    names.append(name)
    _int("src", where, src, 0, len(vertices) - 1)
    _int("sport", where, sport, 0, len(vertices[src].outs) - 1)
    _int("host", where, host, 1, hosts - 1)
    if driver not in ACTUATORS:
        _fail("driver", where, driver)
    _int("silent_ms", where, silent_ms, 0, WITHIN_MS_MAX)
    _int("field", where, field, -1 if silent_ms else 0, len(vertices[src].outs[sport].types) - 1)
    return Alarm(i, name, src, sport, host, driver, silent_ms, field)


def plan(data: "Readable") -> Plan:
    if len(data) > BYTES_MAX:
        raise PlanError("plan: %d bytes; at most %d" % (len(data), BYTES_MAX))
    try:
        fields = _list("fields", "plan", msgpack.loads(data), 1, 16)
        form = fields[0]
        if form != FORMAT or type(form) is not int:
            raise PlanError("plan: format %r; this runtime knows %d" % (form, FORMAT))
        _, process, placement, deployment = _list("fields", "plan", fields, 4, 4)
        _int("deployment", "plan", deployment, 0, DEPLOYMENT_MAX)
        if type(process) is not bytes:
            _fail("process", "plan", type(process))
        found = _list("fields", "process", msgpack.loads(process), 10, 11)
        name, strategy, every, level, batch, batch_ms, hosts, texts, rows, links = found[:10]
        signals = found[10] if len(found) > 10 else ()
    except msgpack.PackError as e:
        raise PlanError("plan: " + str(e))
    names = _PLAN.split(" ")
    _text(names[0], "process", name)
    _int(names[1], "process", strategy, 0, len(STRATEGIES) - 1)
    _int(names[2], "process", every, 1, EVERY_MAX)
    _int(names[3], "process", level, 0, len(LEVELS) - 1)
    _int(names[4], "process", batch, 1, BATCH_MAX)
    _int(names[5], "process", batch_ms, 1, BATCH_MS_MAX)
    _list(names[6], "process", hosts, 1, HOSTS_MAX)
    for i in range(len(hosts)):
        _text("host", "process", hosts[i])
        if hosts[i] in hosts[:i]:
            _fail("host", "process", hosts[i])
    # Without vertices it is the plan by which boards stop a process.
    least = 1 if _list("vertices", "process", rows, 0, VERTICES_MAX) else 0
    _list("alphabets", "process", texts, least, VERTICES_MAX * PORTS_MAX if least else 0)
    _list("edges", "process", links, least, EDGES_MAX if least else 0)
    _list("placement", "process", placement, len(rows), len(rows))
    alphabets = []
    for text in texts:
        if type(text) is not str or len(text) > 2048:
            _fail("alphabet", "process", type(text))
        try:
            alphabets.append(Alphabet(text))
        except AlphabetError as e:
            raise PlanError("plan: " + str(e))
    vertices: list[Vertex] = []
    for i in range(len(rows)):
        places = _list("placement", "vertex %d" % i, placement[i], 1, min(PLACES_MAX, len(hosts)))
        for k in range(len(places)):
            _int("host", "vertex %d" % i, places[k], 0, len(hosts) - 1)
            if places[k] in places[:k]:
                _fail("hosts", "vertex %d" % i, places)
        v = _vertex(i, rows[i], alphabets, tuple(places))
        for u in vertices:
            if u.name == v.name:
                _fail("name", "vertex %d" % i, v.name)
        vertices.append(v)
    edges = []
    taken: list[tuple[int, int]] = []
    lakes: list[str] = []
    for i in range(len(links)):
        edges.append(_edge(i, links[i], vertices, taken, lakes))
    if signals != ():
        _list("alarms", "process", signals, 1, ALARMS_MAX)
    names = []
    alarms = [_alarm(i, signals[i], vertices, len(hosts), names) for i in range(len(signals))]
    for v in vertices:
        for p in range(len(v.ins)):
            if (v.ins[p] is not None) != ((v.index, p) in taken):
                _fail("input port", "vertex %d" % v.index, p)
    if any([edge.delay_us for edge in edges]):
        for v in vertices:
            seen = reach(edges, v.index)
            for edge in edges:
                if edge.dst == v.index and edge.src in seen:
                    edge.in_cycle()
    order = tuple(range(len(vertices)))
    hash_ = plan_hash(process, deployment)
    version = sha256(process).digest()[:8]
    where = tuple(hosts)
    return Plan(
        name,
        strategy,
        every,
        level,
        batch,
        vertices,
        edges,
        order,
        where,
        hash_,
        batch_ms,
        deployment,
        version,
        alarms,
    )
