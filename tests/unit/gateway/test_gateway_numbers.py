"""Deployments: no number is used twice, whatever is lost, so no operator's stream goes on as another."""

from __future__ import annotations

from pathlib import Path

from headwater.plan import model as plans
from headwater_gateway.database.engine import Database
from headwater_gateway.database.outbox import OutboxStreams
from headwater_gateway.deployments.numbers import REPORTED_MAX, Numbers
from headwater_tools.boards import fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

A = fleet.plan("one", ["a"], 50)
B = fleet.plan("one", ["a"], 60)


def opened(folder: Path) -> Database:
    return Database(folder / "gateway.db", lambda: 0)


def incarnation(plan: bytes) -> int:
    return int.from_bytes(plans.loads(plan).hash, "big")


def test_every_deployment_has_a_number_and_a_hash_of_its_own(tmp_path: Path) -> None:
    db = opened(tmp_path)
    numbers = Numbers(db, lambda incarnation: False)
    deployed = [plans.loads(numbers.stamp(data)) for data in (A, B, A, A)]
    assert [plan.deployment for plan in deployed] == [1, 2, 3, 4]
    assert len({plan.hash for plan in deployed}) == 4
    assert deployed[0].process_hash == deployed[2].process_hash != deployed[1].process_hash
    db.close()
    db = opened(tmp_path)
    assert plans.loads(Numbers(db, lambda incarnation: False).stamp(B)).deployment == 5
    db.close()


def test_after_the_database_was_lost_numbers_go_on_above_what_boards_report(tmp_path: Path) -> None:
    db = opened(tmp_path)
    numbers = Numbers(db, lambda incarnation: False)
    for reported in (3, 41, 7, None, "50", -1, REPORTED_MAX, 1 << 63):
        numbers.reported(reported)
    assert (numbers.highest, numbers.given) == (41, 0)
    assert plans.loads(numbers.stamp(A)).deployment == 42
    db.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deployments=st.lists(st.sampled_from("ABL"), max_size=20))
def test_what_the_lake_knows_is_never_an_incarnation_again(tmp_path: Path, deployments: list[str]) -> None:
    """L: the database is lost, and no board is left that could report a number."""
    lake: set[int] = set()
    for path in tmp_path.iterdir():
        path.unlink()
    db = opened(tmp_path)
    numbers = Numbers(db, lake.__contains__)
    for what in deployments:
        if what == "L":
            db.abandon()
            (tmp_path / "gateway.db").unlink()
            db = opened(tmp_path)
            numbers = Numbers(db, lake.__contains__)
        else:
            made = incarnation(numbers.stamp(A if what == "A" else B))
            assert made not in lake
            lake.add(made)
    db.abandon()


def test_a_number_of_a_board_is_never_given_again(tmp_path: Path) -> None:
    from headwater_gateway.boards import register

    db = opened(tmp_path)
    assert register(db, "chest", 0) == 1
    db.number_taken(7)
    db.number_taken(3)
    assert register(db, "wrist", 0) == 8
    db.close()
    db = opened(tmp_path)
    assert register(db, "hip", 0) == 9
    db.close()


def test_an_end_ignores_what_the_lake_turns_out_to_have(tmp_path: Path) -> None:
    """A rebuilt database may hear of the lake only after entries or a gap are on their way."""
    db = opened(tmp_path)
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    end.acknowledge(100)
    end.gap(1, 100, 3)
    assert (end.taken, end.durable) == (100, 100)
    end.gap(51, 110, 3)
    end.put(106, 5, b"known")
    end.put(109, 5, b"half known")
    assert end.taken == 113
    db.commit()
    assert db.query("SELECT first, last FROM chunks") == [(101, 113)]
    db.close()
