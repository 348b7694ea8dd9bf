"""Mistakes that people make, and the answers to them: each says what is wrong, where, and what to do.

One row of a table for each mistake: what is done, and parts of the answer that must be there. Mistakes with a
broker's certificate are in `test_broker_problems.py`, Ctrl-C at any moment is in `test_interrupts.py`. No
answer is a traceback, and none is longer than a screen.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gateway_site import Site
from headwater_tools import cli, environment
from lakes import healthy

pytestmark = [pytest.mark.spark, pytest.mark.broker]

GREENHOUSE = """\
from headwater.process import Average, Process, Threshold

p = Process("greenhouse", checkpoints="ecoc", every=60)
air = p.source("air", "centi_c:i16", rate_hz=10, on="vent")
mean = air >> Average(seconds=20)
frost = mean >> Threshold(high=400, low=200)
p.lake("greenhouse/air", air)
p.lake("greenhouse/frost", frost, durable="lake", within_ms=20000)
"""
LINES_MAX = 16


@dataclass
class Mistake:
    name: str
    words: str  # of `hw`; FOLDER stands for the test's own
    says: tuple[str, ...]
    code: int = 2
    files: dict[str, str] = field(default_factory=dict)  # made before
    greenhouse: tuple[tuple[str, str], ...] = ()  # what is different in greenhouse.py


def use(name: str, words: str, *says: str, code: int = 2, **files: str) -> Mistake:
    return Mistake(name, words, says, code, {k.replace("__", "."): v for k, v in files.items()})


def process(name: str, right: str, wrong: str, *says: str) -> Mistake:
    """A mistake in a process file."""
    return Mistake(name, "check greenhouse.py", ("greenhouse.py:", *says), 1, {}, ((right, wrong),))


def config(name: str, text: str, *says: str) -> Mistake:
    """A mistake in gateway.toml."""
    return Mistake(name, "gateway check .", ("gateway.toml:", *says), 1, {"gateway.toml": text})


AIR = 'p.source("air", "centi_c:i16", rate_hz=10, on="vent")'
LAKE_AIR = 'p.lake("greenhouse/air", air)'

USE = [
    use("unknown action", "gateway rnu site", "'rnu' is unknown", "did you mean 'run'?", "hw gateway --help"),
    use("unknown command", "gatway run site", "no command 'gatway'", "did you mean 'gateway'?"),
    use("no file to check", "check", "required: FILE", "hw check --help"),
    use("no lake for the sink", "sink landing", "required: LAKE", "hw sink --help"),
    use("no name for a board", "provision", "required: NAME", "hw provision --help"),
    use("unknown option", "gateway run site --rebuid", "no such option", "did you mean '--rebuild'?"),
    use(
        "check without a folder",
        "gateway check nowhere",
        "nowhere: No such file",
        "`hw gateway init nowhere` makes one",
    ),
    use(
        "run without a folder",
        "gateway run nowhere",
        "nowhere: No such file",
        "`hw gateway init nowhere` makes one",
    ),
    use(
        "deploy without a folder",
        "deploy greenhouse.py --gateway nowhere",
        "nowhere: No such file",
        "`hw gateway init nowhere`",
    ),
    use("audit of nothing", "audit nowhere", "nowhere has no table `elements`", "name the folder of a lake"),
    use(
        "shell of nothing",
        "shell nowhere",
        "there is no lake at",
        "no table `elements`",
        "as given to `hw sink`",
    ),
    use(
        "maintain nothing",
        "maintain nowhere",
        "there is no lake at",
        "no table `elements`",
        "as given to `hw sink`",
    ),
    use("sink from nowhere", "sink nowhere lake", "there is no landing zone", "lake.landing in gateway.toml"),
    use(
        "landing zone is a file",
        "sink greenhouse.py lake",
        "there is no landing zone",
        "greenhouse.py",
        "lake.landing in",
    ),
    use("landing zone as lake", "audit landing", "landing has no table `elements`", "as given to `hw sink`"),
    use(
        "a file of passwords as process",
        "check /etc/passwd",
        "/etc/passwd:1:",
        "Python cannot read this",
        code=1,
    ),
    use("a missing process file", "check nofile.py", "nofile.py: No such file or directory"),
    use("a folder as process", "check landing", "landing: is a folder: name a process file"),
    use("a battery alone", "check greenhouse.py --battery vent=60%", "--battery belongs to --explain"),
    use(
        "a battery without a level",
        "check greenhouse.py --explain --battery vent",
        "like wrist=60% or wrist=3.72V",
    ),
    use(
        "a battery of 60",
        "check greenhouse.py --explain --battery vent=60",
        "write HOST=PERCENT% or HOST=VOLTS",
    ),
    use("a battery too full", "check greenhouse.py --explain --battery vent=160%", "give 0 to 100 percent"),
    use(
        "a battery of two cells", "check greenhouse.py --explain --battery vent=7.4V", "give 2.5 to 4.5 volts"
    ),
    use("a battery of no host", "check greenhouse.py --explain --battery vnet=60%", "did you mean 'vent'?"),
    use("a battery at the gateway", "check greenhouse.py --explain --battery gateway=60%", "runs on mains"),
    use(
        "a battery twice",
        "check greenhouse.py --explain --battery vent=60% --battery vent=3.7V",
        "host 'vent' is given twice",
    ),
    use("a folder to simulate", "sim landing", "landing: is a folder: name a process file"),
    use("one seed as seeds", "sim --seeds 5", "'5' is one number", "--seed 5 plays that history"),
    use("seeds backwards", "sim --seeds 10:5", "'10:5' has no seed in it", "B must be greater than A"),
    use("seeds that are none", "sim --seeds x:y", "'x:y' is not a pair of numbers", "like 1:1001"),
    use("no time to simulate", "sim --seconds 0", "--seconds 0", "give 1 to 3600"),
    use("a file and an example", "sim greenhouse.py --process sp1", "--process sp1", "give one of them"),
    use("port out of range", "gateway init site --port 99999", "--port 99999", "give 1 to 65535"),
    use("--set without a dot", "deploy --set average=3", "--set average=3", "like alarm.high=180"),
    use("--set without a value", "deploy --set average.us", "--set average.us", "like alarm.high=180"),
    use("nothing to deploy", "deploy", "give one of", "a process file, --set"),
    use("a bench that is none", "bench wier", "no bench 'wier'", "hw has"),
    use("a folder that cannot be", "gateway init /proc/x", "/proc/x: No such file", "choose another place"),
    use("a folder not to be written", "gateway init /proc", "/proc/", "choose"),
    use(
        "a demo in a full folder",
        "demo --folder landing",
        "is not empty",
        "choose another --folder",
        landing__note="mine",
    ),
    use("too short a demo", "demo --seconds 5", "--seconds 5", "give at least 20"),
    use("a lake that cannot be", "sink landing /proc/lake --once", "/proc/lake", "or choose another folder"),
]

PROCESS = [
    process(
        "unknown operator", "Average", "Avrage", "unknown operator type 'Avrage': did you mean 'Average'?"
    ),
    process(
        "unknown parameter", "seconds=20", "second=20", "did you mean 'seconds'? Average has count, us (or"
    ),
    process(
        "type of a value", "high=400", "high='warm'", "parameter 'high': it is 'warm', not a number", "Give"
    ),
    process("two sources of one name", "mean = ", "b = " + AIR + "\nmean = ", "already used on line 4"),
    process("two streams of one name", LAKE_AIR, LAKE_AIR + "\n" + LAKE_AIR, "already used on line 7"),
    process(
        "no process", "=20000)", "=5000)\ndel p", "no process", 'Leave one in a variable: p = Process("name")'
    ),
    process(
        "HTML in a name", '"air", ', '"<b>air", ', "'<b>air' is not a valid name", "letters, digits and _"
    ),
    process("a negative rate", "rate_hz=10", "rate_hz=-10", "rate_hz is -10", "Give"),
    process("a name that is missing", "Average, P", "P", "name 'Average' is not defined", "Import it"),
    process(
        "a module that is missing",
        "from headwater",
        "import nowhere\nfrom headwater",
        "No module named 'nowhere'",
        "Correct its name",
    ),
    process(
        "a line that is no Python", "mean = ", "mean == = ", "greenhouse.py:5", "Python cannot read this"
    ),
    process(
        "unknown durability",
        '"lake", w',
        '"lakes", w',
        "did you mean 'lake'? Use one of flash, gateway, lake",
    ),
    process(
        "unknown board",
        "air = p",
        'p.host("vent", board="esp23")\nair = p',
        "host 'vent': unknown board 'esp23': did you mean 'esp32'? Use one of esp32, esp32c3",
    ),
    process(
        "a battery at the gateway",
        "air = p",
        'p.host("gateway", battery_mah=400)\nair = p',
        "host 'gateway': battery_mah=400 at the gateway",
        "Leave it out",
    ),
    process(
        "a battery that is a text",
        "air = p",
        'p.host("vent", battery_mah="400 mAh")\nair = p',
        "battery_mah is '400 mAh', not a number",
        "Give 0 to",
    ),
    process("unknown checkpoints", '"ecoc"', '"ecoq"', "did you mean 'ecoc'? Use one of"),
    process("unknown type of a field", ":i16", ":i17", "unknown type 'i17'", "use one of"),
    Mistake(
        "two processes",
        "check greenhouse.py",
        ("2 processes: p, q", "Leave one in each file"),
        1,
        {},
        (("air = ", 'q = Process("q")\nair = '),),
    ),
    Mistake(
        "six mistakes at once",
        "check greenhouse.py",
        ("i17", "ecoq", "second", "rate_hz", "lakes", "errors"),
        1,
        {},
        (
            (":i16", ":i17"),
            ("ecoc", "ecoq"),
            ("seconds", "second"),
            ("hz=10", "hz=-1"),
            ('"lake",', '"lakes",'),
        ),
    ),
]

CONFIG = [
    config("broken TOML", "[mqtt\n", "invalid TOML", "line 1, column 6", "Write a section as [SECTION]"),
    config("no quotes", "[mqtt]\nhost = broker\n", "invalid TOML", "line 2", "Strings need quotes"),
    config("a section twice", "[log]\n[log]\n", "invalid TOML", "line 2", "Write each section once"),
    config("unknown section", "[mqqt]\nport = 1\n", "[mqqt] is unknown", "did you mean mqtt?"),
    config("unknown key", "[mqtt]\nprot = 1\n", "mqtt.prot is unknown", "did you mean port?"),
    config(
        "a key of another section",
        "[log]\nport = 1\n",
        "log.port is unknown",
        "write it below [mqtt] or [http]",
    ),
    config("a key without a section", "landing = 'x'\n", "key landing is in no section", "below [lake]"),
    config(
        "a text for a number", '[mqtt]\nport = "1883"\n', "mqtt.port = '1883'", "a whole number, like 8883"
    ),
    config("out of range", "[http]\nport = 99999\n", "http.port = 99999", "use 0 to 65535"),
]


@contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def answered(said: str, says: tuple[str, ...]) -> None:
    missing = [part for part in says if part not in said]
    assert not missing, "%r is not in:\n%s" % (missing, said)
    assert "Traceback" not in said, said
    assert len(said.strip().splitlines()) <= LINES_MAX, said


@pytest.mark.parametrize("mistake", [pytest.param(m, id=m.name) for m in (*USE, *PROCESS, *CONFIG)])
def test_a_mistake_is_answered(mistake: Mistake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GREENHOUSE
    for right, wrong in mistake.greenhouse:
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "greenhouse.py").write_text(text)
    (tmp_path / "landing").mkdir()
    for name, content in mistake.files.items():
        (tmp_path / name.replace("landing.", "landing/")).write_text(content)
    with standing_in(tmp_path), pytest.raises(SystemExit) as end:
        cli.main(mistake.words.replace("FOLDER", str(tmp_path)).split())
    out, err = capsys.readouterr()
    answered(out + err, mistake.says)
    assert end.value.code == mistake.code


# With a site: a broker, a gateway and one board that runs `greenhouse`; board `roof` has never been seen.

OTHER = """\
from headwater.process import Process

p = Process("%s")
p.lake("%s/air", p.source("air", "centi_c:i16", rate_hz=1, on="%s"))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("mistakes")
    made = Site(folder / "site")
    try:
        made.start_broker()
        made.start_gateway()
        made.board("vent", {"air": {"driver": "wave", "t0_us": time.time_ns() // 1000}}).start()
        made.command("provision", "roof", ".")
        for name, board in (("attic", "attic"), ("second", "vent"), ("late", "roof")):
            (folder / (name + ".py")).write_text(OTHER % (name, name, board))
        (folder / "greenhouse.py").write_text(GREENHOUSE)
        done = made.command("deploy", "../greenhouse.py", "--gateway", ".", "--wait", "60")
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("deploy attic.py --gateway site", ["attic", "hw provision attic"]),
        ("deploy second.py --gateway site", ["vent", "greenhouse", "already"]),
        ("deploy late.py --gateway site --wait 1", ["after 1 s", "roof", "never"]),
        (
            "deploy --cancel greenhouse --gateway site",
            ["greenhouse is not being changed", "nothing to cancel"],
        ),
        ("deploy --cancel nothing --gateway site", ["no process", "nothing", "greenhouse"]),
        (
            "deploy --set avrage.us=1000000 --process greenhouse --gateway site",
            ["avrage", "average, threshold"],
        ),
        ("deploy --set threshold.hihg=3 --process greenhouse --gateway site", ["hihg", "high"]),
        (
            "deploy --set threshold.high=warm --process greenhouse --gateway site",
            ["threshold", "parameter 'high' is 'warm', which is not i32"],
        ),
        (
            "deploy --set threshold.high=4000000 --process greenhouse --gateway site",
            ["high", "4000000", "32767"],
        ),
        ("deploy --set average.us=100 --process greenhouse --gateway site", ["average", "us", "100"]),
        ("provision vent site", ["vent", "--renew"]),
        ("provision 1vent site", ["'1vent'", "a letter, then letters, digits or _"]),
        ("provision gateway site", ["'gateway'", "not g or s or w or gateway or watcher"]),
        ("provision a_board_with_a_long_name site", ["a_board_with_a_long_name", "at most 16"]),
        ("provision roof/2 site", ["'roof/2'", "a letter, then letters, digits or _"]),
        ("gateway init site --host elsewhere", ["elsewhere", "localhost"]),
        ("gateway run site", ["another gateway", "process"]),
    ],
)
def test_a_mistake_at_a_site_is_answered(site: Site, words: str, says: list[str]) -> None:
    done = hw(site.folder.parent, *words.split())
    answered(done.stdout + done.stderr, tuple(says))
    assert done.returncode in (1, 2), done.stdout + done.stderr


def test_a_refusal_reasons_with_the_values_in_force(site: Site) -> None:
    folder = site.folder.parent
    changed = hw(
        folder, "deploy", "--set", "threshold.high=250", "--process", "greenhouse", "--gateway", "site"
    )
    assert changed.returncode == 0, changed.stderr
    refused = hw(
        folder, "deploy", "--set", "threshold.low=300", "--process", "greenhouse", "--gateway", "site"
    )
    answered(refused.stdout + refused.stderr, ("low", "300", "high", "250"))
    assert refused.returncode == 2


def hw(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", *words],
        cwd=folder,
        env={**environment.variables(), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


# What stops a gateway from starting. Each gets a folder `site` with one board that is not running.


def _without(*parts: str) -> Callable[[Path], None]:
    return lambda folder: folder.joinpath(*parts).unlink()


def _database(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (path,) = (folder / "data").glob("*.db")
        for more in folder.glob("data/*.db-*"):
            more.unlink()
        path.write_bytes(change(path.read_bytes()))

    return damage


def _flipped(content: bytes) -> bytes:
    rng = random.Random(1)
    data = bytearray(content)
    for _ in range(200):
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_without("tls", "ca.crt"), ["mqtt.ca", "ca.crt: No such file"]),
        (_without("secrets", "mqtt.password"), ["mqtt.password", "No such file"]),
        (_without("secrets", "master.key"), ["master.key", "No such file", "Restore it from"]),
        (_database(lambda data: data[: len(data) // 2]), ["gateway.db", "--rebuild"]),
        (_database(lambda data: b"no database at all" * 999), ["gateway.db", "--rebuild"]),
        (_database(_flipped), ["gateway.db", "--rebuild"]),
        (_database(lambda data: b""), ["gateway.db", "vent", "--rebuild"]),
    ],
    ids=["no ca", "no password", "no master key", "truncated", "foreign", "flipped", "emptied"],
)
def test_a_gateway_that_cannot_start_says_why(
    tmp_path: Path, damage: Callable[[Path], None], says: list[str]
) -> None:
    made = Site(tmp_path / "site")
    assert hw(tmp_path, "provision", "vent", "site").returncode == 0
    damage(made.folder)
    done = hw(tmp_path, "gateway", "run", "site")
    answered(done.stdout + done.stderr, tuple(says))
    assert done.returncode == 2


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    Site(tmp_path / "site")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "site" / "gateway.toml"
        config.write_text(config.read_text().replace("[http]\nport = 0", "[http]\nport = %d" % port))
        done = hw(tmp_path, "gateway", "run", "site")
    answered(done.stdout + done.stderr, ("http.port = %d" % port, "choose another port"))
    assert done.returncode == 2


@pytest.mark.parametrize("words", ["gateway state site", "deploy --set a.b=1 --gateway site"])
def test_without_a_gateway_its_start_is_named_with_its_folder(tmp_path: Path, words: str) -> None:
    Site(tmp_path / "site")
    done = hw(tmp_path, *words.split())
    answered(done.stderr, ("no gateway listens", "`hw gateway run %s`" % (tmp_path / "site")))
    assert done.returncode == 2


def test_a_full_disk_is_an_alarm(tmp_path: Path) -> None:
    made = Site(tmp_path / "site")
    text = made.config_file.read_text()
    made.config_file.write_text(text.replace("[store]", "[store]\nmin_free_bytes = %d" % (1 << 50)))
    try:
        made.start_gateway()
        end = time.monotonic() + 180
        while "disk" not in (done := hw(tmp_path, "gateway", "state", "site")).stdout:
            assert time.monotonic() < end, done.stdout
        answered(done.stdout, ("alarm", "disk is full", "Free space on the disk of gateway.data"))
        assert done.returncode == 1
    finally:
        made.close()


@pytest.mark.parametrize("words", ["shell LAKE", "sink LANDING LAKE --once", "maintain LAKE"])
def test_without_java_it_says_what_to_install(tmp_path: Path, words: str) -> None:
    lake = healthy(tmp_path / "lake").write()
    places = {"LAKE": str(lake), "LANDING": str(tmp_path)}
    done = hw(tmp_path, *(places.get(word, word) for word in words.split()), PATH="/nowhere", JAVA_HOME="")
    answered(done.stderr, ("Spark needs Java 17", "openjdk-17-jre-headless", "JAVA_HOME"))
    assert done.returncode == 2


def test_a_second_sink_names_the_first(tmp_path: Path) -> None:
    """Before it starts Spark."""
    lake = tmp_path / "lake"
    lake.mkdir()
    with open(lake / "python.lock", "w") as held:
        held.write("hw sink, process 4711 on attic, since 2026-03-01")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        done = hw(tmp_path, "sink", str(tmp_path), str(lake), "--once")
    answered(done.stderr, ("in use by hw sink, process 4711 on attic, since 2026-03-01",))
    assert done.returncode == 2
