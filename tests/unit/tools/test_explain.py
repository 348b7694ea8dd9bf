"""`hw check --explain`: what it says of batteries and places, and the profiles that it rests on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from headwater.plan.placement import FOREVER
from headwater.process.proposal import life
from headwater_tools import cli, environment
from headwater_tools.boards import energy
from headwater_tools.errors import UserError
from headwater_tools.image import profiles

PROCESS = """\
from headwater.process import Average, Fir, Process, Qrs

p = Process("belt", checkpoints="ecoc", every=360, batch=90)
p.host("chest", board="esp32", battery_mah=400%s)
p.host("hip", board="esp32s3", battery_mah=%s)
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
clean = ecg >> Fir([1, 2, 1]).named("clean").on("chest", backup=["hip", "gateway"])
beats = clean >> Qrs().named("beats").on("chest", backup=["hip", "gateway"])
p.lake("belt/beats", beats%s)
"""


def told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str, text: str = PROCESS % ("", 400, "")
) -> tuple[int, list[str]]:
    path = tmp_path / "belt.py"
    path.write_text(text)
    with pytest.raises(SystemExit) as end:
        cli.main(["check", str(path), "--explain", *words])
    return int(end.value.code or 0), capsys.readouterr().out.splitlines()


def row(lines: list[str], *cells: str) -> list[str]:
    """The cells of the one row that begins with these."""
    found = [re.split(r"  +", line.strip()) for line in lines]
    matching = [each for each in found if each[: len(cells)] == list(cells)]
    assert len(matching) == 1, (cells, lines)
    return matching[0]


def test_it_tells_lives_places_and_a_proposal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = told(tmp_path, capsys)
    assert code == 0
    assert row(lines, "gateway", "-") == ["gateway", "-", "mains", "-", "-"]
    host = row(lines, "chest", "esp32", "400 mAh, 100 %")
    assert re.fullmatch(r"\d+\.\d\d mA", host[3]) and re.fullmatch(r"\d+ h \d\d min", host[4])
    assert row(lines, "clean", "chest", "hip")[-1] == "shorter"
    assert lines[-1] == "No placement within the candidates lasts noticeably longer than the declared one."


def test_a_stream_that_the_gateway_needs_anyway_moves_its_operators_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PROCESS % ("", 400, ')\np.lake("belt/ecg", ecg')
    text = text.replace(
        'Qrs().named("beats").on("chest", backup=["hip"', 'Qrs().named("beats").on("hip", backup=["chest"'
    )
    code, lines = told(tmp_path, capsys, "--json", text=text)
    assert code == 0
    answer = json.loads(lines[-1])["placement"]
    assert answer["declared"]["places"] == {"clean": "chest", "beats": "hip"}
    assert answer["best"]["places"] == {"clean": "gateway", "beats": "gateway"}
    assert answer["best"]["lives_s"]["chest"] > answer["declared"]["lives_s"]["chest"]
    assert answer["best"]["lives_s"]["gateway"] is None
    start = next(i for i, line in enumerate(lines) if line.startswith("Proposal: the first battery lasts "))
    assert re.search(r"instead of \d+ h \d\d min, \d+ % more\.$", lines[start])
    assert lines[start + 1 : start + 3] == [
        '  clean: .on("gateway", backup=["chest", "hip"])',
        '  beats: .on("gateway", backup=["hip", "chest"])',
    ]
    assert row(lines, "clean", "gateway", "chest")[-1] == "shorter"
    # ... and the process file with what was proposed has nothing more to propose
    moved = text.replace('.on("chest", ', '.on("gateway", ').replace('.on("hip", ', '.on("gateway", ')
    moved = moved.replace('["hip", "gateway"]', '["chest", "hip"]').replace(
        '["chest", "gateway"]', '["hip", "chest"]'
    )
    assert told(tmp_path, capsys, text=moved)[1][-1].startswith("No placement within the candidates lasts")
    assert answer["declared"]["flee_s"]["chest"] > 0 and "gateway" not in answer["declared"]["flee_s"]


def test_a_level_in_volts_or_percent_shortens_a_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def life(*words: str) -> int:
        lines = told(tmp_path, capsys, "--json", *words)[1]
        return int(json.loads(lines[-1])["placement"]["declared"]["lives_s"]["chest"])

    full = life()
    assert abs(2 * life("--battery", "chest=50%") - full) <= 1
    assert life("--battery", "chest=3.80V") == life("--battery", "chest=50%")
    assert life("--battery", "chest=0%") == 0


def test_a_host_without_a_declared_board_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (PROCESS % ("", 400, "")).replace(', board="esp32", battery_mah=400', "")
    lines = told(tmp_path, capsys, text=text)[1]
    assert (
        'Board esp32 assumed for chest: declare it, like p.host("chest", board="esp32", battery_mah=400).'
        in lines
    )


def test_a_limit_that_a_candidate_breaks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The hip is on mains. It has heap to take over one of the two operators, but not to run one and keep room
    # for the other.
    text = (PROCESS % ("", 0, ')\np.lake("belt/clean", clean')).replace(
        'backup=["hip", "gateway"]', 'backup=["hip"]'
    )
    for kb in range(90, 136):
        small = text.replace("battery_mah=0", "battery_mah=0, heap_kb=%d" % kb)
        code, lines = told(tmp_path, capsys, text=small)
        if code == 0:
            break
    refused = [line for line in lines if re.search(r"heap: hip needs \d+ KB and has %d KB$" % kb, line)]
    assert code == 0 and len(refused) == 2


def test_without_any_battery_every_place_is_as_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PROCESS % ("", 0, "")).replace("battery_mah=400", "battery_mah=0")
    lines = told(tmp_path, capsys, text=text)[1]
    assert lines[-1] == "No host has a battery: every placement is as good."
    assert row(lines, "clean", "chest", "hip")[-1] == "no host has a battery"
    virtual = (PROCESS % ("", 0, "")).replace('board="esp32", battery_mah=400', 'board="virtual"')
    assert row(told(tmp_path, capsys, text=virtual)[1], "chest", "virtual")[2] == "mains"


def test_an_installed_wheel_has_no_profiles_and_reports_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "REPOSITORY", False)
    assert told(tmp_path, capsys)[0] == 2
    text = (PROCESS % ("", 400, "")).replace("esp32s3", "nothing_known")
    (tmp_path / "belt.py").write_text(text)
    with pytest.raises(SystemExit) as end:
        cli.main(["check", str(tmp_path / "belt.py")])
    assert not end.value.code


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (59, "59 s"),
        (3599, "59 min"),
        (3600, "1 h 00 min"),
        (172799, "47 h 59 min"),
        (176400, "2 d 1 h"),
        (FOREVER, "-"),
    ],
)
def test_a_life_is_told_as_people_say_it(seconds: int, text: str) -> None:
    assert life(seconds) == text


# ---- profiles


def test_every_kind_of_board_with_a_battery_has_an_energy_profile() -> None:
    known = {name: energy.board(name) for name in profiles.names()}
    assert [name for name, found in known.items() if found is None] == ["virtual"]
    for found in known.values():
        if found is not None:
            assert found.asleep_ua < found.awake_ua < found.awake_ua + found.radio_ua < 200_000
            assert sorted(found.links) == ["ble", "wifi"]
            assert found.awake_ble_ua is not None and found.asleep_ua < found.awake_ble_ua < found.awake_ua


def test_every_number_of_a_profile_names_its_source_or_is_assumed() -> None:
    """In a comment in its line, or in one above the lines that share it."""
    for path in profiles.FOLDER.glob("*/" + energy.FILE):
        shared = ""
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# What an ") and "assumed" in lines[2]
        for line in lines[3:]:
            key, equals, value = line.partition(" = ")
            if line.startswith("#"):
                shared = line
            elif equals and "#" not in value:
                assert shared, "%s: %s" % (path, line)
                # one byte sent and received are of one table; nothing else shares a comment
                shared = shared if key == "send_byte_pc" else ""


def test_every_operator_type_has_its_work() -> None:
    from headwater import operators

    assert set(energy.work()) == {"other", *operators.kinds()}


@pytest.mark.parametrize(
    "right, wrong, says",
    [
        ("awake_ua = 31120", "awake_ua = 31.12", "awake_ua is 31.12, give a whole number of 0 or more"),
        ("awake_ua = 31120", "", "awake_ua is None"),
        ("asleep_ua = 5", "asleep_ua = -5", "asleep_ua is -5"),
        ("asleep_ua = 5", "asleep_ua = 5\nsnores_ua = 1", "unknown key 'snores_ua'"),
        (
            "[links.wifi]",
            "[links.wfii]",
            "give [links.wifi] and [links.ble], each with send_byte_pc, receive_byte_pc, frame_nc",
        ),
        ("frame_nc = 3444000", "frame_nc = 3444000\nx = 1", "unknown key 'x'"),
        ("[3600, 5]", "[3600, 0]", "discharge needs pairs of millivolts and percent, both rising"),
        ("[4200, 100]", "[4200, 99]", "up to 100 percent"),
        ("[4200, 100]", "4200", "discharge needs pairs"),
        ("battery_mah = 400", "battery_mah 400", "is not valid TOML"),
    ],
)
def test_a_profile_that_is_wrong_is_refused(
    right: str, wrong: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(profiles.FOLDER / "esp32", tmp_path / "esp32")
    path = tmp_path / "esp32" / energy.FILE
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=re.escape(says)):
        energy.board("esp32")


# ---- Bluetooth

LINKED = """\
from headwater.process import Fir, Process

p = Process("belt", checkpoints="ecoc", every=360, batch=90)
p.host("chest", board="%s", bluetooth="%s")
p.host("hip", board="esp32s3", bluetooth="%s")
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
clean = ecg >> Fir([1, 2, 1]).named("clean").on("hip")
p.lake("belt/clean", clean)
"""


def linked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *hosts: str
) -> tuple[dict[tuple[str, str], tuple[str, str]], list[str], dict[str, int]]:
    """By which links hosts speak to each other, what is printed, and how long they last."""
    code, lines = told(tmp_path, capsys, "--json", text=LINKED % hosts)
    assert code == 0, lines
    found = json.loads(lines[-1])["placement"]["declared"]
    ways = {(each["from"], each["to"]): (each["sends"], each["receives"]) for each in found["links"]}
    return ways, lines, found["lives_s"]


def test_boards_take_the_cheapest_link_that_they_have_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = {}
    for chest, hip in (("off", "on"), ("on", "on"), ("only", "on"), ("only", "only")):
        ways, lines, over[chest, hip] = linked(tmp_path, capsys, "esp32", chest, hip)
        link = "wifi" if chest == "off" else "ble"
        assert ways["chest", "hip"] == (link, link)
    assert row(lines, "chest", "esp32, Bluetooth alone")
    # Without Wi-Fi it waits with less; and four batches a second cost less over Bluetooth.
    assert over["off", "on"]["chest"] < over["on", "on"]["chest"] < over["only", "on"]["chest"]


def test_hosts_without_a_common_link_speak_through_the_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways, lines, _ = linked(tmp_path, capsys, "esp32", "only", "off")
    assert ways == {("chest", "hip"): ("ble", "wifi"), ("hip", "gateway"): ("wifi", "wifi")}
    (warning,) = [line for line in lines[:-1] if "warning" in line and "no link in common" in line]
    assert "host 'chest': it has no link in common with 'hip'" in warning


def test_a_kind_whose_memory_does_not_hold_both_radios_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = told(tmp_path, capsys, text=LINKED % ("esp32c3", "on", "off"))
    assert code == 1 and lines[-1] == "1 error"
    (error,) = [line for line in lines if "memory for one radio" in line]
    assert error.endswith('Give bluetooth="only" or "off", as `hw provision --bluetooth` has it.')
    _, lines, _ = linked(tmp_path, capsys, "esp32", "on", "off")
    assert any("warning: host 'chest'" in line and "at once without TLS" in line for line in lines)
    linked(tmp_path, capsys, "esp32c3", "only", "on")
    code, lines = told(tmp_path, capsys, text=LINKED % ("esp32", "perhaps", "off"))
    assert code == 1 and "unknown bluetooth 'perhaps'" in lines[0]
