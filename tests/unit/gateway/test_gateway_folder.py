"""The folder of a site: what is there is not replaced silently, and what cannot be made again is told."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from headwater.board import settings
from headwater_gateway import UserError, broker, keys, provision
from headwater_gateway.board_link import trusting
from headwater_gateway.command import register
from headwater_gateway.config import read
from headwater_tools import cli, environment


def hw(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "data" not in path.parts
    }


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    provision.site(folder, "pi.example", 8883)
    return folder


# ---- boards


def test_a_known_board_is_not_provisioned_again_unasked(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = hw(capsys, "provision", "vent", site)
    assert code == 0 and "made" in out
    before = content(site)
    code, out, err = hw(capsys, "provision", "vent", site)
    assert (code, out) == (2, "")
    assert "board vent is registered already; nothing was changed" in err and "--renew" in err
    assert content(site) == before
    # Its folder went: it still is not made again by the way.
    for path in (site / "boards" / "vent").iterdir():
        path.unlink()
    assert "registered already" in hw(capsys, "provision", "vent", site)[2]


def test_renewal_gives_a_new_password_and_says_what_is_to_be_done(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "not registered: leave out --renew" in hw(capsys, "provision", "vent", site, "--renew")[2]
    home = register(site / "gateway.toml", "vent")
    config = json.loads((home / "config.json").read_text())
    config["sensors"] = {"air": {"driver": "wave"}}
    (home / "config.json").write_text(json.dumps(config))
    key, line = (home / "board.key").read_bytes(), (site / "mosquitto" / "passwords").read_text()
    code, out, _ = hw(capsys, "provision", "vent", site, "--renew")
    assert code == 0
    for words in ("put config.json and ca.der", "refuses its former password", "read its passwords again"):
        assert words in " ".join(out.split())
    renewed = json.loads((home / "config.json").read_text())
    assert renewed["broker"]["password"] != config["broker"]["password"]
    assert renewed["sensors"] == config["sensors"]
    assert (home / "board.key").read_bytes() == key
    after = (site / "mosquitto" / "passwords").read_text()
    assert after != line and after.count("vent:") == 1


def test_a_folder_that_the_database_does_not_know_keeps_its_key(site: Path) -> None:
    home = register(site / "gateway.toml", "vent")
    register(site / "gateway.toml", "hip")
    key = (home / "board.key").read_bytes()
    (site / "boards" / "vent").rename(site / "vent")
    for path in (site / "data").glob("gateway.db*"):
        path.unlink()
    (site / "boards" / "hip").rename(site / "hip")
    register(site / "gateway.toml", "other")  # a database of its own: number 1
    (site / "vent").rename(site / "boards" / "vent")
    with pytest.raises(UserError, match="board vent has a folder .*--rebuild"):
        register(site / "gateway.toml", "vent")
    assert (home / "board.key").read_bytes() == key


# ---- the site


def test_init_on_a_site_that_differs_says_so_and_changes_nothing(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(site)
    code, out, _ = hw(capsys, "gateway", "init", site)
    assert code == 0 and "nothing was changed" in out
    code, out, _ = hw(capsys, "gateway", "init", site, "--host", "pi.example", "--port", "8883")
    assert code == 0 and "nothing was changed" in out
    code, out, _ = hw(capsys, "gateway", "init", site, "--host", "other", "--port", "1", "--board", "vent")
    assert code == 1
    assert 'mqtt.host = "pi.example", and "other" was asked for' in out
    assert "mqtt.port = 8883, and 1 was asked for" in out
    assert "listens on port 8883, and 1 was asked for" in out
    assert "is a certificate for localhost, pi.example, 127.0.0.1, and not for other" in out
    assert content(site) == before
    code, out, _ = hw(capsys, "gateway", "init", site, "--board", "vent")
    assert code == 0 and (site / "boards" / "vent" / "board.key").exists()
    before = content(site)
    code, out, _ = hw(capsys, "gateway", "init", site, "--board", "vent")
    assert code == 0 and "board vent is registered already; it was not changed" in out
    assert content(site) == before


@pytest.mark.parametrize("strict", [True, False])
def test_the_broker_s_certificate_is_good_by_the_strict_rules_of_python_3_13_too(
    site: Path, strict: bool
) -> None:
    context = trusting(site / "tls" / "ca.crt")
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    if strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    broker_s = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker_s.load_cert_chain(site / "tls" / "broker.crt", site / "tls" / "broker.key")
    to_broker, to_us = ssl.MemoryBIO(), ssl.MemoryBIO()
    us = context.wrap_bio(to_us, to_broker, server_hostname="localhost")
    other = broker_s.wrap_bio(to_broker, to_us, server_side=True)
    for side in (us, other, us, other):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert us.getpeercert()


def test_a_lost_authority_is_never_replaced_silently(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = register(site / "gateway.toml", "vent")
    (site / "tls" / "broker.key").unlink()
    before = content(site)
    code, _, err = hw(capsys, "gateway", "init", site)
    assert code == 2
    for words in ("tls/broker.key: missing", "restore", "--new-authority", "(vent)", "--renew"):
        assert words in err
    assert content(site) == before
    former = (home / "ca.der").read_bytes()
    code, out, _ = hw(capsys, "gateway", "init", site, "--new-authority", "--host", "pi.example")
    assert code == 0 and "hw provision NAME %s --renew" % site in out and "vent" in out
    assert (home / "ca.der").read_bytes() == former  # the board is provisioned again by a person
    (away,) = (site / "tls").glob("former-*")
    assert sorted(path.name for path in away.iterdir()) == ["broker.crt", "ca.crt"]
    assert hw(capsys, "provision", "vent", site, "--renew")[0] == 0
    authority = x509.load_der_x509_certificate((home / "ca.der").read_bytes())
    server = x509.load_pem_x509_certificate((site / "tls" / "broker.crt").read_bytes())
    server.verify_directly_issued_by(authority)


def test_a_lost_ca_crt_is_taken_from_the_folder_of_a_board(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = (site / "tls" / "ca.crt").read_bytes()
    (site / "tls" / "ca.crt").unlink()
    assert "Choices" in hw(capsys, "gateway", "init", site)[2]  # no board has it
    (site / "tls" / "ca.crt").write_bytes(authority)
    register(site / "gateway.toml", "vent")
    (site / "tls" / "ca.crt").unlink()
    assert hw(capsys, "gateway", "init", site)[0] == 0
    assert (site / "tls" / "ca.crt").read_bytes() == authority


def test_a_lost_master_key_is_told_and_lost_passwords_are_made_again(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(site / "gateway.toml", "vent")
    (site / "mosquitto" / "passwords").unlink()
    assert hw(capsys, "gateway", "init", site)[0] == 0
    lines = (site / "mosquitto" / "passwords").read_text()
    assert "gateway:$7$" in lines and "vent:$7$" in lines
    (site / "secrets" / "master.key").unlink()
    code, _, err = hw(capsys, "gateway", "init", site)
    assert code == 2 and "master.key is missing" in err and "vent" in err and "restore" in err
    assert not (site / "secrets" / "master.key").exists()
    with pytest.raises(UserError, match="restore FILE"):
        keys.load(site / "secrets" / "master.key")


def test_the_gateway_says_how_a_lost_file_comes_back(site: Path) -> None:
    from headwater_gateway.service import Service

    (site / "tls" / "ca.crt").unlink()
    with pytest.raises(UserError, match="tls/ca.crt: No such file.*hw gateway init .*choices"):
        Service(read(site / "gateway.toml"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can do harm as root")
def test_root_leaves_nothing_in_the_site_of_another_user(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(site / "gateway.toml", "vent")
    nobody = pwd.getpwnam("nobody").pw_uid
    for path in (site, *site.rglob("*")):
        os.chown(path, nobody, -1)
    for words in (
        ("provision", "hip", site),
        ("provision", "vent", site, "--renew"),
        ("gateway", "init", site),
        ("gateway", "backup", site, tmp_path / "backup"),
    ):
        code, _, err = hw(capsys, *words)
        assert code == 2 and "belongs to user nobody" in err and "sudo -u nobody" in err, err
    assert all(path.stat().st_uid == nobody for path in (site, *site.rglob("*")))
    # The broker itself is started by root, and becomes that user.
    conf = site / "mosquitto" / "mosquitto.conf"
    conf.write_text(conf.read_text().replace("\nuser root\n", "\nuser nobody\n"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf.write_text(conf.read_text().replace("listener 8883", "listener %d 127.0.0.1" % port))
    shutil.chown(tmp_path, "nobody")
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    started = subprocess.Popen([*environment.mosquitto(), "-c", str(conf)], stderr=subprocess.PIPE, text=True)
    try:
        assert started.stderr is not None
        told = []
        for line in started.stderr:
            told.append(line)
            if " running" in line or "Error" in line:
                break
        assert "running" in told[-1], told
        status = Path("/proc/%d/status" % started.pid).read_text()
        assert "\nUid:\t%d\t%d\t" % (nobody, nobody) in status
    finally:
        started.kill()
        started.communicate()


# ---- the broker


def test_the_broker_runs_as_the_owner_of_the_folder(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = site / "mosquitto" / "mosquitto.conf"
    monkeypatch.setattr(broker, "_free", lambda *words: None)
    assert "\nuser %s\n" % provision.owner(site) in conf.read_text()
    assert broker.prepare(site) == conf
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    conf.write_text(conf.read_text().replace("\nuser %s\n" % provision.owner(site), "\n"))
    with pytest.raises(UserError, match="runs as user mosquitto, who may not read .*: write `user "):
        broker.prepare(site)
    with pytest.raises(UserError, match="mosquitto.conf is missing: `hw gateway init"):
        broker.prepare(site / "nothing")


def test_a_broker_is_told_of_passwords_only_while_it_is_one(site: Path) -> None:
    conf = site / "mosquitto" / "mosquitto.conf"
    assert broker.reload(site) == 0
    (conf.parent / broker.PID).write_text("%d\n" % os.getpid())  # a number that somebody else got since
    assert broker.reload(site) == 0
    wait = "import signal; signal.signal(signal.SIGHUP, lambda *a: print('again')); print('on', flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-uc", wait + "\nwhile True: signal.pause()", "-c", str(conf)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout is not None and other.stdout.readline() == "on\n"
        (conf.parent / broker.PID).write_text("%d\n" % other.pid)
        with pytest.raises(UserError, match="runs already, as process %d" % other.pid):
            broker.prepare(site)
        assert broker.reload(site) == other.pid
        assert other.stdout.readline() == "again\n"
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert broker.running(site) == 0


def test_a_port_that_is_taken_is_told(site: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        conf = site / "mosquitto" / "mosquitto.conf"
        port = taken.getsockname()[1]
        conf.write_text(conf.read_text().replace("listener 8883", "listener %d 127.0.0.1" % port))
        with pytest.raises(UserError, match="port %d is taken by another program" % port):
            broker.prepare(site)


def test_a_board_has_bluetooth_beside_the_broker_or_alone(site: Path) -> None:
    path = site / "gateway.toml"
    made = lambda: json.loads((site / "boards" / "vent" / "config.json").read_text())  # noqa: E731
    home = register(path, "vent")
    assert (home / "bluetooth.key").read_bytes() == (keys.load(site / "secrets" / "master.key")).bluetooth()
    assert "bluetooth" not in made() and settings.load(str(home / "config.json"))
    provision.links(site, "vent", "on", False)
    assert made()["bluetooth"]["enabled"] and made()["broker"]["password"]
    provision.links(site, "vent", "only", False)
    assert made()["bluetooth"]["enabled"] and made()["broker"] == {}
    assert settings.load(str(home / "config.json"))["broker"] == {}
    register(path, "vent", renew=True)
    assert made()["broker"] == {}  # as it was
    with pytest.raises(UserError, match="vent has no password for the broker, only Bluetooth: add --renew"):
        provision.links(site, "vent", "off", False)
    register(path, "vent", renew=True, bluetooth="off")
    assert not made()["bluetooth"]["enabled"] and made()["broker"]["password"]
    register(path, "shed", bluetooth="only")
    assert settings.load(str(site / "boards" / "shed" / "config.json"))["broker"] == {}
