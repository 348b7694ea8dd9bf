# The program on a board: it ties sensors, flash, clock and link to a host, and speaks for the board.
#
# It starts with what the flash holds, runs the process that is deployed there, or waits for the gateway
# to deploy one. It reads the sensors at their rate, calls the host in time, tells the gateway how the
# board is and writes one line a second on the serial console. Whatever goes wrong ends in a restart,
# with the reason kept in flash and told; a process that crashes again and again is left out, so that
# another one can be deployed.
#
# What differs from board to board is the `board` that is given:
#   flash               block device: readblocks, writeblocks with offset, ioctl
#   drivers             name -> what makes a driver of (settings, alphabet, rate_mhz, n), see below
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
#   lost                True where samples were missed before what take gives now or next; whoever has
#                       seen it sets it to False

import asyncio
import gc
import sys
import time

from . import pack, wire
from .batch import RESTART, SENSOR
from .clock import Ticks
from .collection import STEADY_S, collect, collect_often
from .const import const
from .keyspace import B_CRASH
from .machine import BOARD
from .once import let_go
from .seal import OPENED, TAKEN
from .site_link import DRAINED, DRAINING, LEFT_OUT, RUNS, STORED

VERSION = "0.1.0"
_TICK_US = const(250000)
_SECOND_US = const(1000000)
_GOOD_S = const(60)  # a life that lasted so long was a good one
_STATUS_BYTES = const(480)
_MARK_S_MAX = const(64)


def _us():
    return time.ticks_us() if BOARD else time.monotonic_ns() // 1000


class Node:
    def __init__(self, config, board):
        self.config = config
        self.board = board
        self.name = config["name"]
        self.ticks = Ticks(_us())
        self.host = None
        self.client = None
        self.sensors = []
        self.deployed = None  # id of the deployment that runs
        self.next = None  # of the one that waits
        self.failed = None  # of one that is left out
        self.taking = None  # [id, bytes, how many are here]: a deployment that arrives
        self.draining = False
        self.again = False  # start again
        self.error = None  # what went wrong while a frame was taken
        self.dropped = 0
        self.status_us = 0  # when the gateway is told next
        self.sleep_ms = 0
        self.crash = None
        self.free = 0  # bytes of heap, after the newest collection

    def mono(self):
        return self.ticks.read(_us())

    # ---- the start

    def begin(self):
        from . import beginning

        beginning.begin(self)
        beginning = None
        let_go("beginning")

    def note(self, boot, text, row):
        self.crash = [boot, text[:120], row]
        self.store.put_blob(B_CRASH, pack.dumps(self.crash))

    # Former crashes do not count any more.
    def forgive(self):
        self.failed = None
        if self.crash and self.crash[2]:
            self.note(self.crash[0], self.crash[1], 0)

    # ---- the life

    async def run(self):
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
                if now >= self.status_us and self.client.up:
                    self.status_us = now + self.config["status_s"] * _SECOND_US
                    self._status(up_s)
            if now >= second:
                second = max(second, now - _SECOND_US) + _SECOND_US
                up_s += 1
                steady = self.client.up and not self.taking
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

    async def _link(self):
        try:
            await self.client.run()
        except Exception as e:
            self.error = e

    def _sample(self, s, now):
        s.due = now + s.every_us // 8
        host = self.host
        batch = s.batch
        for _ in range(4):
            mono = s.driver.take(batch, now)
            if s.driver.lost:
                s.driver.lost = False
                host.sources[s.vertex].fault(SENSOR)
            if mono is None:
                return
            host.now = now
            s.driver.taken(batch, host.sample(s.vertex, batch, mono))
            s.due = now + s.every_us * 7 // 8

    # Sleep until it is time again? The promise goes out first.
    def _rest(self, up_s, now):
        config = self.config
        if not self.host or up_s < 2 or self.unsafe() and up_s < config["awake_s"]:
            return False
        self.sleep_ms = config["sleep_s"] * 1000
        self.host.sleep(now, now + config["sleep_s"] * _SECOND_US)
        return True

    # ---- frames

    def send(self, to, frame):
        if self.client:
            self.client.send(self.host.plan.hosts[to] if to else "g", frame)

    # A frame came.
    def take(self, sender, frame):
        try:
            if sender == "s":
                self._site(frame)
            elif self.host:
                self.host.receive(frame, self.mono())
                self.host.settle()
        except Exception as e:
            self.error = e

    # ---- the site link

    def _site(self, frame):
        peer = self.peer
        span = peer.open(frame)
        self._reply()
        if peer.why == OPENED:
            self.status_us = 0  # what went before was not heard
        elif peer.why != TAKEN:
            self.dropped += 1
        elif span:
            try:
                messages = wire.messages(frame, span[0], span[1], peer.log, self.store.log_number)
            except wire.FrameError:
                self.dropped += 1
                return
            for m in messages:
                if m[0] in (wire.PLAN, wire.PLANNED, wire.SWITCH):
                    from . import deploy

                    deploy.handle(self, m)
            if not self.taking:
                let_go("deploy", "reserve")

    def say(self, kind, *values):
        self.peer.begin(self.writer)
        if self.writer.put(kind, *values):
            self.client.send("s", self.peer.seal(self.writer))
            self._reply()

    def _reply(self):
        if self.peer.reply:
            self.client.send("s", bytes(self.peer.reply))
            self.peer.reply = None

    # ---- draining for a switch

    # Entries held here that are not safe. An acknowledgement may lie above the last entry: an operator
    # that went back to its checkpoint has not made those entries again yet.
    def unsafe(self):
        n = 0
        for p in self.host.ports.values():
            if p.readers:
                n += max(0, p.ring.last - min([r.safe for r in p.readers]))
        return n

    def drain(self, on):
        self.draining = on
        self.host.quiet = on
        self.mark_s = 1
        self.mark_us = self.host.now + 2 * _SECOND_US
        if not on:
            for s in self.host.sources.values():
                s.fault(RESTART)

    # Consumers are asked for checkpoints: no interval ends any more. A join waits for what the sources here
    # could still give, so they promise that it is nothing. Timers fire up to that; in between, longer and
    # longer, everything settles.
    def _press(self):
        host = self.host
        if host.now >= self.mark_us and host.clock.synced:
            self.mark_s = min(_MARK_S_MAX, 2 * self.mark_s)
            self.mark_us = host.now + self.mark_s * _SECOND_US
            host.promise(host.site())
        for p in self.host.ports.values():
            if p.readers and p.ring.last > min([r.safe for r in p.readers]):
                p.press()

    # ---- how the board is

    def _backlog(self):
        if not self.host:
            return []
        return [
            [p.stream, p.ring.last, min([r.safe for r in p.readers]) if p.readers else p.ring.last]
            for p in self.host.ports.values()
        ]

    def _dropped(self):
        n = self.dropped + self.client.packets.skipped + self.client.strays
        return n + sum(self.host.dropped.values()) if self.host else n

    def _status(self, up_s):
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
        status = {
            "backlog": self._backlog(),
            "battery": self.board.battery_mv(),
            "boot": self.boot,
            "crash": self.crash[:2] if self.crash else None,
            "deployment": host.plan.deployment if host else None,
            "dropped": self._dropped(),
            "free": self.free,
            "log": [self.store.free_bytes(), self.store.usable_bytes()],
            "next": self.next,
            "plan": self.deployed,
            "refused": sum([s.refused for s in host.sources.values()]) if host else 0,
            "rssi": self.board.rssi(),
            "state": state,
            "sync": host.clock.error_us(mono) if host and host.clock.sure else None,
            "time": host.clock.site(mono) if host and host.clock.synced else None,
            "up": up_s,
            "version": VERSION,
        }
        # In the buffer of the log: there is not always room for as many bytes in one piece.
        buf = self.store.buf
        while True:
            try:
                n = pack.dump_into(buf, status)
            except IndexError:
                n = len(buf) + 1
            if n <= _STATUS_BYTES or "backlog" not in status:
                break
            del status["backlog"]
        status = None  # its room is for what follows
        if n <= len(buf):
            self.say(wire.STATUS, memoryview(buf)[:n])

    def _line(self, up_s):
        c = self.client
        link = "linked" if c.up else "no link (%s)" % c.why if c.why else "no link"
        what = "drains" if self.draining else self.host.plan.name if self.host else "no process"
        backlog = sum([max(0, b[1] - b[2]) for b in self._backlog()])
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


# A life, to the restart.
def live(node):
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


# It is told on the console, and after the restart to the gateway.
def _crashed(node, e):
    text = type(e).__name__ + ": " + str(e)
    row = 1 + (node.crash[2] if node.crash else 0)
    if hasattr(sys, "print_exception"):
        sys.print_exception(e)
    node.board.say("%s crashed: %s" % (node.name, text))
    try:
        node.note(getattr(node, "boot", 0), text, row)
    except Exception as e:
        node.board.say("%s: and the flash does not take it: %s" % (node.name, e))
    time.sleep(min(row, 20) * 0.2)  # the flash wears, and somebody may want to read
