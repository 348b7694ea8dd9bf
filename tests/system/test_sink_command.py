"""`hw sink` and `hw maintain` as people start them: processes of their own."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headwater_tools import environment
from headwater_tools.environment import class_archive
from site_lake import Site, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LARGEST_FILE = 400_000  # bytes: what a full disk is stood in for by

ENVIRONMENT = environment.variables()


def hw(*words: str, full: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))

    return subprocess.run(
        [sys.executable, "-m", "headwater_tools", *words],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit if full else None,
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_a_full_disk_stops_the_sink_and_space_lets_it_go_on(tmp_path: Path) -> None:
    site = Site(None, tmp_path)  # type: ignore[arg-type]  # its sinks are other processes
    site.put(1, 200_000)
    words = ("sink", str(site.landing), str(site.lake), "--once", "--json")
    stopped = hw(*words, "--patience", "0", full=True)
    assert stopped.returncode == 1, stopped.stderr
    assert "a batch failed" in answer(stopped)["error"]
    assert "Traceback" not in stopped.stderr
    assert not (site.lake / "acks" / "cardio.json").exists()
    done = hw("sink", str(site.landing), str(site.lake), "--once", "--json")
    assert (done.returncode, answer(done)["rows_kept"]) == (0, 200_000), done.stderr
    assert "batch 0: 1 files, 200,000 rows; acknowledged after" in done.stderr
    assert site.numbers() == plain(1, 200_000)
    assert site.high() == (200_000, [])


def test_a_sink_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    site = Site(None, tmp_path)  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["sink", str(site.landing), str(site.lake), "--trigger", "0.2", "--metrics", str(port)]
    serving = subprocess.Popen(
        [sys.executable, "-m", "headwater_tools", *words], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline().endswith("from version 0 on\n")
        site.put(1, 20)
        assert serving.stdout.readline().startswith("batch 0: 1 files, 20 rows; acknowledged after")
        assert site.high() == (20, [])
        second = hw("sink", str(site.landing), str(site.lake), "--once")
        assert second.returncode == 2
        assert "in use by hw sink, process %d on" % serving.pid in second.stderr
        maintained = hw("maintain", str(site.lake), "--json")
        assert (maintained.returncode, answer(maintained)["files_after"]) == (0, 1)
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as page:
            assert b'headwater_sink_rows_total{fate="kept"} 20.0' in page.read()
        serving.send_signal(signal.SIGTERM)
        rest, _ = serving.communicate(timeout=120)
        assert serving.returncode == 0
        assert rest.splitlines()[-1].startswith("1 batches: 20 rows kept, 0 duplicates")
    finally:
        serving.kill()
        serving.wait()


def test_a_jvm_that_dies_alone_is_told_in_one_sentence(tmp_path: Path) -> None:
    from headwater_cloud import jvm

    site = Site(None, tmp_path)  # type: ignore[arg-type]
    words = ["sink", str(site.landing), str(site.lake), "--trigger", "0.2"]
    serving = subprocess.Popen(
        [sys.executable, "-m", "headwater_tools", *words],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline().endswith("from version 0 on\n")
        site.put(1, 20)
        assert serving.stdout.readline().startswith("batch 0: 1 files, 20 rows; acknowledged after")
        for pid in jvm._descendants(serving.pid):
            os.kill(pid, signal.SIGKILL)
        out, err = serving.communicate(timeout=120)
    finally:
        serving.kill()
        serving.wait()
    assert serving.returncode == 1
    told = [line for line in err.splitlines() if not line.startswith(("NOTE: Picked up", "WARNING: Using"))]
    assert len(told) == 1 and "Spark's JVM was killed by signal 9; nothing is lost" in told[0]
    assert out == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["sink", "NOWHERE", "LAKE"], "there is no landing zone"),
        (["sink", ".", "LAKE", "--files-per-trigger", "0"], "a batch needs at least one file"),
        (["sink", ".", "LAKE", "--storage", "x"], "write KEY=VALUE"),
        (["sink", ".", "LAKE", "--trigger", "-1"], "is not between 0 and 86400"),
        (["maintain", "NOWHERE"], "there is no lake"),
    ],
)
def test_bad_use_ends_with_one_sentence(tmp_path: Path, words: list[str], why: str) -> None:
    place = {"NOWHERE": str(tmp_path / "nowhere"), "LAKE": str(tmp_path / "lake"), ".": str(tmp_path)}
    done = hw(*(place.get(word, word) for word in words))
    assert done.returncode == 2
    assert why in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_java_the_sink_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENVIRONMENT, "JAVA_HOME", raising=False)
    done = hw("sink", str(tmp_path), str(tmp_path / "lake"), "--once", PATH=os.path.dirname(sys.executable))
    assert done.returncode == 2
    assert "Spark needs Java 17" in done.stderr


def test_a_shell_runs_code_with_functions_of_its_own_and_shows_an_error_in_it(tmp_path: Path) -> None:
    from lakes import healthy

    lake = healthy(tmp_path / "lake").write()
    code = "from pyspark.sql.functions import udf\n"
    code += "def twice(x): return 2 * x\n"
    code += "print([row[0] for row in spark.range(3).select(udf(twice, 'int')('id')).collect()])\n"
    code += "print(lake.streams().count(), 'streams')\n"
    code += "print(1 / 0)"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", "shell", str(lake), "-c", code],
        env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[0, 2, 4]", "2 streams"], done.stderr
    assert done.stderr.splitlines()[-3:] == [
        "Traceback (most recent call last):",
        '  File "<-c>", line 5, in <module>',
        "ZeroDivisionError: division by zero",
    ]
    assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]  # no folder of Spark's


def test_spark_starts_with_the_classes_that_are_kept(spark: SparkSession) -> None:
    """`hw test` makes the file, where this Java can: one that no longer fits would only make tests slower."""
    file = re.search(r"-XX:SharedArchiveFile=([^\"]+)", os.environ[class_archive.VARIABLE])
    if file is None:
        pytest.skip("this Java keeps no classes, or pytest was not started by `hw test`")
    java: Any = spark._jvm
    jvm = int(java.java.lang.ProcessHandle.current().pid())
    assert Path(file[1]).name in Path("/proc/%d/maps" % jvm).read_text()
