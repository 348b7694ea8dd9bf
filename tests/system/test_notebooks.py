"""The notebooks run as they are, from top to bottom, on a lake made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headwater_tools import environment
from headwater_tools.environment import ROOT
from lakes import belt

pytestmark = pytest.mark.spark

NOTEBOOKS = ROOT / "cloud" / "notebooks"

# Run in a process of its own, where no warning of Jupyter's fails a test of ours.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment.ensure("lake")
    return belt(tmp_path_factory.mktemp("belt")).path


def executed(name: str, lake: Path, tmp_path: Path) -> list[tuple[str, str, bool]]:
    """(source, text of its value, whether it shows a picture) of each cell of code."""
    out = tmp_path / name
    command = [sys.executable, "-c", RUN, str(NOTEBOOKS / name), str(NOTEBOOKS), str(out)]
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.codegen.factoryMode NO_CODEGEN\n")
    env = {
        **os.environ,
        "HEADWATER_LAKE": str(lake),
        "JUPYTER_PLATFORM_DIRS": "1",
        # A minute of data: compiling well would take longer than computing.
        "SPARK_CONF_DIR": str(tmp_path),
    }
    env.pop("PYTHONPATH", None)  # a user's kernel has none
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = []
    for cell in json.loads(out.read_text())["cells"]:
        if cell["cell_type"] == "code":
            data: dict[str, Any] = {}
            for output in cell["outputs"]:
                data.update(output.get("data", {}))
            cells.append(("".join(cell["source"]), "".join(data.get("text/plain", "")), "image/png" in data))
    return cells


def value(cells: list[tuple[str, str, bool]], of: str) -> str:
    """The value of the first cell that has these words, on one line."""
    return " ".join(next(text for source, text, _ in cells if of in source).split())


def test_a_first_look_shows_streams_pictures_and_proof(lake: Path, tmp_path: Path) -> None:
    cells = executed("first_look.ipynb", lake, tmp_path)
    assert sum(picture for _, _, picture in cells) == 2
    assert "mV:i16" in value(cells, "lake.streams().toPandas()")
    assert "20879" in value(cells, "lake.quality()")
    assert "'cardio_ecg': 'cardio/ecg'" in value(cells, "lake.register()")
    assert "20879" in value(cells, "lake.read_stream(")
    assert "count 1.800000e+03 1800.00000 1800.000000" in value(cells, "ArrowLake(LAKE)")
    assert "14401" in value(cells, "lake.gaps()")
    assert "(Lake(%s, as of version 0 of elements), 7220, 20939)" % lake in value(cells, "lake.as_of(0)")
    assert "(True, {'cardio/ecg': 0.96" in value(cells, "report.ok")


def test_an_investigation_names_the_reason_of_the_longest_gap(lake: Path, tmp_path: Path) -> None:
    cells = executed("a_gap.ipynb", lake, tmp_path)
    assert sum(picture for _, _, picture in cells) == 1
    assert "cardio/ecg: ξ 7201 to 7201, hole, restart" in value(cells, "gap is not None")
    around = value(cells, "first - 3")
    assert "7198" in around and "7204" in around and "7201" not in around.split()
    assert "('gap', 'full', 720)" in value(cells, "missing.kind")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: str(path.name))
def test_a_notebook_is_kept_without_results_and_without_traces_of_a_machine(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert not [word for word in ("/home/", "/root/", "/tmp/", "/work/") if word in path.read_text()]
