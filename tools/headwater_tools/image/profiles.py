"""Kinds of boards that images are built for: `firmware/profiles/NAME/` has a profile and a partition table.

`profile.toml` names every fact about a kind of board that the builder and its reports use.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from .. import environment
from ..errors import UserError
from .partitions import BLOCK, Table, read_csv

__all__ = ["BLOCK", "Profile", "names", "profile"]
FOLDER = environment.ROOT / "firmware" / "profiles"
BOTH_RADIOS = ("yes", "with PSRAM", "without TLS", "no")
ARCHITECTURES = ("x86", "xtensawin", "rv32imc")  # what mpy-cross calls them


@dataclass(frozen=True)
class Profile:
    name: str
    chip: str
    arch: str  # -march of mpy-cross; it matters to machine code, of which an image has none
    float_bits: int  # of the floats of its MicroPython
    flash_kib: int
    heap_kib: int  # what the garbage collector starts with
    heap_grows: bool  # whether it takes more memory when that is full
    firmware: tuple[str, ...]  # files of firmware/ that lie beside the package as .mpy
    start: tuple[str, ...]  # files of firmware/ that MicroPython starts, in the root of its file system
    pairing: bool  # whether its Bluetooth is good enough for LE Secure Connections
    both_radios: str  # whether its memory holds Wi-Fi and Bluetooth at once: one of BOTH_RADIOS
    table: Table
    partitions: dict[str, int]  # label -> bytes


def names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/profile.toml"))


def profile(name: str) -> Profile:
    folder = FOLDER / name
    if name not in names():
        raise UserError("no board '%s': firmware/profiles has %s" % (name, ", ".join(names())))
    with open(folder / "profile.toml", "rb") as file:
        given = tomllib.load(file)
    try:
        flash_kib = given.pop("flash_kib")
        table = read_csv(folder / "partitions.csv", flash_kib * 1024)
        found = Profile(
            name=name,
            chip=given.pop("chip"),
            arch=given.pop("arch"),
            float_bits=given.pop("float_bits"),
            flash_kib=flash_kib,
            heap_kib=given.pop("heap_kib"),
            heap_grows=given.pop("heap_grows"),
            firmware=tuple(given.pop("firmware")),
            start=tuple(given.pop("start")),
            pairing=given.pop("pairing"),
            both_radios=given.pop("both_radios"),
            table=table,
            partitions={p.label: p.size for p in table},
        )
    except KeyError as missing:
        raise UserError("%s/profile.toml has no %s" % (folder, missing))
    if given:
        raise UserError("%s/profile.toml: unknown key '%s'" % (folder, min(given)))
    if found.both_radios not in BOTH_RADIOS:
        known = ", ".join(BOTH_RADIOS)
        raise UserError(
            "%s/profile.toml: both_radios '%s', use one of %s" % (folder, found.both_radios, known)
        )
    if found.arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError("%s/profile.toml: arch '%s', use one of %s" % (folder, found.arch, known))
    return found
