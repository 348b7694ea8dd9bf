"""Whether a process can run as declared: edges, hosts and backups, buffers, feedback, delays, heap and flash.

Each rule records what it finds and leaves the rest to the others. The estimates are those of sizing.py.
"""

from ..data.alphabet import is_name
from ..plan import model as plans
from ..plan import reader
from ..storage import reserve
from ..storage.log import table_max
from . import builder, sensible
from .builder import GATEWAY, Host, near
from .rules import NAME_CURE, Rules, _words
from .sizing import (
    BEAT_MS,
    CHECKPOINT_MAX_BYTES,
    RUNTIME_KB,
    SECTOR_BYTES,
    Vertex,
    is_number,
    kb,
    signal_name,
)

GATEWAY_HEAP_KB = 262144
BATTERY_MAH_MAX = 100000
LEVEL_HOLDERS = (0, 1, 2)


GIVE_UP_LEAST_S = 10  # any operator that starts elsewhere may wait as long for its keepers


class Feasibility(Rules):
    """The rules of whether a process can run as declared."""

    # -- settings of an edge -------------------------------------------------------------------------

    def edges(self) -> None:
        for wire in self.process.wires:
            v = self.producer(wire)
            policy = self.choice(wire, "policy on_full", wire.policy or "block", reader.POLICIES)
            if policy is not None and policy > plans.SPILL and wire.vertex is not None:
                self.error(
                    wire,
                    'on_full="%s" inside the process' % wire.policy,
                    'Only edges to the lake may drop: use "block" or "spill"',
                )
            elif policy == plans.SPILL and v.source:
                self.error(
                    wire,
                    "on_full=\"spill\" on a stream of source '%s', which is in its log already" % v.name,
                    'Leave out on_full=, or use "drop_oldest" on its edge to the lake',
                )
            elif policy == plans.DROP_NEWEST and not v.source:
                self.error(
                    wire,
                    "on_full=\"drop_newest\" on a stream of operator '%s', which cannot refuse its inputs"
                    % v.name,
                    'Use "drop_oldest", or "drop_newest" on an edge of its source to the lake',
                )
            if wire.vertex is not None:
                continue
            durable = self.choice(wire, "durable", wire.durable, reader.DURABLE)
            if durable == plans.FLASH and (self.level or 0) > plans.LOCAL and not wire.accept_loss:
                self.error(
                    wire,
                    'durable="flash" with level="%s": a result that is safe on one board alone dies with it'
                    % self.process.level,
                    'Use durable="gateway", or accept_loss=True',
                )
            self.number_in(wire, "within_ms", wire.within_ms, 0, reader.WITHIN_MS_MAX)

    # -- hosts and placement -------------------------------------------------------------------------

    def placement(self) -> None:
        p = self.process
        declared: dict[str, Host] = {}
        for host in p.hosts:
            if not (isinstance(host.name, str) and is_name(host.name)):
                self.error(host, "%r is not a valid name" % (host.name,), NAME_CURE)
                continue
            if host.name in declared:
                self.error(
                    host,
                    "is declared already at line %d" % declared[host.name].where[1],
                    "Give one of the two another name",
                )
                continue
            ok = self.number_in(host, "flash_kb", host.flash_kb, 16, 1 << 24)
            ok = self.number_in(host, "heap_kb", host.heap_kb, 32, 1 << 24) and ok
            if host.floats not in (32, 64):
                self.error(host, "floats=%r" % (host.floats,), "Give 32 or 64")
                ok = False
            self.battery(host)
            host.sound = ok
            declared[host.name] = host
        gateway = declared.pop(GATEWAY, None)
        if gateway is None:
            gateway = Host(GATEWAY, 1 << 24, GATEWAY_HEAP_KB, 64, p.where)
        self.hosts = [gateway] + list(declared.values())
        if not declared:
            for name in p.mentioned:
                if name != GATEWAY and isinstance(name, str) and is_name(name):
                    host = Host(name, builder.FLASH_KB, builder.HEAP_KB, 32, p.where)
                    self.hosts.append(host)
        if len(self.hosts) > reader.HOSTS_MAX:
            self.error(
                p,
                "%d hosts; at most %d" % (len(self.hosts), reader.HOSTS_MAX),
                "Split it into several processes",
            )
        for v in self.order:
            self.place(v)

    def battery(self, host: Host) -> None:
        if host.board is not None and not isinstance(host.board, str):
            self.error(host, "board=%r is not a name" % (host.board,), 'Name a kind, like board="esp32"')
        if host.battery_mah is not None:
            self.number_in(host, "battery_mah", host.battery_mah, 0, BATTERY_MAH_MAX)
            if host.name == GATEWAY and host.battery_mah:
                self.error(host, "battery_mah=%r at the gateway" % (host.battery_mah,), "Leave it out")
        self.number_in(host, "awake_percent", host.awake_percent, 1, 100)
        self.choice(host, "bluetooth", host.bluetooth, tuple(builder.LINKS))
        if host.name == GATEWAY and host.bluetooth != "off":
            self.error(
                host,
                "bluetooth=%r at the gateway" % (host.bluetooth,),
                "Leave it out: it is set in gateway.toml, and the gateway speaks over both links",
            )

    def find_host(self, v: Vertex, name: str) -> int | None:
        names = [host.name for host in self.hosts]
        if name in names:
            return names.index(name)
        cure = "Use one of %s" % ", ".join(names) if len(names) > 1 else "Declare it with p.host(name)"
        self.error(v, "unknown host %r%s" % (name, near(name, names)), cure)
        return None

    def place(self, v: Vertex) -> None:
        d = v.declared
        if d.host is not None:
            v.host = self.find_host(v, d.host)
        elif v.source:
            self.error(v, "a source runs where its sensor is", 'Say where: on="..."')
        else:
            # Not where an input is produced without which it is to go on, if there is another.
            direct = [v.inputs[port] for port in sorted(v.inputs) if v.inputs[port].delay_ms is None]
            direct.sort(key=lambda wire: wire.absent_ms is not None)
            if direct:
                v.host = self.producer(direct[0]).host
        if v.source:
            if d.backups:
                self.error(
                    v,
                    "a source cannot move: no backup host has its sensor",
                    "Leave out backup=; to survive its host, put a second source on another one",
                )
            v.hosts = () if v.host is None else (v.host,)
            return
        if v.host is None:
            return
        if d.backups is not None:
            backups = []
            for name in d.backups:
                h = self.find_host(v, name)
                if h is None:
                    continue
                if h == v.host:
                    self.error(v, "is backed up by its own host '%s'" % name, "Name another host as backup")
                elif h in backups:
                    self.error(v, "backup '%s' is named twice" % name, "Drop one of the two")
                backups.append(h)
        else:
            width = self.hosts[v.host].floats
            backups = [h for h in range(len(self.hosts)) if h != v.host]
            if v.floats and not self.process.allow_drift:
                backups = [h for h in backups if self.hosts[h].floats == width]
            # as many as the level requires, and one to spare
            backups = backups[: LEVEL_HOLDERS[self.level or 0] + 1 if self.level else 0]
        v.hosts = (v.host,) + tuple(backups)
        if (
            self.level is not None
            and len(backups) < LEVEL_HOLDERS[self.level]
            and (d.backups is None or None not in [self.known(name) for name in d.backups])
        ):
            self.error(
                v,
                'level="%s" needs %d more host%s for its checkpoints; there %s %d'
                % (
                    self.process.level,
                    LEVEL_HOLDERS[self.level],
                    "" if LEVEL_HOLDERS[self.level] == 1 else "s",
                    "is" if len(backups) == 1 else "are",
                    len(backups),
                ),
                "Name more backup hosts%s, or lower the level"
                % (" with floats=%d" % self.hosts[v.host].floats if v.floats else ""),
            )

    def known(self, name: str) -> str | None:
        return name if name in [host.name for host in self.hosts] else None

    # -- buffers: one checkpoint interval, and the batch that is under way ---------------------------

    def buffers(self) -> None:
        for wire in self.process.wires:
            if wire.cap is not None and not self.number_in(wire, "cap", wire.cap, 1, reader.CAP_MAX):
                continue
            if not self.sized:
                continue
            need = self.need(wire)
            two = need == 2 * self.process.batch
            lake = wire.vertex is None
            if wire.cap is None and self.cap(wire) > reader.CAP_MAX:
                self.error(
                    wire,
                    "%s up to %d elements here; a buffer holds at most %d"
                    % ("until the lake has them come" if lake else "one interval is", need, reader.CAP_MAX),
                    'Use durable="gateway"' if lake else "Lower every=",
                )
            elif wire.cap is not None and wire.cap < need:
                what = "one checkpoint interval and the batch that is under way"
                if two:
                    what = "two batches of %d" % self.process.batch
                elif lake:
                    what = "what comes until the lake has it, and two batches"
                more = "" if two else ', or use durable="gateway"' if lake else ", or lower every="
                self.error(
                    wire,
                    "cap=%d cannot hold %s" % (wire.cap, what),
                    "Give cap=%d or more%s" % (need, more),
                )

    # -- feedback: silent, and late enough -------------------------------------------------------------
    def feedback(self) -> None:
        for wire in self.inner():
            if wire.delay_ms is None:
                continue
            y = self.consumer(wire)
            if y.cls is not None and wire.port not in y.cls.FEEDBACK:
                silent = [str(i) for i in y.cls.FEEDBACK]
                self.error(
                    wire,
                    "feedback into a port that is not silent",
                    "%s takes feedback at port %s" % (y.declared.kind, _words(silent))
                    if silent
                    else "%s has no silent port: use a type that has one, like Attenuate" % y.declared.kind,
                )
            if (
                not self.number_in(wire, "delay_ms", wire.delay_ms, 1, reader.DELAY_US_MAX // 1000)
                or not self.sized
            ):
                continue
            loop = self.loop_ms(wire)
            if wire.delay_ms < 2 * loop:
                self.error(
                    wire,
                    "feedback delay of %d ms; the loop takes up to %d ms with batching"
                    % (wire.delay_ms, loop),
                    "Give delay_ms=%d or more (twice that), or lower batch_ms or link_ms" % (2 * loop),
                )
            need = self.feedback_need(wire)
            if need is None:
                self.error(
                    wire,
                    "nothing limits the rate of '%s', so no buffer is known to be large enough"
                    % self.producer(wire).name,
                    "Give rate_hz or most_hz to the sources above it",
                )
            elif isinstance(wire.cap, int) and self.need(wire) <= wire.cap < need:
                self.error(
                    wire,
                    "cap=%d cannot hold what is on its way for %d ms and one interval"
                    % (wire.cap, wire.delay_ms),
                    "Give cap=%d or more" % need,
                )

    # -- inputs without which an operator goes on, and alarms of boards --------------------------------

    def absent(self) -> None:
        for wire in self.process.wires:
            if wire.absent_ms is None:
                continue
            if wire.vertex is None:
                self.error(
                    wire,
                    "absent_after on an edge to the lake, which waits for nothing",
                    "Give within_ms= to p.lake(...): the gateway reports silence that is longer",
                )
            elif wire.delay_ms is not None:
                self.error(
                    wire,
                    "absent_after on feedback, for which no operator waits",
                    "Leave out .absent_after(...)",
                )
            elif len([w for w in self.consumer(wire).inputs.values() if w.delay_ms is None]) < 2:
                self.error(
                    wire,
                    "absent_after on the only input of '%s', which has nothing to go on with"
                    % self.consumer(wire).name,
                    "Give it another stream with stream.otherwise(other, after_ms=...)",
                )
            elif self.number_in(wire, "absent_after", wire.absent_ms, 1, reader.WITHIN_MS_MAX) and self.sized:
                least = self.absent_least(wire)
                if wire.absent_ms < least:
                    self.error(
                        wire,
                        "absent_after(%d): in good times up to %d ms pass between two signs of '%s'"
                        % (wire.absent_ms, least // 2, self.producer(wire).name),
                        "Give %d ms or more (twice that), or lower batch_ms or link_ms" % least,
                    )

    def giving_up(self) -> None:
        """Operators that give up by themselves."""
        for v in self.vertices:
            after = v.declared.give_up_s
            if after is None:
                continue
            if v.source:
                self.error(v, "give_up_after on a source, which waits for nothing", "Leave it out")
            elif self.strategy == plans.UNSAFE:
                self.error(
                    v,
                    "give_up_after, and no checkpoints that it could wait for",
                    "Leave it out, or give checkpoints=",
                )
            else:
                self.number_in(v, "give_up_after", after, GIVE_UP_LEAST_S, reader.GIVE_UP_S_MAX)

    def alarms(self) -> None:
        p = self.process
        if len(p.signals) > reader.ALARMS_MAX:
            self.error(p, "%d alarms; at most %d" % (len(p.signals), reader.ALARMS_MAX), "Drop some")
        taken: list[str] = []
        for i, signal in enumerate(p.signals):
            name = signal_name(i, signal)
            if not (isinstance(name, str) and is_name(name)):
                self.error(signal, "%r is not a valid name" % (name,), NAME_CURE)
            elif name in taken:
                self.error(signal, "the name is already used", "Give each alarm its own name")
            taken.append(name)
            names = [host.name for host in self.hosts]
            if signal.host not in names[1:]:
                self.error(
                    signal,
                    "on=%r is no board%s" % (signal.host, near(signal.host, names[1:])),
                    "Use one of %s; the gateway reports silence by within_ms= of p.lake(...)"
                    % _words(names[1:]),
                )
            self.choice(signal, "driver", signal.driver, reader.ACTUATORS)
            self.cause(signal)

    def cause(self, signal: builder.Signal) -> None:
        v = self.of[id(signal.stream.vertex)]
        known = v.outs[signal.stream.port].names if v.outs and signal.stream.port < len(v.outs) else ()
        if signal.field is None and not signal.silent_ms:
            self.error(
                signal, "nothing raises it", "Give silent_ms=, or field= with one of %s" % _words(known)
            )
        if signal.field is not None and known and signal.field not in known:
            self.error(
                signal,
                "the stream has no field %r%s" % (signal.field, near(signal.field, known)),
                "Use one of %s" % _words(known),
            )
        if (
            not self.number_in(signal, "silent_ms", signal.silent_ms, 0, reader.WITHIN_MS_MAX)
            or not self.sized
        ):
            return
        pause = max(BEAT_MS, self.pause_ms(v)) + self.process.link_ms
        if 0 < signal.silent_ms < 2 * pause:
            self.error(
                signal,
                "silent_ms=%d: in good times up to %d ms pass between two signs of '%s'"
                % (signal.silent_ms, pause, v.name),
                "Give silent_ms=%d or more (twice that)" % (2 * pause),
            )

    # -- the delay that an author asks for -------------------------------------------------------------

    def lake_delays(self) -> None:
        """Well-formedness, rule 5: no delay limit below what the path takes without failures."""
        if not self.sized:
            return
        for wire in self.process.wires:
            if wire.vertex is not None or not is_number(wire.within_ms) or not wire.within_ms:
                continue
            v = self.producer(wire)
            ways = [self.longest_ms(u, v) for u in self.vertices if u.source]
            least = max([w for w in ways if w is not None] or [0]) + self.latency_ms(wire)
            if wire.within_ms < least:
                self.error(
                    wire,
                    "within_ms=%d; batches and links take up to %d ms" % (wire.within_ms, least),
                    "Give within_ms=%d or more, or lower batch, batch_ms or link_ms" % least,
                )

    # -- floats ------------------------------------------------------------------------------------

    def floats(self) -> None:
        if self.process.allow_drift:
            return
        for v in self.vertices:
            widths = [self.hosts[h].floats for h in v.hosts if h is not None]
            if v.floats and [width for width in widths if width != widths[0]]:
                self.error(
                    v,
                    "computes in floats, and its hosts have floats of different width (%s)"
                    % ", ".join(["%s: %s" % (self.hosts[h].name, self.hosts[h].floats) for h in v.hosts]),
                    "Name hosts of one width, compute in integers, or give Process(..., allow_drift=True)",
                )

    # -- what a host has, and what it needs ------------------------------------------------------------
    def resources(self) -> None:
        if not self.sized:
            return
        # What a log must hold is computed for a plan: one with other mistakes in it may have any numbers.
        written = None if self.wrong() else self.written()
        for vertex in written.vertices if written else ():
            assert written is not None
            size = reserve.checkpoint_bytes(written, vertex) if vertex.kind else 0
            if (len(vertex.hosts) > 1 or self.level) and size > CHECKPOINT_MAX_BYTES:
                self.error(
                    self.order[vertex.index],
                    "a checkpoint with its transfer state takes up to %d KB; a host takes in at most %d KB"
                    % (kb(size), CHECKPOINT_MAX_BYTES // 1024),
                    "Lower every= or the caps of its outputs, or give it a smaller state",
                )
        for h, host in enumerate(self.hosts):
            if not host.sound or h == 0:
                continue
            held = [v for v in self.vertices if h in v.hosts and not v.source]
            runs = [v for v in self.vertices if v.host == h]
            for v in runs:
                if v.source and v.outs and isinstance(v.declared.log_kb, int):
                    least = self.log_bytes(v)
                    if v.declared.log_kb * 1024 < least:
                        self.error(
                            v,
                            "log_kb=%d cannot hold one checkpoint interval" % v.declared.log_kb,
                            "Give log_kb=%d or more, or lower every=" % kb(least),
                        )
            if written:
                self.flash(written, h, host)
            heap = sum([self.buffer_bytes(v, h) for v in runs])
            spare = max([self.taken_bytes(v, h) for v in held if v.host != h] or [0])
            runtime = self.runtime_kb(h)
            if runtime * 1024 + heap + spare > host.heap_kb * 1024:
                self.error(
                    host,
                    "heap_kb=%d; the runtime takes %d KB%s, the buffers of %s %d KB%s"
                    % (
                        host.heap_kb,
                        runtime,
                        " with moves" if runtime > RUNTIME_KB else "",
                        _words([v.name for v in runs]),
                        kb(heap),
                        ", what it may take over %d KB" % kb(spare) if spare else "",
                    ),
                    "Give it heap_kb=%d, move operators away, or lower every=, batch= or caps"
                    % (runtime + kb(heap + spare)),
                )

    def flash(self, written: plans.Plan, h: int, host: Host) -> None:
        """Whether the log of a host can hold what it must: see storage/reserve.py."""
        held = [v.name for v in written.vertices if v.kind and h in written.keepers(v.index)]
        streams, table = reserve.table(written, h)
        room = table_max(SECTOR_BYTES)
        if table > room:
            self.error(
                host,
                "the table of what its log holds takes up to %d bytes for %s; a sector has room for %d"
                % (table, _words([v.name for v in written.vertices if h in v.hosts]), room),
                "Move operators to another host, or name fewer backups",
            )
            return
        deployment = reserve.deployment_bytes(len(builder.dumps(written)), len(written.hosts))
        least = reserve.sectors(written, h, deployment) * SECTOR_BYTES
        if least > host.flash_kb * 1024:
            kept = reserve.reserve_sectors(written, h, deployment) * SECTOR_BYTES
            self.error(
                host,
                "flash_kb=%d; the log needs %d KB in reserve for checkpoints of %s, and %d KB for the rest"
                % (host.flash_kb, kb(kept), _words(held), kb(least - kept)),
                "Give it flash_kb=%d, move operators away, or lower every= or caps" % kb(least),
            )

    # -- what the author should know -------------------------------------------------------------------

    def advice(self) -> None:
        p = self.process
        if self.strategy == plans.UNSAFE:
            self.warn(
                p,
                'checkpoints="unsafe": a restart loses what operators hold',
                'Use "extended" where that matters',
            )
        elif self.level == plans.LOCAL and [v for v in self.vertices if not v.source and len(v.hosts) < 2]:
            self.warn(
                p,
                'level="local": the permanent death of a host loses its operators that have no backup',
                'Use level="peer" to survive it',
            )
        for h, host in enumerate(self.hosts):
            alarms = [signal for signal in p.signals if signal.host == host.name]
            if h and not alarms and not [v for v in self.vertices if h in v.hosts]:
                self.warn(host, "nothing runs there", "Place something on it, or drop it")
        if not self.wrong():
            self.sense()
            self.outlived()
            self.spare()
            self.apart()

    def outlived(self) -> None:
        """Delays that are asked for and cannot be kept when a host dies: it takes longer to notice that."""
        least = self.dead_ms()
        for wire in self.process.wires:
            if wire.vertex is not None or not 0 < wire.within_ms <= least:
                continue
            v = self.producer(wire)
            ways = [u for u in self.vertices if len(u.hosts) > 1 and self.longest_ms(u, v) is not None]
            if ways:
                self.warn(
                    wire,
                    "within_ms=%d cannot be kept when the host of '%s' dies: it starts elsewhere after %d ms "
                    "at the earliest" % (wire.within_ms, ways[0].name, least),
                    "Give more than %d, or take it for the delay while all hosts live" % least,
                )

    def apart(self) -> None:
        """Hosts that have to speak to each other and have no link in common: the gateway passes on what they
        say, while it runs."""
        told = set()
        for wire in self.inner():
            ends = (self.producer(wire).hosts, self.consumer(wire).hosts)
            for a, b in [(a, b) for a in ends[0] for b in ends[1] if a and b]:
                one, other = sorted((a, b))
                if set(self.hosts[a].links) & set(self.hosts[b].links) or (one, other) in told:
                    continue
                told.add((one, other))
                self.warn(
                    self.hosts[one],
                    "it has no link in common with '%s', so they speak to each other only while the gateway "
                    "runs" % self.hosts[other].name,
                    'Give one of them both links, with bluetooth="on", or take it for that',
                )

    def spare(self) -> None:
        """Whether one host more can keep each operator's checkpoints than the level needs."""
        written = self.written()
        if written is None or not self.level or self.strategy == plans.UNSAFE:
            return
        few = [v for v in written.vertices if v.kind and len(written.keepers(v.index)) <= self.level + 1]
        if not few:
            return
        hosts = [written.hosts[h] for h in written.keepers(few[0].index)]
        what = (
            'level="%s" has no spare host for the checkpoints of %s: it needs %d, and there are %s. While '
            "one of them is away nothing is acknowledged for these operators: logs fill, and they stop"
        ) % (self.process.level, _words([v.name for v in few]), self.level + 1, _words(hosts))
        cure = (
            "Declare another host, or lower the level; if a board is permanently lost, declare that with "
            "`hw board lost`"
        )
        if self.process.strict:
            self.error(self.process, what, cure)
        else:
            self.warn(self.process, what, cure)

    def sense(self) -> None:
        """Values that are legal but make no sense for the streams of this process."""
        for v in self.vertices:
            if v.source:
                continue
            feeders = [self.producer(v.inputs[p]) for p in v.inputs if v.inputs[p].delay_ms is None]
            most = [u.most_hz for u in feeders if u.most_hz is not None]
            most_hz = sum(most) if most and len(most) == len(feeders) else None
            for what in sensible.problems(v.declared.kind, v.ins, self.filled(v), most_hz):
                self.warn(v, what, "Give it another value")
