"""The systemd units of a site: the templates in gateway/, with this repository, this site and its owner."""

from __future__ import annotations

from pathlib import Path

from . import Trouble, house

TEMPLATES = sorted((house.ROOT / "gateway").glob("headwater-*.*"))
ROOT = "/opt/headwater"
SITE = "/var/lib/headwater"
USER = "headwater"
HOMES = ("/home", "/root", "/run/user")  # what ProtectHome hides


def filled(text: str, root: Path, site: Path, user: str) -> str:
    """A template for this repository, site and user."""
    for path in (root, site):
        if any(c.isspace() or c in "%\"'\\" for c in str(path)):
            raise Trouble("%s: a unit of systemd needs a path without spaces, quotes or %%" % path)
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


def write(target: Path, site: Path, user: str) -> list[Path]:
    """The units of a site in `target`; units that are there already stay."""
    if not target.is_dir():
        raise Trouble("%s is not a folder: make it, or name one, like /etc/systemd/system" % target)
    site = site.resolve()
    there = [path.name for path in TEMPLATES if (target / path.name).exists()]
    if there:
        raise Trouble("%s has %s already, and nothing is overwritten" % (target, ", ".join(there)))
    made = []
    for path in TEMPLATES:
        text = filled(path.read_text(), house.ROOT, site, user)
        (target / path.name).write_text(text)
        made.append(target / path.name)
    return made
