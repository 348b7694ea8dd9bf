"""The gateway's packages can be installed on a Raspberry Pi: as recorded from the package index."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headwater_tools import environment
from headwater_tools.environment import wheels
from headwater_tools.environment.wheels import Wheel


def test_every_entry_of_the_gateways_lock_has_a_wheel_for_arm() -> None:
    found = wheels.recorded()
    assert wheels.problems(found) == []
    assert len(found) == len(wheels.VERSIONS) * len(wheels.locked()) > 20
    assert wheels.RECORD.read_text() == wheels.text(found)


def test_what_does_not_fit_is_told() -> None:
    found = wheels.recorded()
    assert wheels.problems(found[1:]) == [
        "%s: no wheel is recorded for Python %s" % (found[0].package, found[0].python)
    ]
    (aiohttp,) = [w for w in found if w.python == "3.11" and w.package.startswith("aiohttp==")]
    others = [w for w in found if w != aiohttp]
    for file in (
        aiohttp.file.replace("aarch64", "x86_64"),
        aiohttp.file.replace("cp311", "cp312"),
        aiohttp.file.replace("manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28", "musllinux_1_2"),
        aiohttp.file.replace("manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28", "manylinux_2_99"),
    ):
        (problem,) = wheels.problems([*others, aiohttp._replace(file=file)])
        assert "does not fit Python 3.11 on aarch64" in problem
    (problem,) = wheels.problems([*others, aiohttp._replace(sha256="0" * 64)])
    assert "the lock file does not allow" in problem
    assert Wheel("3.13", "x-1-cp311-abi3-manylinux_2_28_aarch64.whl", "").fits()
    assert not Wheel("3.11", "x-1-cp313-abi3-manylinux_2_28_aarch64.whl", "").fits()


def test_a_site_needs_neither_micropython_nor_the_tools_of_a_developer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(environment, "CACHE", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / "py")
    monkeypatch.setattr(environment, "MICROPYTHON", tmp_path / "micropython")
    monkeypatch.setattr(environment, "_make_micropython", lambda: made.append("micropython"))
    monkeypatch.setattr(environment, "_packages", made.append)
    monkeypatch.setattr(environment, "_fetch_jars", lambda: made.append("jars"))
    for group, steps in (
        ("gateway", ["gateway"]),
        ("lake", ["lake", "jars"]),
        ("base", ["base", "micropython", "base"]),
        ("bench", ["base", "micropython", "bench"]),
    ):
        made.clear()
        environment.ensure(group)
        assert made == steps
    for command in ("gateway", "provision", "deploy", "undeploy", "broker"):
        assert environment.LEAN[command] == "gateway"
    assert environment.LEAN["sink"] == "lake" and "sim" not in environment.LEAN
    assert sys.version_info >= (3, 11)
