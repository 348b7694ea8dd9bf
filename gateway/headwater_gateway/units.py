"""The systemd units of a site: the templates in gateway/, with what runs them, this site and its owner.

A repository has units for broker, gateway, sink and upkeep, which run its `hw`. The wheel of the gateway
has the unit of the gateway alone, which runs `headwater-gateway`. The folder of a host (`hw host`) has one
unit, which is named after the host.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import UserError
from .provision import check_name

WHEEL = Path(__file__).with_name("systemd")  # where the wheel has the templates
TEMPLATES = sorted((WHEEL if WHEEL.is_dir() else Path(__file__).parents[1]).glob("headwater-*.*"))
GATEWAY = "headwater-gateway.service"
HOST = "headwater-host.service"
ROOT = "/opt/headwater"
SITE = "/var/lib/headwater"
USER = "headwater"
HOMES = ("/home", "/root", "/run/user")  # what ProtectHome hides


def filled(text: str, root: Path, site: Path, user: str) -> str:
    """A template for this repository, site and user."""
    for path in (root, site):
        if any(c.isspace() or c in "%\"'\\" for c in str(path)):
            raise UserError("%s: a unit of systemd needs a path without spaces, quotes or %%" % path)
    lines = []
    for line in text.splitlines():
        if line.startswith("# Template:") or line.startswith("# is in /opt/headwater"):
            continue
        if line == "User=" + USER:
            line = "User=" + user
        if line == "ProtectHome=true" and any(Path(home) in (*root.parents, *site.parents) for home in HOMES):
            line = "ProtectHome=false"
        lines.append(line.replace(SITE, str(site)).replace(ROOT, str(root)))
    return "\n".join(lines) + "\n"


def installed(text: str, program: Path) -> str:
    """The template of gateway or host for the program that the wheel installs, not for a repository."""
    lines = [line for line in text.splitlines() if not line.startswith("Documentation=")]
    text = "\n".join(lines).replace(ROOT + "/hw gateway ", str(program) + " ")
    return text.replace(ROOT + "/hw host ", str(program) + " host ") + "\n"


def host_in(folder: Path) -> str | None:
    """The name of the host whose folder this is; None where it is not one."""
    try:
        found = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return None
    check_name(name)
    return name


def write(
    target: Path,
    site: Path,
    user: str,
    root: Path | None,
    program: Path | None = None,
    host: str | None = None,
) -> list[Path]:
    """The units of a site in `target`; units that are there already stay. `root`: the repository; without
    one, the unit of the gateway alone, for `program`. `host`: `site` is the folder of this host."""
    if not target.is_dir():
        raise UserError("%s is not a folder: make it, or name one, like /etc/systemd/system" % target)
    site = site.resolve()
    if host:
        wanted = {path: "headwater-host-%s.service" % host for path in TEMPLATES if path.name == HOST}
    else:
        wanted = {path: path.name for path in TEMPLATES if path.name == GATEWAY or root and path.name != HOST}
    there = [name for name in wanted.values() if (target / name).exists()]
    if there:
        raise UserError("%s has %s already, and nothing is overwritten" % (target, ", ".join(there)))
    made = []
    for path, name in wanted.items():
        text = path.read_text()
        if program and not root:
            text = installed(text, program)
        text = filled(text, root or (program or site).parent, site, user)
        (target / name).write_text(text)
        made.append(target / name)
    return made
