"""The job of the sink on Spark's own cluster: master and two workers on loopback, and one worker dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable
from headwater_tools import environment
from headwater_tools.demo.subprocesses import free_port
from headwater_tools.environment import ROOT

pytestmark = pytest.mark.spark

FILES, ROWS = 12, 80_000
WAIT_S = 240


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


class Cluster:
    """Processes of Spark, each in a group of its own with all that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.env = {
            **environment.variables(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        self.url = "spark://127.0.0.1:%d" % free_port()

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with open(self.folder / (name + ".txt"), "wb") as output:
            process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self, name: str) -> str:
        return (self.folder / (name + ".txt")).read_text(errors="replace")

    def master(self) -> None:
        port = self.url.rpartition(":")[2]
        self.start(
            "master", str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", port, "--webui-port", str(free_port()),
        )  # fmt: skip

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker",
            "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port()),
            "--work-dir", str(self.folder / name), self.url,
        )  # fmt: skip

    def submit(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start(
            "sink", str(spark_home() / "bin" / "spark-submit"), "--master", self.url,
            "--jars", ",".join(map(str, environment.jars())),
            "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m",
            # A driver that waits for both executors uses both.
            "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0",
            "--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
            "--conf", "spark.driver.host=127.0.0.1",
            str(ROOT / "cloud" / "headwater_sink.py"), *words,
        )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    environment.ensure("lake")
    made = Cluster(tmp_path)
    yield made
    made.stop()


def test_a_worker_that_dies_in_the_middle_of_a_batch_loses_nothing_and_doubles_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    from headwater_tools.bench.support.ingest_paths import wait
    from headwater_tools.proof.segment_source import Supply

    cluster.master()
    workers = [cluster.worker("worker%d" % i) for i in range(2)]
    supply = Supply(tmp_path / "landing", ROWS, streams=3, process="cluster")
    supply.next(FILES)
    lake = tmp_path / "lake"
    sink = cluster.submit(str(supply.folder), str(lake), "--once")

    table = lake / "elements"

    def writing() -> bool:
        """Both executors, of one core each, have begun a file of the only batch."""
        return sink.poll() is not None or len(list(table.glob("*.parquet"))) == 2

    wait(writing, WAIT_S, "the work of two executors")
    assert sink.poll() is None, cluster.said("sink")
    os.killpg(workers[0].pid, signal.SIGKILL)
    assert not (table / "_delta_log" / ("%020d.json" % 1)).exists(), "the worker outlived the batch"

    assert sink.wait(WAIT_S) == 0, cluster.said("sink")
    left = {path.name for path in table.glob("*.parquet")} - {
        Path(uri).name for uri in DeltaTable(table).file_uris()
    }
    assert len(left) == 1, "the file that the dead one had begun"
    rows = DeltaTable(lake / "elements").to_pyarrow_table(columns=["stream", "xi"])
    for stream, last in supply.last.items():
        mine = np.sort(rows.filter(np.array(rows.column("stream")) == stream).column("xi").to_numpy())
        assert np.array_equal(mine, np.arange(1, last + 1)), stream
    (progress,) = {row["high"] for row in DeltaTable(lake / "progress").to_pyarrow_table().to_pylist()}
    assert progress == FILES * ROWS // 3
