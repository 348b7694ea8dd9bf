"""How much memory a local Spark gets, and how much of it whole files may take."""

from __future__ import annotations

from pathlib import Path

import pytest
from headwater_cloud import session

GIB = 1 << 30


@pytest.mark.parametrize("cores", (1, 2, 4, 16))
@pytest.mark.parametrize("memory", (1 * GIB, 2 * GIB, 8 * GIB, 128 * GIB))
def test_a_heap_holds_the_largest_segment_in_each_task_that_reads_one(cores: int, memory: int) -> None:
    heap = session.heap_bytes(cores, memory)
    tasks = session.readers(heap)
    assert heap <= max(GIB, memory // 2)
    assert tasks >= 1
    if tasks > 1 or memory >= 8 * GIB:
        assert session.BASE_BYTES + tasks * session.COPIES * session.SIZE_MAX <= heap
    if memory >= 128 * GIB:
        assert tasks == cores


@pytest.mark.parametrize(
    ("master", "cores"), (("local", 1), ("local[3]", 3), ("local[12,4]", 12), ("local[*]", None))
)
def test_the_cores_of_a_local_master_are_read_from_its_name(master: str, cores: int | None) -> None:
    found = session._cores(master)
    assert found == cores if cores else found >= 1


def test_what_a_submission_sets_is_kept_and_lists_are_joined() -> None:
    ours = {
        "spark.sql.extensions": "io.delta.X",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraClassPath": "delta.jar",
        "spark.driver.extraJavaOptions": "-Da=1",
        "spark.ui.enabled": "false",
    }
    given = {"spark.sql.extensions": "org.S,io.delta.X", "spark.sql.shuffle.partitions": "300"}
    asked = {"spark.driver.extraClassPath": "mine.jar", "spark.driver.extraJavaOptions": "-Da=2", "k": "v"}
    assert session._merged(ours, given, asked) == {
        "spark.sql.extensions": "org.S,io.delta.X",
        "spark.driver.extraClassPath": "mine.jar:delta.jar",
        "spark.driver.extraJavaOptions": "-Da=1 -Da=2",  # the last one counts
        "spark.ui.enabled": "false",
        "k": "v",
    }


def test_what_is_asked_for_beats_what_a_submission_sets() -> None:
    key = "spark.sql.shuffle.partitions"
    assert session._merged({key: "4"}, {key: "300"}, {key: "7"}) == {key: "7"}


def test_spark_defaults_count_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.ui.enabled   true\nspark.sql.extensions=org.S\n\nspark.x: a b \n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._defaults(None, submitted=False) == {
        "spark.ui.enabled": "true",
        "spark.sql.extensions": "org.S",
        "spark.x": "a b",
    }
