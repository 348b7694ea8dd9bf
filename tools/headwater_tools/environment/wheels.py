"""Which files a Raspberry Pi takes for the gateway's packages: for each entry of the lock file a wheel for
64-bit ARM, or one that runs anywhere.

`resolve` asks the package index that pip is configured with, and installs nothing. What it found is recorded
in `requirements-gateway.wheels`, one line for each Python version and package, so that tests need no network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from .. import environment
from ..errors import UserError

LOCK = environment.LOCKS["gateway"]
RECORD = environment.ROOT / "requirements-gateway.wheels"
VERSIONS = ("3.11", "3.13")  # of Python, as Debian 12 and 13 have them
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64", "linux_aarch64")
HEAD = """\
# Written by `hw locks --write`: what pip takes for requirements-gateway.lock on 64-bit ARM (aarch64).
# Python, wheel, SHA-256
"""


class Wheel(NamedTuple):
    python: str
    file: str
    sha256: str

    @property
    def package(self) -> str:
        """Name and version, as the lock file writes them."""
        name, version = self.file.split("-")[:2]
        return "%s==%s" % (canonical(name), version)

    def fits(self) -> bool:
        """Whether Debian's Python of this version takes it on aarch64."""
        tags = self.file.removesuffix(".whl").split("-")[-3:]
        interpreter = "cp" + self.python.replace(".", "")
        pure = "py3" in tags[0].split(".") and tags[1:] == ["none", "any"]
        own = tags[0] == tags[1] == interpreter
        stable = tags[1] == "abi3" and _number(tags[0]) <= _number(interpreter)
        return pure or (own or stable) and bool(set(tags[2].split(".")) & set(PLATFORMS))


def _number(tag: str) -> int:
    match = re.fullmatch(r"cp3(\d+)", tag)
    return int(match[1]) if match else 1 << 30


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, set[str]]:
    """name==version -> the hashes that the lock file allows."""
    found: dict[str, set[str]] = {}
    package = ""
    for line in LOCK.read_text().splitlines():
        if line[:1].isalnum():
            name, _, version = line.rstrip("\\ ").partition("==")
            package = "%s==%s" % (canonical(name), version.split()[0])
            found[package] = set()
        found.setdefault(package, set()).update(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    found.pop("", None)
    return found


def recorded() -> list[Wheel]:
    if not RECORD.exists():
        raise UserError("%s is missing: `hw locks --write` makes it" % RECORD)
    lines = [line for line in RECORD.read_text().splitlines() if line and not line.startswith("#")]
    return [Wheel(*line.split()) for line in lines]


def text(wheels: list[Wheel]) -> str:
    return HEAD + "".join("%s %s %s\n" % wheel for wheel in sorted(wheels))


def problems(wheels: list[Wheel]) -> list[str]:
    """The entries of the lock file without a wheel among these."""
    wanted = locked()
    found = []
    for python in VERSIONS:
        there = {wheel.package: wheel for wheel in wheels if wheel.python == python}
        for package, hashes in wanted.items():
            wheel = there.get(package)
            if wheel is None:
                found.append("%s: no wheel is recorded for Python %s" % (package, python))
            elif not wheel.fits():
                found.append("%s: %s does not fit Python %s on aarch64" % (package, wheel.file, python))
            elif wheel.sha256 not in hashes:
                found.append("%s: the lock file does not allow %s" % (package, wheel.file))
        found += ["%s is not in the lock file" % package for package in there if package not in wanted]
    return found


def resolve(python: str) -> list[Wheel]:
    """What pip would install on a machine with this Python and an aarch64 processor."""
    tag = "cp" + python.replace(".", "")
    with tempfile.TemporaryDirectory(prefix="hw-locks-") as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps",
            "--require-hashes", "--only-binary", ":all:", "--disable-pip-version-check",
            *(word for platform in PLATFORMS for word in ("--platform", platform)),
            "--python-version", python, "--implementation", "cp",
            *(word for abi in (tag, "abi3", "none") for word in ("--abi", abi)),
            "--target", str(Path(folder) / "target"), "--report", str(report), "-r", str(LOCK),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            lines = "\n  ".join(done.stderr.strip().splitlines()[-6:])
            raise UserError(
                "%s cannot be resolved for Python %s on aarch64:\n  %s\nWhat to do: check that pip reaches "
                "its package index; a package without a wheel needs another version in the lock file"
                % (LOCK.name, python, lines)
            )
        found = []
        for item in json.loads(report.read_text())["install"]:
            info = item["download_info"]
            file = info["url"].rpartition("/")[2]
            found.append(Wheel(python, file, info["archive_info"]["hashes"]["sha256"]))
        return found
