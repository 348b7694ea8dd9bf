"""The linked image: what a board runs, and the promises of its parts hold in it as well."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headwater.operators import fir
from headwater_tools import environment
from headwater_tools.boards import micropython
from headwater_tools.errors import UserError
from headwater_tools.image import builder, linker, names, plain, sources, unused
from headwater_tools.image.names import Names, _made, bound, spoken

BOARD_TESTS = environment.ROOT / "tests" / "board"
# Each file's promises, all in one process. The others look at names that the linked image has not.
FILES = (
    "block",
    "clock",
    "expr",
    "log",
    "operator_vectors",
    "operators",
    "msgpack",
    "plan",
    "sessions",
    "frames",
)


@functools.cache
def modules() -> dict[str, str]:
    """The modules of a board, whole."""
    texts = sources.texts()
    return {name: plain.plain(texts[name], name, asserts=True) for name in sources.of_board(texts)}


def linked(**texts: str) -> linker.Linked:
    """The core with these texts in place of some modules, or beside them."""
    with_them = {**modules(), **texts}
    core = sources.core(with_them)
    return linker.Linked({name: with_them[name] for name in {*core, *texts}}, core)


@functools.cache
def whole() -> linker.Linked:
    """A board's modules, with asserts and the functions that only others need."""
    return linker.Linked(modules(), sources.core(modules()))


@pytest.fixture(scope="module")
def image() -> Path:
    """A board's image with what tests need beside it."""
    texts = sources.texts()
    tests = {
        "headwater/%s.py" % name: whole().satellite(plain.plain(texts[name], name, asserts=True), name)
        for name in sources.of_tests(texts) - set(modules())
    }
    files = {"headwater/%s.py" % name: text for name, text in whole().files().items()}
    return builder.build({**files, **tests})


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_promises_of_the_parts_hold_in_the_linked_image(image: Path, name: str) -> None:
    path = BOARD_TESTS / ("test_%s.py" % name)
    names = [n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
    entries = [n for n in names if n.startswith("test_")]
    script = "import gc, promises\n" + "".join("promises.%s()\ngc.collect()\n" % n for n in entries)
    promises = whole().satellite(path.read_text())
    extra = builder.build({"script.py": script, "promises.py": promises})
    done = micropython.start((image, extra), "script", heap="512k")
    assert done.returncode == 0, whole().told(done.stdout + done.stderr)


def test_functions_that_boards_do_not_need_are_left_out() -> None:
    """The gateway calls them, and nothing of a board says their names."""
    for module, name in (("sessions", "use_plan"), ("sessions", "pair_key"), ("clock", "allow")):
        assert re.search(r"^ *def %s\(" % name, modules()[module], re.M), (module, name)
        assert "def %s(" % name in whole().text
        assert "def %s(" % name not in builder.linked().text
    image = builder.linked()
    said = set().union(*(unused.said(ast.parse(text)) for text in image.sources.values()))
    gone = {
        node.name
        for name, text in modules().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, unused.Function) and "def %s(" % node.name not in image.sources[name]
    }
    assert gone and not gone & said


def test_a_function_that_only_unused_functions_call_is_left_out_too() -> None:
    texts = {
        "one": "def a():\n    b()\n\n\ndef b():\n    pass\n\n\ndef kept():\n    x.readinto\n",
        "two": "from .one import kept\n\n\nclass Two:\n    def readinto(self):\n        return 'spoken of'\n",
        "three": "def spoken():\n    return Two\n",
    }
    assert unused.unused(texts, ()) == {"one": {"a", "b"}}
    assert unused.unused(texts, ["from headwater import one\n\none.a()\n"]) == {}
    assert unused.without(texts["one"], ["a", "b"]).count("\n") == texts["one"].count("\n")


def test_a_board_has_no_assertions_and_every_line_where_it_was() -> None:
    text = "def f(n):\n    assert (\n        n > 0\n    ), 'so'\n    return n\n"
    assert plain.plain(text, "f") == "def f(n):\n    pass\n\n\n    return n\n"
    assert any("assert " in text for text in sources.texts().values())
    found = [name for name, text in builder.package_files().items() if re.search(r"^ *assert ", text, re.M)]
    assert not found


def test_every_line_of_the_core_is_told_back() -> None:
    core = linked()
    lines = core.text.split("\n")
    for name in ("host", "log", "frames"):
        text = (sources.EDGE / (sources.place(name) + ".py")).read_text().split("\n")
        at = text.index(next(line for line in text if line.startswith("class ")))
        here = lines.index(text[at])
        assert core.origin(here + 1) == (name, at + 1)
        said = 'File "headwater.core", line %d, in run' % (here + 1)
        assert core.told(said) == 'File "headwater/%s.py", line %d, in run' % (sources.place(name), at + 1)


def test_a_name_that_two_parts_have_stays_two_names() -> None:
    core = linked(unload="def unload(*names):\n    return further(1)\n\n\ndef further(a):\n    return a\n")
    assert "def unload_further(a):" in core.text and "return unload_further(1)" in core.text
    assert "def position_further(a, b):" in core.text


def test_what_something_local_would_hide_gets_another_name() -> None:
    text = "from . import position\n\n\ndef unload(*names):\n    rank = position.rank([])\n    return rank\n"
    core = linked(unload=text)
    assert "rank = position_rank([])\n    return rank" in core.text


def test_constants_are_their_values_where_nothing_local_has_their_name() -> None:
    text = "from .position import rank\n\nFAR = 7\n\n\ndef unload(FAR=FAR):\n    return FAR, rank\n"
    core = linked(unload=text)
    assert "def unload(FAR=7):\n    return FAR, rank" in core.text


def test_modules_outside_take_from_the_core() -> None:
    text = "from headwater.plan.model import OUTSIDE, loads\nfrom headwater.storage.log import Log\n\n"
    text += "x = loads, OUTSIDE, Log\n"
    given = builder.linked().names.globals
    space = builder.linked().satellite(text)
    assert "from headwater.core import %s as loads\n" % given["model_loads"] in space
    assert "from headwater.core import %s as Log\n" % given["Log"] in space
    assert "x = loads, -1, Log" in space


NAMED = """
FAR = 7
MANY = ("inside",)


class Near:
    STATE = "packed:i16"

    def __init__(self, size_us, other_us):
        self.kept_us = self.packed = size_us
        self.inside = [other_us for other_us in range(FAR)]

    def doubled_us(self, *more_us):
        return [k + self.kept_us + len(more_us) for k in self.inside]


def near_us(size_us, scale_us=2):
    return Near(size_us, scale_us).doubled_us(size_us)


class NearError(ValueError):
    pass
"""


def test_a_name_is_a_word_of_the_interpreter_unless_somebody_else_knows_it() -> None:
    operator = modules()["operator"]
    short = Names({"operator": operator, "operators/near": NAMED}, (), spoken(operator))
    text = short.inside(NAMED, "operators/near")
    for gone in ("kept_us", "doubled_us", "more_us", "near_us", "size_us", "FAR", "Near:", "Near("):
        assert gone not in text, gone
    for stays in ("self.packed", "self.inside", "class NearError(ValueError)", "STATE = ", "__init__"):
        assert stays in text, stays
    told: dict[str, Any] = {}
    exec(text, told)
    assert told[short.globals["near_us"]](3) == [4, 5, 6, 7, 8, 9, 10]


def test_no_class_has_two_attributes_of_one_name_and_no_module_two_globals() -> None:
    image = builder.linked()
    short = image.names
    assert len(short.attributes) > len(set(short.attributes.values())) > 100
    assert not {"timer", "outs", "at_mem", "run"} & set(short.attributes)
    for text in image.long.values():
        tree = ast.parse(text)
        scopes = [({n for n in bound(tree) if n in short.globals}, short.globals)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                scopes.append((_made(node) & set(short.attributes), short.attributes))
        for had, called in scopes:
            assert len({called[n] for n in had}) == len(had), had


SHARED = """
class First:
    def __init__(self):
        self.alpha_us = 1

class Second(First):
    def beta_us(self):
        return self.alpha_us

class Third:
    def gamma_us(self, outer):
        return outer.delta_us
"""


def test_attributes_share_a_word_only_where_no_class_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROM", frozenset({"AF_UNIX", "ARRAY", "AUTO"}))
    short = Names({"operator": "", "batch": "", "alphabet": "", "near": SHARED}, (), set())
    given = short.attributes
    assert given["alpha_us"] != given["beta_us"] and given["gamma_us"] in (
        given["alpha_us"],
        given["beta_us"],
    )
    assert given["delta_us"] not in {given[n] for n in ("alpha_us", "beta_us", "gamma_us")}
    assert short.told("no attribute '%s'" % given["gamma_us"]).endswith("us or gamma_us'")
    with pytest.raises(UserError, match="one name for '.*' and '.*'; call one something else"):
        short.outside("class Mine:\n    def alpha_us(self):\n        self.beta_us = self.gamma_us = 1\n")


def test_what_a_module_outside_calls_like_a_short_name_is_refused() -> None:
    taken = builder.linked().names.attributes["sealed"]
    with pytest.raises(UserError, match="class Mine: call %s something else" % taken):
        builder.linked().satellite("class Mine:\n    def %s(self):\n        pass\n" % taken)


def test_a_script_and_its_files_are_linked_against_the_image_of_a_board(tmp_path: Path) -> None:
    beside = tmp_path / "beside.py"
    beside.write_text(
        "from headwater.protocol import frames\n\n\ndef made():\n    return frames.Writer(64)\n"
    )
    script = "from beside import made\nw = made()\nw.begin(1, 2, 3, bytes(8), 0, 0)\nprint(w.pos > 0)\n"
    assert "Writer" in builder.linked().names.globals  # else this would show nothing
    done = micropython.run(script, files=[beside], tests=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_an_argument_that_has_another_name_in_the_image_is_not_given_by_keyword() -> None:
    for text in (
        "from headwater.protocol.sessions import Peer\nPeer(my_boot=1)\n",
        "from headwater.protocol.sessions import Peer as P\nP(my_boot=1)\n",
        "from headwater.protocol import sessions\nsessions.Peer(my_boot=1)\n",
    ):
        with pytest.raises(UserError, match="line 2: .* argument 'my_boot' of Peer; give it by its place"):
            builder.linked().satellite(text)
    builder.linked().satellite("def mine(my_boot=1):\n    pass\n\n\nmine(my_boot=3)\n")


def test_an_attribute_that_has_another_name_in_the_image_is_not_named_by_a_text() -> None:
    with pytest.raises(UserError, match="line 1: .* another name for 'sealed'"):
        builder.linked().satellite("found = getattr(0, 'sealed')\n")
    builder.linked().satellite("found = hasattr(0, 'readinto')\n")


def test_the_interpreter_has_every_short_name_already() -> None:
    """Looking each of them up makes no new name."""
    short = builder.linked().names
    words = sorted({*short.attributes.values(), *short.globals.values()})
    script = "import micropython\nwords = b'%s'.split()\n" % " ".join(words)
    script += "for _ in range(2):\n micropython.qstr_info()\n"
    script += " for w in words:\n  hasattr(0, str(w, 'ascii'))\nmicropython.qstr_info()\n"
    done = micropython.run(script)
    counts = re.findall(r"n_qstr=(\d+)", done.stdout)
    assert len(counts) == 3 and len(set(counts)) == 1, done.stdout + done.stderr


def test_the_longest_delay_line_of_a_filter_has_names_of_the_interpreter() -> None:
    words = fir._LOCALS.split(" ")
    text = fir.source([1, -1], 6, -128, 127, -128, 127, native=True)
    assert len(words) == len(set(words)) >= 63
    assert set(words) <= names.ROM
    assert set(words[1:]).isdisjoint(names.WORD.findall(text))


def test_a_traceback_is_told_with_the_names_of_the_sources() -> None:
    script = "import sys\nfrom headwater.data.msgpack import loads\nfrom headwater.runtime.host import Host\n"
    script += "for f in (lambda: loads(None), lambda: Host(None, 1, 2, 3, 4, 5, 6)):\n"
    script += " try:\n  f()\n except Exception as e:\n  sys.print_exception(e, sys.stdout)\n"
    done = micropython.run(script, tests=False)
    told = done.stdout
    assert "'NoneType' object has no attribute 'vertices'" in told, told + done.stderr
    for name, function in (("msgpack", "loads"), ("host", "__init__")):
        lines = (sources.EDGE / (sources.place(name) + ".py")).read_text().split("\n")
        pattern = r'File "headwater/%s.py", line (\d+), in %s\n' % (sources.place(name), function)
        found = re.search(pattern, told)
        assert found, told
        assert lines[int(found[1]) - 1].strip(), told


def test_the_core_is_python_that_runs_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "headwater"
    for inside, text in builder.package_files().items():
        path = tmp_path / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(text, str)
        path.write_text(text)
    assert (folder / "core.py").exists()
    names = ", ".join(sorted(builder.linked().parts))
    check = "import builtins; builtins.const = int  # MicroPython's compiler knows it\n"
    check += (
        "from headwater import %s, startup, decisions, checkpoint_transfer, relocation, receiver, lake_sink"
        % names
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_error_says_the_same_in_the_core_as_in_its_part() -> None:
    from headwater.data import msgpack

    space = builder.linked().text
    with pytest.raises(msgpack.PackError) as error:
        msgpack.dumps(1 << 70)
    names: dict[str, object] = {}
    exec(compile(space, "core", "exec"), names)
    with pytest.raises(names["PackError"]) as same:  # type: ignore[call-overload]
        names["dumps"](1 << 70)  # type: ignore[operator]
    assert str(same.value) == str(error.value) == "%d takes more than 8 bytes" % (1 << 70)


# How many entries MicroPython gives a table that has become too small.
TABLES = (17, 23, 29, 37, 47, 59, 73, 97, 127, 167, 223, 293, 389, 521)


def test_the_table_of_the_core_is_not_full() -> None:
    """In a full table the interpreter looks at every entry before it looks further for `len`."""
    done = micropython.run("import headwater.core as c\nprint(len(c.__dict__))\n", tests=False)
    count = int(done.stdout)
    size = next(n for n in TABLES if n >= count)
    assert count <= size * 0.95, (count, size, done.stderr)
