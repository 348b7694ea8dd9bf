"""Keys: one master key that never leaves the gateway, and all others derived from it (docs/spec.md, "Seals").

A board is known by its registry number, given once at provisioning; the gateway is number 0.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from headwater.protocol.ble_info import tag_key
from headwater.protocol.sessions import hmac, pair_key

from . import UserError

KEY_BYTES = 32


class Keys:
    def __init__(self, master: bytes) -> None:
        self._master = master

    def pair(self, a: int, b: int) -> bytes:
        """The key that two hosts share."""
        return bytes(pair_key(self._master, a, b))

    def board(self, number: int) -> bytes:
        """A board's own key."""
        return self.pair(0, number)

    def site(self, number: int) -> bytes:
        """The key of its site link."""
        return bytes(hmac(self.board(number), b"headwater site"))

    def bluetooth(self) -> bytes:
        """The key of the tags by which hosts of this site know each other over Bluetooth."""
        return bytes(tag_key(self._master))

    def masked(self, number: int, other: int) -> bytes:
        """The pair key of two boards, so that only the first can read it."""
        mask = hmac(self.board(number), b"headwater mask", other.to_bytes(8, "big"))
        return bytes(a ^ b for a, b in zip(self.pair(number, other), mask, strict=True))


def write_secret(path: Path, data: bytes) -> None:
    """A file that is its owner's alone from its first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(handle, 0o600)
    with open(handle, "wb") as out:
        out.write(data)


def make(path: Path) -> Keys:
    """Make a master key; an existing one stays."""
    if not path.exists():
        write_secret(path, secrets.token_bytes(KEY_BYTES))
    return load(path)


def load(path: Path) -> Keys:
    try:
        master = path.read_bytes()
    except OSError as error:
        raise UserError(
            "%s: %s: the master key of this gateway. Restore it from a backup (`hw gateway restore FILE "
            "NEWFOLDER`); where there has never been one, `hw gateway init` makes it" % (path, error.strerror)
        )
    if len(master) != KEY_BYTES:
        raise UserError(
            "%s has %d bytes and a master key %d: restore it from a copy" % (path, len(master), KEY_BYTES)
        )
    if path.stat().st_mode & 0o077:
        raise UserError("%s can be read by others: chmod 600 it" % path)
    return Keys(master)
