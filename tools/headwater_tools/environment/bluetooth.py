"""A 32-bit MicroPython with Bluetooth, built from source: the unix port with the real NimBLE host.

Debian's MicroPython has no `bluetooth`, so a virtual board with a radio needs a binary of its own. Its parts
come from the package registries that this machine is configured for, and nothing is installed: the unix port
and the bindings of NimBLE from Debian's source package (whose folders of submodules are empty), the NimBLE
host from the Rust package index through cargo, headers and libraries from Debian's i386 packages. The
compiler is the machine's gcc where that can compile for 32 bits, otherwise zig from the Python package index.
Sources are known by their SHA-256; packages are signed or have hashes in a lock file.

The result speaks HCI over the serial line that MICROPYBTUART names; `headwater_tools.radio` puts a virtual
controller at its other end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from . import debian
from .running import run, say, variables

VERSION = "1.25.0"
SOURCE_VERSION = "1.25.0+ds-1"
SOURCE_FILES = {
    "micropython_1.25.0+ds.orig.tar.xz": "7b25be99a502f070b2de81dafc08da7051d992325d6e67daa9045a918fffdbea",
    "micropython_1.25.0+ds-1.debian.tar.xz": (
        "87cd89f7900c86b963885dabe25acf3e5348815993f1500278ad8f6464465af4"
    ),
}
CRATE, CRATE_VERSION = "apache-nimble-sys", "0.0.1"
CRATE_SHA256 = "7ad3e1d3629d4253c6ea26074b221789fd2a7b89cb3b793ab25feee100a4aaef"
# What the crate would compile itself with. Only its sources are wanted, so these are replaced by empty ones.
CRATE_NEEDS = {"bindgen": "0.53.9", "cc": "1.9.0", "cstr_core": "0.2.9", "cty": "0.2.9"}
RUNTIME = ("libc6", "libffi8", "libmbedcrypto16", "libmbedtls21", "libmbedx509-7")
HEADERS = ("libc6-dev", "libgcc-14-dev", "linux-libc-dev", "libffi-dev", "libmbedtls-dev")
LIBRARIES = "usr/lib/i386-linux-gnu"
LOADER = LIBRARIES + "/ld-linux.so.2"
BINARY = "usr/bin/micropython"
COMMAND = ("./" + LOADER, "--library-path", "./" + LIBRARIES, "./" + BINARY)
# Buffers for events of the controller that are no advertisements. NimBLE does not look whether it got one,
# and writes to address 0 where there was none: a process that stood still for a moment finds more than the 8
# that MicroPython sets. ESP-IDF has 30; 12 packets are under way at most here.
SYSCFG = "extmod/nimble/syscfg/syscfg.h"
EVENTS = "MYNEWT_VAL_BLE_HCI_EVT_HI_BUF_COUNT (%d)"
EVENTS_WERE, EVENTS_ARE = 8, 30
ZIG_CC = Path(__file__).with_name("zig_cc.py")
SETTINGS = {
    "MICROPY_PY_BLUETOOTH": "1",
    "MICROPY_BLUETOOTH_NIMBLE": "1",
    "MICROPY_PY_BTREE": "0",
    "MICROPY_PY_FFI": "1",
    "MICROPY_SSL_MBEDTLS": "1",
    # clang does not let the collector's assembler touch ebp.
    "CFLAGS_EXTRA": "-DMICROPY_GCREGS_SETJMP=1",
    # zig's linker writes no map.
    "LDFLAGS_ARCH": "-Wl,--gc-sections -s",
    "LIBFFI_CFLAGS": "",
    "LIBFFI_LDFLAGS": "-lffi",
    "CWARN": "-w",
    "STRIP": "true",
    "SIZE": "true",
}


def inputs(zig_lock: Path) -> str:
    """The hash of all that decides what is built: this recipe, with its pins, and the locked compiler."""
    digest = hashlib.sha256(debian.SUITE.encode())
    for path in (Path(__file__), ZIG_CC, zig_lock):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def build(target: Path, work: Path, mpy_cross: Path, zig: Callable[[Path], Path]) -> None:
    """Make `COMMAND` in `target`, with `work` as a folder for what is not kept. `zig` installs that compiler
    into a folder, where it is needed, and returns its path."""
    system = work / "system"
    say("fetching the sources of MicroPython and NimBLE, and 32-bit libraries (Debian %s)" % debian.SUITE)
    debian.fetch_packages(system, (*RUNTIME, *HEADERS))
    _make_whole(system)
    source = _sources(work)
    compiler = _gcc(system, work) or _zig(system, work, zig(work / "zig"))
    manifest = work / "manifest.py"
    manifest.write_text('include("$(MPY_DIR)/extmod/asyncio")\n')
    say("building MicroPython %s with NimBLE, about two minutes" % VERSION)
    settings = {
        **SETTINGS,
        "CC": compiler,
        "PYTHON": str(_link(work / "python", Path(sys.executable))),
        "MICROPY_MPYCROSS": str(_link(work / "mpy-cross", mpy_cross)),
        "FROZEN_MANIFEST": str(manifest),
    }
    run(
        [
            _tool("make", work), "-C", str(source / "ports" / "unix"), "-j%d" % (os.cpu_count() or 1),
            *("%s=%s" % item for item in settings.items()),
        ],
        "building MicroPython with NimBLE",
        "run hw again; if it fails again, hide gcc from PATH: then zig compiles",
        # What the binary tells of itself does not depend on the folder or the day.
        more={
            "MICROPY_GIT_TAG": "v" + VERSION,
            "MICROPY_GIT_HASH": SOURCE_VERSION,
            "SOURCE_DATE_EPOCH": "0",
            "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
        },
    )  # fmt: skip
    (target / LIBRARIES).mkdir(parents=True)
    (target / BINARY).parent.mkdir(parents=True)
    for library in (system / LIBRARIES).glob("*.so.*"):
        shutil.copy2(library, target / LIBRARIES / library.name, follow_symlinks=False)
    shutil.copy2(source / "ports/unix/build-standard/micropython", target / BINARY)


def _link(link: Path, target: Path) -> Path:
    """A name without spaces, as make wants it."""
    if not link.exists():
        link.symlink_to(target)
    return link


def _make_whole(system: Path) -> None:
    """The links of a system that its packages leave to each other."""
    if not (system / "lib").exists():
        (system / "lib").symlink_to("usr/lib")
    loader = system / "usr/lib/ld-linux.so.2"
    if not loader.exists():
        loader.symlink_to("i386-linux-gnu/ld-linux.so.2")


def _sources(work: Path) -> Path:
    """MicroPython's sources with NimBLE and Debian's patches, which let it use the system's libraries."""
    archives = work / "archives"
    debian.fetch_source(archives, "micropython", SOURCE_VERSION, SOURCE_FILES)
    source = work / ("micropython-" + VERSION)
    for file in SOURCE_FILES:
        with tarfile.open(archives / file) as archive:
            archive.extractall(source if ".debian." in file else work, filter="tar")
    patch = _tool("patch", work)
    for name in (source / "debian/patches/series").read_text().split():
        run(
            [patch, "-s", "-p1", "-i", "debian/patches/" + name],
            "applying Debian's patch %s to MicroPython" % name,
            "check the free space in %s" % work,
            cwd=source,
        )
    nimble = source / "lib" / "mynewt-nimble"
    nimble.rmdir()
    (_crate(work / "crate") / "mynewt-nimble").rename(nimble)
    text = (source / SYSCFG).read_text()
    assert EVENTS % EVENTS_WERE in text, "the settings of NimBLE are not those of MicroPython " + VERSION
    (source / SYSCFG).write_text(text.replace(EVENTS % EVENTS_WERE, EVENTS % EVENTS_ARE))
    return source


def _crate(folder: Path) -> Path:
    """The crate that has NimBLE in it, unpacked; by cargo, which knows this machine's index or mirror."""
    cargo = shutil.which("cargo", path=variables()["PATH"])
    if cargo is None:
        raise UserError(
            "cargo is missing: NimBLE, the Bluetooth host of a virtual board, comes from the Rust package "
            "index; install cargo (on Debian, the package of that name), then run hw again"
        )
    patches = ""
    for name, version in CRATE_NEEDS.items():
        _package(folder / name, name, version)
        patches += '%s = { path = "%s" }\n' % (name, name)
    wanted = '[dependencies]\n%s = "=%s"\n\n[patch.crates-io]\n%s' % (CRATE, CRATE_VERSION, patches)
    _package(folder, "sources", "0.0.0", wanted)
    run(
        [cargo, "vendor", "--quiet", "vendor"],
        "fetching the crate %s %s" % (CRATE, CRATE_VERSION),
        "check that cargo reaches its index (`cargo search nimble` shows it), then run hw again",
        cwd=folder,
    )
    found = folder / "vendor" / CRATE
    told = json.loads((found / ".cargo-checksum.json").read_text())["package"]
    if told != CRATE_SHA256:
        raise UserError(
            "the crate %s %s is not the one that this version of hw was made for (by its SHA-256): look at "
            "the mirror that cargo is configured for" % (CRATE, CRATE_VERSION)
        )
    return found


def _package(folder: Path, name: str, version: str, more: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "%s"\nversion = "%s"\n\n[lib]\npath = "lib.rs"\n\n%s' % (name, version, more)
    )


def _gcc(system: Path, work: Path) -> str | None:
    """The machine's gcc with the flags by which it compiles for 32 bits; None where it cannot."""
    gcc = shutil.which("gcc", path=variables()["PATH"])
    if gcc is None:
        return None
    (own,) = system.glob("usr/lib/gcc/i686-linux-gnu/*")
    command = [
        gcc, "-m32", "-march=i686", "--sysroot=%s" % system, "-B%s/" % own, "-B%s/" % (system / LIBRARIES),
        "-isystem", "%s/usr/include/i386-linux-gnu" % system, "-static-libgcc",
    ]  # fmt: skip
    program = work / "probe"
    (work / "probe.c").write_text("#include <stdio.h>\nint main(void) { return sizeof(void *) != 4; }\n")
    try:
        run([*command, "-o", str(program), str(work / "probe.c")], "compiling for 32 bits", "")
        run([str(system / LOADER), "--library-path", str(system / LIBRARIES), str(program)], "a test", "")
    except UserError:
        return None
    return " ".join(command)


def _zig(system: Path, work: Path, zig: Path) -> str:
    """zig as a C compiler: it brings glibc's headers and stubs, and takes other libraries from `system`."""
    include = system / "usr/include"
    links = system / "links"
    links.mkdir(exist_ok=True)
    for name in ("libffi", "libmbedx509", "libmbedtls", "libmbedcrypto"):
        library = min((system / LIBRARIES).glob(name + ".so.*"), key=lambda path: len(path.name))
        (links / (name + ".so")).symlink_to(library)
    # Headers of glibc and Linux are zig's own: those of the system would contradict them.
    for pattern in ("ffi*.h", "i386-linux-gnu/ffi*.h", "mbedtls", "psa"):
        for path in include.glob(pattern):
            (links / path.name).symlink_to(path)
    python, wrapper = _link(work / "python", Path(sys.executable)), _link(work / "zig_cc.py", ZIG_CC)
    flags = "-isystem %s -L%s -Wl,--allow-shlib-undefined" % (links, links)
    return "%s -P %s %s %s" % (python, wrapper, zig, flags)


def _tool(name: str, work: Path) -> str:
    """A program of the machine, or Debian's, started through a loader of its own."""
    found = shutil.which(name, path=variables()["PATH"])
    if found:
        return found
    architecture = debian.native_architecture(name)
    folder = work / ("tool-" + name)
    say("fetching %s (Debian %s, %s)" % (name, debian.SUITE, architecture))
    debian.fetch_packages(folder, (name, "libc6"), architecture)
    (loader,) = folder.glob("usr/lib/*/ld-linux*.so.*")
    script = work / name
    script.write_text(
        '#!/bin/sh\nexec %s --library-path %s %s/usr/bin/%s "$@"\n' % (loader, loader.parent, folder, name)
    )
    script.chmod(0o755)
    return str(script)
