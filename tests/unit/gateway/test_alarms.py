"""Alarms: every trouble that a site can be in is named, and "All is well" is said only where all is well."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bare_gateway import configured
from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater_gateway.monitoring import site_alarms
from headwater_tools import environment

environment.ensure("gateway")
from headwater_gateway import UserError, status  # noqa: E402
from headwater_gateway.config import Config  # noqa: E402
from headwater_gateway.monitoring import alarms  # noqa: E402
from headwater_gateway.monitoring.alarms import (  # noqa: E402
    CRITICAL,
    KINDS,
    WARNING,
    BoardFacts,
    Facts,
    Limits,
    OperatorFacts,
    SinkFacts,
    SoundFacts,
    StreamFacts,
    Verdict,
    Watch,
    headline,
    judge,
)
from headwater_gateway.monitoring.journal import EVENTS_MAX  # noqa: E402
from headwater_gateway.monitoring.lags import SAMPLES_MAX, Reported  # noqa: E402
from headwater_gateway.monitoring.observer import Recent  # noqa: E402
from headwater_gateway.monitoring.sink_watch import SinkWatch  # noqa: E402
from headwater_gateway.service import Service  # noqa: E402

S = 1_000_000
CHEST = BoardFacts("chest", "cardio", battery_mv=3900, clock_us=1600, up_s=3600)
ECG = StreamFacts("cardio/ecg", "cardio", lag_s=4, waiting=900, acked_s=3, host="chest")
STEPS = StreamFacts("cardio/steps", "cardio", lag_s=2, waiting=50, acked_s=3, host="wrist")
SINK = SinkFacts(silent_s=12)
WELL = Facts(boards=(CHEST,), streams=(ECG, STEPS), sink=SINK)


def ids(facts: Facts) -> list[str]:
    return [alarm.id for alarm in judge(facts, Limits()).alarms]


def only(facts: Facts) -> alarms.Alarm:
    (alarm,) = judge(facts, Limits()).alarms
    return alarm


def late(lag_s: float = 400, **more: Any) -> tuple[StreamFacts, ...]:
    return tuple(replace(s, lag_s=lag_s, acked_s=None, **more) for s in (ECG, STEPS))


def test_a_site_without_trouble_has_no_alarm() -> None:
    assert ids(WELL) == []
    assert headline(Watch()) == {"state": "good", "text": "All is well"}


def test_an_adapter_that_cannot_be_used_is_told_in_words() -> None:
    alarm = only(replace(WELL, bluetooth_problem="the adapter is missing, off or not permitted (NotReady)"))
    assert (alarm.id, alarm.severity) == ("bluetooth", CRITICAL)
    assert "missing, off or not permitted" in alarm.text and "bluetoothctl" in alarm.do


def test_a_sink_that_never_ran_is_told_once_and_not_for_every_stream() -> None:
    alarm = only(replace(WELL, streams=late(), sink=SinkFacts(ever=False, acks="/lake/acks")))
    assert (alarm.id, alarm.severity) == ("sink.idle", CRITICAL)
    assert alarm.text == (
        "No acknowledgement has ever come to lake.acks = /lake/acks; 950 elements wait, the oldest for 6 min."
    )
    assert "hw sink" in alarm.do


def test_a_sink_that_was_stopped_or_killed_or_stands_still_is_told_as_such() -> None:
    assert (
        "was stopped 8 min ago"
        in only(replace(WELL, streams=late(), sink=SinkFacts(silent_s=500, stopped=True))).text
    )
    # A sink that was killed need not be waited for: it gives no sign of life.
    assert (
        "The sink is gone: it last gave a sign of life 100 s ago"
        in only(replace(WELL, sink=SinkFacts(silent_s=100))).text
    )
    assert "runs, and has acknowledged nothing" in only(replace(WELL, streams=late())).text
    assert "has acknowledged nothing" in only(replace(WELL, streams=late(), sink=SinkFacts())).text


def test_a_sink_that_runs_now_and_then_is_no_trouble_while_nothing_waits_for_long() -> None:
    assert ids(replace(WELL, sink=SinkFacts(silent_s=250, stopped=True))) == []
    nothing = tuple(replace(s, lag_s=None, waiting=0) for s in (ECG, STEPS))
    assert ids(replace(WELL, streams=nothing, sink=SinkFacts(silent_s=5000))) == []


def test_a_sink_that_writes_to_another_lake_is_told_with_both() -> None:
    alarm = only(replace(WELL, streams=late(), sink=SinkFacts(elsewhere="/other/lake", acks="/lake/acks")))
    assert (alarm.id, alarm.severity) == ("sink.elsewhere", CRITICAL)
    assert "/other/lake" in alarm.text and "lake.acks = /lake/acks" in alarm.text


def test_a_stream_that_is_stuck_while_others_move_is_named() -> None:
    stuck = replace(STEPS, lag_s=900, acked_s=None, waiting=269_352, beyond=True)
    alarm = only(replace(WELL, streams=(ECG, stuck)))
    assert (alarm.id, alarm.severity) == ("stream.stuck/cardio/steps", CRITICAL)
    assert "269,352 elements wait, the oldest for 15 min, although the lake has later ones" in alarm.text


def test_a_crash_loop_is_told_before_the_process_is_left_out() -> None:
    text = "OperatorError: low is 300"
    once = only(replace(WELL, boards=(replace(CHEST, crash=text, crashes=1),)))
    assert (once.id, once.severity) == ("board.crash/chest", WARNING) and text in once.text
    twice = only(replace(WELL, boards=(replace(CHEST, crash=text, crashes=2),)))
    assert twice.severity == CRITICAL and "crashes repeatedly, 2 times in 10 min" in twice.text
    out = only(replace(WELL, boards=(replace(CHEST, crash=text, crashes=5, left_out=True),)))
    assert "skips its process" in out.text
    assert ids(replace(WELL, boards=(replace(CHEST, crash=text),))) == []  # long ago


def test_clocks_that_are_wrong_are_told() -> None:
    far = only(replace(WELL, boards=(replace(CHEST, clock_us=97_459_000),)))
    assert (far.id, far.severity) == ("board.clock/chest", WARNING) and "97.5 s (limit 1.0 s)" in far.text
    assert ids(replace(WELL, boards=(replace(CHEST, clock_us=None),))) == ["board.clock/chest"]
    assert ids(replace(WELL, boards=(replace(CHEST, clock_us=None, up_s=20),))) == []
    apart = only(replace(WELL, boards=(replace(CHEST, ahead_s=-3700),)))
    assert apart.id == "board.clock/chest" and "61 min behind the site's time" in apart.text
    ahead = only(replace(WELL, ahead_s=100, right_in_s=200_000))
    assert ahead.id == "clock.ahead" and "100 s ahead of this machine's clock" in ahead.text
    assert "right in 55 h" in ahead.text
    blind = only(replace(WELL, clock_problem="not synchronised: it shows 1970", boards=(
        replace(CHEST, clock_us=None),
    )))  # fmt: skip
    assert blind.id == "clock.network" and "The site's time is not synchronised" in blind.text
    assert "timedatectl" in blind.do and 'gateway.clock = "wall"' in blind.do


def test_a_low_battery_is_told_and_does_not_flutter() -> None:
    low = replace(WELL, boards=(replace(CHEST, battery_mv=3310),))
    assert (only(low).id, only(low).severity) == ("board.battery/chest", WARNING)
    assert "3.31 V (limit 3.40 V)" in only(low).text
    assert only(replace(WELL, boards=(replace(CHEST, battery_mv=3250),))).severity == CRITICAL
    back = replace(WELL, boards=(replace(CHEST, battery_mv=3420),))
    assert ids(back) == []
    assert ids(replace(back, on={"board.battery/chest": WARNING})) == ["board.battery/chest"]
    for mv, before, now in (
        (3310, WARNING, WARNING), (3320, CRITICAL, CRITICAL), (3360, CRITICAL, WARNING),
    ):  # fmt: skip
        again = replace(WELL, boards=(replace(CHEST, battery_mv=mv),), on={"board.battery/chest": before})
        assert only(again).severity == now
    assert judge(low, Limits(battery_low_mv=0)).alarms == []


def test_a_broker_that_is_away_leaves_what_boards_hold_unknown_and_ends_no_alarm() -> None:
    held = replace(ECG, on_board=10_967, on_board_s=700)
    alarm = only(replace(WELL, streams=(held, STEPS)))
    assert alarm.id == "board.backlog/cardio/ecg"
    assert alarm.text == "Stream cardio/ecg: 10,967 elements wait on chest, the oldest for at least 11 min."
    away = replace(
        WELL, broker_up=False, broker_problem="refused", streams=(replace(ECG, on_board=None), STEPS)
    )
    verdict = judge(away, Limits())
    assert [a.id for a in verdict.alarms] == ["broker"] and "unknown" in verdict.alarms[0].text
    assert "board.backlog/cardio/ecg" in verdict.unsure


def test_boards_that_do_not_answer_are_told_where_they_have_a_process() -> None:
    for link, kind in (("silent", WARNING), ("lost", CRITICAL), ("gone", CRITICAL)):
        alarm = only(replace(WELL, boards=(replace(CHEST, link=link, silent_s=30),)))
        assert (alarm.id, alarm.severity) == ("board.link/chest", kind)
    never = replace(CHEST, link="never seen", wanted_s=100, told=False)
    assert "was never seen" in only(replace(WELL, boards=(never,))).text
    assert ids(replace(WELL, boards=(replace(never, process=None),))) == []


def test_what_a_full_disk_or_a_full_flash_brings_is_told() -> None:
    assert only(replace(WELL, database_full=True)).severity == CRITICAL
    assert ids(replace(WELL, database_full=True, database_failed="disk I/O error")) == ["database.failed"]
    assert only(replace(WELL, database_share=0.85)).id == "database.filling"
    refused = only(replace(WELL, boards=(replace(CHEST, refused_lately=360),)))
    assert refused.id == "board.samples/chest" and "360 samples" in refused.text
    assert ids(replace(WELL, boards=(replace(CHEST, refuses="no operator Fur"),))) == ["board.plan/chest"]
    assert ids(replace(WELL, segments_problem="Permission denied", segments_damaged=3)) == [
        "segments", "segments.damaged",
    ]  # fmt: skip


def test_a_gateway_that_has_just_started_does_not_judge_what_it_cannot_know() -> None:
    verdict = judge(replace(WELL, streams=late(), sink=replace(SINK, known=False)), Limits())
    assert verdict.alarms == [] and {"sink.idle", "stream.stuck"} <= verdict.unsure
    verdict = judge(replace(WELL, sink=replace(SINK, known=False)), Limits())
    assert verdict.unsure == set()  # nothing is late: then it is known
    young = judge(replace(WELL, boards=(replace(CHEST, link="lost", young=True),)), Limits())
    assert young.alarms == [] and "board.link/chest" in young.unsure
    # Entries of a board come before its status: it is there, and how it is is not known yet.
    quiet = judge(replace(WELL, boards=(replace(CHEST, told=False, clock_us=None),)), Limits())
    assert quiet.alarms == []
    assert quiet.unsure == {"board.%s/chest" % what for what in ("battery", "clock", "crash", "samples")}
    assert judge(replace(WELL, up_s=1, broker_up=False), Limits()).alarms == []


def test_every_alarm_says_what_where_and_what_to_do_and_is_of_a_known_kind() -> None:
    board = replace(
        CHEST, battery_mv=3000, clock_us=None, crash="x", crashes=3, refuses="no room", refused_lately=1
    )
    worst = Facts(
        broker_up=False, database_failed="disk full", segments_problem="x", segments_damaged=1,
        learning=(("cardio", "the database was lost"),), adopting=(("00ff", "a foreign key"),),
        ahead_s=98, clock_problem="not synchronised", boards=(board, replace(board, name="hip", link="lost")),
        streams=late(on_board=5, on_board_s=1e6), sink=SinkFacts(ever=False),
    )  # fmt: skip
    found = judge(worst, Limits()).alarms
    assert {alarm.kind for alarm in found} <= set(KINDS)
    assert len({alarm.id for alarm in found}) == len(found) >= 14
    for alarm in found:
        assert alarms.good_id(alarm.id)
        assert alarm.do.endswith(".") and len(alarm.do) > 15 and len(alarm.text) > 15
    order = [alarm.severity for alarm in found]
    assert order == sorted(order)  # critical first


# ---- over time


def one(ident: str, severity: str = CRITICAL, after_s: float = 0, text: str = "x") -> Verdict:
    verdict = Verdict()
    verdict.add(ident, severity, text, "y.", after_s)
    return verdict


def test_an_alarm_begins_when_its_cause_has_lasted_and_says_since_when() -> None:
    watch = Watch()
    assert watch.update(10 * S, one("broker", after_s=5)) == []
    assert watch.update(13 * S, one("broker", after_s=5)) == []
    (change,) = watch.update(15 * S, one("broker", after_s=5))
    assert change.what == "begins" and watch.open["broker"].since_us == 10 * S
    assert watch.update(20 * S, one("broker", text="now 10 s")) == []
    assert watch.shown()[0]["text"] == "now 10 s"
    (change,) = watch.update(21 * S, Verdict())
    assert change.what == "over" and watch.open == {}
    watch.update(30 * S, one("broker", after_s=5))
    watch.update(31 * S, Verdict())
    assert watch.update(40 * S, one("broker", after_s=5)) == []  # it began anew


def test_what_cannot_be_known_leaves_an_alarm_as_it_was() -> None:
    watch = Watch()
    watch.update(S, one("board.clock/chest"))
    assert watch.update(2 * S, Verdict(unsure={"board.clock/chest"})) == []
    assert watch.update(3 * S, Verdict(unsure={"board.clock"})) == []
    assert watch.shown()[0]["sure"] is False
    (change,) = watch.update(4 * S, Verdict())
    assert change.what == "over"


def test_acknowledging_and_muting_change_the_headline_and_never_hide_the_alarm() -> None:
    watch = Watch()
    both = one("broker")
    both.add("board.battery/hip", WARNING, "low", "charge.")
    watch.update(S, both)
    assert headline(watch) == {"state": "bad", "text": "2 alarms"}
    watch.acknowledge("broker", 2 * S)
    assert headline(watch) == {"state": "bad", "text": "2 alarms, 1 acknowledged"}
    watch.mute("broker", 100 * S)
    assert headline(watch) == {"state": "warn", "text": "1 alarm (1 muted)"}
    watch.mute("board.battery/hip", 50 * S)
    assert headline(watch)["text"] == "No alarm (2 muted)"
    assert len(watch.shown()) == 2
    watch.update(60 * S, both)
    assert headline(watch)["text"] == "1 alarm (1 muted)"  # a mute ends by itself
    watch.update(61 * S, Verdict())
    assert headline(watch)["text"] == "All is well"
    assert set(watch.mutes) == {"broker"}
    watch.update(62 * S, both)  # it comes again: still muted, and no longer acknowledged
    assert watch.open["broker"].acked_us == 0
    with pytest.raises(KeyError):
        watch.acknowledge("segments", 63 * S)


def test_what_gets_worse_is_told_again_and_has_to_be_acknowledged_again() -> None:
    watch = Watch()
    watch.update(S, one("board.link/hip", WARNING))
    watch.acknowledge("board.link/hip", 2 * S)
    (change,) = watch.update(3 * S, one("board.link/hip", CRITICAL))
    assert change.what == "worse" and watch.open["board.link/hip"].acked_us == 0
    assert watch.update(4 * S, one("board.link/hip", WARNING)) == []
    assert watch.counts() == {CRITICAL: 0, WARNING: 1}
    assert watch.by_kind() == {**dict.fromkeys(KINDS, 0), "board.link": 1}


def test_ids_are_those_of_alarms_that_can_be() -> None:
    assert alarms.good_id("broker") and alarms.good_id("board.link/hip")
    for bad in ("", "nonsense", "nonsense/hip", "broker/", "board.link/\n", "board.link/" + 300 * "x"):
        assert not alarms.good_id(bad)


# ---- what is remembered


def test_crashes_and_refused_samples_are_counted_as_they_happen() -> None:
    recent = Recent()
    recent.note({"boot": 9, "up": 5000, "crash": [8, "old"], "refused": 7}, 1000)
    assert (recent.crashes_since(0), recent.refused_since(0)) == (0, 0)  # long ago
    recent.note({"boot": 10, "up": 3, "crash": [9, "x"], "refused": 0}, 1010)
    recent.note({"boot": 10, "up": 8, "crash": [9, "x"], "refused": 4}, 1015)
    recent.note({"boot": 11, "up": 2, "crash": [10, "x"], "refused": 5}, 1020)
    recent.note({"boot": 12, "up": 2, "crash": [10, "x"], "refused": 2}, 1030)  # power went: no crash
    assert (recent.crashes_since(900), recent.crashes_since(1015)) == (2, 1)
    assert recent.refused_since(900) == 4 + 1 + 2
    fresh = Recent()
    fresh.note({"boot": 4, "up": 20, "crash": [3, "x"], "refused": 0}, 1000)
    assert fresh.crashes_since(900) == 1  # the gateway was not there, and yet it was just now
    for at in range(10_000):
        fresh.note({"boot": at, "up": 1, "crash": [at, "x"], "refused": at}, at)
    assert len(fresh.crashes) <= 100 and len(fresh.refused) <= 100


def test_the_age_of_what_a_board_holds_is_what_is_known_of_it() -> None:
    held = Reported()
    for t in range(10):
        held.note(t * S, 100 * t)
    assert held.age_us(350, 20 * S) == 16 * S  # 351 was there at second 4, and not yet at second 3
    assert held.age_us(900, 20 * S) is None
    for t in range(10, 1000):
        held.note(t * S, 100 * t)
    assert len(held.samples) <= SAMPLES_MAX
    age = held.age_us(900, 1000 * S)
    assert age is not None and 900 * S < age <= 990 * S
    held.note(1001 * S, 5)  # its flash was erased
    assert held.age_us(0, 1002 * S) == S


def sign(ident: str, at: int, **more: Any) -> str:
    return json.dumps({"format": 1, "id": ident, "at": at, "every_s": 30, "lake": "/lakes/" + ident, **more})


def test_signs_of_life_tell_a_sink_that_lives_from_one_that_is_gone_or_elsewhere() -> None:
    sink = SinkWatch("/acks")
    assert sink.facts(True, False, 0).read is False
    sink.take({"acks": sign("a", 1), "landing": sign("a", 1)}, 0)
    sink.take({"acks": sign("a", 2), "landing": sign("a", 2)}, 30)
    assert sink.facts(True, True, 40).silent_s == 10 and sink.elsewhere(40) == ""
    assert sink.facts(True, True, 400).silent_s == 370
    # Another sink reads the landing zone, and ours is silent: that one's lake is another.
    sink.take({"acks": sign("a", 2), "landing": sign("b", 1)}, 500)
    assert sink.elsewhere(500) == "/lakes/b"
    assert sink.elsewhere(700) == ""  # that one is gone too
    sink.take({"acks": sign("c", 1), "landing": sign("b", 2)}, 710)
    assert sink.elsewhere(715) == ""  # two sinks for two lakes, and ours lives
    sink.take({"acks": sign("c", 2, stopped=True), "landing": sign("b", 3)}, 720)
    assert sink.facts(True, True, 725).stopped and sink.elsewhere(725) == "/lakes/b"


def test_signs_that_are_none_are_no_signs() -> None:
    sink = SinkWatch("/acks")
    for text in (None, "", "{", "[]", "null", '{"format": 2}', '{"format": 1, "id": 7}', "9" * 5000):
        sink.take({"acks": text, "landing": text}, 1)
        assert sink.facts(True, True, 2).silent_s is None and sink.elsewhere(2) == ""


# ---- of a real service, without a broker


def config_of(folder: Path, text: str = "") -> Config:
    return configured(folder, '[gateway]\nclock = "wall"\n' + text)


def some(xi: int, n: int) -> bytes:
    batch = Batch(Alphabet("mV:i16"), n)
    batch.n, batch.xi, batch.ts, batch.dt = n, xi, 1_700_000_000_000_000, 1000
    buf = bytearray(block.bound(batch.alphabet, n))
    return bytes(buf[: block.encode(batch, 0, n, buf, 0)])


def later(service: Service, seconds: float) -> None:
    """As if this time had passed."""
    service.clock.true0 += int(seconds * S)
    service.started -= seconds


def open_ids(service: Service) -> list[str]:
    service.observer.look()
    return sorted(service.observer.watch.open)


def test_a_service_that_nobody_acknowledges_says_so_with_lag_and_is_well_when_the_lake_has_it(
    tmp_path: Path,
) -> None:
    service = Service(config_of(tmp_path))
    service.segments.sink.take({"acks": None, "landing": None})
    assert open_ids(service) == []
    ends = [service.ends.make("cardio", name, "", 5, "mV:i16", 0) for name in ("cardio/ecg", "cardio/x")]
    for end in ends:
        end.put(1, 100, some(1, 100))
    service.db.commit()
    later(service, 200)
    assert open_ids(service) == []
    later(service, 200)
    assert open_ids(service) == ["sink.idle"]
    facts = {fact.stream: fact for fact in service.observer.streams()}
    assert facts["cardio/ecg"].waiting == 100 and 400 <= (facts["cardio/ecg"].lag_s or 0) < 500
    assert headline(service.observer.watch)["state"] == "bad"
    ends[0].acknowledge(100)
    ends[0].put(101, 100, some(101, 100))
    service.db.commit()
    assert open_ids(service) == ["stream.stuck/cardio/x"]
    ends[1].acknowledge(100)
    service.db.commit()
    assert open_ids(service) == []
    assert [fact.lag_s is None for fact in service.observer.streams()] == [False, True]
    service.db.close()


def test_events_alarms_and_mutes_outlive_the_gateway(tmp_path: Path) -> None:
    service = Service(config_of(tmp_path))
    service.segments.problem = "Permission denied"
    service.segments.damaged = 1
    assert open_ids(service) == ["segments", "segments.damaged"]
    service.observer.acknowledge("segments")
    service.observer.mute("broker", 3600)
    service.observer.mute("segments.damaged", 3600)
    for i in range(EVENTS_MAX + 20):
        service.event("operator", "number %d" % i)
    before = service.alarms()
    service.db.close()

    service = Service(config_of(tmp_path))
    after = service.alarms()
    assert after["events"] == before["events"] and len(service.observer.journal.events) == EVENTS_MAX
    assert [(a["id"], a["since_us"], a["acked_us"], a["muted_until_us"]) for a in after["alarms"]] == [
        (a["id"], a["since_us"], a["acked_us"], a["muted_until_us"]) for a in before["alarms"]
    ]
    assert after["mutes"] == before["mutes"] and set(after["mutes"]) == {"broker", "segments.damaged"}
    assert open_ids(service) == []
    service.db.commit()
    assert service.db.query("SELECT count(*) FROM events") == [(EVENTS_MAX,)]
    assert service.db.query("SELECT id FROM alarms ORDER BY id") == [("broker",), ("segments.damaged",)]
    ids = [event["id"] for event in service.observer.journal.events]
    assert ids == sorted(set(ids))
    service.db.close()


def test_alarms_are_acknowledged_and_muted_by_ids_that_are(tmp_path: Path) -> None:
    service = Service(config_of(tmp_path))
    with pytest.raises(UserError, match="there is no alarm broker; on are: none"):
        service.observer.acknowledge("broker")
    with pytest.raises(UserError, match="no alarm can have the id nonsense"):
        service.observer.mute("nonsense", 60)
    with pytest.raises(UserError, match="up to 30 days"):
        service.observer.mute("broker", 1e9)
    with pytest.raises(UserError, match="is not muted; muted are: none"):
        service.observer.unmute("broker")
    for n in range(alarms.MUTES_MAX):
        service.observer.mute("board.link/b%d" % n, 60)
    with pytest.raises(UserError, match="unmute one first"):
        service.observer.mute("broker", 60)
    service.db.close()


def test_a_board_that_crashes_has_a_low_battery_or_a_wrong_clock_raises_alarms(tmp_path: Path) -> None:
    service = Service(config_of(tmp_path, "[alarms]\nbattery_low_mv = 3500\n"))
    board = service.boards.add("vent")
    service.by_board["vent"] = SimpleNamespace(name="greenhouse", since_us=1, hosted=None)  # type: ignore[assignment]
    service.processes.clear()
    well = {"battery": 3900, "sync": 1000, "up": 1000, "boot": 3, "crash": None, "refused": 0, "state": 2}

    def says(**more: Any) -> list[str]:
        board.status = {**well, **more}
        board.seen_us = service.site_us()
        service.observer.on_status(board)
        service.observer.look()
        later(service, 12)
        board.seen_us = service.site_us()
        return open_ids(service)

    assert says() == []
    assert says(battery=3450) == ["board.battery/vent"]
    assert says(battery=3520) == ["board.battery/vent"]
    assert says(battery=3560, sync=5_000_000) == ["board.clock/vent"]
    assert says(boot=4, up=1, crash=[3, "OperatorError"]) == ["board.crash/vent"]
    assert service.observer.watch.open["board.crash/vent"].alarm.severity == WARNING
    assert says(boot=5, up=1, crash=[4, "OperatorError"]) == ["board.crash/vent"]
    assert service.observer.watch.open["board.crash/vent"].alarm.severity == CRITICAL
    service.db.close()


# ---- what a board may say


def test_a_status_is_made_safe_to_show_whatever_a_board_says() -> None:
    from headwater.data import msgpack

    good = {"battery": 3700, "crash": [3, "x"], "log": [1, 2], "plan": bytes(8), "rssi": -60, "sync": None}
    assert status.read(msgpack.dumps(good)) == good
    bad = {
        "battery": "3700", "crash": [1, 2, 3], "log": 5, "plan": b"x", "backlog": [[1, 2]], "rssi": True,
        "<script>": 1, "up": -4, "boot": [[]], "version": "a\nb" + 500 * "x",
    }  # fmt: skip
    found = status.read(msgpack.dumps(bad))
    assert found is not None and "<script>" not in found
    assert {key: value for key, value in found.items() if value is not None} == {"version": "a b" + 197 * "x"}
    assert status.read(msgpack.dumps({"free": 0})) == {"free": None}  # not measured there
    assert status.read(b"\xc1") is None and status.read(msgpack.dumps([1])) is None


def test_every_word_of_a_board_is_known_here() -> None:
    source = (environment.ROOT / "edge" / "headwater" / "board" / "program.py").read_text()
    text = source.partition('        status: "Any" = {\n')[2].partition("        }\n")[0]
    said = set(re.findall(r'^            "(\w+)":', text, re.MULTILINE))
    said |= set(re.findall(r'status\["(\w+)"\] =', source))  # of some boards only
    assert said == set(status.KEYS)


# ---- at a terminal


def test_a_time_is_a_number_and_a_unit() -> None:
    assert [site_alarms.seconds(text) for text in ("90s", "30m", "2h", "1.5d")] == [90, 1800, 7200, 129_600]
    for text in ("2", "h", "-2h", "2 weeks"):
        with pytest.raises(UserError, match="like 30m or 2h"):
            site_alarms.seconds(text)


def test_state_counts_an_alarm_until_it_is_muted() -> None:
    watch = Watch()
    watch.update(S, one("broker", text="The broker does not answer."))
    answer = {"headline": headline(watch), "alarms": watch.shown(), "mutes": {}, "events": []}
    answer["receivers"] = []
    assert site_alarms.exit_code(answer) == 1
    text = "\n".join(site_alarms.page(answer))
    assert "id: broker" in text and "1970-01-01" in text and "to do: y." in text
    watch.acknowledge("broker", 2 * S)
    watch.mute("broker", 9 * S)
    watch.mute("segments", 9 * S)
    answer = {**answer, "alarms": watch.shown(), "mutes": dict(watch.mutes)}
    assert site_alarms.exit_code(answer) == 0
    text = "\n".join(site_alarms.page(answer))
    assert "acknowledged, muted until" in text and "segments is not on, and muted until" in text


# ---- alarms that boards raise themselves, and operators that run nowhere


def test_what_a_board_sounds_is_an_alarm_for_those_who_are_elsewhere() -> None:
    quiet = SoundFacts("wrist", "heart", "analyzer", "buzzer", silent_s=30)
    assert ids(Facts(sounds=(quiet,))) == []
    silent = only(Facts(sounds=(replace(quiet, by_silence=True),)))
    assert silent.id == "board.alarm/wrist.heart" and silent.severity == alarms.CRITICAL
    assert "it hears nothing of analyzer for 30.0 s" in silent.text
    assert "--mute board.alarm/wrist.heart" in silent.do
    level = only(Facts(sounds=(replace(quiet, by_level=True, by_silence=True),)))
    assert "because of what analyzer says" in level.text
    mute = only(Facts(sounds=(replace(quiet, by_level=True, audible=False),)))
    assert "has no buzzer" in mute.text


def test_a_board_that_is_away_neither_begins_nor_ends_its_alarm() -> None:
    away = SoundFacts("wrist", "heart", "analyzer", "buzzer", known=False)
    verdict = judge(Facts(sounds=(away,)), Limits())
    assert verdict.alarms == [] and verdict.unsure == {"board.alarm/wrist.heart"}


def test_an_operator_that_runs_nowhere_is_named_with_its_candidates_and_what_to_do() -> None:
    lost = OperatorFacts("ward", "rate", (("chest", "is silent for 10 min"), ("hip", "was never seen")), 600)
    alarm = only(Facts(nowhere=(lost,)))
    assert alarm.id == "operator.nowhere/ward.rate" and alarm.severity == alarms.CRITICAL
    assert "runs nowhere for 10 min: chest is silent for 10 min; hip was never seen" in alarm.text
    assert "charge its battery" in alarm.do and "hw give-up rate" in alarm.do and "hw board lost" in alarm.do
    verdict = judge(Facts(nowhere=(replace(lost, known=False),)), Limits())
    assert verdict.alarms == [] and verdict.unsure == {"operator.nowhere/ward.rate"}
