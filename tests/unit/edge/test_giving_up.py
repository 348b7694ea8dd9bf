"""Operators that give up: the schedules hold, and with one rule broken they do not."""

from __future__ import annotations

import pytest
from defects import Change, seeded
from headwater.process import Affine, Process
from headwater.process.check import check
from headwater.runtime import giving_up, incoming, restore, routing
from headwater.runtime.checkpoints import Checkpoints
from headwater.runtime.giving_up import Anew
from headwater.runtime.outputs import OutPort, Reader
from headwater.runtime.taking import Offer
from headwater_tools.simulator.directed import SCHEDULES, given_up
from headwater_tools.simulator.jobs import Job, play

pytestmark = pytest.mark.slow

SEEDS = range(1, 5)

# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "its outputs go on in the same incarnation",
        "one xi of the lake with the payload of two courses",
        [(Anew, "_begin", "inc = inst.next_incarnation()", "inc = 0")],
        "given up",
    ),
    (
        "it begins where it was, and not at what a producer names",
        "an operator that waits for entries which its producer has trimmed",
        [(Anew, "_begin", "pos = name if op and name else", "pos =")],
        "given up after changes",
    ),
    (
        "it keeps the state of a checkpoint that a producer's name is beyond",
        "results of a state from before the entries that are missing",
        [(Anew, "_begin", "or further(name, inst.ck.pos)", "or 0")],
        "given up, state behind",
    ),
    (
        "its first state knows nothing of the inputs that are closed",
        "an alternative that gives nothing, as if the stream that it is for were there",
        [(Anew, "_begin", "if op and e.closed:", "if 0:")],
        "given up without an input",
    ),
    (
        "it throws its own checkpoint away",
        "state that is lost without need",
        [(Anew, "_begin", "if not there or", "if 1 or not there or")],
        "given up, keepers silent",
    ),
    (
        "a restored operator forgets its incarnation",
        "outputs under numbers that the lake has already",
        [(restore, "restore", "if names and names[0][1] != p.inc:", "if 0:")],
        "given up and cut",
    ),
    (
        "consumers hear of the incarnation before it is stored at the level",
        "a consumer that goes on with an incarnation of which a later epoch does not know",
        [(OutPort, "hidden", "bool(inst.anew) or (self.inc > 0 and inst.unsettled)", "False")],
        "given up and forgotten",
    ),
    (
        "an operator that runs gives up",
        "results that are thrown away because of a word that was meant for another one",
        [
            (giving_up, "begin", "or not waits(host, inst)", ""),
            (giving_up, "begin", "inst.epoch[0] != number", "0"),
        ],
        "given up for nothing",
    ),
    (
        "the time counts in which the gateway is silent",
        "a board that gives up because it is itself away",
        [(giving_up, "wait", "elif not host.me or link and link.heard_us", "elif 1 or link")],
        "gives up by itself",
    ),
    (
        "an operator whose consumers are ahead of it for good cannot give up",
        "a stream that ends without a word, though its sources go on",
        [(giving_up, "waits", "or inst.recalling or inst.stuck()", "or inst.recalling")],
        "given up, stuck",
    ),
    (
        "it goes on as soon as all keepers have answered that are not lost",
        "one xi with the payload of two courses: before a change that the lost ones knew of, and after it",
        [
            (
                incoming,
                "_knows_enough",
                "return missed",
                "return all([h in host.lost for h in inst.unheard]) or missed",
            )
        ],
        "given up, unnamed",
    ),
    (
        "in its next boot it waits for the keepers that it has given up",
        "an operator that a person has to tell again after each power cut",
        [(incoming, "_knows_enough", "or inst.began_anew()", "")],
        "given up and cut",
    ),
    (
        "who has not gone on with the new incarnation yet counts as ahead",
        "a loop in which each decision waits for the other",
        [(Reader, "stand_apart", "self.apart = True", "pass")],
        "given up in a loop",
    ),
    (
        "it waits for a producer here that has given up, too",
        "two operators that wait for each other: one for an answer, one for fewer keepers",
        [(Anew, "_hides", "return port.hidden()", "return False")],
        "given up in a chain",
    ),
    (
        "it waits for a producer elsewhere that has given up, too",
        "the same on two hosts",
        [(Anew, "_hides", "gave_up and host.words", "0 and host.words")],
        "given up in a chain, apart",
    ),
    (
        "a checkpoint does not know what was promised",
        "a join elsewhere that takes entries which are older than a boundary it has gone on by",
        [(Checkpoints, "_take", "if p.bound > front:", "if 0:")],
        "given up, promised before",
    ),
    (
        "a checkpoint of an operator that has taken nothing does not know what was promised",
        "an operator elsewhere that puts out what is older than a boundary it has given",
        [(Checkpoints, "_take", "if p.bound > front:", "if front and p.bound > front:")],
        "given up, promised first, handed over",
    ),
    (
        "an operator that has taken nothing begins with any incarnation of its producer",
        "an operator that puts out what is older than a boundary it has given",
        [(routing, "meet", " or _promised(host, e)", "")],
        "given up, promised first",
    ),
    (
        "an operator is handed over whose last checkpoint found no room",
        "a join elsewhere that takes entries which are older than a boundary it has gone on by",
        [(Checkpoints, "last", "self.front >= c.front and ", "")],
        "given up, promised since, log full",
    ),
    (
        "the giver has a checkpoint where the operator stands",
        "a join elsewhere that takes entries which are older than a boundary it has gone on by",
        [
            (Checkpoints, "last", ", c.front > self.front", ""),
            (Checkpoints, "last", "self.front >= c.front and ", ""),
        ],
        "given up, promised since",
    ),
    (
        "the taker has a checkpoint where the operator stands",
        "a join elsewhere that takes entries which are older than a boundary it has gone on by",
        [(Offer, "_begin", "incoming.front(host, v, key) < self.front", "False")],
        "given up, promised since",
    ),
    (
        "the outputs begin where they ended",
        "a lake that misses the first entries of an incarnation",
        [(OutPort, "renumber", "self.reset(0)", "pass")],
        "given up, keepers silent",
    ),
]


def history(name: str, seed: int) -> str:
    """The first error of a schedule, or nothing. What the core asserts of itself counts too."""
    try:
        errors = SCHEDULES[name](seed).run().errors
    except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
        return "%s: %s" % (type(error).__name__, error)
    return errors[0] if errors else ""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", list(given_up.SCHEDULES))
def test_an_operator_gives_up_and_everything_after_that_is_there_once(name: str, seed: int) -> None:
    assert history(name, seed) == ""


@pytest.mark.parametrize(("name", "prevented", "changes", "where"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change], where: str) -> None:
    with seeded(changes):
        assert any(history(where, seed) for seed in SEEDS), prevented


@pytest.mark.parametrize("seed", (3, 9, 28))
def test_in_random_histories_nothing_after_giving_up_is_lost_or_there_twice(seed: int) -> None:
    outcome = play(Job(seed, "beyond", seconds=40))
    assert outcome.errors == []


def test_what_gives_up_by_itself_is_checked() -> None:
    def problems(after: object, checkpoints: str = "ecoc") -> list[str]:
        p = Process("late", checkpoints=checkpoints, every=20, level="local", batch=10, batch_ms=500)
        p.host("left", heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        late = values >> Affine().named("late").on("left", "gateway", after)  # type: ignore[arg-type]
        p.lake("late/late", late)
        return [str(problem) for problem in check(p).problems if "give_up_after" in str(problem)]

    assert problems(600) == []
    assert "give_up_after is 3" in problems(3)[0]
    assert "give_up_after is 'soon', not a number" in problems("soon")[0]
    assert "no checkpoints that it could wait for" in problems(600, "unsafe")[0]
