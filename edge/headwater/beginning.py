# How the program on a board begins: key, flash, process, sensors, link. None of this is in RAM afterwards.

import gc

from . import pack, wire
from .batch import Batch
from .clock import Clock
from .const import const
from .keyspace import B_CRASH, F_BOOT, F_FLOOR
from .log import Log, LogError
from .once import let_go
from .seal import Peer, hmac

_CRASHES_MAX = const(5)


# A source of this board, and what samples it.
class Sensor:
    def __init__(self, vertex, driver, batch, every_us):
        self.vertex = vertex
        self.driver = driver
        self.batch = batch
        self.every_us = every_us
        self.due = 0


def begin(node):
    config = node.config
    with open(config["key"], "rb") as f:
        node.key = f.read()
    if len(node.key) != 32:
        raise ValueError("%s: %d bytes, not the 32 of a key" % (config["key"], len(node.key)))
    # First of all: it needs the largest pieces.
    tls = None
    if config["broker"]["tls"]:
        from .secure import context

        tls = context(config["broker"])
        context = None
    let_go("secure")
    _mount(node)
    gc.collect()
    store = node.store
    found, node.next, draining = _fit(node)
    let_go("deploy")
    if found:
        _, plan, me, keys = found
        found = None
        _host(node, plan, me, keys)
        node.boot = node.host.boot_number
        node.writer = node.host.exchange.writer
    else:
        data = store.get(F_BOOT)
        node.boot = (int.from_bytes(data, "little") if data else 0) + 1
        store.put(F_BOOT, node.boot.to_bytes(4, "little"))
        node.writer = wire.Writer(512)
    key = hmac(node.key, b"headwater site")
    node.peer = Peer(key, 1, store.log_number, node.boot, 0, bytes(8), node.board.random)
    if draining:
        node.drain(True)
    _link(node, tls)


# The link comes last: starting a process takes more of the heap for a moment than running it.
def _link(node, tls):
    from .mqtt import Client

    config = node.config
    broker = config["broker"]
    if not broker["user"] and not broker["cert"]:
        broker["user"] = node.name
    size = 512 + 2 * (len(config["site"]) + len(node.name)) + 48
    board = node.board
    node.client = Client(
        config["site"], node.name, broker, tls, board.online, node.take, board.random, size, node.store.buf
    )


def _mount(node):
    flash = node.board.flash
    config = node.config
    # Its buffer is also that of the link: no call of the one comes in a call of the other.
    size = config["mtu"] + len(config["site"]) + len(node.name) + 32
    node.store = Log(flash, (), size)
    try:
        node.store.mount()
    except LogError as e:
        head = bytearray(32)
        blank = True
        for p in range(flash.ioctl(4, 0)):
            flash.readblocks(p, head, 0)
            blank = blank and head == b"\xff" * 32
        Log.format(flash, node.board.random())
        node.store = Log(flash, (), size)
        node.store.mount()
        # The first floor: without it time would begin in 1970, and leap at the first exchange.
        node.store.put(F_FLOOR, (config["issued"] * 1000000).to_bytes(8, "little"))
        if not blank:
            node.note(0, "the flash held something else, or was damaged; it was formatted: %s" % e, 0)
    data = node.store.get_blob(B_CRASH)
    if data:
        node.crash = pack.loads(data)


# The deployment to run, or None; the one that waits, and whether this board drains for it.
def _fit(node):
    from . import deploy

    try:
        found = deploy.load(node.store, node.key, node.name, node.board.random)
    except ValueError as e:
        node.note(0, str(e), 0)  # of another version of this program: another one can be deployed
        found = None
    if found and found[1].vertices and node.crash and node.crash[2] >= _CRASHES_MAX:
        node.failed = found[0]
        found = None
    if found:
        node.deployed = found[0]
    if not found or not found[1].vertices:
        return None, None, False
    return (found,) + deploy.waiting(node.store)


def _host(node, plan, me, keys):
    from .host import Host

    config = node.config
    host = Host(plan, me, node.store, keys, Clock(), node.send, node.board.random, None, config["mtu"])
    node.host = host
    host.clock.still_us += config["sleep_s"] * 1000000  # it may wake before it said
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
