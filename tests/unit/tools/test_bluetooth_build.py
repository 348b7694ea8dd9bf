"""The build of MicroPython with Bluetooth refuses other sources, and says what is missing.

That it builds is proven by the boards that run on it (tests/system/test_bluetooth.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headwater_tools import environment
from headwater_tools.environment import bluetooth, debian
from headwater_tools.errors import UserError


def test_other_sources_than_the_pinned_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_apt(fetch: Any, what: str, take: Callable[[Path], None], *more: Any) -> None:
        for file in bluetooth.SOURCE_FILES:
            (tmp_path / file).write_bytes(b"another source")
        take(tmp_path)

    monkeypatch.setattr(debian, "_with_apt", with_apt)
    with pytest.raises(UserError, match="has another micropython_1.25.0.ds.orig.tar.xz .* update hw"):
        debian.fetch_source(tmp_path / "to", "micropython", bluetooth.SOURCE_VERSION, bluetooth.SOURCE_FILES)


def test_another_crate_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vendor(command: list[str], *more: Any, cwd: Path) -> None:
        found = cwd / "vendor" / bluetooth.CRATE
        found.mkdir(parents=True)
        (found / ".cargo-checksum.json").write_text('{"package": "%064d"}' % 0)

    monkeypatch.setattr(bluetooth, "run", vendor)
    monkeypatch.setattr(bluetooth.shutil, "which", lambda name, **more: "/bin/" + name)
    with pytest.raises(UserError, match="by its SHA-256"):
        bluetooth._crate(tmp_path)


def test_a_machine_without_cargo_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as trouble:
        bluetooth._crate(tmp_path)
    assert str(trouble.value).startswith("cargo is missing: ") and "install cargo" in str(trouble.value)
    assert bluetooth._gcc(tmp_path, tmp_path) is None  # then zig compiles


def test_what_is_built_is_known_by_all_that_it_is_built_from(tmp_path: Path) -> None:
    lock = tmp_path / "zig.lock"
    lock.write_bytes(environment.ZIG_LOCK.read_bytes())
    before = bluetooth.inputs(lock)
    assert before == bluetooth.inputs(environment.ZIG_LOCK)
    lock.write_text("ziglang==0.18.0")
    assert bluetooth.inputs(lock) != before


def test_zig_gets_one_named_file_at_a_time_and_what_comes_on_standard_input(tmp_path: Path) -> None:
    zig = tmp_path / "zig"
    zig.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" >> %s/said\ncat "$last"\n' % tmp_path)
    zig.chmod(0o755)
    for name in ("a.c", "b.c"):
        (tmp_path / name).write_text(name + "\n")
    command = [sys.executable, str(bluetooth.ZIG_CC), str(zig), "-E", "-DX", "-"]
    files = [str(tmp_path / "a.c"), str(tmp_path / "b.c")]
    done = subprocess.run([*command, *files], input="from stdin\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a.c\nb.c\nfrom stdin\n")
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 3 and all(line.startswith("cc -target x86-linux-gnu") for line in said)
    assert all(line.count(".c") == 1 for line in said)
