"""`hw audit`: each fault that is planted into a lake is seen for what it is, and nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from headwater_cloud.audit import LISTED_MAX, Report, as_json, audit
from headwater_cloud.progress import ELEMENTS, SETTLED
from headwater_cloud.segment import file_name
from headwater_tools import cli
from lakes import INCARNATION, LEFT_OUT, LakeOf, at, healthy

ECG = ("cardio/ecg", INCARNATION)


def told(lake: LakeOf, **kwargs: Any) -> dict[str, Any]:
    return as_json(audit(str(lake.write()), **kwargs))


def of(answer: dict[str, Any], stream: str = "cardio/ecg") -> dict[str, Any]:
    (one,) = [s for s in answer["streams"] if s["stream"] == stream]
    return dict(one)


def test_of_a_healthy_lake_every_number_is_told(tmp_path: Path) -> None:
    answer = told(healthy(tmp_path))
    counts = (
        "delivered",
        "lost",
        "duplicates",
        "divergent",
        "out_of_order",
        "gaps_declared",
        "holes",
        "dropped",
    )
    assert [answer[name] for name in counts] == [1199, 0, 0, 0, 0, 1, 1, 100]
    assert answer["ok"] and answer["accepted"] is None
    assert answer["conservation"] == {
        "landed": 1199, "elements": 1199, "duplicates": 0, "quarantined": 0, "holds": True,
    }  # fmt: skip
    ecg = of(answer)
    assert ecg["incarnation"] == "00f3a1b2c3d4e5f6" and ecg["processes"] == ["cardio"]
    assert (ecg["rows"], ecg["last"], ecg["acknowledged"], ecg["unacknowledged"]) == (899, 1000, 1000, 0)
    assert [(m["first"], m["last"], m["kind"], m["reason"]) for m in ecg["missing"]] == [
        (401, 401, "hole", "restart"),
        (701, 800, "gap", "full"),
    ]


# What is done to a healthy lake, what then differs in the totals, and whether the promise holds.
def _row_gone(lake: LakeOf) -> None:
    lake.progress[ECG] = lake.truth()[ECG]
    lake.elements = [row for row in lake.elements if (row["stream"], row["xi"]) != ("cardio/ecg", 500)]


def _run_not_there_yet(lake: LakeOf) -> None:
    lake.rows("cardio/ecg", 1101, 1200)


def _row_twice(lake: LakeOf) -> None:
    lake.elements.append(dict(lake.elements[10]))


def _run_twice(lake: LakeOf) -> None:
    lake.rows("cardio/ecg", 350, 400, landed_s=90)


def _row_twice_differing(lake: LakeOf) -> None:
    lake.elements.append(dict(lake.elements[10], ints=[-5]))


def _other_float(lake: LakeOf) -> None:
    lake.elements.append(dict(lake.elements[10], floats=[0.5]))


def _other_ts(lake: LakeOf) -> None:
    lake.elements.append(dict(lake.elements[10], ts=at(99)))


def _divergent_in_quarantine(lake: LakeOf) -> None:
    lake.refuse("cardio/ecg", 77, 77, "divergent")


def _ts_falls(lake: LakeOf) -> None:
    lake.elements[100]["ts"] = at(0.5)


def _ts_falls_over_a_gap(lake: LakeOf) -> None:
    for row in lake.elements:
        if row["stream"] == "cardio/ecg" and row["xi"] > 800:
            row["ts"] = at(row["xi"] * 0.01 - 5)


def _counts_do_not_add_up(lake: LakeOf) -> None:
    lake.progress[ECG] = {"rows_landed": 900}


def _kept_more_than_there_is(lake: LakeOf) -> None:
    lake.progress[ECG] = {"rows_landed": 900, "rows_kept": 900}


def _quarantine_lost_a_row(lake: LakeOf) -> None:
    lake.progress[ECG] = {"rows_landed": 900, "rows_quarantined": 1}


def _duplicates_refused(lake: LakeOf) -> None:
    lake.progress[ECG] = {"rows_landed": 950, "rows_duplicate": 51}


def _gap_filled_later(lake: LakeOf) -> None:
    lake.rows("cardio/ecg", 750, 760, landed_s=60)


def _gap_told_twice(lake: LakeOf) -> None:
    lake.gap("cardio/ecg", 701, 800)
    lake.gap("cardio/ecg", 650, 790)


def _unreadable_file(lake: LakeOf) -> None:
    lake.refuse("cardio.ecg", 1, 100, "crc")
    lake.refuse("cardio.ecg", 1001, 1100, "crc")
    lake.refuse(None, 1, 1, "name")


def _progress_behind(lake: LakeOf) -> None:
    lake.progress[ECG] = {"high": 900, "rows_kept": 799, "rows_landed": 799}
    lake.behind = 1


def _payload_changed(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["ints"] = [lake.elements[76]["ints"][0] + 1]


def _zero_changed_its_sign(lake: LakeOf) -> None:
    lake.stream("cardio/temp", "c:f64")
    lake.rows("cardio/temp", 1, 9, alphabet="c:f64", ints=lambda xi: [], floats=lambda xi: [0.0])
    lake.noted()
    lake.elements[-1]["floats"] = [-0.0]


def _ts_moved(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["ts"] += timedelta(microseconds=1)


def _alphabet_that_is_none(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["alphabet"] = "zz"
    lake.stream("cardio/ecg", "zz")


def _alphabet_of_another_stream(lake: LakeOf) -> None:
    lake.elements[76]["alphabet"] = "bpm:u8"


def _no_values(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["ints"] = None


def _null_within_values(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["ints"] = [None]


def _too_many_values(lake: LakeOf) -> None:
    lake.noted()
    lake.elements[76]["ints"] = [77, 0]
    lake.elements[78]["floats"] = [0.5]


def _row_invented(lake: LakeOf) -> None:
    lake.noted()
    lake.rows("cardio/ecg", 1001, 1001)


def _row_invented_in_a_gap(lake: LakeOf) -> None:
    lake.noted()
    lake.rows("cardio/ecg", 750, 750)


def _stream_invented(lake: LakeOf) -> None:
    lake.noted()
    lake.rows("made/up", 1, 3)
    lake.progress["made/up", INCARNATION] = LEFT_OUT


def _acknowledged_too_much(lake: LakeOf) -> None:
    lake.acknowledge("cardio/ecg", 1000, [[1101, 1103]])


def _acknowledged(lake: LakeOf) -> None:
    lake.acknowledge("cardio/ecg", 950)


FAULTS: list[tuple[Callable[[LakeOf], None], dict[str, Any], bool]] = [
    (_row_gone, {"delivered": 1198, "lost": 1, "lost_acknowledged": 1}, False),
    (_run_not_there_yet, {"delivered": 1299, "lost": 100}, False),
    (_row_twice, {"duplicates": 1}, False),
    (_run_twice, {"duplicates": 51}, False),
    (_row_twice_differing, {"divergent": 1}, False),
    (_other_float, {"divergent": 1, "unfit": 1}, False),
    (_other_ts, {"divergent": 1}, False),
    (_divergent_in_quarantine, {"divergent": 1}, False),
    (_ts_falls, {"out_of_order": 1}, False),
    (_ts_falls_over_a_gap, {"out_of_order": 1}, False),
    (_counts_do_not_add_up, {}, False),
    (_kept_more_than_there_is, {}, False),
    (_quarantine_lost_a_row, {}, False),
    (_duplicates_refused, {}, True),
    (_gap_filled_later, {"delivered": 1210, "dropped": 89, "gaps_declared": 2}, True),
    (_gap_told_twice, {}, True),
    (_unreadable_file, {"files_refused": {"crc": 2, "name": 1}, "files_awaited": 1}, True),
    (_progress_behind, {}, True),
    (_payload_changed, {"changed": 1}, False),
    (_zero_changed_its_sign, {"changed": 1, "delivered": 1208}, False),
    (_ts_moved, {"changed": 1}, False),
    (_alphabet_that_is_none, {"changed": 1, "unfit": 1}, False),
    (_alphabet_of_another_stream, {"unknown_alphabet": 1}, False),
    (_no_values, {"changed": 1, "unfit": 1}, False),
    (_null_within_values, {"changed": 1, "unfit": 1}, False),
    (_too_many_values, {"changed": 1, "unfit": 2}, False),
    (_row_invented, {"unaccounted": 1, "delivered": 1200}, False),
    (_row_invented_in_a_gap, {"unaccounted": 1, "delivered": 1200, "dropped": 99, "gaps_declared": 2}, False),
    (_stream_invented, {"unaccounted": 3, "delivered": 1202}, False),
    (_acknowledged_too_much, {"acknowledged_beyond": 3}, False),
    (_acknowledged, {}, True),
]


@pytest.mark.parametrize(
    ("plant", "differs", "holds"), FAULTS, ids=[f[0].__name__.strip("_") for f in FAULTS]
)
def test_a_planted_fault_is_seen_for_what_it_is(
    tmp_path: Path, plant: Callable[[LakeOf], None], differs: dict[str, Any], holds: bool
) -> None:
    told_before = told(healthy(tmp_path / "healthy"))
    lake = healthy(tmp_path / "faulty")
    plant(lake)
    answer = told(lake)
    watched = ("delivered", "lost", "lost_acknowledged", "duplicates", "divergent", "out_of_order")
    watched += ("changed", "unfit", "unknown_alphabet", "unaccounted", "acknowledged_beyond")
    watched += ("gaps_declared", "holes", "dropped", "files_refused", "files_awaited")
    seen = {name: answer[name] for name in watched if answer[name] != told_before[name]}
    assert seen == differs
    assert answer["ok"] is holds


@pytest.mark.parametrize("table", ("gaps", "progress", "quarantine", "streams"))
def test_a_table_that_is_gone_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    path = healthy(tmp_path).write()
    shutil.rmtree(path / table)
    code, out, _ = run(capsys, str(path))
    assert code == 1
    assert "THE PROMISE IS BROKEN: there are rows and no table `%s`: start `hw sink`" % table in out
    assert as_json(audit(str(path)))["tables_missing"] == [table]


def test_a_settled_stream_is_audited_as_if_progress_had_it(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    lake.acknowledge("cardio/rate", 300)
    path = lake.write()
    before = as_json(audit(str(path)))
    progress = DeltaTable(str(path / "progress"))
    rows = progress.to_pyarrow_table()
    quiet = pc.equal(rows.column("stream"), "cardio/rate")
    version = progress.transaction_version(ELEMENTS)
    stand = CommitProperties(app_transactions=[Transaction(ELEMENTS, version), Transaction(SETTLED, 1)])
    write_deltalake(str(path / "settled"), rows.filter(quiet), mode="append", commit_properties=stand)
    active = rows.filter(pc.invert(quiet))
    write_deltalake(progress, active, mode="overwrite", commit_properties=stand)
    (path / "acks" / "cardio.json").write_text(json.dumps({"streams": {}, "settled": "00000000"}))
    settled = path / "acks" / "_settled.cardio.json"
    settled.write_text(json.dumps({"streams": {"cardio/rate": {"%016x" % INCARNATION: 300}}}))
    after = as_json(audit(str(path)))
    assert {**after, "seconds": 0} == {**before, "seconds": 0} and after["ok"]
    settled.write_text(json.dumps({"streams": {"cardio/rate": {"%016x" % INCARNATION: 301}}}))
    assert as_json(audit(str(path)))["acknowledged_beyond"] == 1
    shutil.rmtree(path / "settled")
    assert as_json(audit(str(path)))["tables_missing"] == ["settled"]


def test_rows_without_a_checksum_are_counted_and_are_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = healthy(tmp_path)
    lake.progress[ECG] = {"sums": None}  # as an earlier version of the sink left it
    answer = told(lake)
    assert answer["ok"] and answer["unproven"] == of(answer)["unproven"] == 899
    _, out, _ = run(capsys, str(tmp_path))
    assert "payloads    899 rows without a checksum: landed before there were any" in out


def test_a_batch_that_is_being_written_is_no_fault_and_one_row_more_is(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    lake.write()
    lake.noted()
    lake.rows("cardio/ecg", 1001, 1100)
    lake.stream("cardio/new", "c:f64")
    lake.rows("cardio/new", 1, 5, alphabet="c:f64", ints=lambda xi: [], floats=lambda xi: [xi / 3])
    lake.progress["cardio/new", INCARNATION] = LEFT_OUT
    lake.streams.pop()  # its alphabets are noted behind its rows
    lake.behind = 1
    answer = told(lake)
    assert answer["ok"] and answer["unaccounted"] == 0 and of(answer)["unacknowledged"] == 100
    lake.stamped = False
    lake.rows("cardio/ecg", 1101, 1101)
    lake.behind = 2
    answer = told(lake)
    assert not answer["ok"] and answer["unaccounted"] == 1


def test_what_was_changed_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = healthy(tmp_path)
    _payload_changed(lake)
    code, out, _ = run(capsys, str(lake.write()))
    assert code == 1
    assert "payloads    CHANGED since they landed, at least one in ξ 1 to 1000" in out
    assert "payloads    by their checksums as they landed" in out
    assert "THE PROMISE IS BROKEN in cardio/ecg: payloads changed" in out


AGES = 10**9  # seconds


def test_what_is_not_acknowledged_is_in_flight_until_it_is_overdue(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    _run_not_there_yet(lake)
    answer = told(lake, overdue_s=AGES)
    assert (answer["in_flight"], answer["lost"], answer["ok"]) == (100, 0, True)
    assert of(answer)["in_flight"] == 100
    late = as_json(audit(str(lake.path)))
    assert (late["in_flight"], late["lost"], late["ok"]) == (0, 100, False)


def test_what_was_acknowledged_is_never_in_flight(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    _row_gone(lake)
    answer = told(lake, overdue_s=AGES)
    assert (answer["in_flight"], answer["lost_acknowledged"], answer["ok"]) == (0, 1, False)


def test_a_segment_in_the_landing_zone_is_not_lost_however_old_it_is(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    _run_not_there_yet(lake)
    landing = tmp_path / "landing"
    landing.mkdir()
    for first, last in ((1001, 1100), (1201, 1300), (1, 400)):  # missing; newer than the lake; taken already
        name = file_name("cardio", "cardio/ecg", INCARNATION, first, last, last - first + 1, "mV:i16", 0)
        (landing / name).touch()
    (landing / "_a_note").touch()
    answer = told(lake, landing=str(landing))
    assert (answer["in_flight"], answer["lost"], answer["ok"]) == (100, 0, True)
    assert answer["in_landing_zone"] == 200


def test_conservation_fails_where_the_sinks_sum_does(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    _counts_do_not_add_up(lake)
    assert told(lake)["conservation"]["holds"] is False


def test_rows_ahead_of_progress_are_told_and_are_no_fault(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    _progress_behind(lake)
    ecg = of(told(lake))
    assert ecg["unacknowledged"] == 100 and ecg["conservation"]["holds"] is True


def test_a_fault_in_rows_written_in_any_order_is_found(tmp_path: Path) -> None:
    """As after clustering: neighbours in the file are not neighbours in the stream."""
    lake = healthy(tmp_path)
    _run_twice(lake)
    _ts_falls_over_a_gap(lake)
    lake.elements.sort(key=lambda row: (row["xi"] * 7919) % 1009)
    answer = told(lake)
    assert (answer["duplicates"], answer["out_of_order"], answer["lost"]) == (51, 1, 0)


def test_incarnations_are_numbered_apart(tmp_path: Path) -> None:
    lake = healthy(tmp_path)
    lake.rows("cardio/ecg", 1, 50, incarnation=-3)
    answer = told(lake)
    assert answer["ok"] and answer["delivered"] == 1249 and answer["duplicates"] == 0
    assert {s["incarnation"] for s in answer["streams"]} == {"fffffffffffffffd", "00f3a1b2c3d4e5f6"}


# Levels


def levels(lake: LakeOf, stream: str = "cardio/ecg") -> dict[str, Any]:
    return dict(of(told(lake), stream)["levels"])


def test_lole_holds_where_only_holes_are_missing(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.rows("cardio/ecg", 1, 10)
    lake.gap("cardio/ecg", 11, 11, "hole", "sensor fault")
    lake.rows("cardio/ecg", 12, 20)
    assert levels(lake)["LOLE"] is True
    assert levels(lake)["LILO"] == {"LF": 1.0, "EF": 0.0}


def test_a_declared_gap_leaves_lilo_with_its_loss_factor(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.rows("cardio/ecg", 1, 90)
    lake.gap("cardio/ecg", 91, 100)
    assert levels(lake)["LOLE"] is False
    assert levels(lake)["LILO"] == {"LF": 0.9, "EF": 0.0}


def test_a_divergent_row_counts_against_both_factors(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.rows("cardio/ecg", 1, 100)
    lake.refuse("cardio/ecg", 40, 40, "divergent")
    assert levels(lake)["LOLE"] is False
    assert levels(lake)["LILO"] == {"LF": 0.99, "EF": 0.01}


@pytest.mark.parametrize(
    ("within_ms", "holds", "late"), [(2990, True, 0), (2989, False, 1), (2500, False, 49)]
)
def test_lide_holds_up_to_the_longest_delay(tmp_path: Path, within_ms: int, holds: bool, late: int) -> None:
    lake = LakeOf(tmp_path)
    lake.stream("cardio/ecg", within_ms=within_ms)
    lake.rows("cardio/ecg", 1, 100)  # the first one waits longest: 2.99 s
    ecg = of(told(lake))
    assert ecg["levels"]["LIDE"] == {"delta_us": 2_990_000, "asked_us": within_ms * 1000, "holds": holds}
    assert ecg["delay_us"]["landed"]["late"] == late


def test_what_was_asked_last_counts(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.stream("cardio/ecg", within_ms=1)
    lake.stream("cardio/ecg", alphabet="mV:i32", version=2, within_ms=9000)
    lake.rows("cardio/ecg", 1, 100)
    assert of(told(lake))["within_ms"] == 9000


def test_percentiles_are_never_below_the_truth_and_at_most_a_64th_above(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.rows("cardio/ecg", 1, 1000, landed_s=100)  # delays of 90 s to 99.99 s, 10 ms apart
    delay = of(told(lake))["delay_us"]["landed"]
    assert (delay["least"], delay["most"], delay["rows"]) == (90_000_000, 99_990_000, 1000)
    for name, truth in (("p50", 94_990_000), ("p90", 98_990_000), ("p99", 99_890_000)):
        assert truth <= delay[name] <= truth * 65 / 64


def test_rows_stamped_before_a_clock_was_set_have_no_delay(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.rows("cardio/ecg", 1, 10, unsync=True, landed_s=1e6)
    lake.rows("cardio/ecg", 11, 20)
    ecg = of(told(lake))
    assert ecg["unsync"] == 10 and ecg["delay_us"]["landed"]["rows"] == 10
    assert ecg["levels"]["LIDE"]["delta_us"] == 2_090_000


def test_iaso_fails_where_a_later_element_could_be_read_first(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.stream("cardio/ecg")
    lake.rows("cardio/ecg", 1, 10, landed_s=20)
    lake.rows("cardio/ecg", 11, 20, landed_s=20)
    assert levels(lake)["IASO"] is True
    lake.rows("cardio/ecg", 31, 40, landed_s=30)
    lake.rows("cardio/ecg", 21, 30, landed_s=31)
    answer = told(lake)
    assert of(answer)["levels"]["IASO"] is False
    assert answer["ok"] is True, "the order of arrival is a level, not the promise"


def test_ieso_fails_where_another_stream_could_be_read_first(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path / "together")
    lake.rows("cardio/ecg", 1, 100, landed_s=5)
    lake.rows("cardio/rate", 1, 100, landed_s=5)
    assert told(lake)["levels"] == {"IESO": {"cardio": True}}
    lake = LakeOf(tmp_path / "apart")
    lake.rows("cardio/ecg", 1, 100, landed_s=5)
    lake.rows("cardio/rate", 1, 100, landed_s=6)
    answer = told(lake)
    assert answer["levels"] == {"IESO": {"cardio": False}}
    assert all(s["levels"]["IASO"] for s in answer["streams"])


def test_ieso_includes_iaso(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    for row in lake.rows("cardio/ecg", 2, 2, landed_s=5) + lake.rows("cardio/ecg", 1, 1, landed_s=6):
        row["ts"] = at(0)  # no ts is earlier than another, and yet the second could be read first
    assert told(lake)["levels"] == {"IESO": {"cardio": False}}


# At the command line


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", *words])
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def test_the_page_says_what_is_there_and_exits_by_the_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, str(healthy(tmp_path / "good").write()))
    assert code == 0
    for text in (
        "cardio/ecg, incarnation 00f3a1b2c3d4e5f6, of cardio",
        "899 of ξ 1 to 1,000; 0 lost, 100 dropped as declared, 1 hole",
        "ξ 701 to 800: gap, full, 2026-03-01 08:00:07 to 2026-03-01 08:00:08",
        ": a log was full, and the process file lets the oldest go then",
        "LIDE with Δτ 5.99 s (as asked), IASO",
        "landed 899 = elements 899 + duplicates 0 + quarantined 0",
        "without a JVM",
        "the promise holds",
    ):
        assert text in out
    lake = healthy(tmp_path / "busy")
    _run_not_there_yet(lake)
    code, out, _ = run(capsys, str(lake.write()), "--overdue", "1e9")
    assert code == 0
    assert "100 elements in flight: the lake has newer ones already, and the gateway keeps these" in out
    lake = healthy(tmp_path / "bad")
    _row_gone(lake)
    code, out, _ = run(capsys, str(lake.write()))
    assert code == 1
    assert "ξ 500: lost, acknowledged, so the gateway has deleted its copy" in out
    assert "THE PROMISE IS BROKEN in cardio/ecg: 1 lost" in out


def test_json_is_the_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(healthy(tmp_path).write()), "--stream", "cardio/rate", "--json")
    answer = json.loads(out.splitlines()[-1])
    assert code == 0
    assert [s["stream"] for s in answer["streams"]] == ["cardio/rate"] and answer["delivered"] == 300


def test_bad_use_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = str(healthy(tmp_path / "lake").write())
    for words, text in (
        ((str(tmp_path / "nothing"),), "has no table `elements`: name the folder of a lake"),
        ((lake, "--stream", "cardio/egg"), "no stream 'cardio/egg'"),
        ((lake, "--stream", "o'brien; drop"), "it has cardio/ecg, cardio/rate"),
        ((), "required: LAKE"),
    ):
        code, out, err = run(capsys, *words)
        assert code == 2 and text in err and out == "" and "Traceback" not in err


def test_a_damaged_lake_is_named_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = healthy(tmp_path).write()
    for path in (lake / "elements").glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:200])
    code, _, err = run(capsys, str(lake))
    assert code == 2 and "cannot be read" in err and err.count("\n") == 1


def test_a_lake_without_rows_holds_its_promise(tmp_path: Path) -> None:
    assert told(LakeOf(tmp_path))["ok"] is True


def test_a_stream_of_holes_alone_is_reported(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.gap("cardio/ecg", 1, 1, "hole", "sensor fault")
    lake.rows("cardio/rate", 1, 5)
    ecg = of(told(lake))
    assert (ecg["delivered"], ecg["holes"], ecg["lost"], ecg["ok"]) == (0, 1, 0, True)


def test_a_gap_with_many_rows_in_it_is_listed_in_pieces_up_to_a_bound(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path)
    lake.stream("cardio/ecg")
    lake.gap("cardio/ecg", 1, 3 * LISTED_MAX)
    for xi in range(3, 3 * LISTED_MAX, 3):
        lake.rows("cardio/ecg", xi, xi)
    report: Report = audit(str(lake.write()))
    ecg = of(as_json(report))
    assert ecg["missing_ranges"] == LISTED_MAX and len(ecg["missing"]) == LISTED_MAX
    assert ecg["dropped"] == 2 * LISTED_MAX + 1 and ecg["ok"]


def test_neither_spark_nor_a_jvm_is_touched() -> None:
    code = (
        "import sys; import headwater_cloud; import headwater_cloud.audit; "
        "assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'matplotlib')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def erased_lake(path: Path, status: str = "done", gone: bool = True) -> LakeOf:
    """A healthy lake of which ξ 500 to 520 were erased, or are about to be."""
    lake = healthy(path)
    before = lake.truth()[ECG]
    if gone:
        lake.elements = [
            row for row in lake.elements if row["stream"] != "cardio/ecg" or not 500 <= row["xi"] <= 520
        ]
    if status == "deleting":
        lake.progress[ECG] = before
    else:
        lake.progress[ECG] = {"high": 1000, "ranges": []}
    lake.erasures.append(
        dict(
            id="0123456789ab",
            stream="cardio/ecg",
            filter="xi between 500 and 520",
            by="A. Name",
            reason="asked for",
            status=status,
            declared=at(3600),
            finished=at(3601) if status == "done" else None,
            ranges=[{"incarnation": INCARNATION, "first": 500, "last": 520}],
            taken=[],
        )
    )
    return lake


def page_of(lake: LakeOf, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(lake.path)])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_what_was_erased_on_demand_is_told_and_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = erased_lake(tmp_path)
    answer = told(lake)
    assert (answer["ok"], answer["erased"], answer["lost"], answer["erased_returned"]) == (True, 21, 0, 0)
    assert [(e["id"], e["by"], e["status"]) for e in answer["erasures"]] == [
        ("0123456789ab", "A. Name", "done")
    ]
    ecg = of(answer)
    assert ecg["levels"]["LILO"]["LF"] == 878 / 978
    assert ("by A. Name, 2026-03-01 09:00 UTC (asked for): xi between 500 and 520") in [
        m["reason"] for m in ecg["missing"] if (m["first"], m["last"], m["kind"]) == (500, 520, "erased")
    ]
    code, page = page_of(lake, capsys)
    assert code == 0 and "the promise holds" in page and ", 21 erased" in page
    assert "ξ 500 to 520: erased by A. Name, 2026-03-01 09:00 UTC (asked for): xi between 500 and 520" in page


def test_erased_rows_that_are_there_again_break_the_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = erased_lake(tmp_path, gone=False)
    assert told(lake)["erased_returned"] == 21
    code, page = page_of(lake, capsys)
    assert code == 1 and "21 erased and there again" in page


@pytest.mark.parametrize("gone", (False, True))
def test_an_erasure_that_was_cut_off_is_no_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gone: bool
) -> None:
    lake = erased_lake(tmp_path, "deleting", gone)
    assert told(lake)["ok"]
    code, page = page_of(lake, capsys)
    assert code == 0 and "erasure 0123456789ab of cardio/ecg is not finished" in page
