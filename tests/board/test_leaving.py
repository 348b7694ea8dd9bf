# Which operator leaves, where to, and how often that is asked: decisions of a host about its battery.

from headwater.protocol.moves import BALANCE, FLEE
from headwater.protocol.offers import ENERGY, FLEEING, OK, RECENT
from headwater.runtime import leaving

FOREVER = (1 << 30) - 1


# Two operators: 4, dear, and 5, on a host that lasts 1000 s; hosts 2 and 3 may run both, 3 only the second.
class View:
    def __init__(self):
        self.now = 1000
        self.without = {4: 3000, 5: 1100}
        self.may = {4: [2, 3], 5: [3]}
        self.low = False
        self.resting = []
        self.near = []
        self.more = 0

    def operators(self):
        return [4, 5]

    def candidates(self, v):
        return self.may[v]

    def rank(self, v, h):
        return self.may[v].index(h) + 1

    def left_s(self):
        return self.now

    def without_s(self, v, h):
        return self.without[v]

    def flees(self):
        return self.low

    def crosses(self, v, h):
        return (v, h) in self.near

    def burdens(self, v, h):
        return self.more, 100

    def rests(self, v):
        return v in self.resting

    def trusts(self, v, h):
        return True


def test_only_those_are_asked_whose_answer_can_lead_to_a_move():
    view = View()
    assert leaving.asks(view) == [(4, [2, 3])]
    view.near = [(5, 3)]  # to run it there may save the other host its radio
    assert leaving.asks(view) == [(4, [2, 3]), (5, [3])]


def test_an_operator_that_moved_lately_stays_unless_its_host_flees():
    view = View()
    view.resting = [4, 5]
    assert leaving.asks(view) == []
    view.low = True
    assert leaving.asks(view) == [(4, [2, 3])]


def test_one_that_flees_asks_for_the_dearest_operator_that_has_a_candidate():
    view = View()
    view.low = True
    view.may = {4: [], 5: [3]}
    assert leaving.asks(view) == [(5, [3])]


def test_a_move_lengthens_the_shorter_life_by_a_quarter():
    view = View()
    assert leaving.choose(view, {(4, 2): (4000, 1249)}) is None
    assert leaving.choose(view, {(4, 2): (4000, 1250)}) == (4, 2)
    # The taker is the one that lives shorter, and longer with the operator than without it.
    view.without[5] = 900
    assert leaving.choose(view, {(5, 3): (600, 700)}) is None
    assert leaving.choose(view, {(5, 3): (600, 750)}) == (5, 3)


def test_the_longest_first_life_wins_and_at_a_tie_the_order_of_the_process_file():
    view = View()
    assert leaving.choose(view, {(4, 2): (4000, 2000), (4, 3): (4000, 2001)}) == (4, 3)
    assert leaving.choose(view, {(4, 2): (4000, 2000), (4, 3): (9000, 2000)}) == (4, 2)
    view.low = True
    assert leaving.choose(
        view, {(4, 2): (10, 9), (4, 3): (FOREVER, FOREVER), (5, 3): (FOREVER, FOREVER)}
    ) == (4, 3)


def test_others_are_not_burdened_with_more_than_half_of_the_relief():
    view = View()
    view.more = 50
    assert leaving.choose(view, {(4, 2): (4000, 2000)}) == (4, 2)
    view.more = 51
    assert leaving.choose(view, {(4, 2): (4000, 2000)}) is None
    view.low = True
    assert leaving.choose(view, {(4, 2): (4000, 2000)}) == (4, 2)


class Taker:
    def __init__(self, left, low=False, fled=False, whole=FOREVER):
        self.left = left
        self.low = low
        self.fled = fled
        self.whole = whole

    def must_flee(self):
        return self.low

    def takes_back(self, v):
        return not self.fled

    def left_s(self):
        return self.left

    def whole_s(self):
        return self.whole


def test_a_host_takes_what_leaves_it_ten_minutes_more_than_its_reserve():
    assert leaving.refusal(Taker(9000), 4, FLEE, 10, 700, 100) == OK
    assert leaving.refusal(Taker(9000), 4, FLEE, 10, 699, 100) == ENERGY
    assert leaving.refusal(Taker(9000, low=True), 4, FLEE, 10, 5000, 100) == FLEEING
    assert leaving.refusal(Taker(9000, fled=True), 4, FLEE, 10, 5000, 100) == RECENT
    # Of a battery that lasts less than two hours and 40 minutes a sixteenth is enough.
    assert leaving.refusal(Taker(90, whole=160), 4, FLEE, 10, 21, 11) == OK
    assert leaving.refusal(Taker(90, whole=160), 4, FLEE, 10, 20, 11) == ENERGY


def test_a_host_takes_to_balance_only_where_it_sees_the_gain_too():
    assert leaving.refusal(Taker(9000), 4, BALANCE, 1000, 1250, 0) == OK
    assert leaving.refusal(Taker(9000), 4, BALANCE, 1000, 1249, 0) == ENERGY


def test_rounds_come_less_often_the_less_they_bring_and_the_more_they_cost():
    assert [leaving.pause_s(n, False, 0, 1, FOREVER) for n in range(6)] == [300, 600, 1200, 2400, 2400, 2400]
    assert [leaving.pause_s(n, True, 0, 1, 10) for n in range(8)] == [5, 10, 20, 40, 80, 160, 320, 320]
    # Where little time is left, less of it passes ..
    assert leaving.pause_s(3, False, 0, 1, 1600) == 100
    # .. and bids cost at most a thousandth of 0.5 mA.
    assert leaving.pause_s(0, False, 14000000, 500000, 1600) == 28000
