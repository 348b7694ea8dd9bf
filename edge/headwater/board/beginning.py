# How the program on a board begins: key, flash, process, sensors, link. None of this is in RAM afterwards.
# What is made here goes to the program by its verbs `opened`, `has`, `runs` and `linked`, in this order.

import gc

from ..data import msgpack
from ..data.batch import Batch
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.clock import Clock
from ..protocol.sessions import Peer, hmac
from ..storage.keyspace import F_BOOT, F_FLOOR, F_LOST
from ..storage.log import Log, LogError
from .unload import unload

if TYPE_CHECKING:
    from typing import Any

    from ..plan.model import Plan
    from ..runtime.host import Host
    from ..runtime.meter import Meter
    from .program import Node
    from .ways import Ways

_CRASHES_MAX = const(5)


# A source of this board, and what samples it.
class Sensor:
    def __init__(self, vertex: int, driver: "Any", batch: Batch, every_us: int) -> None:
        self.vertex = vertex
        self.driver = driver
        self.batch = batch
        self.every_us = every_us
        self.due = 0

    # It is read next after this many eighths of the time in which a batch fills.
    def rest(self, now: int, eighths: int) -> None:
        self.due = now + self.every_us * eighths // 8


def begin(node: "Node") -> None:
    config = node.config
    with open(config["key"], "rb") as f:
        secret = f.read()
    if len(secret) != 32:
        raise ValueError("%s: %d bytes, not the 32 of a key" % (config["key"], len(secret)))
    # First of all, since they need the largest pieces: the radio, then TLS.
    ways = None
    if config["bluetooth"]["enabled"]:
        ways = _radio(node)
    tls = None
    if config["broker"] and config["broker"]["tls"]:
        from .tls import context

        tls = context(config["broker"])
        context = None  # type: ignore[assignment]
    unload("board.tls")
    _mount(node, secret)
    gc.collect()
    store = node.store
    found, draining = _fit(node)
    unload("board.deployment")
    if found:
        _, plan, me, keys = found
        found = None
        host = _host(node, plan, me, keys)
        boot = host.boot_number
        writer = host.exchange.writer
    else:
        data = store.get(F_BOOT)
        boot = (int.from_bytes(data, "little") if data else 0) + 1
        store.put(F_BOOT, boot.to_bytes(4, "little"))
        writer = frames.Writer(512)
    key = hmac(secret, b"headwater site")
    node.speaks(boot, writer, Peer(key, 1, store.log_number, boot, 0, bytes(8), node.board.random))
    if draining:
        node.drain(True)
    _link(node, tls, ways)


# A board without AES has no Bluetooth, because nobody would encrypt what it says there.
def _radio(node: "Node") -> "Ways":
    path = node.config["bluetooth"]["key"]
    with open(path, "rb") as f:
        key = f.read()
    if len(key) != 32:
        raise ValueError("%s: %d bytes, not the 32 of a key" % (path, len(key)))
    try:
        from .ways import Ways
    except ImportError as e:
        raise ValueError(
            "bluetooth is enabled, and this firmware lacks what it needs (%s): flash one that has it, or set "
            "bluetooth.enabled to false" % e
        )
    return Ways(node, key)


# The link comes last: starting a process takes more of the heap for a moment than running it.
def _link(node: "Node", tls: "Any", ways: "Ways | None") -> None:
    config = node.config
    broker = config["broker"]
    client = None
    if broker:
        from .mqtt import Client

        if not broker["user"] and not broker["cert"]:
            broker["user"] = node.name
        size = 512 + 2 * (len(config["site"]) + len(node.name)) + 48
        board = node.board
        take = ways.came if ways else node.take
        site = config["site"]
        buf = node.store.buf
        client = Client(site, node.name, broker, tls, board.online, take, board.random, size, buf)
    if ways:
        ways.begin(client)
    node.linked(ways or client)  # type: ignore[arg-type]  # settings.py: one of them is there


def _mount(node: "Node", secret: bytes) -> None:
    flash = node.board.flash
    config = node.config
    # Its buffer is also that of the link: no call of the one is made during a call of the other.
    size = config["mtu"] + len(config["site"]) + len(node.name) + 32
    store = Log(flash, (), size)
    try:
        store.mount()
    except LogError as e:
        head = bytearray(32)
        blank = True
        for p in range(flash.ioctl(4, 0)):
            flash.readblocks(p, head, 0)
            blank = blank and head == b"\xff" * 32
        Log.format(flash, node.board.random())
        store = Log(flash, (), size)
        store.mount()
        node.opened(secret, store)
        # The first floor: without it time would begin in 1970, and leap at the first exchange.
        store.put(F_FLOOR, (config["issued"] * 1000000).to_bytes(8, "little"))
        if not blank:
            node.note(0, "the flash held something else, or was damaged; it was formatted: %s" % e, 0)
    else:
        node.opened(secret, store)


# The deployment to run, or None; and whether this board drains for another one.
def _fit(node: "Node") -> "tuple[tuple[bytes, Plan, int, dict[int, bytes]] | None, bool]":
    from . import deployment

    try:
        found = deployment.load(node.store, node.key, node.name, node.board.random)
    except ValueError as e:
        node.note(0, str(e), 0)  # of another version of this program: another one can be deployed
        found = None
    if found and found[1].vertices and node.crash and node.crash[2] >= _CRASHES_MAX:
        node.has(None, found[0], None)
        return None, False
    if not found or not found[1].vertices:
        node.has(found[0] if found else None, None, None)
        return None, False
    data = node.store.get(F_LOST + found[2])
    if data and msgpack.loads(data)[0] == node.store.log_number:
        node.lost()
        node.has(None, found[0], None)
        return None, False
    coming, draining = deployment.waiting(node.store)
    node.has(found[0], None, coming)
    return found, draining


def _host(node: "Node", plan: "Plan", me: int, keys: dict[int, bytes]) -> "Host":
    from ..runtime.host import Host

    config = node.config
    clock = Clock(sleep_us=config["sleep_s"] * 1000000)
    host = Host(plan, me, node.store, keys, clock, node.send, node.board.random, None, config["mtu"])
    node.runs(host)
    given = config.pop("energy", None)
    if given or any([len(v.hosts) > 1 for v in plan.vertices]):
        host.knows(_energy(node, host, given))
    host.start(node.mono())
    for v in plan.vertices:
        if not v.kind and v.hosts[0] == me:
            n = max(1, min(plan.batch, v.rate_mhz * plan.batch_ms // 1000000))
            settings = config["sensors"].get(v.name)
            if not settings or settings["driver"] not in node.board.drivers:
                raise ValueError("source %s: no driver for it in the configuration" % v.name)
            try:
                driver = node.board.drivers[settings["driver"]](settings, v.outs[0], v.rate_mhz, n)
            except (OSError, ValueError, KeyError) as e:
                raise ValueError("source %s, driver %s: %s" % (v.name, settings["driver"], e))
            # Without a rate: twice in a tick.
            every_us = n * 1000000000 // v.rate_mhz if v.rate_mhz else 125000
            batch = Batch(v.outs[0], n if v.rate_mhz else plan.batch)
            node.sensors.append(Sensor(v.index, driver, batch, every_us))
    if any([a.host == me for a in plan.alarms]):
        from .sounder import Sounder

        node.sounds_by(Sounder(node, host.signals))
    return host


# Names of the links of this board, as energy profiles have them.
def links(config: "dict[str, Any]") -> list[str]:
    found = ["wifi"] if config["broker"] else []
    return found + ["ble"] if config["bluetooth"]["enabled"] else found


# What this board knows of its energy, on mains where its configuration has no profile: what its operators do
# is measured there too, for hosts that may take them. A board with neither battery nor backups has none.
def _energy(node: "Node", host: "Host", given: "Any") -> "Meter":
    from ..runtime.meter import Meter

    profile = None
    if given:
        from ..plan import profile_reader

        profile = profile_reader.read(given, links(node.config))
        profile_reader = None  # type: ignore[assignment]
        unload("plan.profile_reader")
    return Meter(host, profile, node.board.battery_mv, node.raw_us)
