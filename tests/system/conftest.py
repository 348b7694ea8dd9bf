"""What the tests with real processes share: one Spark, started once, and a site for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from headwater_tools import environment

if TYPE_CHECKING:
    from gateway_site import Site
    from hw_command import Command
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Markers of what a test starts, as its fixtures show; a test that starts it otherwise marks itself."""
    for item in items:
        if HERE in item.path.parents:
            fixtures = set(getattr(item, "fixturenames", ()))
            if "spark" in fixtures:
                item.add_marker("spark")
            elif "site" in fixtures:
                item.add_marker("broker")
            if "browser" in fixtures:
                item.add_marker("browser")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    environment.ensure("lake")
    from headwater_cloud.session import start

    # Little data: compiling well would take longer than computing.
    quick = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
    }
    session = start("local[2]", environment.jars(), quick, "tests", "OFF")
    yield session
    session.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with real parts, of which none has been started; what a test starts ends with it."""
    from gateway_site import Site

    with closing(Site(tmp_path / "site")) as made:
        yield made


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands of `hw` in the folder of the test; what is left of them at its end is killed."""
    from hw_command import Command

    made: list[Command] = []

    def start(*words: str) -> Command:
        made.append(Command(tmp_path, *words))
        return made[-1]

    yield start
    for one in made:
        for pid in one.left():
            os.kill(pid, signal.SIGKILL)
