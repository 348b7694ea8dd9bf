"""`hw flash` with the real esptool, onto chips whose flash is a file: what was flashed is read back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import chip
import firmware_files
import pytest
from headwater_tools import cli
from headwater_tools.boards import firmware_file, micropython, virtual
from headwater_tools.image import builder, partitions, profiles
from littlefs import LittleFS

BOARDS = ["esp32", "esp32s3", "esp32c3"]
CUTS = 20
# esptool's own settings, with less patience for a chip that is silent.
IMPATIENT = """\
[esptool]
timeout = 0.5
erase_write_timeout_per_mb = 0.5
md5_timeout_per_mb = 0.5
write_block_attempts = 1
"""


# Prints the digest of each file of a ROMFS in the given bytes of a flash, mounted by MicroPython itself.
MOUNTED = """
import hashlib, os, sys, vfs
from binascii import hexlify

with open(sys.argv[1], "rb") as file:
    file.seek(int(sys.argv[2]))
    data = file.read(int(sys.argv[3]))
vfs.mount(vfs.VfsRom(data), "/flashed")

def walk(path):
    for name in os.listdir(path):
        here = path + "/" + name
        if os.stat(here)[0] & 0x4000:
            walk(here)
        else:
            with open(here, "rb") as file:
                print(here[9:], str(hexlify(hashlib.sha256(file.read()).digest()), "ascii"))

walk("/flashed")
"""


def hw(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["flash", *words, "--json"])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), json.loads(out.splitlines()[-1]), err


def flash_of(folder: Path, board: profiles.Profile) -> chip.Flash:
    return chip.Flash(folder / "flash.bin", board.flash_kib * 1024)


def firmware(folder: Path, board: profiles.Profile, **words: Any) -> Path:
    path = folder / "firmware.bin"
    path.write_bytes(firmware_files.firmware(firmware_file.chip_of(board), **words))
    return path


def place(board: profiles.Profile, label: str) -> partitions.Partition:
    return next(p for p in board.table if p.label == label)


def check_start(board: profiles.Profile, flash: chip.Flash, given: Path) -> None:
    """What the chip starts from: bootloader for this flash, partition table, application."""
    kind = firmware_file.chip_of(board)
    source = given.read_bytes()
    boot = flash.read(kind.bootloader_at, 0x1000)
    assert boot[3] >> 4 == {4096: 2, 8192: 3}[board.flash_kib]
    length = len(firmware_file.read(given, kind).bootloader)
    assert hashlib.sha256(boot[: length - 32]).digest() == boot[length - 32 : length]
    assert boot[4 : length - 32] == source[4 : length - 32]
    table = flash.read(partitions.TABLE_AT, partitions.TABLE_SIZE)
    assert partitions.from_bytes(table, flash.size) == board.table
    app = source[0x10000 - kind.bootloader_at :]
    assert flash.read(place(board, "factory").offset, len(app)) == app


def mounted(path: Path, offset: int, size: int) -> dict[str, str]:
    """The files of a ROMFS in these bytes of a file, as MicroPython mounts it, by their digests."""
    done = micropython.run(MOUNTED, [str(path), str(offset), str(size)], heap="1m")
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def check_romfs(board: profiles.Profile, flash: chip.Flash) -> None:
    """The partition `romfs`, mounted by MicroPython, has every file of the image and no other."""
    size = builder.romfs_image(board).stat().st_size
    wanted = {inside: hashlib.sha256(data).hexdigest() for inside, data in builder.contents(board).items()}
    assert mounted(flash.path, place(board, "romfs").offset, size) == wanted


def check_littlefs(board: profiles.Profile, flash: chip.Flash) -> None:
    """The partition `vfs`, mounted by littlefs itself, has every file and no other."""
    where = place(board, "vfs")
    files = LittleFS(block_size=4096, block_count=where.size // 4096, mount=False)
    files.context.buffer[:] = flash.read(where.offset, where.size)
    files.mount()
    found = {}
    for folder, _, names in files.walk("/"):
        for name in names:
            path = folder.rstrip("/") + "/" + name
            with files.open(path, "rb") as file:
                found[path[1:]] = file.read()
    assert found == builder.file_system(board)


@pytest.mark.parametrize("name", BOARDS)
def test_what_was_flashed_is_a_board_with_romfs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = profiles.profile(name)
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    kept = [place(board, "log"), place(board, "vfs")]
    flash.program(kept[0].offset, b"what only this board has" * 100)
    files = LittleFS(block_size=4096, block_count=kept[1].size // 4096)
    with files.open("config.json", "w") as file:
        file.write("what only this board has")
    flash.program(kept[1].offset, bytes(files.context.buffer))
    before = [flash.read(p.offset, p.size) for p in kept]
    with chip.plugged(board.chip, flash) as port:
        code, answer, err = hw(capsys, name, "--port", port, "--firmware", str(given))
    assert (code, err) == (0, ""), answer
    assert [part["at"] for part in answer["parts"]] == [firmware_file.chip_of(board).bootloader_at]
    check_start(board, flash, given)
    check_romfs(board, flash)
    assert [flash.read(p.offset, p.size) for p in kept] == before


def test_what_another_layout_left_behind_does_not_stop_micropython(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = profiles.profile("esp32")
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    where = place(board, "vfs")
    flash.program(where.offset, b"blocks of a file system that began elsewhere" * 200)
    flash.program(where.offset + 0x3000, b"behind")
    with chip.plugged(board.chip, flash) as port:
        code, answer, _ = hw(capsys, "esp32", "--port", port, "--firmware", str(given))
    assert code == 0 and [part["at"] for part in answer["parts"]] == [0x1000, where.offset]
    # MicroPython makes a file system where the first block is erased (its inisetup.py).
    assert flash.read(where.offset, 0x2000) == b"\xff" * 0x2000
    assert flash.read(where.offset + 0x3000, 6) == b"behind"


@pytest.mark.parametrize("name", BOARDS)
def test_what_was_flashed_is_a_board_with_littlefs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = profiles.profile(name)
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board, romfs=False)
    with chip.plugged(board.chip, flash) as port:
        code, answer, err = hw(
            capsys, name, "--port", port, "--firmware", str(given), "--kind", "littlefs", "--erase"
        )
    assert (code, err) == (0, ""), answer
    check_start(board, flash, given)
    check_littlefs(board, flash)


def test_an_image_alone_goes_onto_a_board_with_the_same_partition_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = profiles.profile("esp32c3")
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    with chip.plugged(board.chip, flash) as port:
        code, answer, _ = hw(capsys, "esp32c3", "--port", port)
    assert code == 2
    assert "cannot take an image alone (there is no partition table): give --firmware FILE" in answer["error"]
    flash.program(0x8000, partitions.to_bytes(firmware_files.STOCK_TABLE))
    with chip.plugged(board.chip, flash) as port:
        code, answer, _ = hw(capsys, "esp32c3", "--port", port)
    assert code == 2 and "its partition table is another one" in answer["error"]
    with chip.plugged(board.chip, flash) as port:
        assert hw(capsys, "esp32c3", "--port", port, "--firmware", str(given))[0] == 0
    where = place(board, "romfs")
    flash.erase(where.offset, where.size)
    with chip.plugged(board.chip, flash) as port:
        code, answer, _ = hw(capsys, "esp32c3", "--port", port)
    assert code == 0 and [part["at"] for part in answer["parts"]] == [where.offset]
    check_start(board, flash, given)
    check_romfs(board, flash)


def test_a_board_with_another_chip_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = profiles.profile("esp32")
    flash, given = flash_of(tmp_path, profiles.profile("esp32s3")), firmware(tmp_path, board)
    with chip.plugged("ESP32-S3", flash) as port:
        code, answer, err = hw(capsys, "esp32", "--port", port, "--firmware", str(given))
    assert code == 2 and len(err.splitlines()) == 1
    assert answer["error"] == (
        "the board at %s has an ESP32-S3, and esp32 is for an ESP32: use `hw flash esp32s3`" % port
    )
    assert flash.programmed == 0


def test_a_chip_that_does_not_answer_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = profiles.profile("esp32")
    given = firmware(tmp_path, board)
    with chip.silent() as port:
        code, answer, err = hw(capsys, "esp32", "--port", port, "--firmware", str(given))
    assert code == 1 and len(err.splitlines()) == 1
    assert "does not answer: hold its button BOOT" in answer["error"]


@pytest.mark.slow
def test_a_flash_run_that_loses_its_power_is_repaired_by_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "esptool.cfg").write_text(IMPATIENT)
    monkeypatch.setenv("ESPTOOL_CFGFILE", str(tmp_path / "esptool.cfg"))
    board = profiles.profile("esp32")
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    words = ("esp32", "--firmware", str(given))
    with chip.plugged(board.chip, flash) as port:
        assert hw(capsys, *words, "--port", port)[0] == 0
    whole, total = flash.path.read_bytes(), flash.programmed
    for k in range(CUTS):
        flash.programmed, flash.cut_after = 0, total * k // CUTS + 1 + 997 * k
        # Where the port goes too, esptool waits several seconds for it to come back, so only one of these.
        with chip.plugged(board.chip, flash, adapter=k != 3) as port:
            code, answer, err = hw(capsys, *words, "--port", port)
        assert code == 1, k
        assert len(err.splitlines()) == 1 and "broke off (esptool: " in answer["error"], err
        assert flash.path.read_bytes() != whole, k
        flash.cut_after = None
        with chip.plugged(board.chip, flash) as port:
            assert hw(capsys, *words, "--port", port)[0] == 0, k
        assert flash.path.read_bytes() == whole, k


def test_the_line_of_a_dry_run_flashes_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex
    import subprocess
    import sys

    board = profiles.profile("esp32")
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    with chip.plugged(board.chip, flash) as port:
        with pytest.raises(SystemExit):
            cli.main(["flash", "esp32", "--port", port, "--firmware", str(given), "--dry-run"])
        (line,) = capsys.readouterr().out.splitlines()
        assert flash.programmed == 0
        program, *rest = shlex.split(line)
        assert program == "esptool"
        done = subprocess.run([sys.executable, "-m", "esptool", *rest], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    check_start(board, flash, given)
    check_romfs(board, flash)


@pytest.mark.parametrize("name", BOARDS)
def test_a_virtual_board_runs_the_code_that_is_flashed_onto_a_real_one(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, in the images themselves: a virtual board's is the one that it starts with."""
    board = profiles.profile(name)
    flash, given = flash_of(tmp_path, board), firmware(tmp_path, board)
    with chip.plugged(board.chip, flash) as port:
        assert hw(capsys, name, "--port", port, "--firmware", str(given))[0] == 0
    where = place(board, "romfs")
    real = mounted(flash.path, where.offset, where.size)
    started, _ = virtual._images(("board_node",))
    found = mounted(started, 0, started.stat().st_size)
    assert len(found) > 30 and "headwater/core.mpy" in found and "headwater/program.mpy" in found
    assert real.items() >= found.items()
    # What a real board has beside it touches its hardware.
    assert set(real) - set(found) == {name.replace(".py", ".mpy") for name in board.firmware}
