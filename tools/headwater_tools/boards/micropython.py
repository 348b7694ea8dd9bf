"""Board code as a board runs it: in a ROMFS image, on 32-bit MicroPython with a bounded heap.

The image is outside the heap, as in a board's flash, so heap figures are those of a board. `image.builder`
makes the images.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from .. import environment
from ..image import builder

START = Path(__file__).parent / "on_board" / "board_start.py"
HEAP = "64k"  # as firmware/profiles/virtual has it


@functools.cache
def image() -> Path:
    """The image for tests: module by module as the sources are, and with what only tests need."""
    return builder.build(builder.test_files())


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
    images = (image(), builder.build(extra)) if tests else builder.board_images(extra)
    done = start(images, "script", args, heap, timeout=timeout, options=options)
    if not tests:
        told = builder.linked().told
        done.stdout, done.stderr = told(done.stdout), told(done.stderr)
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
    names = ",".join(os.path.relpath(path, environment.ROOT) for path in images)
    command = [
        *environment.micropython(),
        "-X",
        "heapsize=" + heap,
        *options,
        str(START),
        names,
        module,
        *args,
    ]
    return subprocess.run(
        command,
        cwd=environment.ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
