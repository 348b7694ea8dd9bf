"""The image builder: one package for every board, whole in every kind of image; what virtual boards run."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headwater_tools import environment
from headwater_tools.boards import micropython, virtual
from headwater_tools.commands import image as command
from headwater_tools.errors import Failed, UserError
from headwater_tools.image import builder, linker, names, plain, profiles, sources, verify

BOARDS = profiles.names()
WALK = """
import hashlib, os
from binascii import hexlify

def walk(path):
    for name in sorted(os.listdir(path)):
        here = path + "/" + name
        if os.stat(here)[0] & 0x4000:
            walk(here)
        else:
            with open(here, "rb") as f:
                print(here[len("/rom0/"):], str(hexlify(hashlib.sha256(f.read()).digest()), "ascii"))

walk("/rom0")
"""


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {inside: hashlib.sha256(data).hexdigest() for inside, data in files.items()}


def in_folder(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_there_is_a_profile_of_each_chip_and_of_virtual_boards() -> None:
    assert BOARDS == ["esp32", "esp32c3", "esp32s3", "virtual"]
    assert {profiles.profile(name).arch for name in BOARDS} == set(profiles.ARCHITECTURES)
    assert micropython.HEAP == "%dk" % profiles.profile(builder.VIRTUAL).heap_kib


@pytest.mark.parametrize("name", BOARDS)
def test_a_romfs_image_mounts_on_micropython_and_holds_every_file(name: str) -> None:
    board = profiles.profile(name)
    made = builder.romfs_image(board)
    assert made.stat().st_size <= board.partitions["romfs"]
    done = micropython.start((made, builder.build({"script.py": WALK})), "script", heap="512k")
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == digests(builder.contents(board))


@pytest.mark.parametrize("name", BOARDS)
def test_a_littlefs_image_is_read_back_by_micropython(name: str, tmp_path: Path) -> None:
    board = profiles.profile(name)
    image = tmp_path / "image"
    image.write_bytes(builder.littlefs_image(board).read_bytes())
    assert image.stat().st_size <= board.partitions["vfs"]
    out = tmp_path / "out"
    out.mkdir()
    done = builder.run_littlefs("read", str(image), str(board.partitions["vfs"] // profiles.BLOCK), str(out))
    assert done.returncode == 0, done.stderr
    assert in_folder(out) == builder.file_system(board)
    assert set(board.start) <= set(in_folder(out))


def test_the_same_sources_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = profiles.profile("esp32")
    before = [builder.romfs_image(board), builder.littlefs_image(board)]
    monkeypatch.setattr(environment, "CACHE", tmp_path)
    after = [builder.romfs_image(board), builder.littlefs_image(board)]
    assert [path.read_bytes() for path in after] == [path.read_bytes() for path in before]
    assert not set(after) & set(before)


def test_every_board_has_the_same_package() -> None:
    def package(name: str) -> dict[str, bytes]:
        found = builder.contents(profiles.profile(name))
        return {inside: data for inside, data in found.items() if inside.startswith("headwater/")}

    assert "headwater/core.mpy" in package("virtual")
    for name in BOARDS:
        assert package(name) == package("virtual")
    assert {"board.mpy", "drivers.mpy"} == set(builder.contents(profiles.profile("esp32"))) - set(
        package("virtual")
    )


def test_a_virtual_board_runs_the_image_of_the_command(tmp_path: Path) -> None:
    out = tmp_path / "image"
    args = command_arguments("virtual", "--out", str(out))
    code, answer = command.run(args)
    assert code == 0 and answer["file"] == str(out)
    package, programs = virtual._images(("board_node",))
    assert package.read_bytes() == out.read_bytes()
    assert package.read_bytes() != programs.read_bytes()


def command_arguments(*words: str) -> Any:
    import argparse

    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return parser.parse_args(words)


def test_the_report_names_every_module_and_the_heap_of_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = command.run(command_arguments("esp32", "--kind", "littlefs"))
    assert code == 0
    assert answer["bytes"] == sum(answer["modules"].values()) > 100_000
    assert {"headwater/core", "headwater/operators/qrs", "board"} <= set(answer["modules"])
    romfs, littlefs = answer["kinds"]
    assert (romfs["kind"], littlefs["kind"]) == builder.KINDS
    # Modules of littlefs are copied into the heap.
    assert romfs["heap_bytes"] + 50_000 < littlefs["heap_bytes"]
    assert "headwater/core" in capsys.readouterr().out


def test_the_folder_has_all_files_and_its_package_names_every_module(tmp_path: Path) -> None:
    board = profiles.profile("esp32")
    folder = tmp_path / "image"
    for _ in range(2):
        builder.write_folder(board, folder, "1.2.3")
        found = in_folder(folder)
        package = json.loads(found.pop("package.json"))
        assert found == builder.files(board)
    assert package["version"] == "1.2.3"
    assert {target: source for target, source in package["urls"]} == {
        name.removeprefix("lib/"): name for name in builder.files(board) if name.startswith("lib/")
    }
    (tmp_path / "mine").write_text("")
    with pytest.raises(UserError, match="has other files"):
        builder.write_folder(board, tmp_path, "1.2.3")


def test_the_manifest_freezes_what_the_folder_holds() -> None:
    frozen: list[str] = []
    space = {"freeze_mpy": frozen.append, "metadata": lambda **words: None}
    exec((environment.ROOT / "firmware" / "manifest.py").read_text(), space)
    assert frozen == ["image/lib"]


def test_an_image_that_does_not_fit_its_partition_is_refused() -> None:
    import dataclasses

    board = profiles.profile("esp32")
    small = dataclasses.replace(board, partitions={**board.partitions, "romfs": 8192, "vfs": 16 * 4096})
    with pytest.raises(UserError, match="has [0-9]+ bytes, and its partition romfs 8192"):
        builder.romfs_image(small)
    with pytest.raises(UserError, match="its partition vfs 65536"):
        builder.littlefs_image(small)


def test_a_profile_that_is_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no board 'esp8266': firmware/profiles has esp32, "):
        profiles.profile("esp8266")
    folder = tmp_path / "mine"
    folder.mkdir()
    text = (profiles.FOLDER / "esp32" / "profile.toml").read_text()
    table = (profiles.FOLDER / "esp32" / "partitions.csv").read_text()
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    for profile, partitions, said in (
        (text.replace("chip", "chap"), table, "has no 'chip'"),
        (text + "more = 1\n", table, "unknown key 'more'"),
        (text.replace("xtensawin", "xtensa9"), table, "arch 'xtensa9', use one of x86"),
        (text.replace("4096", "2048"), table, "partition romfs overlaps"),
        (text, table.replace("0x280000", "0x270000"), "partition log overlaps"),
    ):
        (folder / "profile.toml").write_text(profile)
        (folder / "partitions.csv").write_text(partitions)
        with pytest.raises(UserError, match=said):
            profiles.profile("mine")


# ---- what is stripped

TYPED = """
from .compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = const(3)


class Box:
    inside: int
    other: str = "a"

    def __init__(self, first: int, *more: int, **words: "Callable[[int], int]") -> None:
        self.found: list[int] = [first, *more]
        assert self.found, "a box that holds nothing"

    def sum(
        self,
        start: int = 0,
    ) -> int:
        total: int
        total = start
        for each in self.found:
            assert each > 0
            total += each
        return total
"""


def test_types_and_asserts_are_gone_and_no_line_has_moved() -> None:
    out = plain.plain(TYPED, "box")
    for word in ("assert", "compat", "int", "->", "holds nothing", "Callable", "TYPE_CHECKING"):
        assert word not in out, out
    assert out.count("\n") == TYPED.count("\n")
    assert out.split("\n").index("class Box:") == TYPED.split("\n").index("class Box:")
    space: dict[str, Any] = {"const": int}
    exec(out, space)
    assert space["Box"](1, 2, 3).sum() == 6 and space["SIZE"] == 3 and space["Box"](-1).sum() == -1
    assert plain.plain(TYPED, "box", asserts=True).count("assert ") == 2


def test_what_micropython_has_not_is_refused() -> None:
    with pytest.raises(UserError, match="box.py, line 1: a board has no module typing"):
        plain.plain("from typing import Protocol\n\n\nclass A(Protocol):\n    pass\n", "box")
    with pytest.raises(UserError, match="line 1: `if TYPE_CHECKING` has an else"):
        plain.plain("if TYPE_CHECKING:\n    pass\nelse:\n    x = 1\n", "box")


def test_no_assert_of_the_core_is_in_an_image() -> None:
    said = {
        node.msg.value
        for name in builder.linked().parts
        for node in ast.walk(ast.parse(sources.texts()[name]))
        if isinstance(node, ast.Assert) and isinstance(node.msg, ast.Constant)
    }
    assert said  # else this would show nothing
    for inside, text in builder.package_files().items():
        assert not [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assert)], inside
    core = builder.contents(profiles.profile("esp32"))["headwater/core.mpy"]
    assert not [text for text in said if str(text).encode() in core]
    whole = builder.build(builder.test_files()).read_bytes()
    assert all(str(text).encode() in whole for text in said)


# ---- which modules


def changed(**texts: str) -> dict[str, str]:
    """The package with these texts in front of modules, or as new ones."""
    known = sources.texts()
    return {**known, **{name: text + known.get(name, "") for name, text in texts.items()}}


def test_a_module_that_the_host_imports_at_its_top_is_in_the_core() -> None:
    before = sources.core(sources.texts())
    assert {"host", "log", "frames"} <= before and not {"program", "mqtt", "startup", "compat"} & before
    assert sources.core(changed(ring="from .fresh import x\n", fresh="x = 1\n")) == before | {"fresh"}
    assert sources.core(changed(startup="from .fresh import x\n", fresh="x = 1\n")) == before | {"fresh"}
    gone = {"startup": "from .fresh import x\n\nunload('fresh')\n", "fresh": "x = 1\n"}
    assert sources.core(changed(**gone)) == before


def test_a_core_without_its_host_or_with_nothing_on_demand_is_refused() -> None:
    known = sources.texts()
    for modules in (
        {name: text for name, text in known.items() if name != "host"},
        {name: text.replace("unload(", "other(") for name, text in known.items()},
    ):
        with pytest.raises(UserError, match="or nothing calls unload: change the names in sources.py"):
            sources.core(modules)


def test_a_module_that_a_board_needs_is_in_its_image_and_no_other_one() -> None:
    known = sources.of_board(sources.texts())
    assert {"program", "settings", "operators/qrs", "decisions"} <= known
    assert not {"process", "check", "sizing", "cut_flash", "reasons", "compat"} & known
    text = "def f():\n    from . import fresh\n"
    assert sources.of_board(changed(restore=text, fresh="x = 1\n")) == known | {"fresh"}
    assert sources.of_board(changed(fresh="x = 1\n")) == known
    with pytest.raises(UserError, match="process needs CPython, and a board imports it: from .*restore"):
        sources.of_board(changed(restore="from . import process\n"))


FOLDERS = {
    "inner/extra": "from . import near\nfrom ..position import rank\n\n\n"
    "def thing(n):\n    from .later import much\n    return near.value_of(n), much(n), rank\n",
    "inner/near": "def value_of(n):\n    return n + 1\n",
    "unload": "from .inner.extra import thing\n\n\ndef also(n):\n    from .inner import later\n"
    "    return later.much(n)\n\n\n",
    "inner/later": "from .near import value_of\nfrom . import extra\n\n\n"
    "def much(n):\n    return value_of(n), callable(extra.thing)\n",
}


def test_modules_in_folders_are_linked_as_well(tmp_path: Path) -> None:
    texts = changed(**FOLDERS)
    modules = {name: plain.plain(texts[name], name) for name in sources.of_board(texts)}
    core = sources.core(modules)
    assert {"inner/extra", "inner/near"} <= core and "inner/later" in set(modules) - core
    made = linker.Linked(modules, core)
    for name, text in made.files().items():
        path = tmp_path / "headwater" / (name + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # A name that no word of the ROM was left for keeps its own.
    also, thing = (made.names.globals.get(name, name) for name in ("also", "thing"))
    check = "import builtins; builtins.const = int\nfrom headwater import core\n"
    check += "print(core.%s(1), core.%s(1)[:2])\n" % (also, thing)
    done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(2, True) (2, (2, True))\n", "")


def test_a_module_of_the_core_is_used_by_its_names_alone() -> None:
    texts = changed(restore="from . import position\n\n\ndef f():\n    return position\n")
    modules = {name: plain.plain(texts[name], name) for name in sources.of_board(texts)}
    with pytest.raises(UserError, match="restore.py, line 5: write position.NAME"):
        linker.Linked(modules, sources.core(modules))


def test_names_are_given_only_where_every_port_has_them() -> None:
    assert names.ROM < names.rom_names("unix") and names.ROM < names.rom_names("esp32")
    image = builder.linked().names
    given = {*image.attributes.values(), *image.globals.values(), *image.for_arguments}
    assert given <= names.ROM
    assert not {*image.attributes, *image.globals} & names.KNOWN


def test_a_board_tells_which_names_it_does_not_have_in_rom() -> None:
    asked = sorted([*verify.given_names(), "no_such_name_1", "zz_no_such_name_2"])
    done = micropython.run(verify.script(asked), heap="256k")
    assert done.returncode == 0, done.stderr
    assert verify.missing(done.stdout, asked) == ["no_such_name_1", "zz_no_such_name_2"]
    with pytest.raises(Failed, match="printed 1 counts of names, not 3"):
        verify.missing("qstr pool: n_pool=1, n_qstr=4", ["a", "b"])


def test_a_board_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="mpremote could not ask the board at .*none; it printed: mpremote: "):
        command.run(command_arguments("esp32", "--verify", str(tmp_path / "none")))


def test_what_never_enters_an_image_is_known_by_its_folder() -> None:
    known = sources.texts()
    off_board = {name for name in known if sources.place(name).partition("/")[0] in sources.OFF_BOARD}
    assert {"process", "check", "compat", "cut_flash"} <= off_board
    # What the gateway and `hw check` know of placement, and the host of a gateway; a board needs `draws` and
    # `host` alone.
    assert sources.of_board(known) == set(known) - off_board - {"placement", "gateway_host"}


def test_an_image_is_flat() -> None:
    text = "from .. import operators\nfrom ..data import batch, block as one\n"
    text += "from ..storage.log import (\n    Log,\n)\n"
    text += "from . import exchange\nunload('runtime.startup', 'plan.reader')\n"
    flat = "from . import operators\nfrom . import batch, block as one\nfrom .log import Log\n\n\n"
    flat += 'from . import exchange\nunload("startup", "reader")\n'
    assert sources.flattened(text, "runtime/host") == flat
    beside = "from headwater.storage.log import Log\nfrom headwater.operators import fir\nimport os\n"
    assert sources.flattened(beside) == beside.replace("storage.", "")
    inside = "from . import fields\nfrom ..data.batch import Batch\n"
    assert sources.flattened(inside, "operators/fir") == inside.replace("data.", "")


def test_two_modules_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("plan", "data"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "reader.py").write_text("")
    monkeypatch.setattr(sources, "EDGE", tmp_path)
    with pytest.raises(UserError, match="data/reader.py and plan/reader.py would have one name in an image"):
        sources._paths.__wrapped__()
