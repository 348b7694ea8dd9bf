"""Moves of operators as people hear of them: each once, with its reason; and what an operator waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from headwater.offboard import reasons
from headwater.plan import model as plans
from headwater.process import Affine, Process
from headwater.process.check import check
from headwater.protocol import moves as why
from headwater.protocol import offers
from headwater.runtime import standing
from headwater_gateway import command, status
from headwater_gateway.database.engine import Database
from headwater_gateway.deployments import operator_moves
from headwater_gateway.monitoring import moves, operators
from headwater_gateway.monitoring.moves import Moves
from headwater_tools.commands import move

NOW = 1_700_000_000
HIP, WRIST = 2, 3


def plan() -> Any:
    p = Process("gait", checkpoints="ecoc", every=50, batch=10, level="peer")
    accel = p.source("accel", "x:i16", rate_hz=10, on="ankle")
    p.lake("gait/out", accel >> Affine().named("fir").on("hip", backup=["wrist", "gateway"]))
    report = check(p)
    assert [str(problem) for problem in report.errors()] == []
    return plans.loads(report.plan)


class Site:
    """A gateway's view of one process, and what it tells."""

    def __init__(self, folder: Path) -> None:
        self.db = Database(folder / "gateway.db", lambda: 0)
        self.plan = plan()
        self.v = next(v for v in self.plan.vertices if v.kind)
        self.host = SimpleNamespace(
            waits=list,
            plan=self.plan,
            where=[(1, v.hosts[0], v.hosts[0]) for v in self.plan.vertices],
            moves={},
            asked={},
        )
        self.now_s = NOW
        self.begin()

    def begin(self) -> None:
        """The gateway starts."""
        self.told: list[tuple[str, str]] = []
        self.moves = Moves(self.db, lambda *event: self.told.append(event), lambda: self.now_s)

    def runs(self, epoch: int, place: int, reason: int | None, age_s: int = 0) -> None:
        self.host.where[self.v.index] = (epoch, place, place)
        self.host.moves.pop(self.v.index, None)
        if reason is not None:
            self.host.moves[self.v.index] = (reason, self.now_s - age_s)

    def look(self) -> list[str]:
        """What is told now."""
        self.told.clear()
        self.moves.look([self.host], self.now_s * 1_000_000)
        self.db.commit()
        return [text for _, text in self.told]


@pytest.fixture
def site(tmp_path: Path) -> Any:
    made = Site(tmp_path)
    yield made
    made.db.close()


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (why.TAKEOVER, "operator fir of gait was taken over by wrist: hip was silent"),
        (why.FLEE, "operator fir of gait moved from hip to wrist: the battery of hip runs low"),
        (why.BALANCE, "operator fir of gait moved from hip to wrist: the batteries last longer so"),
        (why.COMMAND, "operator fir of gait moved from hip to wrist: a person asked for it"),
        (why.APART, "operator fir of gait moved from hip to wrist: hip had lost touch with a producer"),
    ],
)
def test_each_move_is_told_once_with_its_reason(site: Site, reason: int, text: str) -> None:
    assert site.look() == []
    site.runs(2, WRIST, reason)
    assert site.look() == [text]
    assert site.look() == []
    site.begin()  # the gateway starts again
    assert site.look() == []


def test_a_move_that_the_gateway_hears_of_later_is_told_with_its_age(site: Site) -> None:
    site.runs(2, WRIST, why.FLEE, age_s=1500)
    (text,) = site.look()
    assert text.endswith("the battery of hip runs low (25 min before the gateway heard of it)")
    (move,) = site.moves.view(9)
    assert move["at_us"] == (NOW - 1500) * 1_000_000 and move["from"] == "hip"


def test_the_reason_of_a_move_is_waited_for_but_not_for_long(site: Site) -> None:
    site.runs(2, WRIST, None)
    assert site.look() == []
    site.now_s += 3
    site.runs(2, WRIST, why.TAKEOVER)
    assert site.look() == ["operator fir of gait was taken over by wrist: hip was silent"]
    site.runs(3, HIP, None)
    assert site.look() == []
    site.now_s += 11
    assert site.look() == ["operator fir of gait moved from wrist to hip: why is not known"]
    assert site.moves.counts == {("gait", "takeover"): 1, ("gait", "unknown"): 1}


def test_of_two_hosts_that_took_over_under_one_number_both_are_told(site: Site) -> None:
    site.runs(2, HIP, why.TAKEOVER)
    assert site.look() == ["operator fir of gait began again on hip, under a newer epoch"]
    site.runs(2, WRIST, why.TAKEOVER)  # the higher host of equal numbers: a newer epoch
    assert site.look() == ["operator fir of gait was taken over by wrist: hip was silent"]
    assert site.look() == []


def test_a_newer_epoch_on_the_same_host_is_no_move_elsewhere(site: Site) -> None:
    site.runs(3, HIP, why.TAKEOVER)
    assert site.look() == ["operator fir of gait began again on hip, under a newer epoch"]


def test_a_move_that_did_not_happen_is_told_and_counted_once(site: Site) -> None:
    site.host.asked[site.v.index] = [7, WRIST, offers.PENDING]
    assert site.look() == []
    site.host.asked[site.v.index] = [7, WRIST, offers.ENERGY]
    (text,) = site.look()
    assert text == (
        "operator fir of gait did not move to wrist: the battery of wrist would not last long enough with it"
    )
    assert site.look() == [] and site.moves.refused == {"energy": 1}
    site.host.asked[site.v.index] = [8, WRIST, offers.HERE]
    assert site.look() == []


def test_old_moves_are_forgotten_but_the_last_of_each_operator(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "MOVES_MAX", 3)
    for epoch in range(2, 9):
        site.runs(epoch, (HIP, WRIST)[epoch % 2], why.COMMAND)
        assert len(site.look()) == 1
    assert [move.epoch for move in site.moves.all] == [6, 7, 8]
    assert site.db.query("SELECT count(*) FROM moves") == [(3,)]


def test_names_of_reasons_are_a_closed_set_with_a_text_for_each() -> None:
    assert len(reasons.MOVES) == why.WHY_MAX + 1
    assert len(reasons.REFUSED) == offers.LAST + 1
    assert all(reasons.because(n, "hip") for n in range(len(reasons.MOVES)))
    assert set(moves.NAMES) == {"takeover", "flee", "balance", "command", "apart", "given_up", "unknown"}
    assert "here" not in moves.REFUSED and "energy" in moves.REFUSED


# ---- what an operator waits for


def service(site: Site, rows: list[list[Any]], word: str = "runs", **links: str) -> tuple[Any, Any]:
    boards = {
        name: SimpleNamespace(name=name, heard=1.0, status={"waits": rows if name == "hip" else []})
        for name in site.plan.hosts[1:]
    }
    texts = {"silent": "hip is silent for 45 s"}
    made = SimpleNamespace(
        boards=SimpleNamespace(all=boards),
        observer=SimpleNamespace(moves=site.moves),
        link_of=lambda board: links.get(board.name, "up"),
        standing=lambda board: SimpleNamespace(word=word, text=texts.get(word, "")),
    )
    hosted = SimpleNamespace(plan=site.plan, host=site.host)
    return made, SimpleNamespace(hosted=hosted, since_us=NOW * 1_000_000)


WAITS = [
    ([], "runs", ""),
    ([standing.MOVE, [], [WRIST]], "moves", "is being handed over to wrist (silent)"),
    ([standing.MOVE, [], []], "moves", "looks for a host that takes it"),
    (
        [standing.CHECKPOINT, [31500, 0, 0], [WRIST, 0]],
        "waits", "waits for its checkpoint that covers 31500, stored on wrist (silent), gateway",
    ),
    (
        [standing.KEEPERS, [], [0, WRIST]],
        "waits", "waits to hear which checkpoint of it is stored on gateway, wrist (silent)",
    ),
    (
        [standing.HOLDERS, [500, 0, 0], [WRIST]],
        "waits",
        "waits until its checkpoint that covers 500 is stored on enough hosts; not yet on wrist (silent)",
    ),
    (
        [standing.PRODUCERS, [], [1]],
        "waits", "began while its producers were out of reach, and asks them first: ankle",
    ),
    ([standing.PLACE, [], [1]], "waits", "has given up, and waits to hear from ankle"),
    (
        [standing.ENTRIES, [], []],
        "waits",
        "waits for entries that are lost or on a silent board; its consumers have what it made of them",
    ),
    ([99, [], []], "waits", "waits"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "does", "text"), WAITS)
def test_an_operator_that_waits_says_for_what_and_for_whom(
    site: Site, row: list[Any], does: str, text: str
) -> None:
    told = operators.shown(*service(site, [[site.v.index, *row, 2]] if row else [], wrist="silent"), site.v)
    assert (told["does"], told["waits"]) == (does, text)
    assert [c["host"] for c in told["candidates"]] == ["hip", "wrist", "gateway"]


def test_an_operator_whose_host_is_silent_waits_for_it_or_for_another(site: Site) -> None:
    told = operators.shown(*service(site, [], "silent", hip="lost", wrist="gone"), site.v)
    assert told["does"] == "waits"
    assert told["waits"] == "waits: hip is silent for 45 s; it may start on wrist (gone), gateway"


def test_what_was_true_before_a_host_fell_silent_is_not_told(site: Site) -> None:
    rows = [[site.v.index, standing.MOVE, [], [WRIST], 2]]
    assert operators.shown(*service(site, rows, "silent"), site.v)["does"] == "waits"


def test_all_that_waits_is_in_one_place() -> None:
    vertex = {"name": "fir", "does": "waits", "waits": "waits for its checkpoint", "open": []}
    change = {"what": "num = 3", "waits": "vent is silent for 9 s"}
    runs = {"name": "qrs", "does": "runs", "waits": "", "open": [change]}
    process = {"learning": "", "waits": ["vent is silent for 9 s"], "vertices": [vertex, runs]}
    assert operators.waiting({"gait": process}) == [
        {"process": "gait", "what": "process", "name": "gait", "text": "vent is silent for 9 s"},
        {"process": "gait", "what": "operator", "name": "fir", "text": "waits for its checkpoint"},
        {"process": "gait", "what": "change", "name": "qrs", "text": "num = 3: vent is silent for 9 s"},
    ]


# ---- what boards say, and what the terminal shows


@pytest.mark.parametrize(
    "rows",
    [7, [[1, 2, [], []]], [[1, 2, [], ["x"], 1]], [[-1, 2, [], [], 1]], [[0, 1, [], [], 1]] * 129, ["row"]],
)
def test_what_a_board_says_of_its_operators_is_checked(rows: Any) -> None:
    from headwater.data import msgpack

    known = status.read(msgpack.dumps({"waits": rows}))
    assert known == {"waits": None}


def test_a_battery_is_told_with_charge_voltage_and_time_left() -> None:
    energy = operators.energy({"energy": [43, 7800, 90, 1, 2, 3, 100]})
    assert energy == {"percent": 43, "left_s": 7800, "draw_ua": 90}
    board = {"status": {"battery": 3712}, "energy": energy}
    assert command._battery(board) == ", battery 43 %, 3.71 V, 2 h left"
    assert command._battery({"status": {}, "energy": operators.energy({})}) == ""


def test_the_terminal_shows_where_an_operator_runs_since_when_and_why() -> None:
    vertex = {
        "name": "fir", "kind": "Fir", "host": "wrist", "since_us": NOW * 1_000_000, "does": "waits",
        "moved": {"from": "hip", "why": "hip was silent"}, "waits": "waits for its checkpoint",
        "parameters": {}, "candidates": [{"host": "hip", "link": "lost"}, {"host": "wrist", "link": "up"}],
        "open": [], "refused": None,
    }  # fmt: skip
    first, second = command._operator(vertex)
    assert first.startswith("  operator fir (Fir) waits on wrist since 20")
    assert first.endswith(", before on hip: hip was silent; may run on hip (lost)")
    assert second == "    waits for its checkpoint"


def answered(site: Site, outcome: int, dead: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `hw move fir wrist` gets where a host answers so."""
    site.host.me = 0
    site.host.words = SimpleNamespace(dead=lambda number: dead and number == HIP)
    hosted = SimpleNamespace(
        host=site.host,
        plan=site.plan,
        operator=lambda name: site.v,
        move=lambda v, to: site.host.asked.update({v: [7, to, outcome]}),
    )
    monkeypatch.setattr(operator_moves, "WAIT_S", 0.2)
    return asyncio.run(operator_moves.move(cast("Any", hosted), "fir", "wrist"))


def test_a_move_whose_host_does_not_answer_is_not_said_to_be_under_way(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answered(site, offers.PENDING, True, monkeypatch)
    assert answer["reason"] == "hip, where it runs, does not answer"
    text = "after 90 s operator fir has not begun to move to wrist: hip, where it runs, does not answer"
    assert move._told(answer, 90).startswith(text)
    answer = answered(site, offers.PENDING, False, monkeypatch)
    assert answer["reason"] == "" and "is still on its way to wrist" in move._told(answer, 90)


def test_an_operator_that_stays_is_not_said_to_move_to_where_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for outcome, text in (
        (offers.UNSENT, "they must arrive before it moves to wrist"),
        (offers.BUSY, "another operator is being moved from its host or to wrist"),
    ):
        answer = answered(site, outcome, False, monkeypatch)
        assert (answer["outcome"], answer["from"]) == ("refused", "hip") and text in answer["reason"]
