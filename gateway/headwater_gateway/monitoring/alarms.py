"""Alarms: from the facts about a site, what a person should look at, and the headline.

`judge` is a pure function: facts and limits in, alarms out. It decides nothing by time that is not in the
facts, so every case is a few lines of test. Each alarm says what is wrong, where, and what to do, and has an
id that stays the same as long as its cause does: KIND/SUBJECT, where KIND is one of `KINDS`.

`Watch` follows the alarms over time: since when each is on, which were acknowledged or muted, and what
changed. An alarm is on when its cause has lasted for `after_s`. What cannot be known at present (a board's
clock while the board is away, the sink in the first minutes of a gateway) neither begins nor ends an alarm:
`judge` names those kinds and subjects in `unsure`.

`headline` is the only place that may say "All is well".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CRITICAL = "critical"
WARNING = "warning"

KINDS = (
    "board.alarm",
    "board.backlog",
    "board.battery",
    "board.clock",
    "board.crash",
    "board.link",
    "board.plan",
    "board.samples",
    "bluetooth",
    "broker",
    "clock.ahead",
    "clock.network",
    "database.failed",
    "database.filling",
    "database.full",
    "operator.nowhere",
    "process.adopt",
    "process.learn",
    "receiver.failing",
    "receiver.refused",
    "segments",
    "segments.damaged",
    "sink.elsewhere",
    "sink.idle",
    "stream.silent",
    "stream.stuck",
)
RECEIVER_KINDS = ("receiver.failing", "receiver.refused")

BATTERY_BACK_MV = 50  # a low battery is no longer low this far above the limit
BATTERY_EMPTY_MV = 100  # this far below the limit it is nearly empty
FILLING = 0.8  # of the database's limit
GRACE_S = 5.0  # after the start, for the broker to answer
CLOCK_GRACE_S = 60.0  # after its start, for a board to synchronise
CRASHES = 2  # in the window: not one accident any more
SUBJECT_MAX = 200  # characters
MUTES_MAX = 100
RECEIVER_S = 60.0  # a receiver of notices that has failed for this long does not answer
MUTE_MAX_S = 30 * 86_400


@dataclass(frozen=True)
class Limits:
    """The section [alarms] of gateway.toml."""

    unacknowledged_s: float = 300.0
    board_backlog_s: float = 300.0
    battery_low_mv: int = 3400
    clock_ms: float = 1000.0
    apart_s: float = 10.0  # a board from the site, or the site from its machine: a step of the clocks


# ---- facts


@dataclass(frozen=True)
class BoardFacts:
    name: str
    process: str | None = None
    link: str = "up"  # "up", "silent", "lost", "gone", "never seen"
    silent_s: float = 0.0
    wanted_s: float = 0.0  # since it has had a process
    refuses: str = ""  # why it refuses its plan
    crash: str = ""  # text of the newest crash
    crashes: int = 0  # in the last `window_s`
    window_s: float = 600.0
    young: bool = False  # the gateway has not had the broker for long enough to expect this board
    told: bool = True  # it has reported its status since the gateway started
    left_out: bool = False
    battery_mv: int | None = None
    clock_us: int | None = None  # largest error of its stamps; None: not synchronised
    ahead_s: float = 0.0  # its time minus the site's
    up_s: float | None = None
    refused_lately: int = 0  # samples that its sources refused in the last `refused_s`
    refused_s: float = 120.0

    @property
    def heard(self) -> bool:
        """Whether its last report is current."""
        return self.link in ("up", "silent")


@dataclass(frozen=True)
class StreamFacts:
    """One stream on its way to the lake, all its incarnations together."""

    stream: str
    process: str
    lag_s: float | None = None  # age of the oldest element that is durable here and not in the lake
    waiting: int = 0  # elements that are durable here and not in the lake
    acked_s: float | None = None  # since an acknowledgement last went forward; None: not known to have
    beyond: bool = False  # the lake has later elements than those that it lacks
    host: str = ""  # where its producer runs
    on_board: int | None = 0  # elements that the producer's host has and the gateway not; None: unknown
    on_board_s: float | None = None  # age of the oldest of them, at least
    within_s: float = 0.0  # the delay that the process file asks for; 0: none
    report_s: float = 0.0  # how often its hosts report
    quiet_s: float | None = None  # without an element or a boundary; None: not known yet


@dataclass(frozen=True)
class SoundFacts:
    """An alarm that a board raises itself: `p.alarm(...)` of a process."""

    board: str
    name: str
    stream: str
    driver: str
    silent_s: float = 0.0  # of silence, after which it sounds; 0: silence does not raise it
    by_level: bool = False  # it is on because of its field,
    by_silence: bool = False  # or because the board has heard nothing of the stream
    audible: bool = True  # the board has what it sounds with
    known: bool = True  # the board's report is current

    @property
    def id(self) -> str:
        return "board.alarm/%s.%s" % (self.board, self.name)


@dataclass(frozen=True)
class OperatorFacts:
    """An operator of which no candidate is there."""

    process: str
    name: str
    candidates: tuple[tuple[str, str], ...]  # host, and why it cannot run it
    since_s: float  # since the last of them was heard
    known: bool = True  # the gateway has listened for long enough


@dataclass(frozen=True)
class SinkFacts:
    """What is known about the sink: see sink_watch.py."""

    read: bool = True  # acknowledgements and signs of life were looked for at least once
    known: bool = True  # the gateway has run long enough to expect an acknowledgement
    ever: bool = True  # some acknowledgement was ever read
    acks: str = "lake/acks"
    silent_s: float | None = (
        None  # since the sink of `lake.acks` last gave a sign of life; None: it never did
    )
    stopped: bool = False  # it announced its end
    elsewhere: str = ""  # another lake, that the sink which reads the landing zone writes to
    every_s: float = 30.0


@dataclass(frozen=True)
class ReceiverFacts:
    """A receiver of notices: see notices/."""

    name: str
    waiting: int = 0
    failing_s: float | None = None  # since its last success, if attempts have failed after that
    why: str = ""
    refused: int = 0  # notices that it did not accept
    refused_why: str = ""
    tried: bool = True  # an attempt has ended since the gateway started


@dataclass(frozen=True)
class Facts:
    folder: str = "."  # of the site, for the commands that a message names
    up_s: float = 1e9
    broker_up: bool = True
    broker_problem: str = ""
    bluetooth_problem: str = ""  # why the adapter cannot be used; "" where none is to be
    database_failed: str = ""
    database_full: bool = False
    database_share: float = 0.0
    segments_problem: str = ""
    segments_damaged: int = 0
    learning: tuple[tuple[str, str], ...] = ()  # process, what it waits for
    adopting: tuple[tuple[str, str], ...] = ()  # deployment, why it is not adopted
    clock_problem: str = ""  # why this machine's clock is not followed
    ahead_s: float = 0.0  # the site's time is ahead of the true time,
    right_in_s: float = 0.0  # and no longer in this time
    boards: tuple[BoardFacts, ...] = ()
    streams: tuple[StreamFacts, ...] = ()
    sink: SinkFacts = field(default_factory=SinkFacts)
    sounds: tuple[SoundFacts, ...] = ()
    nowhere: tuple[OperatorFacts, ...] = ()
    receivers: tuple[ReceiverFacts, ...] = ()
    on: Mapping[str, str] = field(default_factory=dict)  # id -> severity of the alarms that are on


@dataclass(frozen=True)
class Alarm:
    id: str
    severity: str
    text: str  # what, and where
    do: str  # what to do
    after_s: float = 0.0

    @property
    def kind(self) -> str:
        return self.id.partition("/")[0]


@dataclass
class Verdict:
    alarms: list[Alarm] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)  # ids, or whole kinds, that are unknown at the moment

    def add(self, ident: str, severity: str, text: str, do: str, after_s: float = 0.0) -> None:
        self.alarms.append(Alarm(ident, severity, text, do, after_s))


# ---- the judgement


def judge(facts: Facts, limits: Limits) -> Verdict:
    """Everything that is wrong, the worst first."""
    verdict = Verdict()
    _gateway(facts, limits, verdict)
    _lake(facts, limits, verdict)
    for board in facts.boards:
        _board(board, facts, limits, verdict)
    for stream in facts.streams:
        _backlog(stream, facts, limits, verdict)
        _silent(stream, facts, verdict)
    for sound in facts.sounds:
        _sound(sound, facts, verdict)
    for operator in facts.nowhere:
        _nowhere(operator, facts, verdict)
    for receiver in facts.receivers:
        _receiver(receiver, facts, verdict)
    verdict.alarms.sort(key=lambda alarm: (alarm.severity != CRITICAL, alarm.id))
    return verdict


def _gateway(facts: Facts, limits: Limits, verdict: Verdict) -> None:
    if facts.up_s <= GRACE_S:
        verdict.unsure.add("broker")
    elif not facts.broker_up:
        verdict.add(
            "broker",
            CRITICAL,
            "The broker does not answer: %s. Boards keep their entries, and how many is unknown."
            % facts.broker_problem,
            "Check whether Mosquitto runs, and [mqtt] in gateway.toml; the gateway keeps trying.",
        )
    if facts.bluetooth_problem:
        verdict.add(
            "bluetooth",
            CRITICAL,
            "The Bluetooth adapter cannot be used: %s. Boards without a network are not reached."
            % facts.bluetooth_problem,
            "Check with `bluetoothctl show` whether it is there and powered, whether this user is in the "
            "group bluetooth, and [bluetooth] in gateway.toml; the gateway keeps trying.",
            GRACE_S,
        )
    if facts.database_failed:
        verdict.add(
            "database.failed",
            CRITICAL,
            "The database cannot be written: %s. Nothing is acknowledged to the boards."
            % facts.database_failed,
            "Check whether the disk of gateway.data is full or read-only.",
        )
    elif facts.database_full:
        verdict.add(
            "database.full",
            CRITICAL,
            "The database or its disk is full: boards keep their entries in their own flash.",
            "Free space on the disk of gateway.data, or find out why the lake does not acknowledge.",
        )
    elif facts.database_share >= FILLING:
        verdict.add(
            "database.filling",
            WARNING,
            "The database holds %d %% of store.max_bytes." % (100 * facts.database_share),
            "Find out why the lake does not acknowledge, or raise store.max_bytes. When the database is "
            "full, boards keep their entries.",
        )
    if facts.segments_problem:
        verdict.add(
            "segments",
            CRITICAL,
            "Segments or acknowledgements: %s" % facts.segments_problem,
            "Check lake.landing and lake.acks in gateway.toml, and the rights of their folders.",
        )
    if facts.segments_damaged:
        verdict.add(
            "segments.damaged",
            CRITICAL,
            "%d entries could not be decoded; the lake has a gap there." % facts.segments_damaged,
            "This is a defect of a board's program: keep the gateway's log, which names stream and range.",
        )
    for process, why in facts.learning:
        verdict.add(
            "process.learn/" + process,
            WARNING,
            "Process %s: %s" % (process, why),
            "Switch on every board of the process.",
        )
    for ident, why in facts.adopting:
        verdict.add(
            "process.adopt/" + ident,
            CRITICAL,
            "A board's process is not adopted: %s" % why,
            "Deploy the process again with `hw deploy FILE --gateway %s`." % facts.folder,
        )
    if facts.clock_problem:
        verdict.add(
            "clock.network",
            WARNING,
            "The site's time is %s." % facts.clock_problem,
            "Find out with `timedatectl` why (chrony needs `rtcsync` in its configuration), and set the "
            'clock right. If it is kept by other means, set gateway.clock = "wall" in gateway.toml.',
            GRACE_S,
        )
    if facts.ahead_s > limits.apart_s:
        verdict.add(
            "clock.ahead",
            WARNING,
            "The site's time is %s ahead of this machine's clock, because a clock was wrong, or is now. "
            "It runs 0.05 %% slower, and will be right in %s."
            % (span(facts.ahead_s), span(facts.right_in_s)),
            "Check with `timedatectl` whether this machine's clock is right. The site's time never goes "
            "back; elements are stamped with it.",
            5.0,
        )


def _lake(facts: Facts, limits: Limits, verdict: Verdict) -> None:
    """One alarm explains why nothing arrives in the lake; a stream has its own only if others advance."""
    sink = facts.sink
    if not sink.read:
        verdict.unsure |= {"sink.elsewhere", "sink.idle", "stream.stuck"}
        return
    bound = limits.unacknowledged_s
    waiting = [s for s in facts.streams if s.lag_s is not None]
    late = [s for s in waiting if s.lag_s is not None and s.lag_s > bound]
    if sink.elsewhere:
        verdict.add(
            "sink.elsewhere",
            CRITICAL,
            "The sink that reads the landing zone writes to the lake %s, which is not the one whose "
            "acknowledgements are read (lake.acks = %s): nothing is acknowledged."
            % (sink.elsewhere, sink.acks),
            "Start the sink with the lake of lake.acks, or set lake.acks to the folder acks of that lake and "
            "restart the gateway.",
            30.0,
        )
        return
    if late and not sink.known:
        verdict.unsure |= {"sink.idle", "stream.stuck"}
        late = []
    dead_s = max(90.0, 3 * sink.every_s)
    gone = sink.silent_s is not None and sink.silent_s > dead_s and not sink.stopped
    fresh = [s for s in facts.streams if s.acked_s is not None and s.acked_s <= bound]
    if gone and waiting or late and not fresh:
        oldest = max(s.lag_s or 0.0 for s in waiting)
        count = waits(sum(s.waiting for s in waiting))
        verdict.add(
            "sink.idle",
            CRITICAL,
            "%s; %s, the oldest for %s." % (_why_idle(sink, gone, bound), count, span(oldest)),
            "Check whether `hw sink` runs, what it logs, and whether lake.acks belongs to its lake.",
        )
        return
    for stream in late:
        verdict.add(
            "stream.stuck/" + stream.stream,
            CRITICAL,
            "Stream %s is stuck: others reach the lake, and of this one %s, the oldest for %s%s."
            % (
                stream.stream,
                waits(stream.waiting),
                span(stream.lag_s or 0.0),
                ", although the lake has later ones" if stream.beyond else "",
            ),
            "Check what the sink reports about its segments (landing zone, table quarantine).",
        )


def _why_idle(sink: SinkFacts, gone: bool, bound: float) -> str:
    if sink.stopped:
        return "The sink was stopped %s ago" % span(sink.silent_s or 0.0)
    if gone:
        return "The sink is gone: it last gave a sign of life %s ago" % span(sink.silent_s or 0.0)
    if sink.silent_s is not None:
        return "The sink runs, and has acknowledged nothing for %s" % span(bound)
    if sink.ever:
        return "The lake has acknowledged nothing for %s" % span(bound)
    return "No acknowledgement has ever come to lake.acks = %s" % sink.acks


def _board(board: BoardFacts, facts: Facts, limits: Limits, verdict: Verdict) -> None:
    name = board.name
    if board.young:
        verdict.unsure |= {"board.link/" + name, "board.plan/" + name}
    elif board.process is not None:
        _link(board, facts, verdict)
    if board.refuses:
        verdict.add(
            "board.plan/" + name,
            CRITICAL,
            "Board %s refuses its plan: %s" % (name, board.refuses),
            "Change the process file and deploy it again.",
        )
    if not board.heard or not board.told:
        verdict.unsure |= {"board.clock/" + name, "board.battery/" + name}
    if not board.told:
        verdict.unsure |= {"board.crash/" + name, "board.samples/" + name}
        return
    _crash(board, verdict)
    if board.heard:
        _condition(board, facts, limits, verdict)


def _link(board: BoardFacts, facts: Facts, verdict: Verdict) -> None:
    ident = "board.link/" + board.name
    look = "Check its power and its radio; `hw gateway state %s` shows its last report." % facts.folder
    if board.link in ("lost", "gone"):
        text = "Board %s is %s: silent for %s." % (board.name, board.link, span(board.silent_s))
        verdict.add(ident, CRITICAL, text, look)
    elif board.link == "silent":
        text = "Board %s has lost its link to the broker %s ago." % (board.name, span(board.silent_s))
        verdict.add(
            ident, WARNING, text, "It reconnects by itself; otherwise check its power and its radio.", 2.0
        )
    elif board.link == "never seen" and board.wanted_s > GRACE_S:
        text = "Board %s of process %s was never seen." % (board.name, board.process)
        verdict.add(
            ident, WARNING, text, "Switch it on; it needs the files that `hw provision` made for it.", 30.0
        )


def _crash(board: BoardFacts, verdict: Verdict) -> None:
    ident = "board.crash/" + board.name
    do = "Look at its process: the text names the place. Deploying a changed process starts it again."
    if board.left_out:
        text = "Board %s skips its process after five crashes in a row: %s" % (board.name, board.crash)
        verdict.add(ident, CRITICAL, text, do)
    elif board.crashes >= CRASHES:
        text = "Board %s crashes repeatedly, %d times in %s: %s"
        values = (board.name, board.crashes, span(board.window_s), board.crash)
        verdict.add(ident, CRITICAL, text % values, "After five in a row it skips its process. " + do)
    elif board.crashes:
        text = "Board %s has crashed: %s" % (board.name, board.crash)
        verdict.add(ident, WARNING, text, "It has started again. " + do)


def _condition(board: BoardFacts, facts: Facts, limits: Limits, verdict: Verdict) -> None:
    """What a board reports about itself."""
    name = board.name
    ident = "board.battery/" + name
    # The voltage falls under load and recovers: a low battery stays low until it is well above the limit.
    low = limits.battery_low_mv + (BATTERY_BACK_MV if ident in facts.on else 0)
    empty = limits.battery_low_mv - BATTERY_EMPTY_MV
    empty += BATTERY_BACK_MV if facts.on.get(ident) == CRITICAL else 0
    if board.battery_mv is not None and 0 < board.battery_mv < empty:
        text = "Board %s: the battery is nearly empty, %.2f V." % (name, board.battery_mv / 1000)
        verdict.add(ident, CRITICAL, text, "Charge or change it now.", 5.0)
    elif board.battery_mv is not None and 0 < board.battery_mv < low:
        text = "Board %s: the battery is low, %.2f V (limit %.2f V)."
        text %= (name, board.battery_mv / 1000, limits.battery_low_mv / 1000)
        verdict.add(ident, WARNING, text, "Charge or change it; alarms.battery_low_mv is the limit.", 5.0)
    if board.process is not None:
        _clock(board, facts, limits, verdict)
    if board.refused_lately:
        verdict.add(
            "board.samples/" + name,
            CRITICAL,
            "Board %s had no room for %s that it took in the last %s: they are lost."
            % (name, number(board.refused_lately, "sample"), span(board.refused_s)),
            "The lake shows a hole there. Bring back what the board waits for: link, gateway or lake.",
        )


def _clock(board: BoardFacts, facts: Facts, limits: Limits, verdict: Verdict) -> None:
    ident = "board.clock/" + board.name
    if abs(board.ahead_s) > limits.apart_s:
        way = "ahead of" if board.ahead_s > 0 else "behind"
        text = "Board %s stamps its elements %s %s the site's time."
        verdict.add(
            ident, WARNING, text % (board.name, span(abs(board.ahead_s)), way),
            "A clock was wrong when it was set. A board that is ahead cannot go back: its clock runs 0.05 % "
            "slower until it is right. No board moves the site's time.", 10.0,
        )  # fmt: skip
    elif board.clock_us is None:
        if facts.clock_problem:
            return  # it follows a gateway that does not know the time
        if board.up_s is not None and board.up_s > CLOCK_GRACE_S:
            text = "Board %s is not synchronised: its elements carry a time that may be far off." % board.name
            verdict.add(
                ident, WARNING, text, "Check its link: it takes the time from the gateway's frames.", 10.0
            )
    elif board.clock_us > 1000 * limits.clock_ms:
        text = "Board %s stamps its elements with an error of up to %s (limit %s)."
        values = (board.name, precise(board.clock_us / 1e6), precise(limits.clock_ms / 1e3))
        verdict.add(
            ident, WARNING, text % values, "The clock comes back slowly; alarms.clock_ms is the limit.", 10.0
        )


def _backlog(stream: StreamFacts, facts: Facts, limits: Limits, verdict: Verdict) -> None:
    ident = "board.backlog/" + stream.stream
    if stream.on_board is None:
        verdict.unsure.add(ident)
    elif stream.on_board_s is not None and stream.on_board_s > limits.board_backlog_s:
        verdict.add(
            ident,
            WARNING,
            "Stream %s: %s on %s, the oldest for at least %s."
            % (
                stream.stream,
                waits(stream.on_board),
                stream.host or "its board",
                span(stream.on_board_s),
            ),
            "Check the board's link and other alarms; when its flash is full it refuses samples.",
        )


def _silent(stream: StreamFacts, facts: Facts, verdict: Verdict) -> None:
    """The process file asks for every element within a delay: silence for longer means that the stream is not
    watched any more."""
    ident = "stream.silent/" + stream.stream
    if not stream.within_s:
        return
    if stream.quiet_s is None:
        verdict.unsure.add(ident)
    elif stream.quiet_s > stream.within_s + stream.report_s:
        verdict.add(
            ident,
            CRITICAL,
            "Stream %s is silent: for %s neither an element nor a sign that none was due; within_ms asks for "
            "%s." % (stream.stream, span(stream.quiet_s), precise(stream.within_s)),
            "What it measures is not watched: check %s, the boards of its sources and their alarms; "
            "`hw gateway state %s` shows what process %s waits for."
            % (stream.host or "its board", facts.folder, stream.process),
        )


def _sound(sound: SoundFacts, facts: Facts, verdict: Verdict) -> None:
    """What a person near the board hears already, for those who are elsewhere."""
    if not sound.known:
        verdict.unsure.add(sound.id)
    elif sound.by_level or sound.by_silence:
        why = "of what %s says" % sound.stream
        if not sound.by_level:
            why = "it hears nothing of %s for %s" % (sound.stream, precise(sound.silent_s))
        text = "Board %s sounds its alarm %s (%s), because %s." % (sound.board, sound.name, sound.driver, why)
        if not sound.audible:
            text = "Board %s should sound its alarm %s, and has no %s: because %s."
            text %= (sound.board, sound.name, sound.driver, why)
        verdict.add(
            sound.id,
            CRITICAL,
            text,
            "Look after the cause. Muting this alarm silences the board, as `hw gateway alarms %s --mute %s "
            "--for 10m` does." % (facts.folder, sound.id),
        )


def _nowhere(operator: OperatorFacts, facts: Facts, verdict: Verdict) -> None:
    ident = "operator.nowhere/%s.%s" % (operator.process, operator.name)
    if not operator.known:
        verdict.unsure.add(ident)
        return
    verdict.add(
        ident,
        CRITICAL,
        "Operator %s of process %s runs nowhere for %s: %s."
        % (operator.name, operator.process, span(operator.since_s),
           "; ".join("%s %s" % candidate for candidate in operator.candidates)),
        "Switch on one of these boards, or charge its battery: the operator goes on where it stood. Of one "
        "that never comes back say `hw board lost NAME %s`; `hw give-up %s` begins the operator again "
        "without what they had." % (facts.folder, operator.name),
    )  # fmt: skip


def _receiver(receiver: ReceiverFacts, facts: Facts, verdict: Verdict) -> None:
    failing, refused = ("%s/%s" % (kind, receiver.name) for kind in RECEIVER_KINDS)
    if receiver.waiting and not receiver.tried:
        verdict.unsure.add(failing)
    elif receiver.name == "mqtt" and not facts.broker_up:
        verdict.unsure.add(failing)  # the alarm of the broker explains it
    elif receiver.failing_s is not None and receiver.failing_s > RECEIVER_S:
        verdict.add(
            failing,
            CRITICAL,
            "The receiver %s of alarms does not answer for %s: %s. %s there."
            % (receiver.name, span(receiver.failing_s), receiver.why, _notices(receiver.waiting)),
            "It gets no alarms until it answers. `hw gateway alarms %s` shows the attempts, which go on."
            % facts.folder,
        )
    if receiver.refused:
        verdict.add(
            refused,
            CRITICAL,
            "The receiver %s has refused %s of alarms: %s."
            % (receiver.name, number(receiver.refused, "notice"), receiver.refused_why),
            "They are not sent again by themselves. Check its section in gateway.toml, restart the gateway "
            "if that was changed, and then `hw gateway alarms %s --retry %s`."
            % (facts.folder, receiver.name),
        )


def _notices(n: int) -> str:
    return number(n, "notice") + (" waits" if n == 1 else " wait")


# ---- over time


@dataclass
class Open:
    """An alarm that is on."""

    alarm: Alarm
    since_us: int
    acked_us: int = 0
    sure: bool = True  # False: it held when its subject was last known


@dataclass(frozen=True)
class Change:
    """What to report: an alarm "begins", gets "worse" or is "over"."""

    what: str
    alarm: Alarm


class Watch:
    """The alarms that are on, and the mutes. `changed` names the ids whose record differs from the stored."""

    def __init__(self) -> None:
        self.open: dict[str, Open] = {}
        self.mutes: dict[str, int] = {}  # id -> until when, site time
        self._first: dict[str, int] = {}  # causes that have not lasted long enough yet: since when
        self.changed: set[str] = set()

    def update(self, now_us: int, verdict: Verdict) -> list[Change]:
        found = {alarm.id: alarm for alarm in verdict.alarms}
        changes = []
        for ident, alarm in found.items():
            known = self.open.get(ident)
            if known is None:
                first = self._first.setdefault(ident, now_us)
                if now_us - first >= 1e6 * alarm.after_s:
                    self.open[ident] = Open(alarm, first)
                    changes.append(Change("begins", alarm))
            else:
                if alarm.severity == CRITICAL != known.alarm.severity:
                    known.acked_us = 0
                    changes.append(Change("worse", alarm))
                elif alarm.severity != known.alarm.severity:
                    self.changed.add(ident)
                known.alarm, known.sure = alarm, True
        self._first = {ident: us for ident, us in self._first.items() if ident in found}
        for ident in [ident for ident in self.open if ident not in found]:
            if ident in verdict.unsure or self.open[ident].alarm.kind in verdict.unsure:
                self.open[ident].sure = False
            else:
                changes.append(Change("over", self.open.pop(ident).alarm))
        for ident in [ident for ident, until in self.mutes.items() if until <= now_us]:
            del self.mutes[ident]
            self.changed.add(ident)
        self.changed |= {change.alarm.id for change in changes}
        return changes

    def acknowledge(self, ident: str, now_us: int) -> None:
        """Mark it as seen. KeyError if it is not on."""
        self.open[ident].acked_us = now_us
        self.changed.add(ident)

    def mute(self, ident: str, until_us: int) -> None:
        """It does not count until then, whether it is on now or later."""
        self.mutes[ident] = until_us
        self.changed.add(ident)

    def unmute(self, ident: str) -> None:
        if self.mutes.pop(ident, None) is not None:
            self.changed.add(ident)

    def shown(self) -> list[dict[str, object]]:
        """Every alarm that is on, the worst first, and of these the newest."""
        order = sorted(
            self.open.values(),
            key=lambda o: (o.alarm.id in self.mutes, o.alarm.severity != CRITICAL, -o.since_us, o.alarm.id),
        )
        return [
            {
                "id": o.alarm.id,
                "severity": o.alarm.severity,
                "text": o.alarm.text,
                "do": o.alarm.do,
                "since_us": o.since_us,
                "acked_us": o.acked_us or None,
                "muted_until_us": self.mutes.get(o.alarm.id),
                "sure": o.sure,
            }
            for o in order
        ]

    def counts(self) -> dict[str, int]:
        """Alarms that are on and not muted, by severity."""
        counts = {CRITICAL: 0, WARNING: 0}
        for ident, o in self.open.items():
            if ident not in self.mutes:
                counts[o.alarm.severity] += 1
        return counts

    def by_kind(self) -> dict[str, int]:
        """Alarms that are on, of every kind that there is."""
        counts = dict.fromkeys(KINDS, 0)
        for o in self.open.values():
            counts[o.alarm.kind] += 1
        return counts


def headline(watch: Watch) -> dict[str, str]:
    """`state`: "good", "warn" or "bad"; `text`: the sentence above all others."""
    counts = watch.counts()
    muted = len(watch.open) - sum(counts.values())
    more = " (%d muted)" % muted if muted else ""
    if not sum(counts.values()):
        return {"state": "good", "text": "No alarm" + more if muted else "All is well"}
    loud = [o for ident, o in watch.open.items() if ident not in watch.mutes]
    text = number(len(loud), "alarm")
    seen = sum(1 for o in loud if o.acked_us)
    if seen == len(loud):
        text += ", acknowledged"
    elif seen:
        text += ", %d acknowledged" % seen
    return {"state": "bad" if counts[CRITICAL] else "warn", "text": text + more}


def good_id(ident: str) -> bool:
    """Whether such an alarm can exist: its kind is known, and its subject is a short word."""
    kind, slash, subject = ident.partition("/")
    return (
        kind in KINDS
        and len(subject) <= SUBJECT_MAX
        and subject.isprintable()
        and bool(subject) == bool(slash)
    )


# ---- words


def number(n: int, word: str) -> str:
    return "%s %s%s" % (format(n, ","), word, "" if n == 1 else "s")


def waits(n: int) -> str:
    return number(n, "element") + (" waits" if n == 1 else " wait")


def span(seconds: float) -> str:
    """How long, in words that are easy to read."""
    t = round(max(0.0, seconds))
    if t < 120:
        return "%d s" % t
    if t < 7200:
        return "%d min" % (t // 60)
    if t < 259_200:
        return "%d h" % (t // 3600)
    return "%d days" % (t // 86_400)


def precise(seconds: float) -> str:
    return "%.1f s" % seconds if seconds >= 1 else "%.0f ms" % (1000 * seconds)
