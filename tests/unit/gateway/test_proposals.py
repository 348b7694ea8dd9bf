"""A better start, as the gateway finds it in what its boards report."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headwater.plan import model as plans
from headwater.process import Affine, Average, Process
from headwater.process.check import check
from headwater.runtime import outlook
from headwater.storage.keyspace import stream_key
from headwater_gateway import command
from headwater_gateway.monitoring import proposals
from headwater_gateway.monitoring.proposals import (
    Answer,
    Facts,
    Flow,
    Over,
    Proposals,
    Reported,
    Rest,
    Unknown,
    case_of,
    look,
)
from headwater_tools.boards import energy

NOW = 1_700_000_000_000_000
ACCEL, SCALE, MEAN = 0, 1, 2
GATEWAY, ANKLE, HIP, WRIST = 0, 1, 2, 3
TOLD = {"percent": 50, "left_s": 36_000, "draw_ua": 60_000, "computing": 20, "radio": 20, "flash": 0}


def plan() -> Any:
    p = Process("gait", checkpoints="ecoc", every=50, batch=10, level="peer")
    accel = p.source("accel", "x:i16", rate_hz=10, on="ankle")
    scale = accel >> Affine().named("scale").on("hip", backup=["wrist"])
    mean = scale >> Average(count=10).named("mean").on("hip", backup=["wrist"])
    p.lake("gait/mean", mean)
    report = check(p)
    assert [str(problem) for problem in report.errors()] == []
    return plans.loads(report.plan)


def told(**more: int) -> dict[str, int]:
    return {**TOLD, "correction": 100, **more}


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """The hip runs both operators, and its battery is the first to be empty."""
    profile = energy.board("esp32")
    assert profile is not None
    for name in ("ankle", "hip", "wrist"):
        home = tmp_path / "boards" / name
        home.mkdir(parents=True)
        config = {"broker": {"host": "localhost"}, "energy": energy.given(profile)}
        (home / "config.json").write_text(json.dumps(config))
    hosts = [
        Reported("gateway", None, 0),
        Reported("ankle", told(left_s=360_000), 0),
        Reported("hip", told(), 0),
        Reported("wrist", told(left_s=400_000, draw_ua=40_000, computing=0), 0),
    ]
    made = plan()
    mhz = {stream_key(ACCEL, 0): 100_000, stream_key(SCALE, 0): 100_000, stream_key(MEAN, 0): 10_000}
    return Facts(made, tmp_path, hosts, [ANKLE, HIP, HIP], mhz)


def answer(facts: Facts, before: Answer | None = None) -> Answer:
    return look(facts, before, NOW, lambda: None)


def with_host(facts: Facts, h: int, **more: Any) -> Facts:
    hosts = list(facts.hosts)
    hosts[h] = replace(hosts[h], **more)
    return replace(facts, hosts=hosts)


# ---- the case


def test_with_operators_where_they_run_each_battery_lasts_as_long_as_its_board_says(facts: Facts) -> None:
    lives = case_of(facts).lives(facts.places)
    for h, one in enumerate(facts.hosts):
        if one.energy:
            assert abs(lives[h] - one.energy["left_s"]) <= one.energy["left_s"] // 1000, one.name
    moved = case_of(replace(facts, places=[ANKLE, WRIST, HIP])).lives([ANKLE, WRIST, HIP])
    assert abs(moved[HIP] - TOLD["left_s"]) <= TOLD["left_s"] // 1000


def test_what_a_board_computes_moves_with_its_operators(facts: Facts) -> None:
    case = case_of(facts)
    draws = [case.draws(places) for places in (facts.places, [ANKLE, WRIST, WRIST])]
    assert draws[0] is not None and draws[1] is not None
    work = [vertex.units_mhz for vertex in case.vertices]
    unit_pc = case.hosts[HIP].unit_pc
    # A fifth of 60 mA, in whole percent, and as the elements of the two operators: ten to one more.
    assert 11_999_000 <= sum(work) * unit_pc // 1_000_000 <= 12_600_000
    assert work[ACCEL] == 0 and abs(work[SCALE] - work[MEAN]) <= 1
    assert draws[0][HIP] - draws[1][HIP] > 12_000_000


def test_streams_between_hosts_are_estimated_as_boards_do_it(facts: Facts) -> None:
    host = SimpleNamespace(plan=facts.plan, me=HIP, instances={}, where=[(1, h, h) for h in facts.places])
    known: Any = SimpleNamespace(host=host, profile=None, rate_mhz=facts.mhz.get)
    boards = outlook.View(known).streams
    assert [(e.src, e.dst, e.bytes_mhz, e.frames_mhz) for e in case_of(facts).edges] == boards
    assert boards[0] == (ACCEL, SCALE, 300_000, 10_000)  # 100 a second, ten in a batch


def test_a_correction_of_the_draw_counts_for_what_would_change(facts: Facts) -> None:
    doubled = with_host(facts, HIP, energy=told(correction=200))
    plain, twice = case_of(facts).hosts[HIP], case_of(doubled).hosts[HIP]
    assert twice.unit_pc == 2 * plain.unit_pc
    assert twice.links["wifi"] == tuple(2 * cost for cost in plain.links["wifi"])


# ---- the answer


def test_a_start_that_makes_the_first_battery_last_a_quarter_longer_is_proposed(facts: Facts) -> None:
    found = answer(facts)
    assert found.found is not None
    assert found.found.places == [ANKLE, WRIST, WRIST]
    assert found.now[HIP] == found.found.now_s and abs(found.found.now_s - 36_000) <= 36
    assert found.found.then_s > 1.25 * found.found.now_s
    # The gateway compares with the first hosts of the process file, wherever operators run at present.
    other = answer(replace(facts, places=[ANKLE, WRIST, WRIST]))
    assert other.now[HIP] < other.then[HIP]


def test_nothing_is_proposed_for_less_than_a_quarter(facts: Facts) -> None:
    light = with_host(facts, HIP, energy=told(computing=0, radio=0, draw_ua=600_000))
    assert answer(light).found is None


def test_a_proposal_stays_while_it_is_good_and_no_other_is_better_by_a_quarter(facts: Facts) -> None:
    def gains(draw_ua: int) -> Facts:
        return with_host(facts, HIP, energy=told(draw_ua=draw_ua, computing=1))

    first = answer(gains(60_000))
    assert first.found is not None
    smaller = next(gains(ua) for ua in range(60_000, 600_000, 5_000) if answer(gains(ua)).found is None)
    kept = answer(smaller, first)
    assert kept.found is not None and kept.found.places == first.found.places
    assert 12 < (kept.found.percent or 0) <= 25
    assert (
        answer(with_host(facts, HIP, energy=told(computing=0, radio=0, draw_ua=6_000_000)), first).found
        is None
    )
    # The wrist is nearly empty now: what was proposed is worse than the declared hosts.
    turned = with_host(facts, WRIST, energy=told(left_s=600))
    changed = answer(turned, first)
    assert changed.found is None or changed.found.places != first.found.places


def test_a_host_without_room_is_not_proposed(facts: Facts) -> None:
    assert answer(with_host(facts, WRIST, free=60_000)).found is not None
    assert answer(with_host(facts, WRIST, free=23_000)).found is None


def test_hosts_on_mains_take_operators_and_are_empty_never(facts: Facts) -> None:
    mains = with_host(facts, WRIST, energy=None)
    found = answer(mains)
    assert found.found is not None and found.found.places == [ANKLE, WRIST, WRIST]
    for h in (ANKLE, HIP):
        mains = with_host(mains, h, energy=None)
    assert answer(mains).found is None


def test_what_is_missing_is_told(facts: Facts) -> None:
    path = facts.folder / "boards" / "wrist" / "config.json"
    text = path.read_text()
    for broken, why in [
        ('{"broker": {"host": "x"}}', "boards/wrist/config.json has no energy profile"),
        ('{"broker": {"host": "x"}, "energy": {"copy_ns": 1}}', "capacity_mc is None"),
        ("{", "is not JSON"),
    ]:
        path.write_text(broken)
        with pytest.raises(Unknown, match=why):
            answer(facts)
    path.write_text(text)
    path.write_text(json.dumps({**json.loads(text), "broker": {}, "bluetooth": {"enabled": True}}))
    answer(facts)  # by way of the gateway


# ---- streams


def test_a_stream_is_measured_over_ten_minutes() -> None:
    flow = Flow()
    assert flow.mhz() is None
    flow.note(0.0, 1000)
    flow.note(29.0, 1290)
    assert flow.mhz() is None
    flow.note(30.0, 1300)
    assert flow.mhz() == 10_000
    for s in range(60, 3600, 5):
        flow.note(float(s), 1300 if s < 1800 else 1300 + 2 * (s - 1800))
    assert flow.mhz() == 2000 and len(flow.marks) == 11
    flow.note(3600.0, 5)  # another numbering
    assert flow.mhz() is None


# ---- at the gateway


class Gateway:
    """What proposals take of the service."""

    def __init__(self, facts: Facts) -> None:
        self.plan = facts.plan
        self.config = SimpleNamespace(folder=facts.folder)
        names = list(facts.hosts)
        self.texts = {one.name: "" for one in names}
        status = {
            one.name: {
                "energy": list(one.energy.values()) if one.energy else None,
                "battery": 3800,
                "free": 0,
            }
            for one in names[1:]
        }
        self.boards = SimpleNamespace(
            all={name: SimpleNamespace(name=name, status=found) for name, found in status.items()}
        )
        where = [(1, h, h) for h in facts.places]
        host = SimpleNamespace(ports={}, where=where)
        self.process = SimpleNamespace(
            name="gait", coming=None, step=0, hosted=SimpleNamespace(plan=self.plan, host=host)
        )
        self.processes = {"gait": self.process}
        self.by_board = dict.fromkeys(status, self.process)
        self.proposals = Proposals(self)  # type: ignore[arg-type]

    def site_us(self) -> int:
        return NOW

    def standing(self, board: Any) -> Any:
        text = self.texts[board.name]
        return SimpleNamespace(word="silent" if text else "runs", text=text)

    def report(self, *rows: tuple[str, int, int]) -> None:
        for name, vertex, last in rows:
            board = self.boards.all[name]
            board.status["backlog"] = [[stream_key(vertex, 0), last, last]]
            self.proposals.on_status(board)

    def shown(self) -> dict[str, Any]:
        return self.proposals.shown(self.process)  # type: ignore[arg-type]

    async def looked(self) -> dict[str, Any]:
        self.proposals.due.clear()
        self.proposals.tick()
        assert self.proposals.task is not None
        await self.proposals.task
        return self.shown()


@pytest.fixture
def gateway(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    made = Gateway(facts)
    now = [1000.0]
    monkeypatch.setattr(proposals.time, "monotonic", lambda: now[0])
    for _ in range(2):
        made.report(("ankle", ACCEL, int(now[0]) * 100), ("hip", SCALE, int(now[0]) * 100), ("hip", MEAN, 5))
        now[0] += 60
    return made


def test_page_and_state_have_the_operators_and_what_to_write(gateway: Gateway) -> None:
    assert gateway.shown()["state"] == "unknown"
    shown = asyncio.run(gateway.looked())
    assert (shown["state"], shown["which"], shown["why"]) == ("better", "first battery", "")
    assert shown["at_us"] == NOW and shown["percent"] > 25
    assert shown["now"] == {"host": "hip", "left_s": shown["lives_s"]["hip"][0]}
    assert shown["then"]["left_s"] > 1.25 * shown["now"]["left_s"]
    assert set(shown["lives_s"]) == {"ankle", "hip", "wrist"}
    assert [(m["operator"], m["from"], m["to"]) for m in shown["moves"]] == [
        ("scale", "hip", "wrist"), ("mean", "hip", "wrist"),
    ]  # fmt: skip
    lines = command._proposal(shown)
    head, _, tail = lines[0].partition(" would last ")
    assert head == "  a better start: the first battery (hip)"
    assert re.fullmatch(r"\d+ h \d+ min instead of 10 h 00 min, \d+ % longer", tail)
    other = {**shown, "then": {"host": "ankle", "left_s": 172_800}, "percent": None}
    assert command._proposal(other)[0] == (
        "  a better start: the first battery would last 2 d 0 h (ankle) instead of 10 h 00 min (hip)"
    )
    assert lines[1:] == [
        '    scale: .on("wrist", backup=["hip"])',
        '    mean: .on("wrist", backup=["hip"])',
    ]
    json.dumps(shown, allow_nan=False)


def test_a_look_is_seldom_and_one_at_a_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(proposals, "look", lambda *args: looks.append(args) or Answer(NOW))

    async def run() -> None:
        await gateway.looked()
        gateway.proposals.tick()
        assert gateway.proposals.task is not None and gateway.proposals.task.done()

    asyncio.run(run())
    assert len(looks) == 1
    (due,) = gateway.proposals.due.values()
    assert due == proposals.time.monotonic() + proposals.LOOK_S


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: g.texts.update(wrist="wrist is silent for 40 s"), "wrist is silent for 40 s"),
        (
            lambda g: g.boards.all["hip"].status.update(energy=None),
            "hip reports the voltage of its battery, and not what it draws",
        ),
        (lambda g: g.proposals.flows.clear(), "what accel puts out was not measured yet"),
        (lambda g: setattr(g.process, "coming", b"x"), "the process changes"),
    ],
)
def test_what_is_not_known_is_told_and_a_former_answer_stays_for_a_while(
    gateway: Gateway, change: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = asyncio.run(gateway.looked())
    change(gateway)
    assert asyncio.run(gateway.looked()) == before
    monkeypatch.setattr(gateway, "site_us", lambda: NOW + 1_300_000_000)
    after = asyncio.run(gateway.looked())
    assert (after["state"], after["why"], after["moves"]) == ("unknown", why, [])
    assert command._proposal(after) == []
    (due,) = gateway.proposals.due.values()
    assert due == proposals.time.monotonic() + proposals.RETRY_S


def test_what_is_known_of_a_former_deployment_is_forgotten(gateway: Gateway) -> None:
    asyncio.run(gateway.looked())
    gateway.processes.clear()
    gateway.proposals.tick()
    assert not (gateway.proposals.flows or gateway.proposals.answers or gateway.proposals.due)


def test_a_board_tells_only_of_streams_that_it_makes(gateway: Gateway) -> None:
    gateway.proposals.flows.clear()
    gateway.report(("wrist", SCALE, 7), ("hip", SCALE, 5), ("hip", 99, 1))
    assert [(stream, flow.newest[1]) for (_, stream), flow in gateway.proposals.flows.items()] == [
        (stream_key(SCALE, 0), 5)
    ]


def test_a_search_rests_most_of_the_time_and_ends_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    waits: list[float] = []
    now = [0.0]
    monkeypatch.setattr(proposals.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(over, "wait", lambda s: waits.append(s) or over.is_set())
    rest = Rest(over)
    for took in (0.002, 0.01, 1.0):
        now[0] += took
        rest.take()
    assert waits == pytest.approx([0.008, 0.04, 0.1])
    over.set()
    with pytest.raises(Over):
        rest.take()


def test_a_gateway_that_stops_does_not_wait_for_a_search(facts: Facts, gateway: Gateway) -> None:
    async def run() -> None:
        begun = threading.Event()

        def long(facts: Facts, before: Any, now_us: int, each: Any) -> Answer:
            while True:
                begun.set()
                each()

        proposals_look, proposals.look = proposals.look, long
        try:
            gateway.proposals.due.clear()
            gateway.proposals.tick()
            await asyncio.to_thread(begun.wait, 10)
            await asyncio.wait_for(gateway.proposals.close(), 10)
        finally:
            proposals.look = proposals_look

    asyncio.run(run())
    assert gateway.shown()["state"] == "unknown"
