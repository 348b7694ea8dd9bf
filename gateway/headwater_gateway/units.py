"""The systemd units of a site: the templates in gateway/, with what runs them, this site and its owner.

A repository has units for broker, gateway, sink and upkeep, which run its `hw`. The wheel of the gateway has
the unit of the gateway alone, which runs `headwater-gateway`.
"""

from __future__ import annotations

from pathlib import Path

from . import UserError

WHEEL = Path(__file__).with_name("systemd")  # where the wheel has the templates
TEMPLATES = sorted((WHEEL if WHEEL.is_dir() else Path(__file__).parents[1]).glob("headwater-*.*"))
GATEWAY = "headwater-gateway.service"
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
    """The template of the gateway for the program that its wheel installs, not for a repository."""
    lines = [line for line in text.splitlines() if not line.startswith("Documentation=")]
    return "\n".join(lines).replace(ROOT + "/hw gateway ", str(program) + " ") + "\n"


def write(target: Path, site: Path, user: str, root: Path | None, program: Path | None = None) -> list[Path]:
    """The units of a site in `target`; units that are there already stay. `root`: the repository; without
    one, the unit of the gateway alone, for `program`."""
    if not target.is_dir():
        raise UserError("%s is not a folder: make it, or name one, like /etc/systemd/system" % target)
    site = site.resolve()
    wanted = [path for path in TEMPLATES if root or path.name == GATEWAY]
    there = [path.name for path in wanted if (target / path.name).exists()]
    if there:
        raise UserError("%s has %s already, and nothing is overwritten" % (target, ", ".join(there)))
    made = []
    for path in wanted:
        text = path.read_text()
        if program and not root:
            text = installed(text, program)
        text = filled(text, root or (program or site).parent, site, user)
        (target / path.name).write_text(text)
        made.append(target / path.name)
    return made
