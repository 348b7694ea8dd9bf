"""A host in a folder: what `hw host FOLDER` and `headwater-gateway host FOLDER` do.

The folder is what `hw provision` makes for a board: `config.json`, the key and the certificate that it
names. A host adds `flash.bin`, which is its flash, and `lock`, which one process holds while it runs.
`drivers.py` is yours, if there is one. The process works in this folder, so paths in the configuration are
relative to it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..board import settings
from . import drivers, flash_file

SUMMARY = (
    "run the program of a board on this machine, so that it is a host of sources and operators: FOLDER is "
    "what `hw provision` made"
)
FLASH = "flash.bin"
LOCK = "lock"
OWN_DRIVERS = "drivers.py"
LOG_KB = 16384


class HostError(Exception):
    """Something that a person can correct, in one sentence."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="what `hw provision NAME SITE` made for this host")
    options(parser)


def options(parser: argparse.ArgumentParser, command: str = "") -> None:
    parser.add_argument(
        "--log",
        metavar="SIZE",
        help="%ssize of a new flash.bin, like 512K or 64M (16M); one that is there keeps its size" % command,
    )
    parser.add_argument(
        "--check", action="store_true", help="%slook at everything in the folder, and end" % command
    )


def run(folder: Path, log: str | None, check: bool) -> tuple[int, dict[str, Any]]:
    """Exit code and answer. HostError if this cannot be a host."""
    kb = None if log is None else size_kb(log)
    if not folder.is_dir():
        raise HostError("%s is not a folder: name the one that `hw provision NAME SITE` made" % folder)
    os.chdir(folder)
    host = Host(folder, kb)
    if check:
        for problem in host.problems:
            print(problem)
        if not host.problems:
            print("%s: nothing is wrong" % folder)
            print(host.told())
        return int(bool(host.problems)), {"folder": str(folder), "problems": host.problems}
    if host.problems:
        more = len(host.problems) - 1
        others = "; `--check` names %d more" % more if more else ""
        raise HostError(host.problems[0] + others)
    host.serve()
    return 0, {"folder": str(folder), "host": host.config["name"]}


def size_kb(text: str) -> int:
    """KiB of a size like 512K or 64M."""
    found = re.fullmatch(r"(\d{1,6})([KM])", text.upper())
    kb = int(found[1]) * {"K": 1, "M": 1024}[found[2]] if found else 0
    least, most = (
        n * flash_file.SECTOR_BYTES >> 10 for n in (flash_file.SECTORS_MIN, flash_file.SECTORS_MAX)
    )
    if not least <= kb <= most or kb % 4:
        raise HostError(
            "--log %s: give a multiple of 4K from %dK to %dM, like 512K or 16M" % (text, least, most >> 10)
        )
    return kb


class Host:
    """What is in the folder, which is the working directory; `problems` is every sentence that is to be
    said of it. `kb`: the size that was asked for."""

    def __init__(self, folder: Path, kb: int | None) -> None:
        self.folder = folder
        self.kb = kb
        self.problems: list[str] = []
        self.config: dict[str, Any] = {}
        self.drivers: dict[str, Callable[..., Any]] = {}
        for look in (self._settings, self._key, self._certificates, self._drivers, self._flash):
            try:
                look()
            except (HostError, settings.SettingsError, flash_file.FlashError) as problem:
                self.problems.append(self._at(str(problem)))
            if not self.config:
                return

    def _at(self, problem: str) -> str:
        """Files are named as people reach them."""
        return re.sub(r"^(config\.json|flash\.bin|drivers\.py)", lambda m: str(self.folder / m[1]), problem)

    def _settings(self) -> None:
        if not Path("config.json").is_file():
            raise HostError(
                "%s has no config.json: name the folder that `hw provision NAME SITE` made" % self.folder
            )
        self.config = settings.load("config.json")
        battery = self.config["battery"]
        if battery and not isinstance(battery.get("path"), str):
            raise HostError(
                "config.json: battery on Linux needs path, a file of the kernel with microvolts, like "
                "/sys/class/power_supply/BAT0/voltage_now"
            )

    def _key(self) -> None:
        name = self.config["key"]
        try:
            size = len(Path(name).read_bytes())
        except OSError as error:
            raise HostError("%s: %s: copy the whole folder" % (self.folder / name, error.strerror))
        if size != 32:
            raise HostError("%s: %d bytes, not the 32 of a key" % (self.folder / name, size))

    def _certificates(self) -> None:
        broker = self.config["broker"]
        if broker["tls"]:
            import ssl

            from ..board.tls import context

            try:
                context(broker)
            except (OSError, ssl.SSLError) as error:
                names = " ".join(str(self.folder / broker[key]) for key in ("ca", "cert") if broker[key])
                raise HostError("%s: no certificate that TLS takes: %s" % (names, error.strerror or error))

    def _drivers(self) -> None:
        self.drivers = {**drivers.DRIVERS, **_own_drivers()}
        for source, sensor in self.config["sensors"].items():
            if sensor["driver"] not in self.drivers:
                raise HostError(
                    "config.json: sensor %s: no driver %s; there are %s, and %s in the folder may add others"
                    % (source, sensor["driver"], ", ".join(sorted(self.drivers)), OWN_DRIVERS)
                )

    def _flash(self) -> None:
        """A log keeps its size: its sectors are a ring."""
        if not Path(FLASH).exists():
            return
        here = flash_file.sectors_of(Path(FLASH)) * flash_file.SECTOR_BYTES >> 10
        if self.kb not in (None, here):
            raise HostError(
                "%s has %d KB, and --log asks for %d: leave --log out, or undeploy the process of this host "
                "and remove the file" % (FLASH, here, self.kb)
            )

    def told(self) -> str:
        broker = self.config["broker"]
        there = Path(FLASH).exists()
        kb = (
            flash_file.sectors_of(Path(FLASH)) * flash_file.SECTOR_BYTES >> 10 if there else self.kb or LOG_KB
        )
        sensors = ", ".join(sorted(self.config["sensors"])) or "none"
        return "host %s, broker %s:%d%s, log of %d KB%s, sensors: %s" % (
            self.config["name"], broker["host"], broker["port"], ", TLS" if broker["tls"] else "",
            kb, "" if there else " (to be made)", sensors,
        )  # fmt: skip

    def serve(self) -> None:
        """Until SIGTERM or Ctrl-C. What was accepted is in the flash at any moment."""
        from . import machine

        with _alone(self.folder):
            if not Path(FLASH).exists():
                try:
                    flash_file.make(Path(FLASH), (self.kb or LOG_KB) * 1024 // flash_file.SECTOR_BYTES)
                except OSError as error:
                    raise HostError("%s cannot be made: %s" % (self.folder / FLASH, error.strerror))
            print(self.told(), flush=True)
            flash = flash_file.FlashFile(Path(FLASH))
            here = machine.Machine(flash, self.drivers, self.config)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: here.stop())
            machine.notify("READY=1")
            while not here.stopping:
                here.boot(settings.load("config.json"))
            machine.notify("STOPPING=1")
            flash.close()
        print("host %s has ended; what it holds is in %s" % (self.config["name"], self.folder / FLASH))


def _own_drivers() -> dict[str, Callable[..., Any]]:
    if not Path(OWN_DRIVERS).exists():
        return {}
    spec = importlib.util.spec_from_file_location("own_drivers", OWN_DRIVERS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HostError("%s: %s: %s" % (OWN_DRIVERS, type(error).__name__, error))
    found = getattr(module, "DRIVERS", None)
    if not isinstance(found, dict) or not all(callable(maker) for maker in found.values()):
        raise HostError('%s has no dict DRIVERS, like DRIVERS = {"mine": Mine}' % OWN_DRIVERS)
    return found


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with open(LOCK, "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise HostError(
                "%s is run already, by process %s: two hosts with one flash would destroy it; end that first"
                % (folder, handle.read().strip() or "?")
            )
        handle.truncate(0)
        handle.write("%d\n" % os.getpid())
        handle.flush()
        yield
