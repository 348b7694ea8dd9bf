"""The secrets of a board at a site with real parts: provisioned twice it goes on, renewed it comes back."""

from __future__ import annotations

import json

from gateway_site import Site, until
from headwater_gateway import broker

ONE = """
from headwater.process import Process
p = Process("one", every=50, batch=25)
p.lake("one/accel", p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist"))
"""


def durable(site: Site) -> int:
    return int(site.stream("one/accel")["durable"])


def grows(site: Site) -> None:
    before = durable(site)
    until(lambda: durable(site) > before + 50, 90, site.consoles())


def test_a_board_goes_on_after_a_second_provision_and_comes_back_after_renewal(site: Site) -> None:
    # As it is documented, by whoever runs this: root, too.
    site.start_broker()
    site.start_gateway()
    wrist = site.wave_board()
    wrist.start()
    (site.folder / "one.py").write_text(ONE)
    site.hw("deploy", "one.py", "--wait", "60")
    grows(site)

    done = site.command("provision", "wrist")
    assert done.returncode == 2 and "registered already; nothing was changed" in done.stderr
    site.stop_broker()  # it reads its passwords again
    site.start_broker()
    grows(site)

    assert site.broker is not None
    assert broker.running(site.folder) == site.broker.pid
    done = site.command("provision", "wrist", "--renew")
    assert done.returncode == 0 and "the broker (process %d) has been told" % site.broker.pid in done.stdout
    site.stop_broker()
    site.start_broker()
    # The former password holds no more.
    until(lambda: "refused by the broker" in "\n".join(wrist.lines), 90, site.consoles())
    wrist.kill()
    home = site.folder / "boards" / "wrist"
    config = json.loads((wrist.folder / "config.json").read_text())
    config["broker"]["password"] = json.loads((home / "config.json").read_text())["broker"]["password"]
    (wrist.folder / "config.json").write_text(json.dumps(config))
    (wrist.folder / "ca.der").write_bytes((home / "ca.der").read_bytes())
    assert (wrist.folder / "board.key").read_bytes() == (home / "board.key").read_bytes()
    wrist.start()
    grows(site)
    last = wrist.accepted()[-1]
    until(lambda: durable(site) >= last.xi + last.n - 1, 90, site.consoles())
