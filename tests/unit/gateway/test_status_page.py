"""What the status page is made of: its view, its points, its colours."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from headwater_tools import environment

environment.ensure("gateway")
from headwater_gateway import command  # noqa: E402
from headwater_gateway.monitoring import operators  # noqa: E402
from headwater_gateway.web import page  # noqa: E402

FILES = sorted(page.FILES.iterdir())


def snapshot(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "now_us": 5_000_000, "up_s": 3.0, "alarms": [], "boards": {}, "processes": {}, "streams": [],
        "broker": {}, "clock": {}, "database": {}, "segments": {}, "dropped": {}, "events": [], "mutes": {},
        "headline": {"state": "good", "text": "All is well"}, "sink": {}, "limits": {},
        "receivers": [], "waiting": [], "moves": [], "bluetooth": None,
    }  # fmt: skip
    return {**found, **more}


def board(backlog: list[list[int]]) -> dict[str, Any]:
    return {
        "link": "up", "via": "broker", "seen_us": 4_700_000, "process": "p", "plan": "runs", "why": "",
        "energy": None,
        "status": {"backlog": backlog, "battery": 3700, "log": [10, 20], "crash": [3, "out of memory"]},
    }  # fmt: skip


def process(*edges: tuple[int, int | None, str | None]) -> dict[str, Any]:
    vertex = {"host": "chest", "epoch": 0, "backups": [], "parameters": {}, "open": []}
    vertex = {**vertex, "candidates": [], "moved": None, "since_us": 1, "does": "runs", "waits": ""}
    return {
        "hash": "00", "step": "runs", "strategy": "ecoc", "level": "peer", "coming": None,
        "vertices": [
            {"name": "ecg", "kind": "source", "checkpoint": None, **vertex},
            {"name": "fir", "kind": "Fir", "checkpoint": [500, 77, 0], **vertex},
        ],
        "alarms": [],
        "late": [],
        "proposal": {"state": "none"},
        "edges": [
            {"from": a, "port": 0, "to": b, "lake": lake, "durable": "gateway", "alphabet": "mV:i16"}
            for a, b, lake in edges
        ],
    }  # fmt: skip


def end(durable: int, cut: int, acked: int, **more: Any) -> dict[str, Any]:
    return {
        "stream": "p/ecg", "process": "p", "alphabet": "mV:i16", "durable": durable, "cut": cut,
        "acked": acked, "last_ts_us": 7_000_000, "last": {"mV": float("nan")}, "lag_s": None, "on_board": 0,
        "on_board_s": None, **more,
    }  # fmt: skip


def test_view_says_where_each_element_waits() -> None:
    view = page.make_view(
        snapshot(
            boards={"chest": board([[0, 1200, 900], [8, 700, 700]])},
            processes={"p": process((0, 1, None), (0, None, "p/ecg"))},
            streams=[
                end(400, 400, 390, lag_s=80.4),
                end(1000, 800, 600, lag_s=3.0, on_board=200, on_board_s=9.7),
            ],
        ),
        {},
    )
    (row,) = view["streams"]
    assert {k: row[k] for k in ("board", "board_s", "durable", "cut", "acked", "older", "lag_s")} == {
        "board": 200, "board_s": 9, "durable": 1000, "cut": 800, "acked": 600, "older": 10, "lag_s": 80,
    }  # fmt: skip
    assert view["positions"]["p"] == [
        {"last": 1200, "safe": 900},
        {"last": 700, "safe": 700, "checkpoint": [500]},
    ]
    (host,) = view["hosts"]
    assert (host["battery_mv"], host["unsafe"], host["crash"]) == (3700, 300, "out of memory")


def test_view_is_json_that_a_browser_reads_whatever_was_measured() -> None:
    view = page.make_view(snapshot(streams=[end(1, 0, 0)]), {})
    assert json.loads(json.dumps(view, allow_nan=False))["streams"][0]["last"] == {"mV": None}


def test_a_stamp_of_before_the_clock_was_set_is_no_time() -> None:
    late = {**end(1, 0, 0), "stream": "p/late", "last_ts_us": 1_700_000_000_000_000}
    view = page.make_view(snapshot(streams=[end(1, 0, 0), late]), {})
    assert [row["clock_set"] for row in view["streams"]] == [False, True]


def test_a_checkpoint_that_another_board_keeps_is_shown_as_far_as_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headwater.plan.model import loads
    from headwater.process.check import check
    from headwater_tools.process_file import load

    cardio = environment.ROOT / "tools" / "headwater_tools" / "examples" / "cardio.py"
    plan = loads(check(load(str(cardio))).plan)
    host = SimpleNamespace(plan=plan)
    at = {v.name: v.index for v in plan.vertices}
    kept: dict[int, list[int] | None] = {}
    monkeypatch.setattr(operators, "permanent", lambda host, v: kept.get(v))

    def covered(name: str, safe: dict[str, int]) -> list[int] | None:
        return operators.covered(host, at[name], {8 * at[source]: xi for source, xi in safe.items()})

    assert covered("fir", {}) is None  # nothing is known of any
    assert covered("fir", {"ecg": 31_500}) == [31_500, 0, 0]  # its producer need not keep these
    kept[at["fir"]] = [0, 7, 0]
    assert covered("fir", {"ecg": 31_500}) == [31_500, 7, 0]
    kept[at["fir"]] = [40_000, 7, 0]
    assert covered("fir", {"ecg": 31_500}) == [40_000, 7, 0]
    assert covered("healthanalyzer", {"heartrate": 5, "average": 900}) == [5, 900, 0, 0]


def test_what_is_unknown_is_not_shown_as_nothing() -> None:
    empty = {**end(0, 0, 0), "last_ts_us": None, "last": None, "on_board": None}
    (row,) = page.make_view(snapshot(streams=[empty]), {})["streams"]
    assert (row["board"], row["board_s"], row["lag_s"], row["last"], row["clock_set"]) == (
        None, None, None, {}, False,
    )  # fmt: skip


def test_the_adapter_is_shown_without_what_changes_all_the_time() -> None:
    assert page.make_view(snapshot(), {})["bluetooth"] is None
    found = {
        "adapter": "hci1", "problem": "", "connected": ["chest"], "waiting": ["wrist"], "away": [],
        "slots": 4, "connects": 7, "ended": {"nothing to send": 6, "stranger": 0},
        "failures": {"another error": 0}, "heard": 12_345, "relayed": 3, "dropped": 0,
        "paired": 0, "unpaired": 0,
    }  # fmt: skip
    shown = page.make_view(snapshot(bluetooth=found), {})["bluetooth"]
    assert shown["ended"] == {"nothing to send": 6} and shown["failures"] == {} and "heard" not in shown
    lines = command._bluetooth(found)
    assert (
        lines == ["bluetooth: the adapter works; 1 of 4 connections: chest; in the queue: wrist"]
        and command._bluetooth(None) == []
    )
    gone = {**found, "problem": "the adapter is missing", "connected": [], "waiting": [], "away": ["wrist"]}
    assert command._bluetooth(gone) == [
        "bluetooth: the adapter cannot be used: the adapter is missing; 0 of 4 connections; not heard: wrist"
    ]


def test_the_page_has_a_word_for_every_state_of_a_link() -> None:
    words = ("up", "asleep", "silent", "lost", "gone", "never seen", "declared lost")
    (links,) = re.findall(r"const LINKS = \{(.*?)\n\};", (page.FILES / "page.js").read_text(), re.S)
    assert tuple(re.findall(r'^  "?([a-z ]+)"?:', links, re.M)) == words


def test_a_board_that_never_spoke_has_a_place_on_the_page() -> None:
    silent = {**board([]), "link": "never seen", "seen_us": 0, "process": None, "plan": None, "status": {}}
    (host,) = page.make_view(snapshot(boards={"chest": silent}), {})["hosts"]
    assert (host["link"], host["seen_us"], host["battery_mv"], host["unsafe"]) == ("never seen", 0, None, 0)


def test_thinned_points_keep_order_and_the_extremes_of_every_field() -> None:
    points = [(i, (float(i % 7), -float(i % 11))) for i in range(10_000)]
    points[5_003] = (5_003, (99.0, 0.0))
    points[7_001] = (7_001, (0.0, -99.0))
    thin = page.thinned(points, 150)
    assert len(thin) <= 600
    assert thin == sorted(thin)
    assert points[5_003] in thin and points[7_001] in thin
    assert page.thinned(points[:300], 150) == points[:300]


def test_page_asks_nobody_but_the_gateway() -> None:
    for path in FILES:
        outside = re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+\S*", path.read_text())
        assert {link.split("'")[0] for link in outside} <= {
            "http://www.w3.org/2000/svg",
            'http://www.w3.org/2000/svg",',
        }
    assert "default-src 'none'" in page.HEADERS["Content-Security-Policy"]


def test_page_weighs_less_than_a_photograph() -> None:
    assert sum(path.stat().st_size for path in FILES if path.suffix != ".png") < 80_000


def colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_it_stands_on(scheme: str) -> None:
    light, _, dark = (page.FILES / "page.css").read_text().partition("(prefers-color-scheme: dark)")
    named = colours(dark if scheme == "dark" else light)
    on = {
        "text": ("ground", "card", "accent-soft", "good-soft", "warn-soft", "bad-soft"),
        "quiet": ("ground", "card", "accent-soft"),
        "accent": ("card", "accent-soft", "ground"),
        "good": ("card", "good-soft", "accent-soft"),
        "warn": ("card", "warn-soft"),
        "bad": ("card", "ground", "bad-soft"),
    }
    weak = {
        (text, ground): round(contrast(named[text], named[ground]), 1)
        for text, grounds in on.items()
        for ground in grounds
        if contrast(named[text], named[ground]) < 4.5
    }
    assert weak == {}
    lines = ("board", "gateway", "segment", "plot-0", "plot-1", "plot-2", "plot-3")
    assert {
        name: contrast(named[name], named["card"])
        for name in lines
        if contrast(named[name], named["card"]) < 3
    } == {}
