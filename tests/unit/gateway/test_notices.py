"""Notices of alarms: in order, at least once, none lost, bounded, whatever fails and is killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from defects import Change, seeded
from headwater_tools import environment

environment.ensure("gateway")
from headwater_gateway.database.engine import Database  # noqa: E402
from headwater_gateway.monitoring.alarms import CRITICAL, WARNING, Verdict, Watch  # noqa: E402
from headwater_gateway.notices.lane import (  # noqa: E402
    ACKNOWLEDGED,
    BEGAN,
    CHANGED,
    CLOSING,
    DELIVERED,
    ENDED,
    MERGED,
    MUTED,
    NAMED_MAX,
    REPEATED,
    Entry,
    Lane,
    Outcome,
)
from headwater_gateway.notices.queue import Notices  # noqa: E402

S = 1_000_000
FAILED = Outcome("failed", "it answers with HTTP status 503")
REFUSED = Outcome("refused", "it answers with HTTP status 400")


class Gateway:
    """The alarms and notices of one gateway, with a clock of its own."""

    def __init__(self, folder: Path, boot: int = 1, limit: int = 1000, **more: Any) -> None:
        settings = {"receivers": {"webhook": 300.0}, "repeat_s": 60.0, **more}
        self.folder, self.boot, self.limit, self.settings = folder, boot, limit, settings
        self.now = 1000.0
        self.watch = Watch()
        self.begin()

    def begin(self) -> None:
        self.db = Database(self.folder / "db", lambda: 0)
        self.db._conn.execute("PRAGMA synchronous = OFF")  # here the program is killed, not the machine
        self.notices = Notices(self.db, 7, self.boot, "hw", limit=self.limit, **self.settings)
        self.db.commit()

    def kill(self) -> None:
        """Lose what was not committed, and start again."""
        self.db.abandon()
        self.boot += 1
        self.begin()

    def close(self) -> None:
        self.db.close()

    @property
    def lane(self) -> Lane:
        return self.notices.lanes["webhook"]

    def on(self, **alarms: str) -> None:
        """These alarms are on, with this severity, and no others."""
        verdict = Verdict()
        for name, severity in alarms.items():
            verdict.add("board.link/" + name, severity, "Board %s is lost." % name, "Look.")
        self.watch.update(int(self.now * S), verdict)
        self.look()

    def look(self, commit: bool = True) -> None:
        self.notices.look(self.watch, int(self.now * S))
        if commit:
            self.db.commit()

    def send(self, outcome: Outcome = DELIVERED) -> Entry | None:
        self.now += 0.001
        entry = self.lane.due(self.now)
        if entry is None and not self.db.failed:
            self.db.commit()
            entry = self.lane.due(self.now)
        if entry is not None:
            self.lane.done(entry, outcome, self.now)
        return entry

    def all(self) -> list[tuple[str, str]]:
        found = []
        while (entry := self.send()) is not None:
            found.append((entry.what, entry.alarm.partition("/")[2]))
        self.db.commit()
        return found


@pytest.fixture
def gateway(tmp_path: Path) -> Any:
    with closing(Gateway(tmp_path)) as made:
        yield made


# ---- what is told


def test_what_begins_changes_is_acknowledged_and_ends_is_told_once_each(gateway: Gateway) -> None:
    gateway.on(hip=WARNING)
    gateway.on(hip=WARNING)
    gateway.on(hip=CRITICAL)
    gateway.watch.acknowledge("board.link/hip", 5)
    gateway.look()
    gateway.on()
    gateway.on()
    assert [what for what, _ in gateway.all()] == [BEGAN, CHANGED, ACKNOWLEDGED, ENDED]
    assert gateway.notices.told == {}


def test_a_notice_says_what_where_since_when_and_what_to_do(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL)
    entry = gateway.send()
    assert entry is not None
    assert gateway.notices.message(entry.body) == {
        "format": 1, "site": "hw", "id": "0000000000000007-1-1", "what": "began", "alarm": "board.link/hip",
        "severity": "critical", "text": "Board hip is lost.", "do": "Look.", "since_us": 1000 * S,
        "acked_us": None, "at_us": 1000 * S,
    }  # fmt: skip


def test_a_critical_alarm_is_repeated_until_a_person_acknowledges_it(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL, chest=WARNING)
    gateway.all()
    for _ in range(3):
        gateway.now += 61
        gateway.look()
        gateway.look()
    # One repetition that waits is enough, however long the receiver is away.
    assert gateway.all() == [(REPEATED, "hip")]
    gateway.now += 61
    gateway.look()
    assert gateway.all() == [(REPEATED, "hip")]
    gateway.watch.acknowledge("board.link/hip", 5)
    gateway.now += 61
    gateway.look()
    gateway.now += 61
    gateway.look()
    assert gateway.all() == [(ACKNOWLEDGED, "hip")]


def test_nothing_of_a_muted_alarm_is_sent(gateway: Gateway) -> None:
    gateway.watch.mute("board.link/hip", 10**15)
    gateway.on(hip=CRITICAL)
    gateway.on()
    gateway.on(hip=CRITICAL)
    assert gateway.all() == []
    gateway.watch.unmute("board.link/hip")
    gateway.look()
    assert gateway.all() == [(BEGAN, "hip")]
    # A receiver that knows it as on learns once why no more of it comes.
    gateway.watch.mute("board.link/hip", 10**15)
    gateway.look()
    gateway.on()
    assert gateway.all() == [(MUTED, "hip")]
    # One that has not heard of it learns nothing.
    gateway.watch.unmute("board.link/hip")
    gateway.on(hip=CRITICAL)
    gateway.watch.mute("board.link/hip", 10**15)
    gateway.look()
    assert gateway.all() == []


def test_an_attempt_that_failed_may_have_arrived(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL)
    gateway.send(FAILED)
    gateway.watch.mute("board.link/hip", 10**15)
    gateway.look()
    gateway.now += 10
    assert gateway.all() == [(MUTED, "hip")]


def test_a_restart_neither_forgets_an_alarm_nor_tells_it_again(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL, chest=WARNING)
    first = gateway.send()
    gateway.db.commit()
    gateway.kill()
    gateway.look()
    gateway.on(hip=CRITICAL)
    assert first is not None and first.alarm == "board.link/hip"
    assert gateway.all() == [(BEGAN, "chest"), (ENDED, "chest")]


def test_an_alarm_about_a_receiver_is_told_to_the_others_alone(tmp_path: Path) -> None:
    with closing(Gateway(tmp_path, receivers={"mqtt": 15.0, "webhook": 300.0})) as gateway:
        verdict = Verdict()
        verdict.add("receiver.failing/webhook", CRITICAL, "It does not answer.", "Look.")
        verdict.add("broker", CRITICAL, "It does not answer.", "Look.")
        gateway.watch.update(1, verdict)
        gateway.look()
        alarms = {name: [e.alarm for e in lane.entries] for name, lane in gateway.notices.lanes.items()}
        assert alarms == {"mqtt": ["receiver.failing/webhook", "broker"], "webhook": ["broker"]}
        ids = {name: lane.entries[-1].body["id"] for name, lane in gateway.notices.lanes.items()}
        assert ids["mqtt"] == ids["webhook"]


def test_a_new_receiver_hears_what_is_on_and_one_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    with closing(Gateway(tmp_path, receivers={"mqtt": 15.0})) as gateway:
        gateway.on(hip=CRITICAL)
        gateway.settings["receivers"] = {"webhook": 300.0}
        gateway.kill()
        assert gateway.all() == [(BEGAN, "hip")]
        assert gateway.db.query("SELECT count(*) FROM notices") == [(0,)]


# ---- how it is sent


def test_attempts_back_off_up_to_a_limit_and_longer_where_the_receiver_asks_for_it(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL)
    pauses = []
    for _ in range(14):
        assert gateway.send(FAILED) is not None
        pause = gateway.lane.pause_s(gateway.now)
        assert pause is not None and gateway.lane.due(gateway.now + pause / 2) is None
        pauses.append(pause)
        gateway.now += pause
    assert 0.8 <= pauses[0] <= 1 and pauses[4] > 10 and 240 <= pauses[-1] <= 300
    gateway.send(Outcome("failed", "busy", 10_000))
    assert gateway.lane.pause_s(gateway.now) == 300
    view = gateway.lane.view(gateway.now, int(gateway.now * S))
    assert (view["waiting"], view["why"], view["since_us"]) == (1, "busy", 1000 * S)
    assert abs(view["failing_since_us"] - 1000 * S) < S
    gateway.lane.hurry()
    assert gateway.all() == [(BEGAN, "hip")]
    assert gateway.lane.failing_since is None


def test_what_is_refused_is_parked_and_sent_again_only_when_asked_for(gateway: Gateway) -> None:
    gateway.on(hip=CRITICAL, chest=CRITICAL)
    gateway.send(REFUSED)
    gateway.send(REFUSED)
    assert gateway.all() == [] and len(gateway.lane.parked) == 2
    gateway.db.commit()
    gateway.kill()
    assert gateway.all() == [] and len(gateway.lane.parked) == 2
    gateway.on(hip=CRITICAL)
    assert gateway.all() == [(ENDED, "chest")]  # which overtakes its beginning
    assert gateway.lane.retry() == 1
    assert gateway.all() == [(BEGAN, "hip")]


def test_a_notice_is_sent_when_it_is_durable_or_nothing_can_be(gateway: Gateway) -> None:
    verdict = Verdict()
    verdict.add("database.failed", CRITICAL, "The database cannot be written.", "Look.")
    gateway.watch.update(1, verdict)
    gateway.look(commit=False)
    assert gateway.lane.due(gateway.now) is None
    gateway.db.failed = "database or disk is full"
    assert gateway.all() == [(BEGAN, "")]


# ---- merging


def test_a_receiver_that_is_away_for_long_hears_what_was_merged(tmp_path: Path) -> None:
    with closing(Gateway(tmp_path, limit=20)) as gateway:
        gateway.on(open=CRITICAL)
        for i in range(40):
            gateway.now += 1
            gateway.on(open=CRITICAL, **{"b%d" % i: WARNING})
            gateway.on(open=CRITICAL)
        assert len(gateway.lane.entries) <= 20
        found = []
        while (entry := gateway.send()) is not None:
            found.append(entry)
        assert (found[0].what, found[0].alarm) == (BEGAN, "board.link/open")
        (summary,) = [entry for entry in found if entry.what == MERGED]
        assert summary.stands_for + len(found) - 1 == 81
        assert len(summary.body["alarms"]) == NAMED_MAX
        assert sum(summary.body["alarms"].values()) + summary.body["others"] == summary.stands_for
        assert "%d notices" % summary.stands_for in summary.body["text"]


def test_an_alarm_that_flutters_and_is_on_is_its_beginning_and_its_newest_notice(tmp_path: Path) -> None:
    with closing(Gateway(tmp_path, limit=8)) as gateway:
        for i in range(30):
            gateway.now += 1
            gateway.on(hip=(WARNING, CRITICAL)[i % 2])
        assert [entry.what for entry in gateway.lane.entries][0] == BEGAN
        assert gateway.lane.entries[-1].body["severity"] == CRITICAL
        assert len(gateway.lane.entries) <= 8
        merged = [entry.stands_for for entry in gateway.lane.entries]
        assert sum(merged) + len(merged) == 30


# ---- everything together, at random


def place(entry: Entry) -> tuple[int, int]:
    """Boot and count of a notice, by its id."""
    _, boot, count = entry.body["id"].split("-")
    return int(boot), int(count)


class Receiver:
    """Accepts, refuses and fails; remembers all that arrived. Removes doubles by their ids."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}  # id -> where it was first
        self.seen: list[Entry] = []
        self.on: dict[str, str] = {}  # what it takes for on

    def take(self, entry: Entry) -> None:
        ident = entry.body["id"]
        if ident in self.ids:
            former = self.seen[self.ids[ident]]
            assert (former.alarm, former.what) == (entry.alarm, entry.what), "one id for two notices"
            return
        self.ids[ident] = len(self.seen)
        before = [place(e) for e in self.seen if e.alarm == entry.alarm and entry.alarm]
        assert not before or before[-1] < place(entry), "out of order"
        self.seen.append(Entry(entry.seq, entry.alarm, entry.what, dict(entry.body)))
        if entry.what in CLOSING:
            self.on.pop(entry.alarm, None)
        elif entry.alarm:
            self.on[entry.alarm] = entry.body["severity"]


def history(folder: Path, seed: int, refuses: bool = False) -> None:
    """A random history; AssertionError where a promise is broken."""
    chance = random.Random(seed)
    limit = chance.choice((6, 12, 30))
    names = ["b%d" % i for i in range(chance.choice((2, 5, 9)))]
    with closing(Gateway(folder, limit=limit)) as gateway:
        receiver = Receiver()
        state: dict[str, str] = {}
        added = counted = 0

        def tally() -> None:
            """None is lost: each was delivered, waits, was merged, overtaken or silenced."""
            nonlocal counted
            lane = gateway.lane
            waits = sum(1 for entry in lane.entries if entry.alarm)
            assert added == counted + waits + lane.merged + lane.overtaken + lane.silenced, "lost"

        def deliver(outcome: Outcome, arrives: bool) -> None:
            nonlocal counted
            entry = gateway.lane.due(gateway.now)
            if entry is None:
                return
            if arrives:
                receiver.take(entry)
            gateway.lane.done(entry, outcome, gateway.now)
            counted += bool(entry.alarm and outcome is DELIVERED)

        for _ in range(chance.randrange(40, 160)):
            gateway.now += chance.choice((0.1, 5.0, 70.0))
            what = chance.random()
            if what < 0.5:
                for name in chance.sample(names, chance.randrange(1, 3)):
                    if state.pop(name, None) is None or chance.random() < 0.2:
                        state[name] = chance.choice((WARNING, CRITICAL))
                before = {entry.seq for entry in gateway.lane.entries}
                top = gateway.notices._count
                verdict = Verdict()
                for name, severity in state.items():
                    verdict.add("board.link/" + name, severity, name, "Look.")
                gateway.watch.update(int(gateway.now * S), verdict)
                spy = Spy(gateway.lane)
                gateway.look(commit=chance.random() < 0.8)
                added += spy.end()
                assert gateway.notices._count >= top and before is not None
            elif what < 0.58 and gateway.watch.open:
                ident = chance.choice(sorted(gateway.watch.open))
                gateway.watch.acknowledge(ident, int(gateway.now * S))
            elif what < 0.63:
                ident = "board.link/" + chance.choice(names)
                if ident in gateway.watch.mutes:
                    gateway.watch.unmute(ident)
                else:
                    gateway.watch.mute(ident, 10**16)
            elif what < 0.9:
                away = chance.random() < 0.5
                outcome = FAILED if away else REFUSED if refuses and chance.random() < 0.3 else DELIVERED
                deliver(outcome, outcome is DELIVERED or away and chance.random() < 0.3)
                if chance.random() < 0.5:
                    gateway.db.commit()
            elif what < 0.97:
                gateway.db.commit()
            else:
                gateway.kill()
                added = sum(1 for entry in gateway.lane.entries if entry.alarm)
                counted = 0
            bound = max(limit, 4 * len(names) + 2)
            assert len(gateway.lane.entries) <= bound, "%d notices wait" % len(gateway.lane.entries)
            if not refuses:
                tally()

        spy = Spy(gateway.lane)
        gateway.look()
        added += spy.end()
        gateway.lane.retry()
        gateway.now += 1000
        while gateway.lane.entries:
            gateway.db.commit()
            deliver(DELIVERED, True)
        loud = {i: o.alarm.severity for i, o in gateway.watch.open.items() if i not in gateway.watch.mutes}
        assert receiver.on == loud, "what the receiver takes for on is not what is on"
        if not refuses:
            tally()


class Spy:
    """Counts the notices that are added to a lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.count, self.add = lane, 0, lane.add
        lane.add = self._add  # type: ignore[method-assign]

    def _add(self, entry: Entry) -> None:
        self.count += 1
        self.add(entry)

    def end(self) -> int:
        del self.lane.add
        return self.count


SEEDS = range(20)


@pytest.mark.parametrize("refuses", [False, True], ids=["accepts", "refuses"])
def test_order_and_what_is_on_survive_any_history(
    tmp_path_factory: pytest.TempPathFactory, refuses: bool
) -> None:
    for seed in SEEDS:
        history(tmp_path_factory.mktemp("h"), seed, refuses)


CLOSED = "max((i for i, entry in enumerate(group) if entry.what in CLOSING), default=-1)"
HEARD = "return not group or group[0].what != BEGAN or group[0].tried"
COUNTED = "self.merged += sum(1 for entry in away if entry.alarm)"
BACKWARDS = "for entry in self.entries[::-1]:"

DEFECTS: dict[str, list[Change]] = {
    "an open alarm is merged away": [(Lane, "_fold", CLOSED, "len(group) - 1")],
    "the end of an alarm that the receiver knows is merged away": [(Lane, "_heard", HEARD, "return False")],
    "the queue grows": [(Lane, "add", "len(self.entries) > self.limit", "False")],
    "the newest goes first": [(Lane, "due", "for entry in self.entries:", BACKWARDS)],
    "a failed attempt counts as delivered": [(Lane, "done", 'outcome.what == "failed"', "False")],
    "what was merged is not counted": [(Lane, "_note", COUNTED, "pass")],
    "what was told is not stored": [
        (Notices, "_keep", "INSERT OR REPLACE INTO told VALUES", "INSERT OR IGNORE INTO alarms VALUES")
    ],
    "an id is given twice": [(Notices, "_number", "self._boot, self._count)", "0, self._count)")],
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_histories_see_a_broken_rule(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    def broken() -> bool:
        for seed in SEEDS:
            try:
                history(tmp_path_factory.mktemp("h"), seed)
            except AssertionError:
                return True
        return False

    check: Callable[[], bool] = broken
    with seeded(DEFECTS[name]):
        assert check()
