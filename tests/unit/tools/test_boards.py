"""Real boards without their hardware: definitions for those who build firmware, firmware files, ports, and
the sentence for each thing that goes wrong."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import chip
import firmware_files
import pytest
from headwater_tools import cli, environment
from headwater_tools.boards import firmware_file, flashing, ports, provisioning, serial_board
from headwater_tools.errors import UserError
from headwater_tools.image import builder, partitions, profiles

FIRMWARE = environment.ROOT / "firmware"
DEFINITIONS = {"HEADWATER_ESP32": "esp32", "HEADWATER_ESP32_S3": "esp32s3", "HEADWATER_ESP32_C3": "esp32c3"}
REAL = sorted(DEFINITIONS.values())
ESP32 = firmware_file.CHIPS["ESP32"]


# ---- definitions and tables


def test_there_is_a_definition_of_each_board() -> None:
    assert {path.name for path in (FIRMWARE / "boards").iterdir()} == set(DEFINITIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_agrees_with_its_profile(name: str) -> None:
    folder, board = FIRMWARE / "boards" / name, profiles.profile(DEFINITIONS[name])
    cmake = (folder / "mpconfigboard.cmake").read_text()
    (table,) = re.findall(r"\$\{MICROPY_BOARD_DIR\}/(\S+\.csv)", cmake)
    assert (folder / table).resolve() == profiles.FOLDER / board.name / "partitions.csv"
    target = re.search(r"IDF_TARGET (\w+)", cmake)
    assert (target[1] if target else "esp32") == firmware_file.chip_of(board).esptool
    sizes = re.findall(
        r"^CONFIG_ESPTOOLPY_FLASHSIZE_(\d+)MB=y$", (folder / "sdkconfig.board").read_text(), re.M
    )
    assert sizes == [str(board.flash_kib // 1024)]
    header = (folder / "mpconfigboard.h").read_text()
    assert re.search(r"^#define MICROPY_VFS_ROM +\(1\)$", header, re.M)
    assert re.search(r'^#define MICROPY_HW_MCU_NAME +"%s"$' % board.chip, header, re.M)
    stack = re.search(r"^#define MICROPY_TASK_STACK_SIZE +\((\d+) \* 1024\)$", header, re.M)
    assert stack and int(stack[1]) > 16  # the default


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_manifest_of_a_definition_freezes_what_starts_the_program(name: str) -> None:
    folder = FIRMWARE / "boards" / name
    frozen: list[Path] = []
    included: list[str] = []
    space = {
        "include": included.append,
        "module": lambda path, base_path: frozen.append((folder / base_path / path).resolve()),
    }
    exec((folder / "manifest.py").read_text(), space)
    assert included == ["$(PORT_DIR)/boards/manifest.py"]
    assert [path.relative_to(FIRMWARE).as_posix() for path in frozen] == list(provisioning.START)
    assert all(path.is_file() for path in frozen)


@pytest.mark.parametrize("name", REAL)
def test_a_partition_table_is_sound_and_its_bytes_are_read_back(name: str) -> None:
    board = profiles.profile(name)
    end = partitions.TABLE_AT + partitions.BLOCK
    for p in board.table:
        assert p.offset >= end and p.offset % 4096 == p.size % 4096 == 0 < p.size
        assert p.type != partitions.APP or p.offset % 65536 == 0
        end = p.end
    assert end <= board.flash_kib * 1024
    labels = [p.label for p in board.table]
    assert labels == ["nvs", "phy_init", "factory", "romfs", "log", "vfs"]
    # Two halves of 63 sectors, of which one runs while the other is written, and two sectors of records.
    assert board.partitions["romfs"] == 128 * 4096
    assert builder.romfs_image(board).stat().st_size <= 63 * 4096
    assert partitions.from_bytes(partitions.to_bytes(board.table), board.flash_kib * 1024) == board.table


def test_a_table_that_is_damaged_or_wrong_is_refused() -> None:
    board = profiles.profile("esp32")
    data = bytearray(partitions.to_bytes(board.table))
    data[5] ^= 1
    with pytest.raises(UserError, match="the partition table is damaged: its digest is wrong"):
        partitions.from_bytes(bytes(data), 4 << 20)
    with pytest.raises(UserError, match="there is no partition table"):
        partitions.from_bytes(b"\xff" * 0xC00, 4 << 20)
    with pytest.raises(UserError, match="partition romfs overlaps another, is not whole .* behind the flash"):
        partitions.from_bytes(partitions.to_bytes(board.table), 2 << 20)
    app = partitions.Partition("app", partitions.APP, 0, 0x11000, 0x1000)
    with pytest.raises(UserError, match="partition app overlaps another, is not whole blocks of 65536"):
        partitions.from_bytes(partitions.to_bytes([app]), 4 << 20)


def test_a_line_of_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "partitions.csv"
    for line in ("log, data, 0x40, here, 0x1000", "log, daten, 0x40, 0, 0x1000", "log, data"):
        path.write_text("# Name\n%s\n" % line)
        with pytest.raises(UserError, match="partitions.csv: '%s': give label, type" % line):
            partitions.read_csv(path, 4 << 20)


@pytest.mark.parametrize("name", REAL)
def test_what_is_flashed_lies_in_its_partitions_and_leaves_log_and_files_alone(name: str) -> None:
    board = profiles.profile(name)
    kind = firmware_file.chip_of(board)
    where = {p.label: p for p in board.table}
    firmware = firmware_file.Firmware(*parsed(firmware_files.firmware(kind), kind))
    (whole,) = flashing.parts(board, "romfs", firmware)
    assert whole.at == kind.bootloader_at
    image = builder.romfs_image(board).read_bytes()
    assert whole.at + len(whole.data) == where["romfs"].offset + len(image) <= where["log"].offset
    assert whole.data.endswith(image)
    head, files = flashing.parts(board, "littlefs", firmware)
    assert head.at + len(head.data) <= where["factory"].end
    assert (files.at, files.data) == (where["vfs"].offset, builder.littlefs_image(board).read_bytes())


def parsed(data: bytes, kind: firmware_file.Chip) -> tuple[bytes, bytes, tuple[int, int, int]]:
    return data[:1000], data[0x10000 - kind.bootloader_at :], (1, 25, 0)


# ---- firmware files


def refused(tmp_path: Path, data: bytes, kind: firmware_file.Chip = ESP32) -> str:
    path = tmp_path / "firmware.bin"
    path.write_bytes(data)
    with pytest.raises(UserError) as trouble:
        firmware_file.read(path, kind)
    text = str(trouble.value)
    assert str(path) in text and "\n" not in text
    return text


def test_a_firmware_file_is_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "firmware.bin"
    for kind in firmware_file.CHIPS.values():
        data = firmware_files.firmware(kind)
        path.write_bytes(data)
        found = firmware_file.read(path, kind)
        assert found.app == data[0x10000 - kind.bootloader_at :]
        assert data.startswith(found.bootloader) and found.bootloader[-1] != 0xFF
        assert (found.version, found.romfs) == ((1, 25, 0), True)
        for megabytes, code in ((4, 2), (8, 3), (16, 4)):
            assert firmware_file.with_flash_size(found.bootloader, megabytes)[3] >> 4 == code
    path.write_bytes(firmware_files.firmware(ESP32, romfs=False))
    assert not firmware_file.read(path, ESP32).romfs


def test_a_file_that_is_no_firmware_for_the_board_is_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = firmware_files.firmware(ESP32)
    assert "is no firmware of an ESP32: give the .bin" in refused(tmp_path, b"")
    assert "is no firmware of an ESP32" in refused(tmp_path, b"PK\3\4 a zip archive")
    assert "ends within its first header" in refused(tmp_path, whole[:10])
    s3 = firmware_files.firmware(firmware_file.CHIPS["ESP32-S3"])
    assert "is for ESP32-S3, and the board has an ESP32: give the firmware for it" in refused(tmp_path, s3)
    app = whole[0xF000:]
    assert "give the whole firmware, not the application alone" in refused(tmp_path, app)
    assert "the application in" in refused(tmp_path, whole[:-100])
    assert "is cut or damaged: fetch or build the file again" in refused(tmp_path, whole[:0xF000])
    for at in (30, len(whole) - 2000, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        assert "is cut or damaged" in refused(tmp_path, bytes(damaged)), at
    other = firmware_files.firmware(ESP32, banner=b"CircuitBreaker %s")
    assert "is firmware for this chip, but no MicroPython" in refused(tmp_path, other)
    old = firmware_files.firmware(ESP32, version=b"1.20.0")
    assert "is MicroPython 1.20.0, and Headwater is tested with 1.25" in refused(tmp_path, old)
    assert firmware_file.read(tmp_path / "firmware.bin", ESP32, any_version=True).version == (1, 20, 0)
    data = (partitions.Partition("nvs", partitions.DATA, 2, 0x9000, 0x6000),)
    assert "has no application" in refused(tmp_path, firmware_files.firmware(ESP32, table=data))


def hw(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--json"])
    out, err = capsys.readouterr()
    answer = json.loads(out.splitlines()[-1])
    assert len(err.splitlines()) == 1, err
    return int(stop.value.code or 0), str(answer["error"])


def test_stock_firmware_is_refused_where_the_image_needs_romfs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stock.bin"
    path.write_bytes(firmware_files.firmware(ESP32, romfs=False))
    words = ("flash", "esp32", "--firmware", str(path), "--dry-run")
    code, said = hw(capsys, *words)
    assert code == 2 and "cannot mount a ROMFS image (it has no VfsRom, like all stock firmware" in said
    assert "--kind littlefs on a board with PSRAM" in said
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--kind", "littlefs"])
    assert stop.value.code == 0
    line = capsys.readouterr().out
    assert line.startswith("esptool --chip esp32 --port PORT --baud 460800 --after hard-reset write-flash ")
    assert re.search(r" 0x1000 \S+ 0x360000 \S+\n$", line)


def test_mistakes_in_the_use_of_flash_and_monitor_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        ("flash esp8266", "no board 'esp8266': firmware/profiles has esp32, "),
        ("flash virtual", "board 'virtual' (i386, Unix port) is no chip that can be flashed"),
        ("flash esp32 --erase", "--erase removes the firmware too: give --firmware FILE with it"),
        ("flash esp32 --firmware %s/none" % tmp_path, "No such file"),
        ("flash esp32 --port %s/none" % tmp_path, "there is no port"),
        ("flash esp32 --port /dev/null", "/dev/null is no serial port: `hw board scan` lists ports"),
        ("monitor --port %s/none" % tmp_path, "there is no port"),
        ("monitor --seconds 0", "--seconds 0: give a positive number"),
        ("provision chest . --board esp32", "--board and --any-version belong to --port"),
        ("provision chest . --port %s/none" % tmp_path, "there is no port"),
    ):
        code, error = hw(capsys, *words.split())
        assert code == 2 and said in error, (words, error)


# ---- ports


def test_ports_are_guessed_by_their_usb_numbers() -> None:
    assert ports.guess(0x303A, 0x1001) == ("USB of the chip itself", "ESP32-S3 or ESP32-C3")
    assert ports.guess(0x303A, 0x4001) == ("USB of the chip itself", "ESP32-S3")
    assert ports.guess(0x10C4, 0xEA60)[0] == "CP210x"
    assert ports.guess(0x046D, 0xC52B) == ("", "")


def test_the_only_board_is_chosen_and_of_several_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ports.Port] = []
    monkeypatch.setattr(ports, "ports", lambda: found)
    with pytest.raises(
        UserError, match="no board is connected: plug it in with a USB cable that carries data"
    ):
        ports.choose(None)
    with chip.silent() as port:
        found.append(ports.Port("/dev/mouse", "046d:c52b", "", ""))
        found.append(ports.Port(port, "10c4:ea60", "CP210x", "ESP32"))
        assert ports.choose(None) == ports.choose("auto") == port
        found.append(ports.Port("/dev/ttyACM9", "303a:1001", "", "ESP32-S3"))
        with pytest.raises(UserError, match="there are several boards: name the port of one with --port: "):
            ports.choose(None)


def test_ports_of_this_machine_are_those_of_usb(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from serial.tools import list_ports

    usb = SimpleNamespace(device="/dev/ttyUSB0", vid=0x1A86, pid=0x7523, description="USB Serial")
    other = SimpleNamespace(device="/dev/ttyS0", vid=None, pid=None, description="n/a")
    monkeypatch.setattr(list_ports, "comports", lambda: [other, usb])
    (found,) = ports.ports()
    assert found.as_json() == {
        "device": "/dev/ttyUSB0",
        "usb": "1a86:7523",
        "adapter": "CH340",
        "chip": "ESP32, or another on a development board",
    }


def test_a_port_that_cannot_be_used_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with chip.silent() as port:
        ports.check(port)
        with open(port, "rb", buffering=0) as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(UserError, match="is in use by another program: end it"):
                ports.check(port)
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(UserError, match="no permission for /dev/.*: add yourself to its group"):
            ports.check(port)


def test_each_failure_of_esptool_is_one_sentence() -> None:
    board = profiles.profile("esp32")
    connected = ["Connected to ESP32 on /dev/ttyUSB0:"]
    port_busy = "Could not open /dev/ttyUSB0, the port is busy or doesn't exist."
    for lines, said, code in (
        (["A fatal error occurred: This chip is ESP32-C3, not ESP32. Wrong"], "use `hw flash esp32c3`", 2),
        (["This chip is ESP32-H2, not ESP32. Wrong"], "there is no profile for it", 2),
        ([port_busy, "([Errno 13] could not open port: [Errno 13] Permission denied)"], "no permission", 2),
        ([port_busy, "Could not exclusively lock port /dev/ttyUSB0: [Errno 11]"], "is in use", 2),
        ([port_busy, "([Errno 2] could not open port)"], "cannot be opened: the board was unplugged", 1),
        (["ERROR: Failed to connect to ESP32: No serial data received."], "hold its button BOOT", 1),
        ([*connected, "ERROR: The chip stopped responding."], "esptool: The chip stopped responding)", 1),
        (connected, "esptool: Connected to ESP32 on /dev/ttyUSB0:)", 1),
    ):
        found = flashing.explain(lines, board, "/dev/ttyUSB0")
        assert said in str(found) and "\n" not in str(found), (lines, found)
        assert found.code == code


def test_each_failure_of_mpremote_is_one_sentence() -> None:
    for lines, said in (
        (["mpremote: failed to access /dev/ttyUSB0 (it may be in use)"], "cannot be opened"),
        (["mpremote: no device found"], "cannot be opened"),
        (["TransportError: could not enter raw repl"], "gives no prompt: it may have no MicroPython"),
        (["OSError: [Errno 28] ENOSPC"], "is full: remove files with `mpremote fs rm`"),
        (["OSError: [Errno 116] ETIMEDOUT"], "the bus is stuck or has no pull-ups"),
        (["what nobody expected"], "mpremote fs failed at /dev/ttyUSB0; it printed: what nobody expected"),
        ([], "it printed: nothing"),
    ):
        assert said in str(serial_board.explain("/dev/ttyUSB0", ("fs", "cp"), lines)), lines


# ---- what provisioning looks at


def home(folder: Path, **config: Any) -> Path:
    (folder / "board.key").write_bytes(bytes(32))
    (folder / "ca.der").write_bytes(b"certificate")
    config = {"name": "chest", "broker": {"host": "h"}, **config}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_files_that_a_configuration_names_must_be_there(tmp_path: Path) -> None:
    assert set(provisioning.files(home(tmp_path))) == {"config.json", "board.key", "ca.der"}
    broker: dict[str, Any] = {"host": "h", "tls": False}
    assert set(provisioning.files(home(tmp_path, broker=broker))) == {"config.json", "board.key"}
    found = {"broker": {}, "bluetooth": {"enabled": True}}
    with pytest.raises(UserError, match="the bluetooth's key is bluetooth.key, and .* has no such file"):
        provisioning.files(home(tmp_path, **found))
    (tmp_path / "bluetooth.key").write_bytes(bytes(32))
    assert set(provisioning.files(home(tmp_path, **found))) == {"config.json", "board.key", "bluetooth.key"}
    for name in ("mine.crt", "../secret"):
        with pytest.raises(
            UserError, match="the broker's cert is %s, and .* has no such file" % re.escape(name)
        ):
            provisioning.files(home(tmp_path, broker={"host": "h", "cert": name}))
    with pytest.raises(UserError, match="config.json: unknown key 'sensor'"):
        provisioning.files(home(tmp_path, sensor={}))


def test_a_configuration_is_completed_and_the_wifi_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match='names no Wi-Fi: add "wifi": {"ssid": "...", "password": "..."}'):
        provisioning.complete(home(tmp_path), None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda prompt: " site ")
    monkeypatch.setattr("getpass.getpass", lambda prompt: "secret")
    provisioning.complete(home(tmp_path), "esp32s3")
    found = json.loads((tmp_path / "config.json").read_text())
    assert found["wifi"] == {"ssid": "site", "password": "secret"}
    assert found["sensors"]["accel"]["scl"] == 9 and found["battery"]["pin"] == 5
    mine = {"light": {"driver": "adc", "pin": 1}}
    provisioning.complete(home(tmp_path, sensors=mine, wifi={"ssid": "a"}), "esp32")
    found = json.loads((tmp_path / "config.json").read_text())
    assert (found["sensors"], found["wifi"]) == (mine, {"ssid": "a"})
    with pytest.raises(UserError, match="board 'virtual' has no sensors"):
        provisioning.complete(home(tmp_path), "virtual")


def test_a_chip_is_paired_with_where_its_profile_allows_it(tmp_path: Path) -> None:
    for kind, pairing in (("esp32", True), ("esp32s3", False)):
        provisioning.complete(home(tmp_path, broker={}, bluetooth={"enabled": True}), kind)
        found = json.loads((tmp_path / "config.json").read_text())
        assert found["bluetooth"] == {"enabled": True, "pairing": pairing}
    provisioning.complete(home(tmp_path, broker={}, bluetooth={"enabled": True, "pairing": True}), "esp32s3")
    assert json.loads((tmp_path / "config.json").read_text())["bluetooth"]["pairing"] is True


def test_a_chip_with_memory_for_one_radio_is_given_one() -> None:
    both: dict[str, Any] = {"broker": {"host": "h"}, "bluetooth": {"enabled": True}}
    machine = "ESP32C3 module with ESP32C3"
    with pytest.raises(
        UserError, match="is an ESP32-C3, which has memory for one radio, .* --bluetooth only"
    ):
        provisioning.check_radios(both, machine, "/dev/ttyUSB0")
    for config in ({**both, "broker": {}}, {"broker": {"host": "h"}}):
        provisioning.check_radios(config, machine, "/dev/ttyUSB0")
    provisioning.check_radios(both, "Generic ESP32S3 module with ESP32S3", "/dev/ttyUSB0")
    # A board refuses such a configuration when it starts.
    program = (FIRMWARE / "board.py").read_text()
    for name in REAL:
        board = profiles.profile(name)
        assert ('"%s" in chip' % board.chip.replace("-", "") in program) == (board.both_radios == "no")


# ---- mip


def test_the_package_of_mip_names_every_module_that_the_manifest_freezes() -> None:
    package = json.loads((FIRMWARE / "package.json").read_text())
    wanted = [
        [inside, "image/lib/" + inside] for inside in sorted(builder.contents(profiles.profile("esp32")))
    ]
    assert package["urls"] == wanted, "firmware/package.json: " + json.dumps(wanted)
    assert (package["deps"], package["version"]) == ([], environment.version())
    assert 'freeze_mpy("image/lib")' in (FIRMWARE / "manifest.py").read_text()
    for name in REAL:
        assert sorted(builder.contents(profiles.profile(name))) == [inside for inside, _ in wanted]
