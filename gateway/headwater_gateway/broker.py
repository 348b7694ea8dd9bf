"""The broker of a site: Mosquitto with the configuration that `hw gateway init` made.

`hw broker run` notes its process here before it becomes Mosquitto, so that `hw provision` can tell it to read
its passwords again. A noted process counts only while it still is a Mosquitto with this configuration.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import signal
import socket
import time
from pathlib import Path

from . import UserError

PID = "broker.pid"
READY_S = 5.0  # a Mosquitto that has just been started does not listen to signals yet


def configuration(folder: Path) -> Path:
    """Mosquitto's configuration. UserError if this is not the folder of a site."""
    path = folder.resolve() / "mosquitto" / "mosquitto.conf"
    if not path.is_file():
        raise UserError("%s is missing: `hw gateway init %s` makes it" % (path, folder))
    return path


def prepare(folder: Path) -> Path:
    """UserError if the broker could not run; else this process is noted as the broker. The configuration."""
    conf = configuration(folder)
    process = running(folder)
    if process:
        raise UserError("the broker of %s runs already, as process %d" % (folder, process))
    said = settings(conf)
    _may_read(conf, said)
    port = said.get("listener", "").split()
    if port and port[0].isdigit():
        _free(conf, int(port[0]), port[1] if len(port) > 1 else "")
    note = conf.parent / PID
    with contextlib.suppress(OSError):  # without it only `reload` does not find the broker
        note.unlink(missing_ok=True)
        note.write_text("%d\n" % os.getpid())
    return conf


def settings(conf: Path) -> dict[str, str]:
    """The first value of each setting."""
    found: dict[str, str] = {}
    for line in conf.read_text().splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            found.setdefault(key, value.strip())
    return found


def _may_read(conf: Path, said: dict[str, str]) -> None:
    """Started by root, Mosquitto becomes the user that its configuration names, or else `mosquitto`.
    UserError
    if that user may not read its files."""
    if os.geteuid():
        return
    name = said.get("user", "mosquitto")
    owner = conf.parent.stat().st_uid
    with contextlib.suppress(KeyError):
        if pwd.getpwnam(name).pw_uid in (0, owner):
            return
    try:
        fitting = pwd.getpwuid(owner).pw_name
    except KeyError:
        raise UserError(
            "%s belongs to user %d, who has no name here: chown it to a user" % (conf.parent, owner)
        )
    raise UserError(
        "%s: started by root, Mosquitto runs as user %s, who may not read %s: write `user %s` into it"
        % (conf, name, conf.parent, fitting)
    )


def _free(conf: Path, port: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # Mosquitto itself reports what is wrong
            raise UserError(
                "port %d is taken by another program, perhaps another broker (`systemctl stop mosquitto`): "
                "stop that, or change the port in %s, in gateway.toml and in config.json of each board"
                % (port, conf)
            )


def running(folder: Path) -> int:
    """The process of the broker that `hw broker run` started for this site; 0 if there is none."""
    conf = folder.resolve() / "mosquitto" / "mosquitto.conf"
    try:
        process = int((conf.parent / PID).read_text())
        words = Path("/proc/%d/cmdline" % process).read_bytes().split(b"\0")
    except (OSError, ValueError):
        return 0
    return process if os.fsencode(conf) in words and process != os.getpid() else 0


def reload(folder: Path) -> int:
    """Have the broker read its passwords again; its process, or 0 if none runs."""
    process = running(folder)
    end = time.monotonic() + READY_S
    while process and not _listens(process) and time.monotonic() < end:
        time.sleep(0.05)
        process = running(folder)
    if process and _listens(process):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGHUP)
            return process
    return 0


def _listens(process: int) -> bool:
    """Whether it handles SIGHUP; one that does not yet would die of it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/%d/status" % process).read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & 1 << (signal.SIGHUP - 1))
    return False
