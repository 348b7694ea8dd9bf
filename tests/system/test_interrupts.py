"""Ctrl-C at any moment: one sentence, and no process is left, whatever the command had started by then.

The interrupt goes to the whole process group, as a terminal sends it. What a command started is known by a
variable in its environment, which all of its children inherit, those without a parent too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from headwater_tools.demo.subprocesses import free_port
from hw_command import PATIENCE_S, Command
from lakes import healthy

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def ends_with_one_sentence(one: Command) -> None:
    assert one.interrupt() == 130, one.said()
    one.nothing_left()
    said = [line for line in one.said().splitlines() if not line.startswith(("WARNING: Using", "NOTE: "))]
    assert said[-1:] == ["hw: interrupted"] and said.count("hw: interrupted") == 1, one.said()
    assert "Traceback" not in one.said() and "Exception" not in one.said(), one.said()


LAUNCHER = "org.apache.spark.launcher.Main"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@pytest.mark.parametrize(("what", "after_s"), [("sink", 0), ("sink", 2), ("shell", 1), ("shell", 4)])
def test_while_spark_starts(
    tmp_path: Path, command: Callable[..., Command], what: str, after_s: float
) -> None:
    if what == "sink":
        (tmp_path / "landing").mkdir()
        words = ["sink", "landing", "lake", "--forever"]
    else:
        words = ["shell", str(healthy(tmp_path).write()), "-c", "import time; time.sleep(1000)"]
    one = command(*words)
    one.until(lambda: one.runs(SUBMIT))
    time.sleep(after_s)  # the JVM, its port, Spark's context and session come about in here
    if what == "sink" and "from version" in one.said():  # quick: it serves already, and ends in order
        assert one.interrupt() == 0
        one.nothing_left()
        return
    ends_with_one_sentence(one)


def test_while_the_launcher_of_spark_runs(tmp_path: Path, command: Callable[..., Command]) -> None:
    (tmp_path / "landing").mkdir()
    one = command("sink", "landing", "lake", "--forever")
    one.until(lambda: one.runs(LAUNCHER))
    ends_with_one_sentence(one)


def test_before_anything_has_begun(tmp_path: Path, command: Callable[..., Command]) -> None:
    one = command("sim", "--seeds", "1:1000")
    one.until(lambda: one.runs("-m headwater_tools"))
    ends_with_one_sentence(one)


def test_a_sink_that_serves_ends_in_order_and_leaves_no_folder(
    tmp_path: Path, command: Callable[..., Command]
) -> None:
    (tmp_path / "landing").mkdir()
    one = command("sink", "landing", "lake", "--forever")
    one.until(lambda: "from version" in one.said())
    assert one.interrupt() == 0, one.said()
    one.nothing_left()
    assert {path.name for path in tmp_path.iterdir()} == {"landing", "lake", "output.txt"}


def test_a_gateway(tmp_path: Path, command: Callable[..., Command]) -> None:
    made = command("gateway", "init", "site", "--port", str(free_port()))
    assert made.process.wait(PATIENCE_S) == 0, made.said()
    config = tmp_path / "site" / "gateway.toml"
    config.write_text(config.read_text().replace("#port = 8010", "port = 0"))
    one = command("gateway", "run", "site")
    one.until(lambda: one.runs("headwater_gateway.segments.cutter"))
    assert one.interrupt() in (0, 130), one.said()
    one.nothing_left()
    one = command("gateway", "run", "site")
    one.until(lambda: "the gateway runs" in one.said())
    assert one.interrupt() == 0, one.said()
    one.nothing_left()
    assert "Traceback" not in one.said(), one.said()


@pytest.mark.parametrize("moment", ["sink: Spark starts", "boards: "])
def test_a_demo(tmp_path: Path, command: Callable[..., Command], moment: str) -> None:
    one = command("demo", "--folder", "demo", "--seconds", "20")
    one.until(lambda: moment in one.said())
    ends_with_one_sentence(one)
