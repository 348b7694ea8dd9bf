"""Of several that write one file on S3 at the same moment, from as many JVMs, exactly one succeeds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from headwater_cloud import access, logstore, store
from headwater_tools import environment
from headwater_tools.environment.s3 import BUCKET, Server
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

ROUNDS = 20
EXISTS = "java.nio.file.FileAlreadyExistsException"


@pytest.fixture(scope="module")
def jvms(server: Server) -> Iterator[list[JavaGateway]]:
    """Two JVMs as those of two drivers."""
    jars = Path(pyspark.__file__).parent / "jars"
    (py4j,) = jars.glob("py4j-*.jar")
    path = ":".join([str(jars / "*"), *map(str, environment.jars("s3a://%s" % BUCKET))])
    made = []
    for _ in range(2):
        port = launch_gateway(
            classpath=path, die_on_exit=True, jarpath=str(py4j), javaopts=["-XX:TieredStopAtLevel=1"]
        )
        made.append(JavaGateway(gateway_parameters=GatewayParameters(port=port)))
    yield made
    for gateway in made:
        gateway.shutdown()


def configuration(gateway: JavaGateway, server: Server) -> Any:
    made = gateway.jvm.org.apache.hadoop.conf.Configuration()
    for key, value in access.to_hadoop(server.storage).items():
        made.set(key, value)
    return made


def writer(gateway: JavaGateway, server: Server) -> Callable[[str, str], bool]:
    """Writes one commit with our log store; whether it won."""
    conf = configuration(gateway, server)
    types = gateway.new_array(gateway.jvm.java.lang.Class, 1)
    types[0] = conf.getClass()
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = conf
    compiler = logstore.compiled(gateway.jvm, logstore.CONDITIONAL)
    loaded = compiler.getClassLoader().loadClass(logstore.PACKAGE + logstore.CONDITIONAL)
    made = loaded.getConstructor(types).newInstance(arguments)

    def write(path: str, text: str) -> bool:
        lines = gateway.jvm.java.util.ArrayList()
        lines.append(text)
        try:
            made.write(gateway.jvm.org.apache.hadoop.fs.Path(path), lines.iterator(), False, conf)
        except Py4JJavaError as error:
            assert str(error.java_exception).startswith(EXISTS)
            return False
        return True

    return write


@pytest.fixture(scope="module")
def writers(jvms: list[JavaGateway], server: Server) -> list[Callable[[str, str], bool]]:
    return [writer(gateway, server) for gateway in jvms]


def race(contestants: list[Callable[[], bool]]) -> list[bool]:
    barrier = threading.Barrier(len(contestants))
    won = [False] * len(contestants)

    def run(i: int) -> None:
        barrier.wait()
        won[i] = contestants[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(contestants))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_of_two_jvms_that_write_one_commit_one_wins_and_the_other_is_told(
    writers: list[Callable[[str, str], bool]], server: Server
) -> None:
    for n in range(ROUNDS):
        at = server.location("race/_delta_log/%020d.json" % n)
        won = race([lambda i=i, at=at: writers[i](at.spark, "writer %d" % i) for i in range(2)])
        assert won.count(True) == 1
        assert store.read(at) == b"writer %d\n" % won.index(True)
        assert not writers[won.index(False)](at.spark, "later")


def test_a_commit_that_is_sent_again_because_its_answer_was_lost_is_its_writers_own(
    writers: list[Callable[[str, str], bool]], server: Server
) -> None:
    write = writers[0]
    at = server.location("again/0.json").spark
    assert write(at, "mine") and write(at, "mine")
    assert not write(at, "else")


@pytest.mark.parametrize("performance", ("false", "true"))
def test_hadoops_own_create_does_not_keep_two_writers_apart(
    jvms: list[JavaGateway], server: Server, performance: str
) -> None:
    """Why no log store of Delta will do: they all create a commit in this way, or by a rename."""
    conf = configuration(jvms[0], server)
    conf.set("fs.s3a.create.performance", performance)
    conf.set("fs.s3a.impl.disable.cache", "true")
    path = jvms[0].jvm.org.apache.hadoop.fs.Path(server.location("plain-%s" % performance).spark)
    system = path.getFileSystem(conf)
    both = [system.create(path, False) for _ in range(2)]
    for stream in both:
        stream.close()
    system.close()


def test_of_many_commits_of_delta_rs_to_one_version_one_wins(server: Server) -> None:
    """The small tables are delta-rs's."""
    table = server.location("small")
    options = table.options
    write_deltalake(table.rs, pa.table({"x": pa.array([], pa.int64())}), storage_options=options)
    opened = [DeltaTable(table.rs, storage_options=options) for _ in range(6)]

    def append(i: int) -> bool:
        try:
            write_deltalake(
                opened[i], pa.table({"x": [i]}), mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )  # fmt: skip
        except CommitFailedError:
            return False
        return True

    won = race([lambda i=i: append(i) for i in range(6)])
    assert Counter(won) == {True: 1, False: 5}
    (x,) = DeltaTable(table.rs, storage_options=options).to_pyarrow_table()["x"].to_pylist()
    assert won.index(True) == x
