"""Boards that get another name, and boards that go: what that means in the database.

A board's number, and with it its key, is never given again. It changes in one case: a lost board that is
provisioned again gets another number, because its former key is refused. So a renamed board keeps its key,
and needs its new name in its configuration; a removed one is unknown from then on, and its frames are
refused. Neither is possible while a process names the board, since plans name boards.

A board gets another name in the database first, then in its folder and at the broker. A file in the folder
says so from before the first change until after the last. Where a command was killed in between, the next
command that changes or runs boards, and the gateway when it starts, does what is left (`finish`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.plan import model as plans

from . import UserError, broker, control, provision
from .config import Config
from .database.engine import Database
from .deployments import rebuild
from .keys import load


def users(db: Database, name: str) -> list[str]:
    """The processes whose plan names this board, or one that is on its way."""
    found = []
    for process, plan, coming in db.query("SELECT name, plan, next FROM processes ORDER BY name"):
        if any(data and name in plans.loads(data).hosts[1:] for data in (plan, coming)):
            found.append(process)
    return found


def number_of(db: Database, name: str) -> int:
    """The registry number of a board. UserError where there is none of that name."""
    rows = db.query("SELECT number FROM boards WHERE name = ?", name)
    if not rows:
        names = ", ".join(row[0] for row in db.query("SELECT name FROM boards ORDER BY name"))
        raise UserError("board %s is not registered: there are %s" % (name, names or "none"))
    return int(rows[0][0])


def may_change(db: Database, name: str) -> int:
    """The number of a board that no process needs. UserError where one does."""
    number = number_of(db, name)
    using = users(db, name)
    if using:
        raise UserError(
            "board %s belongs to process %s: leave it out of the process file and deploy that, or "
            "`hw undeploy %s`; nothing was changed" % (name, using[0], using[0])
        )
    if db.query("SELECT 1 FROM leaving WHERE board = ?", number):
        raise UserError(
            "board %s has to stop its former process first: switch it on, and try again when `hw board list` "
            "shows that it is free; nothing was changed" % name
        )
    return number


def rename(db: Database, name: str, new: str) -> int:
    """Give a board another name; its number."""
    provision.check_name(new)
    number = may_change(db, name)
    if db.query("SELECT 1 FROM boards WHERE name = ?", new):
        raise UserError("board %s is there already; nothing was changed" % new)
    db.execute("UPDATE boards SET name = ? WHERE number = ?", new, number)
    return number


def remove(db: Database, name: str) -> int:
    """Forget a board; its number, which is never given again."""
    number = may_change(db, name)
    db.execute("DELETE FROM boards WHERE number = ?", number)
    db.execute("DELETE FROM logs WHERE board = ?", number)
    db.execute("DELETE FROM lost WHERE board = ?", number)
    db.execute("DELETE FROM revoked WHERE number = ?", number)
    return number


# ---- for a site whose gateway runs or not


def renamed(config: Config, name: str, new: str) -> Path:
    """Rename a board in the registry, its folder and for the broker, which has to be told; the new folder."""
    home = config.folder / "boards" / new
    if finish(config).get(name) == new:
        return home  # an earlier command has begun it
    if home.exists():
        raise UserError("%s is there already: move it away first; nothing was changed" % home)
    if (config.folder / "boards" / name).is_dir():
        provision.intend(config.folder, name, new)
    try:
        _ask(config, "/boards/rename", {"name": name, "new": new})
    except UserError:
        if finish(config).get(name) != new:
            raise
    return provision.rename(config.folder, name, new)


def finish(config: Config, numbers: Mapping[str, int] | None = None) -> dict[str, str]:
    """Finish what commands that were killed have left of renaming boards; former name -> new one. `numbers`:
    of registered boards, asked for where they are not given."""
    done: dict[str, str] = {}
    begun = provision.intended(config.folder)
    if not begun:
        return done
    keys = load(config.path(config.gateway.secrets) / "master.key")
    known = _numbers(config) if numbers is None else numbers
    there = rebuild.folders(config.folder)
    for folder, former, new in begun:
        if new in known and keys.board(known[new]) == there.get(folder):
            provision.rename(config.folder, former, new)
            done[former] = new
        else:
            provision.forgo(config.folder, folder)  # the database was not changed
    if done:
        broker.reload(config.folder)
    return done


def _numbers(config: Config) -> dict[str, int]:
    """Of all boards, from the gateway that runs or else from the database."""
    with contextlib.suppress(control.NotRunning):
        boards = control.ask(config, "/state")["boards"]
        return {name: int(board["number"]) for name, board in boards.items()}
    path = rebuild.database(config)
    if not path.exists():
        return {}
    db = Database(path, lambda: 0)
    try:
        return dict(db.query("SELECT name, number FROM boards"))
    finally:
        db.close()


def removed(config: Config, name: str) -> None:
    """Remove a board from the registry; its folder goes, and its password at the broker."""
    finish(config)
    _ask(config, "/boards/remove", {"name": name})
    provision.forget(config.folder, name)
    shutil.rmtree(config.folder / "boards" / name, ignore_errors=True)


def lost(config: Config, name: str, sure: bool) -> dict[str, Any]:
    """Declare a board lost, if `sure`: hosts refuse its log number, the gateway its key, the broker its
    password. Otherwise say what would follow. Only a gateway that runs can tell the hosts."""
    finish(config)
    answer = control.ask(config, "/boards/lost", {"name": name, "sure": sure})
    if sure:
        provision.forget(config.folder, name)
        provision.revoke(config.folder, name)
    return answer


def _ask(config: Config, what: str, body: dict[str, str]) -> None:
    """Have it done by the gateway that runs, or else in the database."""
    with contextlib.suppress(control.NotRunning):
        control.ask(config, what, body)
        return
    rebuild.check(config)
    provision.not_as_root(config.folder)
    path = rebuild.database(config)
    if not path.exists():
        raise UserError("board %s is not registered: there are none" % body["name"])
    db = Database(path, lambda: 0)
    try:
        change(db, what, body)
    finally:
        db.close()


def change(db: Database, what: str, body: dict[str, str]) -> int:
    """The change of the registry that a request means; the board's number."""
    if what == "/boards/rename":
        return rename(db, body["name"], body["new"])
    return remove(db, body["name"])
