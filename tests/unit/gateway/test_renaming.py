"""A command that renames a board and is killed at any of its steps: the next command finishes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headwater_gateway import UserError, keys, provision, registry
from headwater_gateway.command import register
from headwater_gateway.config import Config, read
from headwater_gateway.database.engine import Database
from headwater_gateway.deployments import rebuild
from headwater_gateway.service import Service


class Killed(BaseException):
    pass


# What changes something.
STEPS: list[tuple[Any, str]] = [
    (registry, "_ask"), (provision, "_swap"), (provision, "_user"), (provision, "_no_user"),
    (Path, "rename"), (Path, "unlink"),
]  # fmt: skip


def counted(real: Callable[..., Any], left: list[int], before: bool) -> Callable[..., Any]:
    def step(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        mine = left[0] == 0
        if mine and before:
            raise Killed
        found = real(*args, **more)
        if mine:
            raise Killed
        return found

    return step


def killed(act: Callable[[], object], step: int, before: bool) -> bool:
    """Kill it before or after this step. False if it has fewer."""
    left = [step]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, counted(getattr(owner, name), left, before))
        try:
            act()
        except Killed:
            return True
    return False


def site(folder: Path) -> Config:
    """A site whose gateway does not run, with two boards, of which one is virtual."""
    provision.site(folder, "localhost", 8883)
    for name in ("vent", "hip"):
        register(folder / "gateway.toml", name)
    (folder / "virtual" / "vent").mkdir(parents=True)
    (folder / "virtual" / "vent" / "flash.bin").write_bytes(b"flash")
    return read(folder / "gateway.toml")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return site(tmp_path)


def numbers(config: Config) -> dict[str, int]:
    db = Database(rebuild.database(config), lambda: 0)
    try:
        return dict(db.query("SELECT name, number FROM boards"))
    finally:
        db.close()


def name_of(config: Config, number: int) -> str:
    """The one name by which everything in the site knows a board."""
    names = {name for name, n in numbers(config).items() if n == number}
    key = keys.load(config.folder / "secrets" / "master.key").board(number)
    (home,) = [p.parent for p in config.folder.glob("boards/*/board.key") if p.read_bytes() == key]
    said = json.loads((home / "config.json").read_text())
    names |= {home.name, said["name"], said["broker"]["user"]}
    names |= {path.parent.name for path in config.folder.glob("virtual/*/flash.bin")}
    users = {line.partition(":")[0] for line in _passwords(config)}
    assert len(_passwords(config)) == len(users)
    names |= users - {"gateway", "watcher", "hip"}
    assert provision.intended(config.folder) == []
    (name,) = names
    return name


def _passwords(config: Config) -> list[str]:
    return (config.folder / "mosquitto" / "passwords").read_text().splitlines()


@pytest.mark.parametrize("before", [True, False])
def test_a_renaming_that_was_killed_is_finished_by_the_next_command(tmp_path: Path, before: bool) -> None:
    ends: list[str] = []
    for step in range(1, 100):
        made = site(tmp_path / str(step))
        number = numbers(made)["vent"]
        if not killed(lambda: registry.renamed(made, "vent", "attic"), step, before):  # noqa: B023
            break
        registry.finish(made)
        ends.append(name_of(made, number))
        # ... and the same command again has its end.
        if ends[-1] == "vent":
            registry.renamed(made, "vent", "attic")
            assert name_of(made, number) == "attic"
    assert name_of(made, number) == "attic"
    assert "vent" in ends and "attic" in ends and sorted(ends, reverse=True) == ends, ends
    assert len(ends) >= 9


def test_the_same_command_again_goes_on_where_it_was_killed(config: Config) -> None:
    number = numbers(config)["vent"]
    assert killed(lambda: registry.renamed(config, "vent", "attic"), 2, False)  # the database has it
    assert "attic" in numbers(config) and (config.folder / "boards" / "vent").is_dir()
    assert registry.renamed(config, "vent", "attic") == config.folder / "boards" / "attic"
    assert name_of(config, number) == "attic"


def test_a_gateway_that_starts_finishes_it_too(config: Config) -> None:
    number = numbers(config)["vent"]
    assert killed(lambda: registry.renamed(config, "vent", "attic"), 2, False)
    made = Service(config)
    made.db.close()
    assert name_of(config, number) == "attic"


def test_a_name_that_another_board_got_since_is_left_to_it(config: Config) -> None:
    number = numbers(config)["vent"]
    provision.intend(config.folder, "vent", "hip")
    assert registry.finish(config) == {}
    assert name_of(config, number) == "vent" and "hip" in numbers(config)


def test_a_renaming_that_is_refused_changes_nothing(config: Config) -> None:
    number = numbers(config)["vent"]
    for new, why in (("gateway", "cannot be a board's name"), ("hip", "is there already")):
        with pytest.raises(UserError, match=why):
            registry.renamed(config, "vent", new)
    with pytest.raises(UserError, match="board nobody is not registered: there are hip, vent"):
        registry.renamed(config, "nobody", "attic")
    assert name_of(config, number) == "vent"
