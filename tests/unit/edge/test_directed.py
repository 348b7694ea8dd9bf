"""What happens by schedule: a join without one of its inputs, a way to the lake that is cut for too long."""

from __future__ import annotations

from typing import Any

import pytest
from headwater.data import msgpack
from headwater.data.batch import GAP_FULL, GAP_GATEWAY_LOST, GAP_GIVEN_UP
from headwater.process import Process, SumJoin
from headwater.process.check import check
from headwater.protocol import frames
from headwater.protocol.position import further
from headwater.runtime import incoming, restore, routing
from headwater.runtime.host import Host
from headwater.runtime.instance import RUNNING, WAITING
from headwater.storage import checkpoint_file
from headwater.storage.keyspace import HELD, checkpoint_key, stream_key
from headwater_tools.simulator.directed import SCHEDULES, Directed
from headwater_tools.simulator.directed.base import GATEWAY, RIGHT, SHIFTED, SPARE
from headwater_tools.simulator.directed.decisions import ManyDecisions
from headwater_tools.simulator.directed.joins import Asleep, DeadInput, pair
from headwater_tools.simulator.directed.logs import ManyOperators
from headwater_tools.simulator.outbox import UNREADABLE
from headwater_tools.simulator.scenario import Result
from headwater_tools.simulator.world import SECOND, SITE_US

pytestmark = pytest.mark.slow


def held(name: str, seed: int) -> tuple[Directed, Result]:
    """A schedule that must hold, and what came of it."""
    scenario = SCHEDULES[name](seed)
    result = scenario.run()
    assert result.errors == []
    assert result.counts["lost"] == 0
    return scenario, result


def gaps(scenario: Directed) -> list[tuple[int, int, int]]:
    return [gap for stream in scenario.world.outbox.streams.values() for gap in stream.gaps]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_join_goes_on_without_a_dead_input_and_takes_it_back(seed: int) -> None:
    scenario = SCHEDULES["dead input"](seed)
    result = scenario.run()
    assert result.errors == []
    contents = [content[0] for granted in scenario.world.decisions().values() for _, content in granted]
    assert contents == ["close", "open"]
    assert result.counts["lost"] == 0


class ClosedUnsafe(DeadInput):
    """A board dies with a source, a person closes the input, and the join restarts. Without checkpoints it
    begins again, and still without that input."""

    def __init__(self, seed: int) -> None:
        self.stood: list[tuple[bool, int]] = []  # whether the input is closed, and what the join has put out
        super().__init__(seed)

    def process(self) -> Process:
        p, a, b = pair(checkpoints="unsafe", level="local")
        p.lake("pair/sum", SumJoin(us=1_000_000).named("sum").on("gateway")(a, b), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.kill(RIGHT)),
            (8, self.close),
            (10, lambda: self.crash(GATEWAY)),
            (10.5, lambda: self.boot(GATEWAY)),
            *[(second, self.look) for second in (13, 18)],
        ]

    def look(self) -> None:
        host = self.node(GATEWAY).host
        inst = host and host.instances[self.join()]
        assert inst
        self.stood.append((inst.inputs[1].closed, inst.ports[0].ring.last))


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_closed_input_stays_closed_after_a_restart_without_checkpoints(seed: int) -> None:
    scenario = ClosedUnsafe(seed)
    scenario.run()
    (closed, before), (still, after) = scenario.stood
    assert closed and still and after >= before + 50


@pytest.mark.parametrize("name", ["taken back", "taken back unnamed", "taken back late", "passed over"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_an_input_is_taken_back_at_one_place_and_above_every_boundary(name: str, seed: int) -> None:
    scenario, _ = held(name, seed)
    contents = [content[0] for granted in scenario.world.decisions().values() for _, content in granted]
    assert contents == ["close", "open"]


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_was_stamped_while_nobody_knew_the_time_is_marked(seed: int) -> None:
    scenario, _ = held("no network", seed)
    for key, stream in scenario.world.outbox.streams.items():
        if not key[1]:
            continue
        rows = [row for _, row in sorted(stream.rows.items()) if row[2:3] != ("hole",)]
        ts = [(row[0] - SITE_US) / 1e6 for row in rows]
        sure = [not row[1] for row in rows]
        marked = [at for at, known in zip(ts, sure, strict=True) if not known and at > 5]
        assert len(marked) > 10 and 7 < min(marked) and max(marked) < 25, key


@pytest.mark.parametrize("seed", range(1, 4))
def test_from_when_on_one_input_is_taken_back_says_nothing_of_the_others(seed: int) -> None:
    scenario = SCHEDULES["passed over"](seed)
    seen = []

    def restored() -> None:
        host = scenario.node(0).host
        assert host
        (inst,) = host.instances.values()
        front = inst.front + inst.past
        body = checkpoint_file.read_body(inst.vertex, inst.ck._take(b"", 0).body)
        restore._set(inst, body, inst.op)
        restore.reconnect(host, inst)
        assert inst.inputs[1].from_ts >= inst.front + inst.past == front
        seen.extend(e.from_ts for e in inst.inputs)

    scenario.world.at(8_900_000, restored)
    assert scenario.run().errors == []
    assert seen[0] == 0 < seen[1]


@pytest.mark.parametrize("seed", range(1, 4))
def test_time_stands_still_where_no_input_is_open(seed: int) -> None:
    scenario, _ = held("no input open", seed)
    (stream,) = scenario.world.outbox.streams.values()
    assert 6_000_000 < max(row[0] for row in stream.rows.values()) - SITE_US < 8_000_000


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_checkpoint_is_no_larger_than_the_room_that_is_kept_for_it(seed: int) -> None:
    scenario, _ = held("in turn", seed)
    (stream,) = scenario.world.outbox.streams.values()
    turns = [stream.rows[xi][1] != stream.rows[xi + 1][1] for xi in range(1, stream.taken)]
    assert sum(turns) > 600


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_a_full_edge_to_the_lake_drops_is_declared(seed: int) -> None:
    scenario = SCHEDULES["dropping"](seed)
    result = scenario.run()
    assert result.errors == []
    assert result.counts["gaps_declared"] >= 1
    assert result.counts["lost"] == 0


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_block_that_cannot_be_decoded_is_a_gap_and_holds_up_nothing(seed: int) -> None:
    scenario = SCHEDULES["spoiled"](seed)
    assert scenario.run().errors == []
    (stream,) = [stream for (_, inc), stream in scenario.world.outbox.streams.items() if inc]
    given = {
        xi for first, last, reason in stream.gaps if reason == UNREADABLE for xi in range(first, last + 1)
    }
    assert {100, 130, 200, 205, 265, 270} <= given == {xi for _, _, xi in scenario.world.spoiled}
    assert sorted(given | stream.rows.keys()) == list(range(1, stream.taken + 1))
    assert stream.taken > 350 and stream.rows.keys().isdisjoint(given)


@pytest.mark.parametrize("name", ["erased", "erased at rest"])
@pytest.mark.parametrize("seed", range(1, 9))
def test_an_operator_goes_on_when_the_flash_of_its_source_was_erased(seed: int, name: str) -> None:
    scenario = SCHEDULES[name](seed)
    result = scenario.run()
    assert result.errors == []
    contents = [content[:2] for granted in scenario.world.decisions().values() for _, content in granted]
    assert contents == [["open", 0]]


@pytest.mark.parametrize("name", ["erased and restarted", "erased among changes"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_place_where_a_new_incarnation_begins_is_reached_in_every_life(name: str, seed: int) -> None:
    scenario = SCHEDULES[name](seed)
    result = scenario.run()
    assert result.errors == []
    (granted,) = scenario.world.decisions().values()
    assert [content[:2] for _, content in granted if content[0] == "open"] == [["open", 0]]


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_operator_takes_nothing_before_others_know_how_it_began(seed: int) -> None:
    held("begins unknown", seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_checkpoint_says_how_an_operator_begins_before_that_is_known(seed: int) -> None:
    held("begins half", seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_a_full_log_refuses_is_a_hole_up_to_the_next_sample(seed: int) -> None:
    scenario = SCHEDULES["full"](seed)
    result = scenario.run()
    assert result.errors == []
    (line,) = scenario.world.accepted.values()
    holes = [entry[2:4] == ("hole", 2) for entry in line]
    assert any(holes)
    assert not any(first and second for first, second in zip(holes, holes[1:]))


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_join_does_not_wait_for_a_board_that_said_it_sleeps(seed: int) -> None:
    scenario = Asleep(seed)
    result = scenario.run()
    assert result.errors == []
    assert scenario.heard_us > 13_000_000  # entries of the other board, nine seconds into the sleep


def test_an_operator_takes_no_change_that_nobody_can_make() -> None:
    scenario = SCHEDULES["changes"](1)
    wrong = [
        7,
        None,
        "open",
        [],
        ["open", 1, 5, 0],
        ["open", -1, 5, 0],
        ["open", "x", 5, 0],
        ["set", 0, 5, 0],
    ]
    decided = []

    def tell(host: Host) -> None:
        for content in [*map(msgpack.dumps, wrong), b"\xc1", msgpack.dumps(["set", {"offset": 1}])]:
            decided.append(host.instances[SHIFTED].decided)
            heard(host, GATEWAY, (frames.CONFIG, SHIFTED, 77, 1, content))
        decided.append(host.instances[SHIFTED].decided)

    scenario.world.at(7 * SECOND // 2, lambda: tell(scenario.node(SPARE).host))
    assert scenario.run().errors == []
    assert decided == 10 * [0] + [1]


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_pending_checkpoint_of_a_dead_life_is_never_restored(seed: int) -> None:
    scenario, _ = held("stale pending", seed)
    assert [len(granted) for granted in scenario.world.decisions().values()] == [1]


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_gap_goes_with_its_operator_to_another_host(seed: int) -> None:
    scenario, result = held("drop and move", seed)
    assert {reason for _, _, reason in gaps(scenario)} == {GAP_FULL}
    (stream,) = scenario.world.outbox.streams.values()
    dropped = sum(last - first + 1 for first, last, _ in stream.gaps)
    assert result.counts["delivered"] + dropped == stream.taken


@pytest.mark.parametrize("name", ["many decisions", "many decisions of two"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_changes_that_no_checkpoint_covers_are_bounded_and_kept(name: str, seed: int) -> None:
    scenario, _ = held(name, seed)
    assert isinstance(scenario, ManyDecisions)
    granted = [len(known) for known in scenario.world.decisions().values()]
    assert scenario.refused + sum(granted) == scenario.CHANGES * len(granted)
    assert all(granted)


@pytest.mark.parametrize("seed", range(1, 4))
def test_of_two_activations_with_one_number_the_higher_host_counts(seed: int) -> None:
    scenario, _ = held("epoch clash", seed)
    running = [node.number for node in scenario.world.nodes if node.host and node.host.instances]
    assert running == [1]


@pytest.mark.parametrize("name", ["gateway erased", "gateway erased after changes"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_lost_database_is_declared_and_nothing_else_is_missing(name: str, seed: int) -> None:
    scenario, _ = held(name, seed)
    assert {reason for _, _, reason in gaps(scenario)} == {GAP_GATEWAY_LOST}


def test_changes_go_on_after_a_lost_database() -> None:
    scenario, _ = held("gateway erased after changes", 1)
    offsets = [content[1]["offset"] for known in scenario.world.decisions().values() for _, content in known]
    assert offsets == [1, 2, 3, 4, 5, 50, 51, 52]


@pytest.mark.parametrize("seed", range(1, 4))
def test_changes_that_no_checkpoint_covers_outlive_the_database_and_a_move(seed: int) -> None:
    scenario, _ = held("gateway erased, then moved", seed)
    offsets = [content[1]["offset"] for known in scenario.world.decisions().values() for _, content in known]
    assert offsets == [1, 2, 3, 4, 5]


def test_what_the_lost_outbox_had_acknowledged_is_made_again_for_the_new_one() -> None:
    for seed in (2, 7, 8):
        held("gateway erased under its operator", seed)


@pytest.mark.parametrize("name", ["gateway erased with an operator", "gateway erased after a restart"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_change_that_only_the_gateway_knows_has_no_effect_elsewhere(name: str, seed: int) -> None:
    scenario = SCHEDULES[name](seed)
    result = scenario.run()
    assert result.errors == []
    assert scenario.world.databases_lost == 1


@pytest.mark.parametrize("seed", range(1, 3))
def test_as_many_operators_as_the_check_accepts_run_on_one_board(seed: int) -> None:
    scenario, _ = held("many operators", seed)
    assert isinstance(scenario, ManyOperators)
    operators = len(scenario.place)
    assert operators >= 12
    assert operators == scenario.OPERATORS or check(scenario.chain(operators + 1)).errors()


@pytest.mark.parametrize(
    "name",
    ["least log", "least log, large state", "least log, sliding", "least log, wide", "least log, greenhouse"],
)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_log_of_the_least_size_fills_up_and_goes_on(name: str, seed: int) -> None:
    _, result = held(name, seed)
    assert result.drawn["logs that filled up"] >= 1


@pytest.mark.parametrize("name", ["dead holder", "dead backup", "only keeps"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_dead_holder_costs_one_wait_and_not_one_for_each_checkpoint(name: str, seed: int) -> None:
    held(name, seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_join_without_what_it_needs_to_catch_up_gives_nothing_wrong(seed: int) -> None:
    scenario, _ = held("dead source", seed)
    assert len(scenario.world.outbox.streams) == 1


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_change_does_not_wait_for_a_got_that_was_lost(seed: int) -> None:
    scenario = SCHEDULES["got lost"](seed)
    granted: list[int] = []
    scenario.world.at(15_500_000, lambda: granted.extend(scenario.world.decisions()))
    assert scenario.run().errors == []
    assert granted == [1]


def place(scenario: Directed, name: str) -> list[int]:
    """The position of an operator in the end."""
    (v,) = [v.index for v in scenario.plan.vertices if v.name == name]
    host = scenario.node(scenario.place[v]).host
    assert host
    position: list[int] = host.instances[v].position()
    return position


@pytest.mark.parametrize("seed", range(3))
def test_the_log_of_a_board_does_not_keep_what_an_operator_left_there(seed: int) -> None:
    scenario = SCHEDULES["spill left"](seed)
    left: list[list[int]] = []

    def look() -> None:
        host = scenario.node(SPARE).host
        assert host
        left.append(host.store.streams())

    scenario.world.at(int(7.9 * SECOND), look)
    scenario.world.at(19 * SECOND, look)
    result = scenario.run()
    assert result.errors == []
    assert left == [[stream_key(SHIFTED)], []]
    assert {reason for _, _, reason in gaps(scenario)} <= {GAP_GIVEN_UP}


@pytest.mark.parametrize("seed", range(3))
def test_a_change_lies_behind_a_checkpoint(seed: int) -> None:
    _, result = held("erased after a change", seed)
    assert result.counts["delivered"] == result.counts["accepted"]


@pytest.mark.parametrize("seed", range(3))
def test_frames_that_overtake_each_other_cost_no_waiting(seed: int) -> None:
    _, result = held("short frames", seed)
    assert "logs that filled up" not in result.drawn


@pytest.mark.parametrize("name", ["checkpoint left", "moved back"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_at_level_local_an_operator_with_backups_moves_and_goes_on_from_its_checkpoint(
    name: str, seed: int
) -> None:
    scenario = SCHEDULES[name](seed)
    assert scenario.run().errors == []
    for operator in ("first", "second"):
        assert place(scenario, operator)[0] > 400


@pytest.mark.parametrize("seed", range(1, 6))
def test_nobody_goes_on_along_a_course_that_was_left(seed: int) -> None:
    scenario, result = held("course left", seed)
    ((pos, content),) = [d for granted in scenario.world.decisions().values() for d in granted]
    assert content[0] == "open"
    assert pos[0] < 100 < place(scenario, "clean")[0]
    assert result.counts["delivered"] == place(scenario, "beats")[0] > 400


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_keeper_gives_up_a_further_checkpoint_of_an_epoch_that_is_over(seed: int) -> None:
    held("further and over", seed)


@pytest.mark.parametrize(("name", "change"), [("erased holder", "open"), ("decides unstored", "set")])
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_only_a_silent_host_knows_is_not_decided_against(name: str, change: str, seed: int) -> None:
    scenario = SCHEDULES[name](seed)
    assert scenario.run().errors == []
    ((pos, content),) = [d for granted in scenario.world.decisions().values() for d in granted]
    assert content[0] == change
    assert pos[0] > 100


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("dead source moved", 8 * ["set"] + ["close"]),
        ("dead source closed", ["close"]),
        ("dead asleep", ["close"]),
    ],
)
def test_a_join_goes_on_without_a_lost_board(name: str, contents: list[str], seed: int) -> None:
    scenario, _ = held(name, seed)
    granted = [content[0] for known in scenario.world.decisions().values() for _, content in known]
    assert granted == contents
    first, second, _, decided = place(scenario, "sum")
    assert decided == len(contents)
    assert first > 2 * second


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_loop_goes_on_without_a_lost_board(seed: int) -> None:
    scenario, _ = held("dead in a loop", seed)
    first, second, _, _ = place(scenario, "sum")
    assert first > 2 * second
    assert place(scenario, "calm_right")[-1] == 1


@pytest.mark.parametrize("name", ["erased home", "erased before a checkpoint"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_an_erased_board_gave_is_never_given_otherwise(name: str, seed: int) -> None:
    scenario = SCHEDULES[name](seed)
    result = scenario.run()
    assert result.errors == []
    assert len(scenario.world.gone) == 1


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_was_lost_with_an_incarnation_is_a_hole_for_the_operator(seed: int) -> None:
    scenario, _ = held("erased behind a timer", seed)
    (granted,) = scenario.world.decisions().values()
    assert [content[:2] for _, content in granted] == [["open", 0]]


def heard(host: Host, sender: int, message: Any) -> None:
    """A host hears a message that may be said."""
    host.exchange.hear(sender, message)


def four_seconds() -> Directed:
    """A relay that has run for a while."""
    scenario = Directed(1)
    for node in scenario.world.nodes:
        scenario.world.boot(node)
    scenario.world.start_sensors()
    scenario.world.run(4_000_000)
    return scenario


def test_a_holder_keeps_nothing_of_an_epoch_that_it_knows_to_be_over() -> None:
    scenario = four_seconds()
    holder, runner = scenario.node(0).host, scenario.node(2).host
    assert holder and runner
    inst = runner.instances[1]
    inst.ck.commit(inst.ck._take(b"", 0), True)
    data = runner.store.get_blob(4)
    position = inst.ck.pos
    before = incoming.place(holder, 1, HELD)
    assert before and further(position, before[1])
    holder.heard_where(1, (7, 1), 1)
    heard(holder, 2, (frames.CKPT, 1, inst.epoch, position, len(data), 0, data))
    assert incoming.place(holder, 1, HELD) == before
    kinds = [kind for kind, _ in holder.exchange.links[2].wants]
    assert frames.WHERE in kinds and frames.STORED not in kinds


def test_an_operator_that_hears_of_a_newer_epoch_stops_and_keeps_its_checkpoint() -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    incoming.begin_recall(runner, inst)
    kept = runner.store.get_blob(4)
    incoming.recalled(runner, inst, 0, (3, 0), [0, 0, 0])
    assert 1 not in runner.instances
    assert runner.store.get_blob(4) == kept


def test_an_operator_that_ends_leaves_no_pending_checkpoint_in_flash() -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    inst.ck.plan(b"request")
    keys = [checkpoint_key(1, c.slot) for c in inst.ck.pending]
    assert keys and all(runner.store.blob_size(key) for key in keys)
    runner.stop(inst, (9, 0))
    assert 1 not in runner.instances
    assert not any(runner.store.blob_size(key) for key in keys)


def test_a_checkpoint_is_fetched_from_its_beginning_whatever_arrived_before() -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    runner.incoming[1] = [((1, 2), [900, 0, 0]), 9000, bytearray(9000), 8000, runner.now]
    routing.seek(runner, inst, [500, 0, 0], [0])
    assert runner.exchange.links[0].wants[frames.FETCH, 1] == (1, [500, 0, 0], 0)


def test_an_operator_may_stop_while_everything_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    inst.unsettled = True
    monkeypatch.setattr(incoming, "recall", lambda host, inst: host.stop(inst, (9, 0)))
    runner.exchange.retry()
    assert 1 not in runner.instances


def test_a_gap_that_is_told_again_is_answered_again() -> None:
    host = four_seconds().node(0).host
    assert host
    (e,) = [end.inputs[0] for end in host.ends]
    first = e.cur.xi + 1
    for _ in range(2):
        e.ack = False
        heard(host, 2, (frames.GAP, e.edge.index, e.inc, first, first + 9, GAP_FULL))
        assert e.cur.xi == first + 9
        assert e.ack


def test_a_checkpoint_where_a_permanent_one_stands_is_not_pending() -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    inst.ck.commit(inst.ck._take(b"", 0), True)
    runner.pushes.clear()
    for r in inst.ports[0].readers:
        r.safe = inst.ports[0].ring.last
    inst.ck.plan(b"request")
    assert inst.ck.pending == []


def test_nothing_is_decided_above_an_operator_that_may_go_on_from_a_pending_checkpoint() -> None:
    runner = four_seconds().node(2).host
    assert runner
    inst = runner.instances[1]
    assert inst.depth
    inst.depth = 0
    inst.status = WAITING
    inst.settle_depth()
    assert inst.depth == 0
    inst.status = RUNNING
    inst.settle_depth()
    assert inst.depth > 0


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_change_that_sets_timers_earlier_holds_for_what_comes_in_one_go(seed: int) -> None:
    held("timer set earlier", seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_keeper_that_tells_of_a_checkpoint_and_dies_holds_nothing_up(seed: int) -> None:
    scenario, _ = held("tells and dies", seed)
    assert scenario.node(SPARE).dead


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_change_that_can_have_no_place_yet_stops_no_operator(seed: int) -> None:
    scenario, _ = held("changes while away", seed)
    (before, *_), (after, *_) = scenario.stood  # type: ignore[attr-defined]
    assert after > before + 80
    assert [content for _, content in scenario.world.decisions()[scenario.vertex("first")]] == [
        ["set", {"offset": 7}]
    ]


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_answer_to_nothing_that_was_asked_moves_no_clock(seed: int) -> None:
    scenario, _ = held("answers nothing", seed)
    node = scenario.node(SPARE)
    assert node.host is not None
    assert abs(node.host.clock.site(node.mono()) - SITE_US - scenario.world.now) < SECOND // 2


@pytest.mark.parametrize("name", ["gateway erased, a decision left", "gateway erased, a decision passed"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_lost_database_needs_to_know_nothing_of_what_was_decided(name: str, seed: int) -> None:
    held(name, seed)


@pytest.mark.parametrize("name", ["decision unconfirmed", "decided alone", "decided by few"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_few_hosts_have_stored_is_put_out_by_none(name: str, seed: int) -> None:
    scenario, _ = held(name, seed)
    assert scenario.decides  # type: ignore[attr-defined]
    assert len(scenario.world.decisions()[1]) == 1


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_operator_whose_end_was_half_stored_does_not_begin_again(seed: int) -> None:
    scenario, _ = held("ended half", seed)
    assert scenario.node(SPARE).boots > 1 and scenario.began == [False]  # type: ignore[attr-defined]
