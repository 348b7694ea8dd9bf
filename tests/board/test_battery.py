# What a host knows of its battery, from voltages and counters.

from headwater.plan import profile, profile_reader
from headwater.plan.profile_reader import ProfileError
from headwater.protocol.moves import COMMAND, FLEE
from headwater.protocol.offers import BUSY, UNSENT
from headwater.runtime.battery import FOREVER
from headwater.runtime.meter import Meter

GIVEN = {
    "capacity_mc": 1440000,
    "awake_ua": 20000,
    "asleep_ua": 10,
    "compute_ua": 15000,
    "copy_ns": 4000,
    "flash_byte_pc": 300000,
    "radio_ua": 60000,
    "discharge": [[3300, 0], [3700, 25], [3800, 50], [4200, 100]],
    "links": {"wifi": [60000, 30000, 3000000]},
}


class Store:
    def __init__(self):
        self.blobs = {}
        self.programmed = 0

    def stats(self):
        return {"programmed": self.programmed}

    def get_blob(self, key):
        return self.blobs.get(key)

    def put_blob(self, key, data):
        self.blobs[key] = bytes(data)


class Plan:
    deployment = 7


class Host:
    def __init__(self):
        self.now = 0
        self.store = Store()
        self.plan = Plan()
        self.instances = {}
        self.ports = {}
        self.words = None
        self.quiet = False
        self.giving = None
        self.taking = None
        self.period_us = 5000000


class Battery:
    def __init__(self, mv):
        self.mv = mv

    def read(self):
        return self.mv


# So many beats of five seconds, in which the battery loses `mv` each.
def beats(energy, battery, n, mv=0.0):
    start = battery.mv
    for i in range(n):
        energy.host.now += 5000000
        battery.mv = int(start - mv * (i + 1))
        energy.tick()


def made(mv=4200, given=GIVEN):
    host = Host()
    battery = Battery(mv)
    return Meter(host, profile_reader.read(given), battery.read), battery


def test_the_curve_tells_what_is_left():
    points = profile_reader.curve(GIVEN["discharge"])
    assert [profile.left(points, mv) for mv in (3000, 3300, 3500, 3750, 4200, 4300)] == [
        0,
        0,
        1250,
        3750,
        10000,
        10000,
    ]


def test_a_profile_that_is_wrong_is_one_sentence():
    for key, value, text in (
        ("awake_ua", -1, "awake_ua is -1"),
        ("copy_ns", 0, "must be above 0"),
        ("discharge", [[3300, 0]], "pairs of millivolts"),
        ("discharge", [[3300, 5], [3200, 100]], "both rising"),
        ("links", {}, "links is missing"),
        ("links", {"wifi": [1, 2]}, "give three numbers"),
        ("colour", 1, "unknown key 'colour'"),
    ):
        given = dict(GIVEN)
        given[key] = value
        try:
            profile_reader.read(given)
        except ProfileError as e:
            assert text in str(e), str(e)
        else:
            raise AssertionError(key)


def test_a_board_counts_by_the_cheapest_of_the_links_that_it_has():
    given = dict(GIVEN)
    given["awake_ble_ua"] = 17000
    given["links"] = {"wifi": [60000, 30000, 3000000], "ble": [2000000, 1000000, 20000]}
    for has, link, awake in (
        ((), "ble", 20000),  # 256 bytes: 532 uC, and over Wi-Fi 3015
        (("wifi", "ble"), "ble", 20000),
        (("wifi",), "wifi", 20000),
        (("ble",), "ble", 17000),
    ):
        found = profile.Profile(profile_reader.read(given, has))
        assert found.costs == tuple(given["links"][link]) and found.awake_na == 1000 * awake
        assert sorted(found.links) == (sorted(has) or ["ble", "wifi"])


def test_on_mains_it_lasts_for_ever():
    energy = Meter(Host())
    energy.tick()
    assert (
        energy.open().left_s() == FOREVER and not energy.open().must_flee() and energy.open().told() is None
    )
    silent = Meter(Host(), profile_reader.read(GIVEN), lambda: None)  # no divider: nothing is known
    beats(silent, Battery(0), 3)
    assert silent.open().left_s() == FOREVER and silent.open().told() is None


def test_a_board_that_has_just_started_is_not_taken_for_one_on_mains():
    energy, battery = made(3600)
    assert energy.open().told()[0] == 18 and 0 < energy.open().left_s() < FOREVER


def test_a_battery_that_was_charged_while_its_board_was_off_shows_at_once():
    energy, battery = made(3400)
    beats(energy, battery, 3)
    energy.open().keep()
    for mv, percent in ((4000, 75), (3300, 6)):  # a low reading may be the radio's: it counts an eighth
        battery.mv = mv
        again = Meter(energy.host, energy.profile, battery.read)
        assert again.open().told()[0] == percent


def test_one_that_flees_tries_the_next_host_at_once_when_another_one_refused():
    energy, battery = made(3800)
    beats(energy, battery, 3)
    for why, outcome, at_once in ((FLEE, BUSY, True), (FLEE, UNSENT, False), (COMMAND, BUSY, False)):
        energy.open().gives()
        energy.open().asks(None, True, False, 90)
        energy.open().gave(3, 200, why, outcome)
        assert (energy.open().due_us[1] == energy.host.now) == at_once


def test_waiting_frames_and_flash_are_what_the_profile_says():
    energy, battery = made()
    beats(energy, battery, 1)
    energy.tick()
    before = energy.spent_nc
    energy.sent(109)  # 200 bytes with what carries them
    energy.got(109)
    energy.host.store.programmed += 1000
    beats(energy, battery, 1)
    waited = 20000000 * 5
    assert energy.spent_nc - before == waited + 2 * 3000000 + 200 * 90 + 300000


def test_frames_draw_no_more_than_a_radio_that_is_always_on():
    energy, battery = made()
    beats(energy, battery, 1)
    before = energy.spent_nc
    for _ in range(1000):
        energy.sent(0)
    beats(energy, battery, 1)
    assert energy.spent_nc - before == 5 * (20000000 + 60000000) + 1000 * 91 * 60


def test_a_life_is_what_is_left_by_what_is_drawn():
    energy, battery = made(3800)
    beats(energy, battery, 10)
    assert energy.open().told()[0] == 49  # percent; it is counted down between two readings
    assert abs(energy.open().left_s() - 36000) < 400
    assert energy.open().told()[2] == 20000


def test_one_wrong_reading_moves_little_and_another_battery_much():
    energy, battery = made(4200)
    beats(energy, battery, 5)
    battery.mv = 3300  # the radio sends just now
    beats(energy, battery, 1)
    assert 100 * energy.open().left_mc // 1440000 > 80
    battery.mv = 4200
    beats(energy, battery, 5)
    battery.mv = 3700
    beats(energy, battery, 5)
    assert 100 * energy.open().left_mc // 1440000 == 24


def test_a_battery_that_loses_twice_what_is_counted_corrects_the_draw():
    energy, battery = made(4190)
    # 20 mA for an hour are 5 % of it, or 40 mV of the steep end of the curve; it loses twice as much.
    beats(energy, battery, 720, 80 / 720)
    assert 256 < energy.open().factor <= 512
    before = energy.open().factor
    beats(energy, battery, 2000, 80 / 720)
    assert before < energy.open().factor <= 530
    assert energy.open().draw_na == energy.open().drawn_na() * energy.open().factor // 256


def test_a_battery_that_is_charged_corrects_nothing():
    energy, battery = made(3800)
    beats(energy, battery, 2000, -0.1)
    assert energy.open().factor == 256


def test_a_correction_has_bounds():
    given = dict(GIVEN)
    given["awake_ua"] = 100  # two hundred times more than that
    energy, battery = made(4190, given)
    beats(energy, battery, 4000, 80 / 720)
    assert energy.open().factor <= 1024


def test_a_restart_forgets_neither_correction_nor_flight():
    energy, battery = made(3800)
    beats(energy, battery, 20)
    energy.open().factor = 300
    energy.open().gives()
    beats(energy, battery, 1)
    energy.open().fled[3] = energy.open().left_mc
    energy.open().keep()
    again = Meter(energy.host, energy.profile, battery.read)
    beats(again, battery, 1)
    assert (again.open().factor, again.open().fled, again.open().powered) == (300, energy.open().fled, True)
    energy.host.plan.deployment = 8  # vertex 3 is another one there
    other = Meter(energy.host, energy.profile, battery.read)
    other.host.plan = Plan()
    other.host.plan.deployment = 8
    beats(other, battery, 1)
    assert other.open().factor == 300 and other.open().fled == {}


def test_what_fled_returns_when_a_tenth_of_the_battery_was_charged():
    energy, battery = made(3500)  # 12.5 %
    beats(energy, battery, 3)
    energy.open().fled[3] = energy.open().left_mc
    assert energy.open().takes_back(2) and not energy.open().takes_back(3)
    energy.open().left_mc += 143000
    assert not energy.open().takes_back(3)
    energy.open().left_mc += 1000
    assert energy.open().takes_back(3)


def test_between_two_looks_it_is_bytes():
    energy, battery = made(3800)
    beats(energy, battery, 20, 1.0)
    energy.open().fled[3] = 7
    energy.open().asks(None, True, True, 90)
    energy.rest()
    known = energy.kept
    assert known and energy.energy is None
    energy.open()
    assert energy.energy.due_us[1] == energy.host.now + 90000000 and energy.energy.fled == {3: 7}
    energy.rest()
    assert energy.kept == known


def test_a_sleeper_counts_its_sleep():
    energy, battery = made(3800)
    beats(energy, battery, 4)
    energy.host.now += 1000000
    energy.open().sleep(600000000)
    again = Meter(energy.host, energy.profile, battery.read)
    again.host.now = 0
    again.tick()
    again.host.now = 5000000
    again.tick()
    assert again.open().ms == 16000 + 600000 + 5000
    assert again.open().spent[0] == 21 * 20000000 + 600 * 10000
