"""Virtual boards of a site, and the supervision of its parts: files of samples, shapes, rules of restarts."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from headwater.data.alphabet import Alphabet
from headwater_tools import environment
from headwater_tools.boards import listing, micropython, recording, site_board
from headwater_tools.errors import Failed, UserError
from headwater_tools.site.supervisor import PAUSE_MAX_S, Supervisor

HERE = environment.ROOT / "tools" / "headwater_tools" / "boards" / "on_board"

# ---- a CSV file as a sensor


def packed(
    tmp_path: Path, text: str, alphabet: str = "x:i16 y:f32", once: bool = False
) -> list[tuple[object, ...]]:
    """The rows that the board gets."""
    source = tmp_path / "in.csv"
    source.write_text(text)
    made = Alphabet(alphabet)
    n = recording.pack(source, made, "accel", tmp_path / "out", once)
    head, _, body = (tmp_path / "out").read_bytes().partition(b"\n")
    assert head.decode() == "%s %s" % (alphabet, "once" if once else "again")
    found = list(struct.iter_unpack("<" + made.codes, body))
    assert len(found) == n
    return found


def test_columns_are_found_by_their_names_or_by_their_order(tmp_path: Path) -> None:
    assert packed(tmp_path, "y, note, x\n1.5, a, 3\n-2, b, -4\n") == [(3, 1.5), (-4, -2.0)]
    assert packed(tmp_path, "3,1.5\n\n-4,-2\n", once=True) == [(3, 1.5), (-4, -2.0)]
    assert packed(tmp_path, "\ufeffx,y\r\n2.6,0\r\n") == [(3, 0.0)]  # as a spreadsheet writes it
    assert packed(tmp_path, "18446744073709551615\n", "n:u64") == [(18446744073709551615,)]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "x,z\n1,2\n",
            "no column y: source accel has the fields x:i16 y:f32, and the first row names .* x, z",
        ),
        ("x,y,y\n1,2,3\n", "column y is there twice"),
        ("x,y\n", "has no rows"),
        ("", "has no rows"),
        ("1,2,3\n", r"in.csv:1 has 3 columns, and source accel has 2 fields, x:i16 y:f32: name the columns"),
        ("x,y\n1,2\n1,two\n", "in.csv:3: 'two' is not a number for column y"),
        ("x,y\n1\n", "in.csv:2: '' is not a number for column y"),
        ("x,y\n1,nan\n", "in.csv:2: 'nan' is not a number for column y"),
        ("x,y\n40000,1\n", "in.csv:2: 40000 in column x does not fit i16: give -32768 to 32767"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(tmp_path: Path, text: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        packed(tmp_path, text)


def test_bytes_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(UserError, match="is not text in UTF-8"):
        recording.pack(tmp_path / "in.csv", Alphabet("x:i16"), "accel", tmp_path / "out", False)


# ---- on the board

PLAY = """
import board_site, sys
from array import array
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch

class Board:
    def say(self, line):
        print("said", line)

class Node:
    board = Board()

wall = [5000000]
board_site.Recording._wall = lambda self: wall[0]
def play(path, rate, n):
    a = Alphabet("x:i16 y:f32")
    r = board_site.Recording({"path": path, "source": "accel"}, a, rate, n)
    r.node = Node()
    b = Batch(a, 8)
    def at(us):
        wall[0] = us
        t = r.take(b, us)
        if t is None:
            print(us, None)
        else:
            print(us, t, list(b.cols[0][:b.n]), b.dt, r.lost)
    return at

at = play("again", 1000000, 2)
for us in (5000000, 5002000, 5004000, 5006000):
    at(us)
at = play("again", 1000000, 2)  # a later boot goes on where the clock is
at(5008500)
wall[0] = 9000000
at = play("once", 1000000, 2)
for us in (9002000, 9003500, 9004000, 9009000):
    at(us)
wall[0] = 20000000
import os
os.unlink("again" + ".began")
at = play("again", 0, 1)  # of a source without a rate
for us in (20500000, 21000000, 22000000):
    at(us)
for text, rate in (("mV:i16 rh:u8", 100000), ("pressed:u8", 0)):
    a = Alphabet(text)
    s = board_site.synthetic({"t0_us": 20000000}, a, rate, 4)
    s._wall = lambda: wall[0]
    s.i = 0
    b = Batch(a, 8)
    wall[0] = 22040000
    s.take(b, 0)
    print(text, b.n, b.dt, all(0 <= x <= 90 for x in b.cols[-1][:b.n]))
"""


def test_a_recording_is_played_at_its_rate_from_its_first_row(tmp_path: Path) -> None:
    """On MicroPython: in a row, again after the last one, or once with the rest as a short batch."""
    for how in ("again", "once"):
        (tmp_path / "in.csv").write_text("x,y\n0,0\n1,1\n2,2\n")
        recording.pack(tmp_path / "in.csv", Alphabet("x:i16 y:f32"), "accel", tmp_path / how, how == "once")
    script = PLAY.replace('"again"', repr(str(tmp_path / "again"))).replace(
        '"once"', repr(str(tmp_path / "once"))
    )
    files = [HERE / name for name in ("board_site.py", "board_node.py", "board_sensors.py")]
    done = micropython.run(script, heap="128k", files=files, tests=False)
    assert done.stdout.splitlines() == [
        "5000000 None",
        "5002000 5000000 [0, 1] 1000 False",
        "5004000 5002000 [2, 0] 1000 False",
        "5006000 5004000 [1, 2] 1000 False",
        "5008500 None",
        "9002000 9000000 [0, 1] 1000 False",
        "9003500 9002000 [2] 1000 False",
        "said accel: the recording has ended",
        "9004000 None",
        "9009000 None",
        "20500000 None",
        "21000000 20000000 [0] -1 False",
        "22000000 21000000 [1] -1 False",
        "mV:i16 rh:u8 4 10000 True",
        "pressed:u8 3 -1 True",
    ], done.stdout + done.stderr


SHAPES = """
import board_site
for name in %r:
    kind = board_site.kind_of(name)
    rate, count = (360000, 1500) if name == "mV" else (10000, 1200)
    for code in "hB":
        values = [board_site.within(board_site.value(kind, i, 0, rate), code) for i in range(count)]
        print(name, code, min(values), max(values), len(set(values)))
"""


def test_a_synthetic_sensor_has_the_shape_of_its_field() -> None:
    names = ("mV", "centi_c", "air_centi_c", "c", "rh", "open", "nothing_known")
    files = [HERE / name for name in ("board_site.py", "board_node.py", "board_sensors.py")]
    done = micropython.run(SHAPES % (names,), heap="256k", files=files, tests=False)
    found = {}
    for line in done.stdout.splitlines():
        name, code, *numbers = line.split()
        found[name, code] = tuple(map(int, numbers))
    assert not done.stderr and len(found) == 2 * len(names)
    low, high, _ = found["mV", "h"]
    assert low < -150 and 900 < high < 1200
    low, high, count = found["centi_c", "h"]
    assert 1500 < low < 1700 and 2300 < high < 2500 and count > 200
    assert found["air_centi_c", "h"] == found["centi_c", "h"]
    assert found["centi_c", "B"] == (255, 255, 1)  # within the limits of the type
    assert 14 <= found["c", "h"][0] < 20 < found["c", "h"][1] <= 26
    assert 20 <= found["rh", "B"][0] and found["rh", "B"][1] <= 90
    assert found["open", "B"] == (0, 1, 2)
    assert 0 <= found["nothing_known", "B"][0] and found["nothing_known", "B"][1] <= 100


# ---- words of the command


def test_the_words_of_board_run() -> None:
    assert site_board.parsed(["ecg=a.csv", "accel=x=y.csv"]) == {
        "ecg": Path("a.csv"),
        "accel": Path("x=y.csv"),
    }
    for words in (["ecg"], ["=a"], ["ecg="], ["ecg=a", "ecg=b"]):
        with pytest.raises(UserError, match="--sensor"):
            site_board.parsed(words)
    assert [site_board.seconds(text) for text in ("90", "60s", "2m", "1.5h")] == [90, 60, 120, 5400]
    for text in ("", "s", "-5s", "soon", "0"):
        with pytest.raises(UserError, match="give a time like 60s"):
            site_board.seconds(text)
    falling = [site_board.voltage(s, 10) for s in range(12)]
    assert falling == sorted(falling, reverse=True) and falling[0] > 4000 and falling[-1] <= 3000


def test_a_folder_that_is_no_site_is_one_sentence(tmp_path: Path) -> None:
    environment.ensure("gateway")
    from headwater_tools.site import make
    from headwater_tools.site.place import Place, holder

    with pytest.raises(UserError, match="no/where does not exist: name the folder of a site; `hw new"):
        Place(tmp_path / "no/where")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty is not a site, since it has no gateway.toml"):
        Place(tmp_path / "empty")
    with pytest.raises(UserError, match="empty exists already, and nothing was changed"):
        make.make(tmp_path / "empty")
    assert make.make(tmp_path / "home") == ["vent", "door"]
    place = Place(tmp_path / "home" / "gateway.toml")
    assert place.boards() == ["door", "vent"] and place.lake.endswith("home/lake")
    with pytest.raises(
        UserError, match="board chest is not registered in .*home, which has door, vent: `hw prov"
    ):
        place.known("chest")
    with pytest.raises(UserError, match="the gateway of .*home does not run: start it with `hw gateway run"):
        place.ask("/state")
    with pytest.raises(UserError, match=r"no broker listens on 127.0.0.1:\d+: start that of the site with"):
        site_board.must_answer(place, "vent")
    assert site_board.sources(place, "vent") == {"air": "centi_c:i16"}
    lock = tmp_path / "home" / "lock"
    with place.held(lock, "%d has it"):
        assert holder(lock)
        with pytest.raises(UserError, match=r"\d+ has it"), place.held(lock, "%d has it"):
            pass
    assert not holder(lock)
    other = make.make(tmp_path / "other")
    ports = {Place(tmp_path / name).config.mqtt.port for name in ("home", "other")}
    assert len(ports) == 2 and other


def test_a_board_that_is_real_does_not_run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.ensure("gateway")
    from headwater_tools.site import make
    from headwater_tools.site.place import Place
    from headwater_tools.site.up import Up

    make.make(tmp_path / "home")
    place = Place(tmp_path / "home")
    seen = {"vent": 0, "door": 0}
    monkeypatch.setattr(
        place, "ask", lambda what: {"boards": {name: {"seen_us": at} for name, at in seen.items()}}
    )
    said: list[str] = []

    def chosen() -> list[str]:
        up = Up(place, None, False, said.append)
        with up.held:
            return up._chosen()

    assert chosen() == ["door", "vent"] and not said
    seen["vent"] = 5  # the gateway has heard of it, and it never ran here
    assert chosen() == ["door"] and "vent      left out, since a real board of this name" in said[-1]
    (place.virtual("vent") / "flash.bin").write_bytes(b"")
    assert chosen() == ["door", "vent"]
    with place.held(place.virtual("door") / "lock", "%d"):
        assert chosen() == ["vent"] and "door      left out: it runs already, as process" in said[-1]


def test_a_virtual_board_reaches_the_broker_of_its_site_by_loopback(tmp_path: Path) -> None:
    environment.ensure("gateway")
    from headwater_tools.site import make
    from headwater_tools.site.place import Place

    make.make(tmp_path / "home", "192.0.2.7", 18883)
    place = Place(tmp_path / "home")
    config = json.loads((place.known("vent") / "config.json").read_text())
    assert config["broker"]["host"] == "192.0.2.7"
    # Its broker is not there: what the configuration says is what counts.
    assert site_board.broker(place, config["broker"])["host"] == "192.0.2.7"
    local = site_board.broker(place, {**config["broker"], "host": "localhost"})
    assert (local["host"], local["name"]) == ("127.0.0.1", "localhost")


def test_boards_are_shown_as_a_table() -> None:
    assert listing.table([("a", "bb"), ("ccc", "")]) == ["a    bb", "ccc"]
    assert [listing.ago(s) for s in (0.2, 5, 119, 120, 7200, 200_000)] == [
        "now", "5 s ago", "119 s ago", "2 min ago", "2 h ago", "2 d ago",
    ]  # fmt: skip
    assert listing.about("Board vent has crashed", "vent") and listing.about("Over: Board vent: low", "vent")
    assert not listing.about("Board vent2 has crashed", "vent") and not listing.about("vent", "vent")


# ---- supervision


class Part:
    slow_s = 5.0

    def __init__(self, name: str, log: list[str], needs: tuple[str, ...] = ()) -> None:
        self.name, self.needs, self.log = name, needs, log
        self.runs = self.is_up = False

    def start(self) -> None:
        self.runs = True
        self.log.append("start " + self.name)

    def running(self) -> bool:
        return self.runs

    def up(self) -> str:
        return "ready" if self.is_up else ""

    def stop(self) -> None:
        self.runs = False
        self.log.append("stop " + self.name)

    def tail(self) -> list[str]:
        return ["line %d" % i for i in range(20)]

    def place(self) -> str:
        return "logs/%s.log" % self.name


class Site:
    """Two parts, of which the second needs the first, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.supervisor = Supervisor(lambda part, text: self.log.append(part + ": " + text), lambda: self.now)
        self.broker, self.gateway = Part("broker", self.log), Part("gateway", self.log, ("broker",))
        self.supervisor.add(self.gateway)
        self.supervisor.add(self.broker)

    def tick(self, seconds: float = 0.0) -> list[str]:
        """What happens `seconds` later."""
        self.now += seconds
        before = len(self.log)
        self.supervisor.tick()
        return self.log[before:]

    def up(self) -> None:
        self.tick()
        self.broker.is_up = True
        self.tick()
        self.gateway.is_up = True
        self.tick()
        self.tick()
        assert self.supervisor.all_up()


def test_a_part_starts_when_what_it_needs_is_up() -> None:
    site = Site()
    assert site.tick() == ["start broker"]
    assert site.tick(1) == []
    assert site.tick(5) == ["broker: not up after 5 s: see logs/broker.log"]
    assert site.tick(5) == []
    site.broker.is_up = True
    assert site.tick() == ["broker: ready"]
    assert site.tick() == ["start gateway"]
    assert not site.supervisor.is_up("gateway")


def test_a_part_that_ends_before_it_was_up_ends_everything() -> None:
    site = Site()
    site.tick()
    site.broker.runs = False
    with pytest.raises(Failed, match=r"broker ended before it was up \(logs/broker.log\):\n    line 12\n"):
        site.tick()


def test_a_part_that_ends_later_is_started_again_after_longer_and_longer_pauses() -> None:
    site = Site()
    site.up()
    for pause_s in (1, 2, 4, 8):
        site.gateway.runs = False
        (told,) = site.tick(1)
        assert told.startswith(
            "gateway: ended; it starts again in %d s (logs/gateway.log):\n    line 12" % pause_s
        )
        assert told.endswith("line 19")
        assert site.tick(pause_s - 0.5) == []
        assert site.tick(0.5) == ["start gateway"]
        assert site.tick() == ["gateway: up again: ready"]
        assert site.broker.runs
    site.gateway.runs = False
    with pytest.raises(Failed, match="gateway ended 5 times, each within a minute of its start"):
        site.tick(1)


def test_a_part_that_was_up_for_long_has_no_history() -> None:
    site = Site()
    site.up()
    for _ in range(12):
        site.gateway.runs = False
        assert "starts again in 1 s" in site.tick(61)[0]
        assert site.tick(1) == ["start gateway"]
        site.tick()
    assert PAUSE_MAX_S == 30


def test_parts_are_stopped_in_the_order_that_is_given() -> None:
    site = Site()
    site.up()
    site.log.clear()
    site.supervisor.stop(["gateway", "sink"])
    assert site.log == ["stop gateway", "stop broker"]
    site.supervisor.stop(["gateway"])
    assert site.log == ["stop gateway", "stop broker"]
