# The program on a board: it ties sensors, flash, clock and link to a host, and speaks for the board.
#
# It starts with what the flash holds, runs the process that is deployed there, or waits for the gateway
# to deploy one. It reads the sensors at their rate, calls the host in time, tells the gateway how the
# board is and writes one line a second on the serial console. Whatever fails ends in a restart, with the
# reason kept in flash and reported; a process that crashes repeatedly is not run any more, so that another
# one can be deployed.
#
# What differs from board to board is the `board` that is given:
#   flash               block device: readblocks, writeblocks with offset, ioctl
#   drivers             name -> what makes a driver of (settings, alphabet, rate_mhz, n), see below
#   actuators           name -> what makes an actuator of (settings,): its `set(on)` begins and ends a sound
#   random()            64 random bits
#   online()            awaited before each try to reach the broker, until the network is there
#   battery_mv(), rssi()  or None
#   watch()             the watchdog is fed
#   say(line)           a line for the serial console
#   sleep(ms)           sleeps and starts again; restart() starts again. Neither returns.
# A driver samples by itself, at the rate of its source, and has room for a few batches of n:
#   take(batch, now)    fills the columns, n, and dt (or -1 and at) with what there is, in order; gives
#                       the time of the first sample on the clock that `now` is of, or None: not a
#                       whole batch yet. What it gives is asked for once.
#   taken(batch, n)     n samples of that batch were accepted: all, or none
#   lost                True where samples were missed before what take gives now or next; the program
#                       sets it to False when it has noted that

import asyncio
import gc
import sys
import time

from ..data import msgpack
from ..data.batch import RESTART, SENSOR
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.clock import Ticks
from ..protocol.sessions import OPENED, TAKEN
from ..protocol.site_link import DRAINED, DRAINING, LEFT_OUT, RUNS, STORED
from ..runtime.instance import PAUSED, RUNNING, STOPPED
from ..storage.keyspace import B_CRASH
from .collection import STEADY_S, collect, collect_often
from .native import BOARD
from .unload import unload

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Readable
    from ..protocol.frames import Writer
    from ..protocol.sessions import Peer
    from ..runtime.host import Host
    from ..runtime.instance import Instance
    from ..runtime.outputs import OutPort
    from ..storage.log import Log
    from .beginning import Sensor
    from .mqtt import Client
    from .ways import Ways

VERSION = "0.1.0"
_TICK_US = const(250000)
_SECOND_US = const(1000000)
_GOOD_S = const(60)  # a boot that lasted this long was a good one
_STATUS_BYTES = const(480)
_MARK_S_MAX = const(64)


def _us() -> int:
    return time.ticks_us() if BOARD else time.monotonic_ns() // 1000  # type: ignore[attr-defined]


class Node:
    # From `opened` on: the key of this board, and its log.
    key: bytes
    store: "Log"
    # From `speaks` on: the session with the gateway, and what its frames are made in.
    peer: "Peer"
    writer: "Writer"
    client: "Client | Ways"  # from `linked` on

    # config: the board's configuration, as read. board: see above.
    def __init__(self, config: "dict[str, Any]", board: "Any") -> None:
        self.config = config
        self.board = board
        self.name = config["name"]
        self.ticks = Ticks(_us())
        self.boot = 0
        self.host: "Host" = None  # type: ignore[assignment]  # where a process runs
        self.client = None  # type: ignore[assignment]
        self.sensors: "list[Sensor]" = []
        self.sounder: "Any" = None  # a Sounder, where a plan has alarms for this board
        self.deployed: bytes | None = None  # id of the deployment that runs
        self.next: bytes | None = None  # of the one that waits
        self.failed: bytes | None = None  # of one that is not run any more
        self.revoked = False  # this board was declared lost, with its present flash
        # [id, bytes, how many are here]: a deployment that arrives
        self.taking: "list[Any] | None" = None
        self.draining = False
        self.mark_s = 1  # while it drains: seconds between two promises,
        self.mark_us = 0  # and when the next one is due
        self.again = False  # start again
        self.error: Exception | None = None  # what went wrong while a frame was taken
        self.dropped = 0
        self.status_us = 0  # when the gateway is told next
        self.sleep_ms = 0
        self.crash: "list[Any] | None" = None  # [boot, text, crashes in a row], of the last one
        self.free = 0  # bytes of heap, after the newest collection

    # Microseconds since the start.
    def mono(self) -> int:
        return self.ticks.read(_us())

    # A counter of microseconds, of which 30 bits count.
    def raw_us(self) -> int:
        return _us()

    # ---- the start

    def begin(self) -> None:
        from . import beginning

        beginning.begin(self)
        beginning = None  # type: ignore[assignment]
        unload("board.beginning")

    # beginning.py has read the key and mounted the flash.
    def opened(self, key: bytes, store: "Log") -> None:
        self.key = key
        self.store = store
        data = store.get_blob(B_CRASH)
        if data:
            self.crash = msgpack.loads(data)

    # ... found these deployments in the flash: one that runs, one that is not run any more, one that waits.
    def has(self, deployed: bytes | None, failed: bytes | None, coming: bytes | None) -> None:
        self.deployed = deployed
        self.failed = failed
        self.next = coming

    # ... found that a person has declared this board lost, with all that is in this flash.
    def lost(self) -> None:
        self.revoked = True

    # ... made the host of the process that runs.
    def runs(self, host: "Host") -> None:
        self.host = host
        host.shows(self._changed)

    # ... made what sounds the alarms of that process.
    def sounds_by(self, sounder: "Any") -> None:
        self.sounder = sounder

    # ... is ready to speak to the gateway.
    def speaks(self, boot: int, writer: "Writer", peer: "Peer") -> None:
        self.boot = boot
        self.writer = writer
        self.peer = peer

    # ... has a link.
    def linked(self, client: "Client | Ways") -> None:
        self.client = client

    # Keep in flash what went wrong: in which boot, and how many boots in a row.
    def note(self, boot: int, text: str, row: int) -> None:
        self.crash = [boot, text[:120], row]
        self.store.put_blob(B_CRASH, msgpack.dumps(self.crash))

    # Earlier crashes do not count any more.
    def forgive(self) -> None:
        self.failed = None
        if self.crash and self.crash[2]:
            self.note(self.crash[0], self.crash[1], 0)

    # ---- a deployment arrives: deployment.py

    # Bytes of one of this size are taken in from now on, and one that was arriving before is given up. None
    # where there is no room.
    def take_in(self, ident: bytes, size: int) -> "list[Any] | None":
        self.taking = None
        try:
            self.taking = [ident, bytearray(size), 0]
        except MemoryError:
            pass
        return self.taking

    # All of it is here.
    def took_in(self) -> None:
        self.taking = None

    # It waits; None: the one that waited does not any more.
    def waits(self, ident: bytes | None) -> None:
        self.next = ident

    # Nothing more is done before a restart.
    def restart(self) -> None:
        self.again = True

    # ---- the boot, to its end

    async def run(self) -> None:
        task = asyncio.create_task(self._link())
        second = ticked = 0
        up_s = -1
        while not self.again:
            now = self.mono()
            if self.error:
                raise self.error
            due = ticked + _TICK_US
            if not self.draining:
                for s in self.sensors:
                    if now >= s.due:
                        self._sample(s, now)
                    due = min(due, s.due)
            if now >= ticked + _TICK_US:
                ticked = now
                self.board.watch()
                self.client.tick(now)
                if self.host:
                    self.host.tick(now)
                    if self.sounder:
                        self.sounder.tick()
                    if self.host.revoked:
                        self.again = True  # beginning.py says it, and what to do
                if now >= self.status_us and self.client.up:
                    self.status_us = now + self.config["status_s"] * _SECOND_US
                    self._status(up_s)
            if now >= second:
                second = max(second, now - _SECOND_US) + _SECOND_US
                up_s += 1
                steady = (self.client.up or not self.config["broker"]) and not self.taking
                if BOARD and not (steady and up_s % STEADY_S):
                    self.free = collect(steady)
                self._line(up_s)
                if up_s == _GOOD_S:
                    self.forgive()
                if self.draining:
                    self._press()
                if self.config["sleep_s"] and self._rest(up_s, now):
                    self.again = True
            await asyncio.sleep(max(0, due - self.mono()) / 1000000)
        await self.client.close()
        try:
            await task
        except asyncio.CancelledError:
            pass

    async def _link(self) -> None:
        try:
            await self.client.run()
        except Exception as e:
            self.error = e

    def _sample(self, s: "Sensor", now: int) -> None:
        s.rest(now, 1)
        host = self.host
        batch = s.batch
        for _ in range(4):
            mono = s.driver.take(batch, now)
            if s.driver.lost:
                s.driver.lost = False
                host.sources[s.vertex].fault(SENSOR)
            if mono is None:
                return
            s.driver.taken(batch, host.sample(s.vertex, batch, mono, now))
            s.rest(now, 7)

    # Sleep until it is time again? The promise goes out first.
    def _rest(self, up_s: int, now: int) -> bool:
        config = self.config
        if not self.host or up_s < 2 or self.unsafe() and up_s < config["awake_s"] or self.host.handing:
            return False
        self.sleep_ms = config["sleep_s"] * 1000
        self.host.sleep(now, now + config["sleep_s"] * _SECOND_US)
        return True

    # ---- frames

    # A frame for host `to` of the process.
    def send(self, to: int, frame: "Readable") -> None:
        if self.client:
            self.client.send(self.host.plan.hosts[to] if to else "g", frame)

    # A frame came; bare: over a link that does not encrypt itself. Whether it was genuine.
    def take(self, sender: str, frame: "Readable", bare: bool = False) -> bool:
        genuine = False
        try:
            if sender == "s":
                genuine = self._site(frame, bare)
            elif self.host:
                genuine = self.host.receive(frame, self.mono(), bare)
                self.host.settle()
        except Exception as e:
            self.error = e
        return genuine

    # ---- the site link

    def _site(self, frame: "Readable", bare: bool = False) -> bool:
        peer = self.peer
        if self.host and self.host.energy:
            self.host.energy.got(len(frame))
        if bare:
            from ..protocol import cipher

            if not cipher.covered(frame):
                self.dropped += 1
                return False
        span = peer.open(frame)
        self._reply()
        if peer.why == OPENED:
            self.status_us = 0  # the gateway has not heard what was sent before
        elif peer.why != TAKEN:
            self.dropped += 1
            return False
        elif span:
            try:
                frame = peer.plain or frame
                messages = frames.messages(frame, span[0], span[1], peer.log, self.store.log_number)
            except frames.FrameError:
                self.dropped += 1
                return False
            for m in messages:
                if m[0] in (frames.PLAN, frames.PLANNED, frames.SWITCH):
                    from . import deployment

                    deployment.handle(self, m)
            if not self.taking:
                unload("board.deployment", "storage.reserve")
        return True

    # Send a message to the gateway.
    def say(self, kind: int, *values: "Any") -> None:
        self.peer.begin(self.writer)
        if self.writer.put(kind, *values):
            self._send(self.peer.seal(self.writer))
            self._reply()

    def _reply(self) -> None:
        reply = self.peer.take_reply()
        if reply:
            self._send(reply)

    def _send(self, frame: "Readable") -> None:
        if self.host and self.host.energy:
            self.host.energy.sent(len(frame))
        self.client.send("s", frame)

    # ---- draining for a switch

    # Entries held here that are not safe. An acknowledgement may lie above the last entry: an operator
    # that went back to its checkpoint has not made those entries again yet.
    def unsafe(self) -> int:
        n = 0
        for p in self.host.ports.values():
            n += max(0, p.ring.last - _safe(p))
        return n

    # on: sensors rest until everything held here is safe.
    def drain(self, on: bool) -> None:
        self.draining = on
        self.host.hush(on)
        self.mark_s = 1
        self.mark_us = self.host.now + 2 * _SECOND_US
        if not on:
            for s in self.host.sources.values():
                s.fault(RESTART)

    # Ask consumers for checkpoints, since no interval ends any more. A join waits for what the sources here
    # could still give, so they promise that it is nothing. Timers fire up to that promise; between two, ever
    # longer, everything settles.
    def _press(self) -> None:
        host = self.host
        if host.now >= self.mark_us and host.clock.synced:
            self.mark_s = min(_MARK_S_MAX, 2 * self.mark_s)
            self.mark_us = host.now + self.mark_s * _SECOND_US
            host.promise(host.site())
        for p in self.host.ports.values():
            if p.ring.last > _safe(p):
                p.press()

    # ---- how the board is

    # [stream, its last entry, the last one that every consumer has safe].
    def _backlog(self) -> list[list[int]]:
        if not self.host:
            return []
        found = []
        for p in self.host.ports.values():
            found.append([p.stream, p.ring.last, _safe(p)])
        return found

    def _dropped(self) -> int:
        n = self.dropped + self.client.strange
        return n + sum(self.host.dropped.values()) if self.host else n

    def _status(self, up_s: int) -> None:
        host = self.host
        mono = self.mono()
        if self.failed:
            state = LEFT_OUT
        elif not self.next:
            state = RUNS
        elif not self.draining:
            state = STORED
        else:
            state = DRAINING if self.unsafe() else DRAINED
        status: "Any" = {
            "backlog": self._backlog(),
            "battery": self.board.battery_mv(),
            "boot": self.boot,
            "crash": self.crash[:2] if self.crash else None,
            "deployment": host.plan.deployment if host else None,
            "dropped": self._dropped(),
            "energy": host.energy.told if host and host.energy else None,
            "free": self.free,
            "log": [self.store.free_bytes(), self.store.usable_bytes()],
            "next": self.next,
            "plan": self.deployed,
            "refused": sum([s.refused for s in host.sources.values()]) if host else 0,
            "rssi": self.board.rssi(),
            "sleep": self.config["sleep_s"],
            "state": state,
            "sync": host.clock.error_us(mono) if host and host.clock.sure else None,
            "time": host.clock.site(mono) if host and host.clock.synced else None,
            "up": up_s,
            "version": VERSION,
            "waits": host.waits() if host else [],
        }
        if self.sounder:
            status["alarms"] = self.sounder.status()
        # In the buffer of the log: there is not always room for as many bytes in one piece.
        buf = self.store.buf
        while True:
            try:
                n = msgpack.dump_into(buf, status)
            except IndexError:
                n = len(buf) + 1
            if n <= _STATUS_BYTES or "waits" not in status:
                break
            del status["backlog" if "backlog" in status else "waits"]
        status = None  # what follows needs its room
        if n <= len(buf):
            self.say(frames.STATUS, memoryview(buf)[:n])

    # An operator here begins, pauses or ends: how many elements of each input it has taken by then.
    def _changed(self, inst: "Instance") -> None:
        word = {RUNNING: "runs", PAUSED: "pauses", STOPPED: "ends"}.get(inst.status)
        if word and not inst.is_lake:
            taken = " ".join([str(e.cur.xi) for e in inst.inputs])
            self.board.say("%s: operator %s %s, taken %s" % (self.name, inst.vertex.name, word, taken))

    # The process, and the operators of it that run here.
    def _process(self) -> str:
        if self.draining:
            return "drains"
        if not self.host:
            return "no process"
        running = [i.vertex.name for i in self.host.instances.values() if i.status == RUNNING]
        return self.host.plan.name + (", runs " + " ".join(running) if running else "")

    def _line(self, up_s: int) -> None:
        c = self.client
        link = "linked" if c.up else "no link (%s)" % c.why if c.why else "no link"
        what = self._process()
        if self.revoked:
            what = "it was declared lost: erase its flash, and provision it again"
        backlog = self.unsafe() if self.host else 0
        self.board.say(
            "%s %d s, boot %d, %s, %s, %d not safe, %d free, %s mV, sent %d, dropped %d"
            % (
                self.name,
                up_s,
                self.boot,
                what,
                link,
                backlog,
                self.free,
                self.board.battery_mv(),
                c.sent,
                self._dropped() + c.dropped,
            )
        )


# The last entry of a port that every consumer has safe. It may lie above the last one that is here.
def _safe(port: "OutPort") -> int:
    if not port.readers:
        return port.ring.last
    safe = port.readers[0].safe
    for r in port.readers:
        safe = min(safe, r.safe)
    return safe


# A boot, to the restart.
def live(node: Node) -> None:
    board = node.board
    if BOARD:
        collect_often()
    try:
        node.begin()
        asyncio.run(node.run())
    except Exception as e:
        gc.collect()
        node.taking = None
        _crashed(node, e)
    if node.sleep_ms:
        board.sleep(node.sleep_ms)
    board.restart()


# It is reported on the console, and after the restart to the gateway.
def _crashed(node: Node, e: Exception) -> None:
    text = type(e).__name__ + ": " + str(e)
    row = 1 + (node.crash[2] if node.crash else 0)
    if hasattr(sys, "print_exception"):
        sys.print_exception(e)
    node.board.say("%s crashed: %s" % (node.name, text))
    try:
        node.note(node.boot, text, row)
    except Exception as e:
        node.board.say("%s: and the flash does not take it: %s" % (node.name, e))
    time.sleep(min(row, 20) * 0.2)  # the flash wears, and somebody may want to read
