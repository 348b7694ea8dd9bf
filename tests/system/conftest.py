"""What the tests with real processes share: one Spark, started once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from headwater_tools import house

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    house.ensure("lake")
    from headwater_cloud.session import start

    # Little data: compiling well would take longer than computing.
    quick = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        session = start("local[2]", house.jars(), quick, "tests")
    yield session
    session.stop()
