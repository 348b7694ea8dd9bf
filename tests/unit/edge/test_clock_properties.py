"""The clock under arbitrary drift, delays, exchanges and restarts."""

from dataclasses import dataclass

from headwater.protocol.clock import STEP_US, Clock, Floor
from hypothesis import given
from hypothesis import strategies as st

SECOND = 1_000_000
EPOCH = 1_700_000_000_000_000
DRIFT_PPM = 100
SLEW_PPM = 500


@dataclass
class Event:
    """Some time passes at some drift; then an exchange with these delays and this foreign error, or none."""

    pause_us: int
    drift_ppb: int
    exchange: tuple[int, int, int, int] | None
    restart: bool


delays = st.integers(0, 400_000)
events = st.lists(
    st.builds(
        Event,
        st.integers(0, 1000 * SECOND) | st.integers(0, 3 * SECOND),
        st.integers(-DRIFT_PPM * 1000, DRIFT_PPM * 1000),
        st.none() | st.tuples(delays, delays, delays, st.integers(-50_000, 50_000)),
        st.booleans(),
    ),
    max_size=25,
)


class World:
    """True time, and a host's ticks that drift against it."""

    def __init__(self) -> None:
        self.truth = EPOCH
        self.mono = 12_345

    def wait(self, mono_us: int, drift_ppb: int) -> None:
        self.mono += mono_us
        self.truth += mono_us + mono_us * drift_ppb // 1_000_000_000

    def exchange(self, clock: Clock, there: int, stay: int, back: int, wrong: int, drift_ppb: int) -> bool:
        t1 = self.mono
        self.wait(there, drift_ppb)
        t2 = self.truth + wrong
        self.wait(stay, drift_ppb)
        t3 = self.truth + wrong
        self.wait(back, drift_ppb)
        taken: bool = clock.exchange(t1, t2, t3, self.mono, abs(wrong))
        return taken


@given(events)
def test_site_time_never_falls_and_truth_lies_within_the_error(life: list[Event]) -> None:
    world = World()
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, 0)
    last = 0
    for event in life:
        world.wait(event.pause_us, event.drift_ppb)
        ts = clock.site(world.mono)
        assert ts >= last
        if event.exchange:
            assert world.exchange(clock, *event.exchange, event.drift_ppb)
            assert clock.synced
        last = clock.site(world.mono)
        assert last >= ts
        if clock.synced:
            assert abs(last - world.truth) <= clock.error_us(world.mono) + len(life)


@given(events, st.integers(0, 40 * SECOND))
def test_after_the_first_exchange_time_only_slews(life: list[Event], floor_ahead_us: int) -> None:
    world = World()
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, EPOCH + floor_ahead_us - 20 * SECOND)
    clock.exchange(world.mono, world.truth, world.truth, world.mono)
    world.wait(clock.standstill_us(world.mono) + SECOND, 0)
    mono, ts = world.mono, clock.site(world.mono)
    for event in life:
        world.wait(event.pause_us, event.drift_ppb)
        gone = world.mono - mono
        moved = clock.site(world.mono) - ts
        assert abs(moved - gone) <= gone * (SLEW_PPM + DRIFT_PPM) // 1_000_000 + 3
        mono, ts = world.mono, ts + moved
        if event.exchange:
            world.exchange(clock, *event.exchange, event.drift_ppb)


@given(events)
def test_no_restart_begins_at_or_below_what_a_boundary_said(lives: list[Event]) -> None:
    world = World()
    floor = Floor(0)
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, 0)
    said = -1
    for event in lives:
        world.wait(event.pause_us, event.drift_ppb)
        if event.restart:
            clock.start(world.mono, floor.flash_us)
            assert clock.site(world.mono) > said
        if event.exchange:
            world.exchange(clock, *event.exchange, event.drift_ppb)
        ts = clock.site(world.mono)
        value = floor.need(ts, clock.ahead_us(world.mono))
        if value:
            floor.sealed(value)
        boundary = floor.cap(ts)
        assert floor.allow(boundary)
        assert boundary >= said
        said = boundary


@given(st.lists(st.tuples(st.integers(0, 12 * SECOND), st.booleans(), st.integers(0, 20_000)), max_size=120))
def test_restarts_do_not_push_time_ahead_by_more_than_a_step(lives: list[tuple[int, bool, int]]) -> None:
    world = World()
    floor = Floor(0)
    for lasts_us, exchange, delay_us in lives:
        clock = Clock(DRIFT_PPM, SLEW_PPM)
        clock.start(world.mono, floor.flash_us)
        if exchange:
            world.exchange(clock, delay_us, 0, delay_us, 0, 0)
        for _ in range(4):
            world.wait(lasts_us // 4, 0)
            ts = clock.site(world.mono)
            value = floor.need(ts, clock.ahead_us(world.mono))
            if value:
                floor.sealed(value)
            assert ts - world.truth <= STEP_US + 20_010
            assert floor.flash_us - world.truth <= STEP_US + 20_010


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(-DRIFT_PPM, DRIFT_PPM))
def test_regular_exchanges_measure_drift_and_keep_the_error_small(there: int, back: int, ppm: int) -> None:
    world = World()
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, 0)
    for _ in range(60):
        world.exchange(clock, there, 0, back, 0, ppm * 1000)
        world.wait(60 * SECOND, ppm * 1000)
    assert abs(clock.drift_ppb - ppm * 1000) <= 3000
    assert clock.error_us(world.mono) <= 40_000 + 60 * 2 * DRIFT_PPM + 200


@given(st.integers(-DRIFT_PPM, DRIFT_PPM), st.integers(-DRIFT_PPM, DRIFT_PPM))
def test_truth_lies_within_the_error_when_the_measured_drift_turns_round(before: int, after: int) -> None:
    world = World()
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, 0)
    for _ in range(10):
        world.wait(60 * SECOND, before * 1000)
        world.exchange(clock, 500, 0, 500, 0, before * 1000)
    world.wait(100_000 * SECOND, after * 1000)
    assert abs(clock.site(world.mono) - world.truth) <= clock.error_us(world.mono)


@given(st.integers(-DRIFT_PPM, DRIFT_PPM), st.integers(-DRIFT_PPM, DRIFT_PPM))
def test_measured_drift_follows_the_temperature(before: int, after: int) -> None:
    world = World()
    clock = Clock(DRIFT_PPM, SLEW_PPM)
    clock.start(world.mono, 0)
    for ppm in (before, after):
        for _ in range(10):
            world.wait(60 * SECOND, ppm * 1000)
            world.exchange(clock, 500, 0, 500, 0, ppm * 1000)
    assert abs(clock.drift_ppb - after * 1000) <= 500
