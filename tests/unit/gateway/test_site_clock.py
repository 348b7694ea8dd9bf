"""The site's time over restarts, wrong clocks and a network that is not there."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path
from typing import Any

import pytest
from bare_gateway import configured
from headwater.protocol.clock import STEP_US, UNKNOWN_US, Clock
from headwater_gateway import site_clock
from headwater_gateway.boards import Board
from headwater_gateway.service import Service
from headwater_gateway.site_clock import NOT_SYNCHRONISED, Reading, SiteClock, kernel_error_us, told
from hypothesis import given
from hypothesis import strategies as st

SECOND = 1_000_000
HOUR = 3600 * SECOND
EPOCH = 1_800_000_000 * SECOND


class World:
    """True time, the machine's clocks, and the gateway that is killed on it again and again."""

    def __init__(self) -> None:
        self.now = EPOCH
        self.wall_off = 0
        self.error: int | None = 0
        self.boot = 1
        self.booted = EPOCH
        self.kept: str | None = None
        self.clock = SiteClock(self.read)

    @property
    def mono(self) -> int:
        return self.now - self.booted + 5 * SECOND

    def read(self) -> Reading:
        return Reading(self.mono, self.now + self.wall_off, self.mono, self.error, str(self.boot))

    def wait(self, us: int) -> None:
        end = self.now + us
        while self.now < end:
            self.now = min(end, self.now + SECOND)
            self.clock.tick(self.mono)

    def commit(self) -> None:
        self.kept = self.clock.keep(self.mono)

    def killed(self, away_us: int = SECOND, machine: bool = False) -> None:
        """It goes without a word, and comes back."""
        self.now += away_us
        if machine:
            self.boot += 1
            self.booted = self.now
        self.clock = SiteClock(self.read, self.kept)

    @property
    def ahead(self) -> int:
        return int(self.clock.site(self.mono)) - self.now


@pytest.mark.parametrize("error", [0, 20_000, None])
@pytest.mark.parametrize("machine", [False, True])
def test_a_hundred_kills_do_not_move_the_time(error: int | None, machine: bool) -> None:
    world = World()
    world.error = error
    for i in range(100):
        world.wait(i * 37_000 % (2 * SECOND))
        world.commit()
        before = world.clock.site(world.mono)
        world.wait(i * 53_000 % (6 * SECOND))  # not committed
        world.killed(i * 11_000 % SECOND, machine and i % 3 == 0)
        assert world.clock.site(world.mono) >= before
        assert world.ahead <= 1
        if not machine:
            assert world.ahead >= -1  # nor back: the machine's monotone clock went on
        if error is not None:
            assert world.ahead >= -1 - error


def test_what_an_earlier_version_remembered_ahead_is_slewed_away_and_said() -> None:
    world = World()
    world.clock = SiteClock(world.read, None, EPOCH + 110 * SECOND)
    assert world.ahead == 110 * SECOND
    world.wait(11 * SECOND)  # it stands still for a step
    view = world.clock.view(world.mono)
    assert view["synchronised"] and 99 * SECOND < view["ahead_us"] < 101 * SECOND
    assert 55 * 3600 < view["right_in_s"] < 56 * 3600
    assert told(view) == "time: synchronised, 100 s ahead, right again in 55 h"
    world.wait(60 * HOUR)
    assert abs(world.ahead) < 1000
    assert told(world.clock.view(world.mono)) == "time: synchronised, within 0.0 ms"


def test_restarts_while_an_excess_is_slewed_away_add_nothing() -> None:
    world = World()
    world.clock = SiteClock(world.read, None, EPOCH + 100 * SECOND)
    ahead = world.ahead
    for i in range(30):
        world.wait(3 * SECOND)
        world.commit()
        world.killed(SECOND, i % 2 == 0)
        assert world.ahead <= ahead
        ahead = world.ahead


def test_before_the_network_the_time_runs_on_from_what_was_kept_and_says_so() -> None:
    world = World()
    world.commit()
    world.error = None
    world.wall_off = -5 * HOUR  # a Pi shows when it was shut down
    world.killed(HOUR, machine=True)
    assert world.ahead == -HOUR
    assert world.clock.synced and not world.clock.sure
    assert world.clock.true_error_us(world.mono) == UNKNOWN_US
    assert world.clock.problem == NOT_SYNCHRONISED
    assert told(world.clock.view(world.mono)) == "time: not synchronised"
    world.wait(20 * SECOND)
    assert world.ahead == -HOUR
    world.error, world.wall_off = 1000, 0  # now it has the time: a step
    world.wait(2 * SECOND)
    assert world.ahead == 0 and world.clock.problem == ""
    world.error = None  # the network is gone for long: its own line goes on
    world.wait(HOUR)
    assert world.ahead == 0 and world.clock.sure
    assert world.clock.problem == NOT_SYNCHRONISED


@pytest.mark.parametrize("back", [SECOND, HOUR, 100 * 24 * HOUR])
def test_a_clock_that_jumps_back_is_never_followed_by_a_step(back: int) -> None:
    world = World()
    world.wait(10 * SECOND)
    world.wall_off = -back
    for _ in range(40):
        before = world.clock.site(world.mono)
        world.wait(SECOND)
        gone = world.clock.site(world.mono) - before
        assert SECOND - 501 <= gone <= SECOND + 1


def test_a_jump_ahead_is_a_step_up_to_a_day_and_refused_beyond() -> None:
    world = World()
    world.wait(10 * SECOND)
    world.wall_off = 3 * HOUR  # a virtual machine that was paused
    world.wait(2 * SECOND)
    assert world.ahead == 3 * HOUR
    world.wall_off = 400 * 24 * HOUR
    world.wait(2 * SECOND)
    assert world.ahead == 3 * HOUR
    assert "jumped ahead by 399 days" in world.clock.problem
    world.commit()
    world.killed()
    assert world.ahead == 3 * HOUR
    world.wall_off = 0
    world.wait(2 * SECOND)
    assert world.clock.problem == ""


@pytest.mark.parametrize(("wall", "shows"), [(0, "1970-01-01"), (4_200_000_000 * SECOND, "2103-02-04")])
def test_what_no_clock_can_show_is_not_believed(wall: int, shows: str) -> None:
    world = World()
    world.commit()
    world.wall_off = wall - EPOCH
    world.killed(machine=True)
    assert world.ahead == -SECOND
    assert shows in world.clock.problem


changes = st.lists(
    st.tuples(
        st.sampled_from(["wait", "commit", "kill", "reboot", "wall", "network", "no network"]),
        st.integers(-100 * SECOND, 100 * SECOND),
    ),
    max_size=40,
)


@given(changes)
def test_the_time_never_falls_and_is_never_ahead_of_what_a_clock_said(history: list[tuple[str, int]]) -> None:
    world = World()
    most = 0
    last = world.clock.site(world.mono)
    for what, us in history:
        if what == "wait":
            world.wait(abs(us))
        elif what in ("commit", "kill", "reboot"):
            world.commit()  # what is not committed was given to nobody
            if what != "commit":
                world.killed(abs(us) // 10, what == "reboot")
        elif what == "wall":
            world.wall_off = us
        else:
            world.error = 1000 if what == "network" else None
        if world.error is not None:
            most = max(most, world.wall_off)
        site = world.clock.site(world.mono)
        assert site >= last
        last = site
        assert world.ahead <= most + 2000 + len(history)
        if world.error is not None and what == "wait" and abs(us) > 2 * SECOND:
            assert world.ahead >= world.wall_off - STEP_US - 2000


def test_boards_follow_a_gateway_without_the_time_and_step_when_it_has_it() -> None:
    world = World()
    world.commit()
    world.error = None
    world.killed(HOUR, machine=True)

    def exchange(board: Clock) -> None:
        true, error = world.clock.true_us(world.mono), world.clock.true_error_us(world.mono)
        assert board.exchange(world.mono, true, true, world.mono, error)

    knows, fresh = Clock(), Clock()
    for board in (knows, fresh):
        board.start(world.mono, EPOCH)
    knows.exchange(world.mono, world.now, world.now, world.mono)
    for _ in range(5):
        world.wait(5 * SECOND)
        for board in (knows, fresh):
            exchange(board)
    assert knows.sure and abs(knows.site(world.mono) - world.now) < 10
    assert fresh.synced and not fresh.sure and abs(fresh.site(world.mono) - world.now + HOUR) < 10
    world.error = 0
    world.wait(2 * SECOND)
    for board in (knows, fresh):
        exchange(board)
        assert board.sure and abs(board.site(world.mono) - world.now) < 10


class Library:
    def __init__(self, result: int, status: int, maxerror: int) -> None:
        self.answer = result, status, maxerror

    def adjtimex(self, pointer: Any) -> int:
        timex = ctypes.cast(pointer, ctypes.POINTER(site_clock._Timex)).contents
        assert timex.modes == 0  # it only asks
        result, timex.status, timex.maxerror = self.answer
        return result


@pytest.mark.parametrize(
    ("library", "error"),
    [
        (Library(0, 0x2001, 1500), 1500),
        (Library(5, 0x40, 16_000_000), None),  # STA_UNSYNC
        (Library(-1, 0, 0), 0),  # it may not be asked
        (object(), 0),  # not Linux
    ],
)
def test_the_kernel_says_whether_the_clock_is_synchronised(
    library: Any, error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_clock, "_LIBRARY", library)
    assert kernel_error_us() == error


def service(folder: Path) -> Service:
    return Service(configured(folder, '[gateway]\nclock = "wall"\n'))


def test_every_commit_keeps_the_time_and_a_service_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_ns = [1_800_000_000 * 10**9]
    monkeypatch.setattr(site_clock.time, "time_ns", lambda: wall_ns[0])

    async def life(board: str) -> int:
        made = service(tmp_path)
        begun = made.site_us()
        made.boards.add(board)
        made.db.commit()
        await made.cutter.close()
        made.db.abandon()  # as a kill would
        return begun

    first = asyncio.run(life("a"))
    assert first >= wall_ns[0] // 1000
    for name in "bcdef":
        begun = asyncio.run(life(name))
        assert first < begun < first + 60 * SECOND
        first = begun
    wall_ns[0] = 0
    assert first < asyncio.run(life("g")) < first + 60 * SECOND


def test_no_board_moves_the_sites_time(tmp_path: Path) -> None:
    made = service(tmp_path)
    board: Board = made.boards.add("vent")
    for hours in (-2, 2, 24 * 365 * 100):
        board.status = {"time": made.site_us() + hours * HOUR}
        before = made.site_us()
        made._on_status(board)
        assert made.site_us() - before < 60 * SECOND
        assert abs(board.ahead_us - hours * HOUR) < 60 * SECOND
    asyncio.run(made.cutter.close())
    made.db.abandon()
