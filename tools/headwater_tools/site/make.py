"""`hw new NAME`: the folder of a site that runs as it is, with virtual boards and an example process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from ..errors import UserError
from .place import taken

BOARDS = ("vent", "door")
PORTS = range(20_000, 30_000)  # outside the range from which a kernel takes ports for connections
TRIES = 200
SEGMENT_S = 2.0

EXAMPLE = '''\
"""What the boards of this site measure and compute, and what of it goes to the lake.

`hw check process.py` validates this file, `hw sim process.py --seeds 1:11` plays random histories of it, and
`hw deploy process.py --gateway .` brings a changed version to the boards while the site runs.
"""

from headwater.process import Average, Process, Threshold

# An operator takes a checkpoint every 60 elements, so that nothing is lost when its board dies.
p = Process("greenhouse", checkpoints="ecoc", every=60)

# Sources: name, fields with their types, samples a second, and the board. Board `vent` measures the
# temperature of the air in hundredths of a degree; board `door` whether the door is open.
air = p.source("air", "centi_c:i16", rate_hz=10, on="vent")
door = p.source("door", "open:u8", rate_hz=1, on="door")

# Operators run on a board, here on `vent`. `warm` gives an element whenever the mean of 5 seconds rises to
# 22 degrees, and when it has fallen to 18 again.
mean = air >> Average(seconds=5)
warm = mean >> Threshold(high=2200, low=1800)

# What goes to the lake, under which name. `durable="lake"`: an element of `warm` leaves its board only when
# it is in the lake.
p.lake("greenhouse/air", air)
p.lake("greenhouse/mean", mean)
p.lake("greenhouse/warm", warm, durable="lake", within_ms=60000)
p.lake("greenhouse/door", door)
'''

README = """\
# {name}

A Headwater site, made by `hw new`. In the folder above it:

    hw up {name}                                     broker, gateway, virtual boards and sink, until Ctrl-C
    hw lake show {name} greenhouse/air --last 5      rows of a stream
    hw board list {name}                             the boards, while the gateway runs
    hw deploy {name}/process.py --gateway {name}     after you have changed process.py

| | |
|---|---|
| `process.py` | what the boards measure and compute; `hw up` deploys it at first start |
| `gateway.toml` | every key with its default. Set by `hw new`: ports, `segment_s` (2 s), clock |
| `boards/` | what goes onto each board: configuration, key, certificate |
| `virtual/` | the virtual boards, each with its flash in a file |
| `landing/`, `lake/` | segments on their way; the Delta lake |
| `secrets/`, `tls/`, `mosquitto/` | master key and passwords: for their owner alone; certificates; broker |
| `logs/` | what the parts of `hw up` print |

The status page is http://127.0.0.1:{page}/, and the broker has port {broker}. It listens on {listens}.
"""


def make(folder: Path, host: str = "localhost", port: int | None = None) -> list[str]:
    """Make the site; its boards. UserError where the folder exists, or no site can be made there."""
    import headwater_gateway
    from headwater_gateway import config, provision
    from headwater_gateway.command import register

    if folder.exists() or folder.is_symlink():
        raise UserError("%s exists already, and nothing was changed: give the new site another name" % folder)
    if not folder.parent.is_dir():
        raise UserError("%s: there is no folder %s: make it first" % (folder, folder.parent))
    broker, page = free_ports(2)
    broker = port or broker
    try:
        provision.site(folder, host, broker)
        changed: dict[str, dict[str, Any]] = {
            "gateway": {"clock": "wall"},
            "mqtt": {"host": host, "port": broker},
            "lake": {"segment_s": SEGMENT_S},
            "http": {"port": page},
        }
        (folder / "gateway.toml").write_text(config.text(changed))
        if host == "localhost":
            _only_loopback(folder / "mosquitto" / "mosquitto.conf", broker)
        (folder / "landing").mkdir()
        (folder / "process.py").write_text(EXAMPLE)
        listens = "loopback alone: for boards of other machines make a site with `--host ADDRESS`"
        if host != "localhost":
            listens = "every address of this machine; boards reach it as %s" % host
        text = README.format(name=folder.name, page=page, broker=broker, listens=listens)
        (folder / "README.md").write_text(text)
        for name in BOARDS:
            register(folder / "gateway.toml", name)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    return list(BOARDS)


def _only_loopback(conf: Path, port: int) -> None:
    text = conf.read_text()
    conf.write_text(text.replace("listener %d\n" % port, "listener %d 127.0.0.1\n" % port))


def free_ports(count: int) -> list[int]:
    """Ports that no program listens on now. They are drawn at random, so that two sites that are made
    before either runs get different ones."""
    found: list[int] = []
    for port in random.sample(PORTS, TRIES):
        if not taken(port):
            found.append(port)
            if len(found) == count:
                return found
    raise UserError("no free port was found between %d and %d" % (PORTS[0], PORTS[-1]))
