"""Changes of parameters: judged by what is in force, refused where they make no sense, and shown."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from headwater.data import msgpack
from headwater.plan import model as plans
from headwater.process import Average, HealthAnalyzer, Process, Threshold, Tumbling, Where
from headwater.process.check import check
from headwater.protocol import frames
from headwater.protocol.clock import Clock
from headwater.runtime import decisions
from headwater.runtime.gateway_host import GatewayHost
from headwater_gateway.database.engine import Database
from headwater_gateway.database.outbox import Outbox, OutboxStreams
from headwater_gateway.deployments import parameters


def process() -> Process:
    p = Process("green", checkpoints="ecoc", every=50, batch=10, level="local")
    air = p.source("air", "temp:i16", rate_hz=10, on="vent")
    high = air >> Threshold(high=400, low=200).named("alarm")
    mean = air >> Average(seconds=20).named("mean")
    hours = air >> Tumbling(seconds=20).named("hours")
    p.lake("green/hours", hours >> Average(count=2).named("second"))
    p.lake("green/warm", air >> Where("temp > limit", limit=250).named("warm"))
    p.lake("green/high", high)
    p.lake("green/mean", mean)
    p.lake("green/health", HealthAnalyzer(air=(0, 300)).named("health")(air))
    return p


@pytest.fixture
def host(tmp_path: Path) -> Any:
    """The gateway of the process, whose board is away: no change gets its place."""
    report = check(process())
    assert [str(problem) for problem in report.errors()] == []
    plan = plans.loads(report.plan)
    db = Database(tmp_path / "gateway.db", lambda: 0)
    nonce = itertools.count(1)
    made = GatewayHost(
        plan, 0, db.space("green", plan.hash), {0: b"", 1: bytes(32)}, Clock(), lambda to, frame: None,
        lambda: next(nonce), Outbox(OutboxStreams(db), plan), 512,
    )  # fmt: skip
    made.start(1)
    yield made
    db.close()


def of(host: Any, name: str) -> Any:
    return next(v for v in host.plan.vertices if v.name == name)


def change(host: Any, name: str, **given: Any) -> int:
    """As the service does it."""
    vertex = of(host, name)
    values = parameters.translated(host, vertex, given)
    parameters.judge(host, vertex, values)
    return int(host.configure(vertex.index, values))


def stands(host: Any, name: str, number: int, values: dict[str, Any], refused: Any = ()) -> None:
    """The operator tells that it has taken the changes up to this number."""
    v = of(host, name).index
    content = msgpack.dumps([values, list(refused)])
    host.exchange.hear(1, (frames.STAND, v, (1, 1), host.store.log_number, number, content))


def test_a_change_is_judged_by_what_is_in_force_after_all_changes(host: Any) -> None:
    assert change(host, "alarm", high=250) == 1
    with pytest.raises(ValueError, match="low is 300 and high 250"):
        change(host, "alarm", low=300)
    assert change(host, "alarm", high=450) == 2
    assert change(host, "alarm", low=420) == 3
    assert parameters.values(host, of(host, "alarm"), False)["low"] == 420
    assert parameters.values(host, of(host, "alarm"), True) == {"high": 400, "low": 200, "field": ""}


def test_what_is_in_force_and_what_waits_is_shown(host: Any) -> None:
    change(host, "alarm", high=300)
    change(host, "alarm", low=250)
    shown = parameters.shown(host, of(host, "alarm"))
    assert shown["parameters"] == {"high": 400, "low": 200, "field": ""}
    assert [(c["number"], c["what"]) for c in shown["open"]] == [(1, "high = 300"), (2, "low = 250")]
    stands(host, "alarm", 1, {"high": 300})
    shown = parameters.shown(host, of(host, "alarm"))
    assert (shown["parameters"]["high"], [c["number"] for c in shown["open"]]) == (300, [2])
    stands(host, "alarm", 2, {"high": 300, "low": 250})
    shown = parameters.shown(host, of(host, "alarm"))
    assert (shown["parameters"], shown["open"]) == ({"high": 300, "low": 250, "field": ""}, [])


def test_what_an_operator_refused_does_not_count(host: Any) -> None:
    """A change that the gateway's type takes and the board's does not, or one that came past the gateway."""
    v = of(host, "alarm").index
    decisions.config(host, v, ["set", {"low": 900}])
    assert parameters.values(host, of(host, "alarm"), False)["low"] == 200
    stands(host, "alarm", 1, {}, (1, "low is 900 and high 400: low must be lower"))
    shown = parameters.shown(host, of(host, "alarm"))
    assert shown["parameters"]["low"] == 200 and shown["refused"][0] == 1
    assert change(host, "alarm", high=300) == 2


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        (
            "alarm",
            {"high": 4_000_000},
            "high is 4000000, and temp:i16 holds -32768 to 32767: it would never switch on",
        ),
        ("alarm", {"low": -40_000}, "low is -40000, .* it would never switch off again"),
        ("mean", {"us": 100}, "us is 100 us, and its elements come 100 ms apart"),
        ("mean", {"seconds": 0.05}, "us is 50 ms, and its elements come 100 ms apart"),
        ("hours", {"ms": 100}, "hours would give up to 51 elements between two checkpoints, .* made for"),
        ("health", {"air": [-32768, 32767]}, "air is -32768 to 32767, .* it would never be outside"),
        ("health", {"air": [300]}, "air has two limits"),
        ("mean", {"second": 5}, "it has no parameter 'second'; it has count, us, ms, seconds"),
        ("alarm", {"high": "x"}, "parameter 'high' is 'x', which is not i32"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    host: Any, name: str, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        change(host, name, **given)
    assert parameters.shown(host, of(host, name))["changes"] == [0, 0]


def test_values_are_written_as_in_a_file(host: Any) -> None:
    change(host, "mean", seconds=5)
    change(host, "hours", minutes=1)
    change(host, "health", air=[10, 290])
    change(host, "warm", limit=260)
    assert parameters.values(host, of(host, "mean"), False)["us"] == 5_000_000
    assert parameters.values(host, of(host, "hours"), False)["us"] == 60_000_000
    assert parameters.values(host, of(host, "health"), False)["limits"] == [10, 290]
    assert parameters.values(host, of(host, "warm"), False)["values"] == [260]


def test_a_file_with_such_values_is_warned_of() -> None:
    p = Process("p", level="local")
    air = p.source("air", "temp:i16", rate_hz=10, on="vent")
    p.lake("p/a", air >> Threshold(high=70_000, low=0))
    p.lake("p/b", air >> Average(us=100))
    warned = "\n".join(str(problem) for problem in check(p).warnings())
    assert "high is 70000, and temp:i16 holds -32768 to 32767: it would never switch on" in warned
    assert "us is 100 us, and its elements come 100 ms apart" in warned


def test_a_change_waits_first_for_the_host_of_the_operator(host: Any) -> None:
    v = of(host, "second").index
    assert parameters.around(host.plan, host.where, v)[0] == host.where[v][2]
    assert set(parameters.around(host.plan, host.where, v)) <= {0, 1}
