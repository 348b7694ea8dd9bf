"""The folder of a site: what is where in it, and what is wrong with it, in a sentence.

A site is the folder of a gateway. `hw new` adds a process file and a README; `hw up` and `hw board run` add
`logs/` and `virtual/NAME/`, the folder of a virtual board with its flash.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.process.check import Report, check

from ..errors import UserError

CONFIG = "gateway.toml"
PROCESS = "process.py"


class Place:
    """`folder` as the user wrote it, for sentences; `config` is read from it."""

    def __init__(self, folder: str | Path) -> None:
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway.config import read

        path = Path(folder)
        if path.name == CONFIG:
            path = path.parent
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise UserError("%s %s: name the folder of a site; `hw new %s` makes one" % (path, what, path))
        self.file = path / CONFIG
        if not self.file.is_file():
            raise UserError(
                "%s is not a site, since it has no %s: name the folder of a site; `hw new NAME` makes one"
                % (path, CONFIG)
            )
        self.shown = path
        self.folder = path.resolve()
        try:
            self.config: Any = read(self.file)
        except GatewayTrouble as trouble:
            raise UserError(str(trouble))

    # ---- what is where

    @property
    def process(self) -> Path:
        return self.shown / PROCESS

    @property
    def landing(self) -> str:
        return self._at(self.config.lake.landing)

    @property
    def lake(self) -> str:
        """The sink leaves its acknowledgements in LAKE/acks."""
        acks: str = self._at(self.config.lake.acks)
        return acks.removesuffix("/").removesuffix("/acks")

    def _at(self, where: str) -> str:
        return where if "://" in where else os.path.relpath(self.config.path(where))

    @property
    def logs(self) -> Path:
        path = self.folder / "logs"
        path.mkdir(exist_ok=True, mode=0o700)
        return path

    def virtual(self, board: str) -> Path:
        return self.folder / "virtual" / board

    def running(self, board: str) -> int:
        """The process of this machine that is this board: a virtual one, or `hw host` in the board's own
        folder; 0 where there is none."""
        locks = (self.virtual(board) / "lock", self.folder / "boards" / board / "lock")
        return next(filter(None, map(holder, locks)), 0)

    def boards(self) -> list[str]:
        """The boards that have a folder with a key."""
        from headwater_gateway.provision import boards_of

        return boards_of(self.folder)

    def known(self, board: str) -> Path:
        """The folder of a registered board, with its key and configuration."""
        names = self.boards()
        if board not in names:
            raise UserError(
                "board %s is not registered in %s, which has %s: `hw provision %s %s` registers it"
                % (board, self.shown, ", ".join(names) or "none", board, self.shown)
            )
        return self.folder / "boards" / board

    def finish(self) -> None:
        """Do what is left of renaming boards, where a command was killed."""
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway import registry

        try:
            registry.finish(self.config)
        except GatewayTrouble as trouble:
            raise UserError(str(trouble))

    # ---- what it says

    def ask(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of the gateway of this site."""
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway import control

        try:
            return control.ask(self.config, what, body)
        except control.NotRunning:
            raise NotRunning(
                "the gateway of %s does not run: start it with `hw gateway run %s`, or the whole site with "
                "`hw up %s`" % (self.shown, self.shown, self.shown)
            )
        except GatewayTrouble as trouble:
            raise UserError(str(trouble))

    def state(self) -> dict[str, Any] | None:
        """What the gateway says of everything; None while it does not answer."""
        try:
            return self.ask("/state")
        except UserError:
            return None

    def checked(self) -> Report | None:
        """What the check says of the site's process file; None where there is none."""
        from ..process_file import ProcessFileError, load

        if not self.process.is_file():
            return None
        try:
            return check(load(self.process))
        except ProcessFileError as error:
            raise UserError(str(error.problem))

    @contextlib.contextmanager
    def held(self, path: Path, sentence: str) -> Iterator[None]:
        """Hold a file of the site while a part runs. UserError with this sentence, in which %d is the
        process,
        where another process holds it."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                raise UserError(sentence % int(handle.read().strip() or 0))
            handle.truncate(0)
            handle.write("%d\n" % os.getpid())
            handle.flush()
            yield


class NotRunning(UserError):
    """The gateway of the site does not run."""


def answers(host: str, port: int) -> bool:
    """Whether a program listens there."""
    try:
        socket.create_connection((host, port), 1).close()
        return True
    except OSError:
        return False


def taken(port: int) -> bool:
    """Whether another program listens on this port of loopback."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def holder(path: Path) -> int:
    """The process that holds a file of the site; 0 where none does."""
    try:
        with open(path) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(handle.read().strip() or 0)
    except (OSError, ValueError):
        pass
    return 0
