"""The real mpremote against MicroPython at a serial port: provisioning, scanning, and the console."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chip
import firmware_files
import pytest
from headwater_tools import cli, environment
from headwater_tools.boards import firmware_file, provisioning, scan, serial_board
from headwater_tools.boards.serial_board import SerialBoard
from headwater_tools.errors import Failed, UserError
from headwater_tools.image import builder, profiles
from usb_board import UsbBoard

BOARD = profiles.profile("esp32")
LARGE = profiles.profile("esp32s3")  # with room for all modules in its file system
PASSWORD = "correct horse"


def flashed(folder: Path) -> Path:
    """A flash with the image in its place."""
    path = folder / "flash.bin"
    where = next(p for p in BOARD.table if p.label == "romfs")
    image = builder.romfs_image(BOARD).read_bytes()
    path.write_bytes(b"\xff" * BOARD.flash_kib * 1024)
    with open(path, "r+b") as file:
        file.seek(where.offset)
        file.write(image)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What `hw provision` makes of a board, with a certificate and key of its own."""
    folder = tmp_path / "boards" / "chest"
    folder.mkdir(parents=True)
    broker = {"host": "127.0.0.1", "password": "p", "cert": "board.crt", "cert_key": "board.pem"}
    config = {"name": "chest", "broker": broker, "wifi": {"ssid": "site", "password": PASSWORD}}
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in (("board.key", os.urandom(32)), ("ca.der", os.urandom(900))):
        (folder / name).write_bytes(content)
    for name in ("board.crt", "board.pem"):
        (folder / name).write_text(name * 200)
    return folder


def hw(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--json"])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), json.loads(out.splitlines()[-1]), err


def on_board(port: str, name: str) -> str:
    """SHA-256 of a file on the board, by mpremote as a person uses it."""
    command = [str(environment.VENV / "bin" / "mpremote"), "connect", port, "fs", "sha256sum", ":" + name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_a_flashed_board_is_provisioned_and_has_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "firmware.bin"
    given.write_bytes(firmware_files.firmware(firmware_file.chip_of(BOARD)))
    flash = chip.Flash(tmp_path / "flash.bin", BOARD.flash_kib * 1024)
    with chip.plugged(BOARD.chip, flash) as port:
        assert hw(capsys, "flash", "esp32", "--port", port, "--firmware", str(given))[0] == 0
    assert hw(capsys, "gateway", "init", str(tmp_path / "site"))[0] == 0
    assert hw(capsys, "provision", "chest", str(tmp_path / "site"))[0] == 0
    home = tmp_path / "site" / "boards" / "chest"
    config = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps({**config, "wifi": {"ssid": "a", "password": PASSWORD}}))
    with UsbBoard(BOARD, flash.path) as board:
        words = ("provision", "chest", str(tmp_path / "site"), "--port", board.port, "--board", "esp32")
        code, answer, err = hw(capsys, *words)
        assert (code, err) == (0, ""), answer
        assert answer["files"] == ["board.key", "boot.py", "ca.der", "config.json", "main.py"]
        assert answer["code"] == "/rom"
        assert PASSWORD not in json.dumps(answer)
        until(lambda: board.starts == 2)  # it was reset
        for name in answer["files"]:
            source = home / name if (home / name).exists() else environment.ROOT / "firmware" / name
            assert on_board(board.port, name) == hashlib.sha256(source.read_bytes()).hexdigest(), name
    assert json.loads((home / "config.json").read_text())["sensors"]["ecg"]["driver"] == "adc"


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_certificates_and_keys_of_a_board_go_with_its_configuration(home: Path, tmp_path: Path) -> None:
    with UsbBoard(BOARD, flashed(tmp_path)) as board:
        found = provisioning.onto(home, board.port)
        assert set(found["files"]) == {path.name for path in home.iterdir()} | {"boot.py", "main.py"}
        assert not SerialBoard(board.port).different(provisioning.files(home))
        (home / "ca.der").write_bytes(b"another")
        assert SerialBoard(board.port).different(provisioning.files(home)) == ["ca.der"]


def test_no_secret_is_in_an_argument_of_any_program(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = subprocess.run

    def noted(command: list[str], **words: Any) -> Any:
        ran.extend(command)
        return run(command, **words)

    monkeypatch.setattr(subprocess, "run", noted)
    with UsbBoard(BOARD, flashed(tmp_path)) as board:
        provisioning.onto(home, board.port)
    assert "mpremote" in ran
    for secret in (PASSWORD, (home / "board.key").read_bytes().hex(), "board.pemboard.pem"):
        assert not [word for word in ran if secret in word]


def test_a_board_that_cannot_run_it_is_refused_before_anything_is_copied(home: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.bin"
    for romfs, said in ((True, "has no Headwater: first `hw flash BOARD"), (False, "--kind littlefs")):
        with UsbBoard(BOARD, empty, romfs=romfs) as board:
            with pytest.raises(UserError, match=said):
                provisioning.onto(home, board.port)
            with pytest.raises(Failed, match="fs failed"):
                SerialBoard(board.port).different({"config.json": home / "config.json"})
    about = {"version": [1, 20, 0], "code": "/rom", "log": True, "romfs": True}
    with pytest.raises(UserError, match="runs MicroPython 1.20.0, and Headwater is tested with 1.25: flash"):
        provisioning.check(about, "/dev/ttyUSB0")
    provisioning.check(about, "/dev/ttyUSB0", any_version=True)
    with pytest.raises(UserError, match="has no partition `log`: flash it"):
        provisioning.check({**about, "version": [1, 25, 0], "log": False}, "/dev/ttyUSB0")


def test_something_that_is_no_micropython_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_board, "ANSWER_S", 3)
    with chip.silent() as port, pytest.raises(Failed, match="not answer within 3 s: it may have no MicroPy"):
        SerialBoard(port).about()


def test_mip_installs_every_module_from_the_package(tmp_path: Path) -> None:
    shutil.copy(environment.ROOT / "firmware" / "package.json", tmp_path / "package.json")
    builder.write_folder(LARGE, tmp_path / "image", environment.version())
    with UsbBoard(LARGE, tmp_path / "flash.bin", romfs=False) as board:
        command = [str(environment.VENV / "bin" / "mpremote"), "connect", board.port, "mip", "install"]
        command += ["--target", "/lib", str(tmp_path / "package.json")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        files = {"lib/" + name: data for name, data in builder.contents(LARGE).items()}
        words = ["fs", "sha256sum", *(":" + name for name in files)]
        done = subprocess.run([*command[:3], *words], capture_output=True, text=True, timeout=60)
        found = re.findall(r"\b[0-9a-f]{64}\b", done.stdout)
        assert found == [hashlib.sha256(data).hexdigest() for data in files.values()]
        about = SerialBoard(board.port).about()
    assert (about["code"], about["romfs"]) == ("/lib", False)


def scanned(*words: str) -> tuple[int, dict[str, Any]]:
    parser = argparse.ArgumentParser()
    scan.arguments(parser)
    return scan.scan(parser.parse_args(words))


def test_scan_asks_a_board_what_it_is_and_what_answers_on_its_i2c_bus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with UsbBoard(BOARD, flashed(tmp_path), addresses=(0x68, 0x76, 0x20)) as board:
        code, answer = scanned("--port", board.port, "--scl", "22", "--sda", "21")
        assert code == 0 and answer["board"]["i2c"] == [0x68, 0x76, 0x20]
        out = capsys.readouterr().out
        assert "MicroPython 1.25.0, Headwater in /rom" in out
        assert "I2C 0x68  MPU6050" in out and "I2C 0x20  unknown here" in out
        with pytest.raises(Failed, match="the bus is stuck or has no pull-ups"):
            scanned("--port", board.port, "--scl", "1", "--sda", "2")
    with pytest.raises(UserError, match="an I2C bus has two pins"):
        scanned("--scl", "22")


# ---- the console

# What is printed while nobody has the port open is lost, so the program waits first, as boot.py does.
ECHO = """
import sys, time
time.sleep_ms(1500)
print("ready")
while True:
    byte = sys.stdin.buffer.read(1)
    if byte == b"r":
        import machine
        machine.reset()
    sys.stdout.buffer.write(b"<" + byte + b">")
"""


class Terminal:
    """`hw monitor` on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.fd, slave = os.openpty()
        command = [str(environment.ROOT / "hw"), "monitor", *words]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
        os.close(slave)
        self.shown = b""

    def sees(self, text: bytes, times: int = 1, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while self.shown.count(text) < times:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, (text, self.shown)
            try:
                self.shown += os.read(self.fd, 4096)
            except OSError:
                raise AssertionError((text, self.shown))

    def type(self, data: bytes) -> None:
        os.write(self.fd, data)


@pytest.fixture
def monitor() -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: str) -> Terminal:
        made.append(Terminal(*words))
        return made[-1]

    yield start
    for terminal in made:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.fd)


@pytest.mark.parametrize("leave", [b"\x1d", b"\x03"], ids=["Ctrl-]", "Ctrl-C"])
def test_monitor_goes_on_when_the_board_resets_or_is_replugged(
    leave: bytes, tmp_path: Path, monitor: Callable[..., Terminal]
) -> None:
    with UsbBoard(BOARD, tmp_path / "flash.bin", main=ECHO) as board:
        terminal = monitor("--port", board.port)
        terminal.sees(b"leaves")
        terminal.type(b"x")
        terminal.sees(b"<x>")
        before = terminal.shown.count(b"ready")
        terminal.type(b"r")
        terminal.sees(b"ready", before + 1)
        assert board.starts == 2
        board.unplug()
        terminal.sees(b"is gone; waiting for it")
        board.plug()
        terminal.sees(b"is back")
        terminal.sees(b"ready", before + 2)
        terminal.type(b"y")
        terminal.sees(b"<y>")
        terminal.type(leave)
        assert terminal.process.wait(120) == 0


def test_monitor_leaves_after_a_time_where_standard_input_is_no_terminal(tmp_path: Path) -> None:
    with UsbBoard(BOARD, tmp_path / "flash.bin", main=ECHO) as board:
        command = [str(environment.ROOT / "hw"), "monitor", "--port", board.port, "--seconds", "4", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ready" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == {"port": board.port, "opened": 1}


def test_a_port_is_used_by_one_program_at_a_time(
    tmp_path: Path, monitor: Callable[..., Terminal], capsys: pytest.CaptureFixture[str]
) -> None:
    with UsbBoard(BOARD, tmp_path / "flash.bin", main=ECHO) as board:
        terminal = monitor("--port", board.port)
        terminal.type(b"x")
        terminal.sees(b"<x>")
        for words in (("monitor", "--port"), ("flash", "esp32", "--port"), ("provision", "a", ".", "--port")):
            code, answer, err = hw(capsys, *words, board.port)
            assert code == 2 and len(err.splitlines()) == 1
            assert answer["error"].startswith(board.port + " is in use by another program: end it")
        terminal.type(b"\x1d")
        terminal.process.wait(120)
