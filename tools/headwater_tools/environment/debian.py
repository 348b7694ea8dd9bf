"""Debian packages without installing them: apt with lists and a cache of its own, signatures checked.

Packages come from the mirror that this machine's own apt names, for any suite and architecture, and are
unpacked into a folder of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from .running import run, variables

SUITE = "trixie"
ARCHITECTURE = "i386"

# Suites by which the machine's own Debian mirror is recognised among its package sources.
DEBIAN_SUITES = tuple("bullseye bookworm trixie forky sid oldstable stable testing unstable".split())


def fetch_packages(
    target: Path,
    names: Sequence[str],
    architecture: str = ARCHITECTURE,
    suite: str = SUITE,
    closure: bool = False,
    without: Sequence[str] = (),
) -> None:
    """Fetch packages from the machine's own Debian mirror and unpack them into `target`; with `closure` all
    that they depend on too, but for the packages `without`."""
    wanted = [name + ":" + architecture for name in names]
    fetch = ["download", *wanted]
    if closure:
        fetch = ["install", "--download-only", "--no-install-recommends", *wanted]

    def unpack(apt: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for package in sorted(apt.glob("cache/archives/*.deb" if closure else "*.deb")):
            if package.name.partition("_")[0] in without:
                continue
            run(
                ["dpkg-deb", "-x", str(package), str(target)],
                "unpacking %s into %s" % (package.name, target),
                "check the free space there",
            )

    _with_apt(fetch, ", ".join(names), unpack, architecture, suite)


def fetch_source(target: Path, name: str, version: str, files: Mapping[str, str], suite: str = SUITE) -> None:
    """Fetch the source of a package into `target`, as archives; `files`: their names and their SHA-256."""

    def take(apt: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for file, digest in files.items():
            found = apt / file
            if not found.exists() or hashlib.sha256(found.read_bytes()).hexdigest() != digest:
                raise UserError(
                    "Debian %s has another %s for %s %s than this version of hw was made for: "
                    "update hw, or use a mirror that has it" % (suite, file, name, version)
                )
            (target / file).write_bytes(found.read_bytes())

    words = ["source", "--download-only", "%s=%s" % (name, version)]
    _with_apt(words, "the source of %s %s" % (name, version), take, ARCHITECTURE, suite, "deb-src")


def _with_apt(
    fetch: Sequence[str],
    what: str,
    take: Callable[[Path], None],
    architecture: str,
    suite: str,
    types: str = "deb",
) -> None:
    """Run apt with one mirror of the machine after another, until one has it; `take` gets apt's folder."""
    import shutil
    import tempfile

    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool, path=variables()["PATH"]) is None:
            raise UserError("%s is missing: packages come from Debian's mirror; run hw on Debian" % tool)
    sources = mirrors()
    if not sources:
        raise UserError(
            "apt on this machine names no Debian mirror (see /etc/apt/sources.list and sources.list.d): "
            "add one, for example with `apt edit-sources`"
        )
    failures = []
    with tempfile.TemporaryDirectory(prefix="hw-apt-") as folder:
        for i, source in enumerate(sources):
            apt = Path(folder) / str(i)
            config = apt_configuration(apt, source, architecture, suite, types)
            try:
                for step in (["update"], fetch):
                    run(
                        ["apt-get", "-c", str(config), "--quiet", "--yes", *step],
                        "fetching %s of Debian %s" % (what, suite),
                        "check that `apt-get update` works on this machine, then run hw again",
                        cwd=apt,
                    )
            except UserError as trouble:
                failures.append(trouble)
                continue
            take(apt)
            return
    raise failures[0]


def mirrors() -> list[dict[str, str]]:
    """The package sources of this machine that are Debian's main archive, as fields of a stanza."""
    found: list[dict[str, str]] = []
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace")
            entries = stanzas(text) if path.suffix == ".sources" else one_line_entries(text)
            for entry in entries:
                suites = entry.pop("suites", "").split()
                if entry.get("enabled", "yes").lower() in ("no", "false", "0"):
                    continue
                if "deb" not in entry.get("types", "").split():
                    continue
                if "main" not in entry.get("components", "").split():
                    continue
                if any(suite in DEBIAN_SUITES for suite in suites):
                    keep = {k: v for k, v in entry.items() if k in ("uris", "signed-by", "trusted")}
                    if keep not in found:
                        found.append(keep)
    return found


def stanzas(text: str) -> list[dict[str, str]]:
    out: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and last:
                fields[last] += "\n" + line
            elif ":" in line:
                last, _, value = line.partition(":")
                last = last.strip().lower()
                fields[last] = value.strip()
        out.append(fields)
    return out


def one_line_entries(text: str) -> list[dict[str, str]]:
    import re

    out: list[dict[str, str]] = []
    for line in text.splitlines():
        match = re.match(r"(deb)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match:
            kind, options, uri, suite, components = match.groups()
            fields = {"types": kind, "uris": uri, "suites": suite, "components": components}
            for option in (options or "").split():
                name, _, value = option.partition("=")
                fields[name.lower()] = value
            out.append(fields)
    return out


def apt_configuration(
    folder: Path, source: dict[str, str], architecture: str, suite: str, types: str = "deb"
) -> Path:
    """A private configuration of apt: one source, one architecture, lists and cache in `folder`."""
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True)
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    trusted = Path("/etc/apt/trusted.gpg.d")
    fields = {"Types": types, "URIs": source["uris"], "Suites": suite, "Components": "main"}
    fields["Architectures"] = architecture
    if "signed-by" in source:
        fields["Signed-By"] = source["signed-by"]
    elif keyring.exists() and not (trusted.is_dir() and any(trusted.iterdir())):
        fields["Signed-By"] = str(keyring)
    if "trusted" in source:
        fields["Trusted"] = source["trusted"]
    (folder / "debian.sources").write_text("".join("%s: %s\n" % item for item in fields.items()))
    (folder / "status").touch()
    config = folder / "apt.conf"
    config.write_text(
        "#clear APT::Update;\n#clear DPkg;\n#clear APT::Architectures;\n"
        "#clear Acquire::IndexTargets::deb::DEP-11;\n#clear Acquire::IndexTargets::deb::DEP-11-icons;\n"
        'APT::Architecture "%s";\nAPT::Architectures { "%s"; };\nAPT::Default-Release "";\n'
        'APT::Sandbox::User "";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
        'Dir::Etc::SourceList "%s";\nDir::Etc::SourceParts "%s";\n'
        'Dir::Etc::Preferences "/dev/null";\nDir::Etc::PreferencesParts "%s";\n'
        'Dir::State "%s";\nDir::State::Lists "%s";\nDir::State::status "%s";\nDir::Cache "%s";\n'
        % (
            architecture, architecture, folder / "debian.sources", folder / "parts", folder / "parts",
            folder, folder / "lists", folder / "status", folder / "cache",
        )
    )  # fmt: skip
    return config


def native_suite() -> str:
    """The suite of the machine's own Debian."""
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "VERSION_CODENAME" and value.strip('"') in DEBIAN_SUITES:
                return value.strip('"')
    raise UserError("no chromium on PATH, and this machine is no Debian to fetch one for: install chromium")


def native_architecture(program: str) -> str:
    import subprocess

    try:
        done = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise UserError("no %s on PATH, and no dpkg to fetch one with: install %s" % (program, program))
    return done.stdout.strip()
