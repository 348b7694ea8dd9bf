"""An S3 server on this machine, for the tests of this folder: `hw test --s3`.

They are a group of their own, because Spark's way to S3 is 690 MB of jars and each test starts several sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headwater_tools import environment

environment.ensure("lake")

from headwater_tools.environment.s3 import Server  # noqa: E402
from headwater_tools.proof.ledger import Ledger  # noqa: E402
from headwater_tools.proof.sink_kills import Life  # noqa: E402


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("s3")) as made:
        yield made


@pytest.fixture
def ledger(server: Server, tmp_path: Path) -> Ledger:
    """A gateway whose landing zone and lake are on S3."""
    landing, lake = (server.location("%s/%s" % (tmp_path.name, at)) for at in ("landing", "lake"))
    return Ledger(landing, lake, seed=1, spool=tmp_path / "spool")


@pytest.fixture
def sink(server: Server, ledger: Ledger, tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Starts sinks on the ledger's lake; what is left of them ends with the test."""
    lives: list[Life] = []

    def start(*more: str, once: bool = True, crash_at: str = "") -> Life:
        words = (*server.words(), *more)
        lives.append(Life(ledger.landing, ledger.lake, crash_at, once, *words, folder=tmp_path))
        return lives[-1]

    yield start
    for life in lives:
        life.kill()
