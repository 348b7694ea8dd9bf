"""The systemd units of a site: templates that systemd accepts, filled for the site they are made for."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from headwater_gateway import UserError, provision, units
from headwater_tools import cli, environment

NAMES = [
    "headwater-broker.service", "headwater-gateway.service", "headwater-maintenance.service",
    "headwater-maintenance.timer", "headwater-sink.service",
]  # fmt: skip


class Unit(configparser.RawConfigParser):
    def __init__(self, path: Path) -> None:
        super().__init__(strict=True, delimiters="=", comment_prefixes="#")
        self.optionxform = str  # type: ignore[assignment, method-assign]
        self.read(path)


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    site = tmp_path / "site"
    provision.site(site, "localhost", 8883)
    (tmp_path / "system").mkdir()
    with pytest.raises(SystemExit) as stop:
        cli.main(["gateway", "units", str(site), str(tmp_path / "system")])
    out = capsys.readouterr().out
    assert not stop.value.code and "systemctl enable --now headwater-broker headwater-gateway" in out
    return tmp_path / "system"


def test_units_name_this_repository_site_and_owner(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == NAMES
    assert sorted([*NAMES, units.HOST]) == [p.name for p in units.TEMPLATES]
    site, hw = made.parent / "site", environment.ROOT / "hw"
    for name in NAMES:
        text = (made / name).read_text()
        assert units.ROOT not in text and units.SITE + "\n" not in text and "Template" not in text
        if name.endswith(".service"):
            service = Unit(made / name)["Service"]
            assert service["User"] == provision.owner(site)
            assert service["ExecStart"].startswith("%s " % hw) and str(site) in service["ExecStart"]
            assert service["ReadWritePaths"] == str(site)
    assert Unit(made / "headwater-broker.service")["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    with pytest.raises(UserError, match="nothing is overwritten"):
        units.write(made, site, "root", environment.ROOT)


def test_what_a_command_takes_is_what_a_unit_gives_it() -> None:
    """The words after `hw` are those of the command, as its help has them."""
    for name, words in (
        ("broker", ["broker", "run", "/var/lib/headwater"]),
        ("gateway", ["gateway", "run", "/var/lib/headwater"]),
        ("host", ["host", "/var/lib/headwater"]),
        ("sink", ["sink", "/var/lib/headwater/landing", "/var/lib/headwater/lake", "--forever"]),
        ("maintenance", ["maintain", "/var/lib/headwater/lake"]),
    ):
        service = Unit(environment.ROOT / "gateway" / ("headwater-%s.service" % name))["Service"]
        assert service["ExecStart"].split() == ["/opt/headwater/hw", *words]
        if name != "maintenance":
            # Bad use, a wrong configuration and a damaged database end with 2: no restart cures them.
            assert service["RestartPreventExitStatus"] == "2" and service["Restart"] == "on-failure"


def test_the_folder_of_a_host_has_a_unit_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, target = tmp_path / "shed", tmp_path / "system"
    home.mkdir()
    target.mkdir()
    (home / "config.json").write_text('{"name": "shed"}')
    with pytest.raises(SystemExit) as stop:
        cli.main(["gateway", "units", str(home), str(target)])
    assert not stop.value.code and "systemctl enable --now headwater-host-shed" in capsys.readouterr().out
    service = Unit(target / "headwater-host-shed.service")["Service"]
    assert service["ExecStart"] == "%s host %s" % (environment.ROOT / "hw", home)
    assert service["ReadWritePaths"] == str(home) and service["User"] == provision.owner(home)
    (target / "headwater-host-shed.service").unlink()
    units.write(target, home, "pi", None, Path("/opt/venv/bin/headwater-gateway"), "shed")
    service = Unit(target / "headwater-host-shed.service")["Service"]
    assert service["ExecStart"] == "/opt/venv/bin/headwater-gateway host %s" % home


def test_homes_are_hidden_unless_the_site_is_in_one() -> None:
    text = (environment.ROOT / "gateway" / "headwater-gateway.service").read_text()
    assert "ProtectHome=true" in units.filled(text, Path("/opt/hw"), Path("/srv/site"), "x")
    assert "ProtectHome=false" in units.filled(text, Path("/opt/hw"), Path("/home/x/site"), "x")
    with pytest.raises(UserError, match="without spaces"):
        units.filled(text, Path("/opt/h w"), Path("/srv/site"), "x")


def test_systemd_accepts_the_units(made: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here; the other tests parse the units")
    done = subprocess.run(
        [tool, "verify", "--man=no", *map(str, sorted(made.iterdir()))], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if "headwater-" in line]
    assert done.returncode == 0 and not told, done.stderr
    for name in NAMES:
        if name.endswith(".service"):
            done = subprocess.run(
                [tool, "security", "--offline=true", str(made / name)], capture_output=True, text=True
            )
            found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
            assert found is not None, done.stdout + done.stderr
            assert float(found[1]) < 3.5, done.stdout
