# The clock: ticks that wrap, site time that never falls, floors that hold across restarts.

from headwater.protocol.clock import STEP_US, UNKNOWN_US, Clock, Floor, Ticks

SECOND = 1000000
EPOCH = 1700000000000000  # a site's time: far above what 30 or 32 bits hold


def synced(mono=0, site=EPOCH, trip=2000, floor=0):
    clock = Clock()
    clock.start(mono, floor)
    assert clock.exchange(mono, site, site, mono + trip)
    return clock


def test_ticks_go_on_over_the_end_of_the_counter():
    ticks = Ticks((1 << 30) - 5)
    assert ticks.read((1 << 30) - 1) == 4
    assert ticks.read(3) == 8
    assert ticks.read(1 << 29) == 5 + (1 << 29)
    assert ticks.late == 0


def test_ticks_in_milliseconds_count_microseconds_past_64_bits_of_nothing():
    ticks = Ticks(0, 1000)
    for i in range(1, 101):
        ticks.read((i << 28) & 0x3FFFFFFF)
    assert ticks.read(0) == (100 << 28) * 1000
    assert ticks.late == 0


def test_ticks_read_too_seldom_are_detected_and_still_go_forward():
    ticks = Ticks(0)
    assert ticks.read((1 << 29) - 1) == (1 << 29) - 1
    assert ticks.late == 0
    assert ticks.read((1 << 30) - 1) == (1 << 30) - 1
    assert ticks.late == 1


def test_before_the_first_exchange_time_is_the_floor_plus_ticks():
    clock = Clock()
    clock.start(5 * SECOND, EPOCH)
    assert clock.synced == 0
    assert clock.site(5 * SECOND) == EPOCH + 1
    assert clock.site(8 * SECOND) == EPOCH + 1 + 3 * SECOND
    assert clock.error_us(8 * SECOND) == UNKNOWN_US


def test_first_exchange_steps_forward_by_half_the_round_trip():
    clock = Clock()
    clock.start(0, 777)
    assert clock.exchange(1000, EPOCH, EPOCH + 500, 5500)
    assert clock.synced == 1
    assert clock.site(5500) == EPOCH + 500 + 2000
    assert 2000 < clock.error_us(5500) < 2020


def test_neighbours_error_is_added():
    clock = Clock()
    clock.exchange(0, EPOCH, EPOCH, 4000, 30000)
    assert 32000 < clock.error_us(4000) < 32020


def test_first_exchange_never_steps_back_but_stands_still_for_a_step_at_most():
    clock = Clock()
    clock.start(0, EPOCH + STEP_US)
    assert clock.site(100) == EPOCH + STEP_US + 101
    assert clock.exchange(100, EPOCH, EPOCH, 100)
    assert clock.standstill_us(100) == STEP_US
    assert clock.site(100 + 4 * SECOND) == EPOCH + STEP_US + 101
    assert clock.standstill_us(100 + 4 * SECOND) < STEP_US - 3 * SECOND
    assert clock.error_us(100 + 4 * SECOND) >= 6 * SECOND
    assert clock.standstill_us(100 + 11 * SECOND) == 0
    assert clock.error_us(100 + 11 * SECOND) < 2000


def test_a_time_far_ahead_stands_still_for_one_step_and_slews_the_rest():
    clock = Clock(100, 500)
    clock.start(0, EPOCH + 60 * SECOND)
    clock.exchange(0, EPOCH, EPOCH, 0)
    assert clock.standstill_us(0) == STEP_US
    at = 100 * SECOND
    # 50 seconds are left, less 500 microseconds a second.
    assert clock.site(at) == EPOCH + at + 50 * SECOND + 1 - 100 * 500


def test_later_exchanges_slew_at_the_stated_rate():
    clock = synced(0, EPOCH, 0)
    assert clock.exchange(0, EPOCH + SECOND, EPOCH + SECOND, 0)
    assert clock.site(0) == EPOCH
    assert clock.site(10 * SECOND) == EPOCH + 10 * SECOND + 5000
    assert clock.site(3000 * SECOND) == EPOCH + 3001 * SECOND
    assert clock.exchange(3000 * SECOND, EPOCH + 3000 * SECOND, EPOCH + 3000 * SECOND, 3000 * SECOND)
    assert clock.site(3010 * SECOND) == EPOCH + 3011 * SECOND - 5000


def test_without_exchanges_it_runs_on_by_the_measured_drift():
    clock = synced(0, EPOCH, 200)
    fast = 60  # our ticks gain 60 ppm on the site
    for at in range(20 * SECOND, 400 * SECOND, 20 * SECOND):
        site = EPOCH + at - at * fast // SECOND
        clock.exchange(at - 100, site - 100, site - 100, at + 100)
    assert -61000 < clock.drift_ppb < -59000
    later = 4000 * SECOND
    assert abs(clock.site(later) - (EPOCH + later - later * fast // SECOND)) < 8000
    assert clock.error_us(later) < 4000 * 161 + 1000


def test_what_cannot_be_true_is_refused_and_counted():
    clock = synced()
    before = clock.site(5000)
    assert not clock.exchange(5000, EPOCH, EPOCH, 4000)  # came before it went
    assert not clock.exchange(4000, EPOCH, EPOCH - 1, 5000)  # left before it came
    assert not clock.exchange(4000, EPOCH, EPOCH + SECOND, 5000)  # took longer there than in all
    assert not clock.exchange(4000, 1 << 63, 1 << 63, 5000)
    assert not clock.exchange(4000, -5, 0, 5000)
    assert not clock.exchange(4000, EPOCH, EPOCH, 5000, -1)
    assert clock.refused == 6
    assert clock.site(5000) == before


def test_after_lost_ticks_the_next_exchange_counts_as_the_first():
    clock = synced(0, EPOCH, 0)
    clock.lost()
    assert clock.synced == 0
    clock.exchange(SECOND, EPOCH + 5000 * SECOND, EPOCH + 5000 * SECOND, SECOND)
    assert clock.site(SECOND) == EPOCH + 5000 * SECOND


def test_a_time_of_unknown_error_is_followed_only_by_who_knows_none():
    clock = Clock()
    clock.start(0, EPOCH)
    assert clock.exchange(0, EPOCH + 70, EPOCH + 70, 0, UNKNOWN_US)
    assert clock.synced and not clock.sure
    assert clock.site(10) == EPOCH + 80
    assert clock.error_us(10) == clock.true_error_us(10) == UNKNOWN_US
    assert clock.exchange(10, EPOCH + 10 * SECOND, EPOCH + 10 * SECOND, 10, UNKNOWN_US)
    assert clock.site(10) == EPOCH + 80  # slewed: it is less than a step
    # The gateway has learnt the time: a step, whatever was believed before.
    assert clock.exchange(20, EPOCH + 9 * SECOND, EPOCH + 9 * SECOND, 20, 1000)
    assert clock.sure and clock.site(20) == EPOCH + 9 * SECOND
    # It has forgotten it: here it is known still.
    assert clock.exchange(30, EPOCH, EPOCH, 30, UNKNOWN_US)
    assert clock.sure and clock.site(30) == EPOCH + 9 * SECOND + 10
    assert clock.error_us(30) < 2000


def test_more_than_a_step_forward_is_a_step_also_later():
    clock = synced(0, EPOCH, 0)
    assert clock.exchange(0, EPOCH + STEP_US + SECOND, EPOCH + STEP_US + SECOND, 0)
    assert clock.site(0) == EPOCH + STEP_US + SECOND
    assert clock.exchange(0, EPOCH, EPOCH, 0)
    assert clock.standstill_us(0) == 0
    assert clock.site(SECOND) == EPOCH + STEP_US + 2 * SECOND - 500


def test_a_host_that_promised_to_sleep_stands_still_until_then():
    clock = Clock()
    clock.still_us += 60 * SECOND
    clock.start(0, EPOCH + 50 * SECOND)
    assert clock.exchange(0, EPOCH, EPOCH, 0)
    assert clock.standstill_us(0) == 50 * SECOND + 1
    assert clock.site(51 * SECOND) == EPOCH + 51 * SECOND


def test_floor_is_logged_a_step_ahead_before_boundaries_reach_it():
    floor = Floor(EPOCH)
    assert floor.allow(EPOCH)
    assert not floor.allow(EPOCH + 1)
    assert floor.need(EPOCH + 1, STEP_US) == EPOCH + 1 + STEP_US
    assert not floor.allow(EPOCH + 1)
    floor.sealed(EPOCH + 1 + STEP_US)
    assert floor.allow(EPOCH + STEP_US)
    assert floor.need(EPOCH + 2, STEP_US) == 0
    assert floor.need(EPOCH + 8 * SECOND, STEP_US) == EPOCH + 18 * SECOND
    assert floor.cap(EPOCH + 12 * SECOND) == EPOCH + 1 + STEP_US


def test_unsynchronised_host_logs_its_floor_behind():
    floor = Floor(EPOCH)
    assert floor.need(EPOCH + 7 * SECOND, 0) == 0
    assert floor.need(EPOCH + 8 * SECOND, 0) == EPOCH + 8 * SECOND


def test_hundred_brownouts_move_time_by_one_step():
    for exchanges in (True, False):
        truth = EPOCH
        floor = Floor(0)
        for _ in range(100):
            clock = Clock()
            clock.start(0, floor.flash_us)
            if exchanges or truth == EPOCH:
                clock.exchange(0, truth, truth, 0)
            for at in (0, 100000, 200000):
                ts = clock.site(at)
                assert ts > floor.flash_us - STEP_US
                value = floor.need(ts, clock.ahead_us(at))
                if value:
                    floor.sealed(value)
            truth += 200000
        assert ts - truth <= STEP_US
        assert floor.flash_us - truth <= STEP_US
