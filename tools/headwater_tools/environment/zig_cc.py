"""zig as a C compiler for 32-bit x86: run by path, with zig's own path and the arguments of a compiler.

    python zig_cc.py ZIG ARGUMENTS...

zig preprocesses one named file at a time and no standard input; MicroPython's build asks for both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

TARGET = ("-target", "x86-linux-gnu.2.41", "-mcpu=i686")


def preprocess(command: list[str], arguments: list[str]) -> int:
    flags = [word for word in arguments if word != "-" and not word.endswith(".c")]
    files = [word for word in arguments if word.endswith(".c")]
    with tempfile.TemporaryDirectory() as folder:
        if "-" in arguments:
            files.append(os.path.join(folder, "stdin.c"))
            with open(files[-1], "wb") as out:
                out.write(sys.stdin.buffer.read())
        for file in files:
            code = subprocess.call([*command, *flags, file])
            if code:
                return code
    return 0


def main(zig: str, *arguments: str) -> int:
    command = [zig, "cc", *TARGET]
    if "-E" in arguments:
        return preprocess(command, list(arguments))
    return subprocess.call([*command, *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
