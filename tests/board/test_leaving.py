# Which operator leaves, where to, and how often that is asked: decisions of a host about its battery.

from headwater.protocol.moves import BALANCE, FLEE
from headwater.protocol.offers import ENERGY, FLEEING, OK, RECENT
from headwater.runtime import leaving

FOREVER = (1 << 30) - 1


# Two operators: 4, dear, and 5, on a host that lasts 1000 s; hosts 2 and 3 may run both, 3 only the second.
class View:
    def __init__(self):
        self.me = 1
        self.now = 1000
        self.whole = FOREVER
        self.without = {(4,): 3000, (5,): 1100, (4, 5): 3000}
        self.draws = {}  # what hosts would draw more, where it is not nothing
        self.may = {4: [2, 3], 5: [3]}
        self.low = False
        self.stuck = False
        self.resting = []
        self.near = []

    def operators(self):
        return [4, 5]

    def candidates(self, v):
        return self.may[v]

    def rank(self, v, h):
        return self.may[v].index(h) + 1

    def left_s(self):
        return self.now

    def whole_s(self):
        return self.whole

    def after(self, vs, h):
        return self.without[tuple(vs)], self.draws.get((tuple(vs), h), [0, -100, 0, 0, 0])

    def flees(self):
        return self.low

    def stays(self):
        return self.stuck

    def crosses(self, v, h):
        return (v, h) in self.near

    def rests(self, v):
        return v in self.resting

    def trusts(self, v, h):
        return True


# The choice where hosts 2 and 3 last so long now, with a charge of 1000 mC for a second at 1 mA.
def chosen(view, bids, left=4000, mc=4000):
    return leaving.choose(view, bids, {h: (left, mc) for _, h in bids})


def test_only_those_are_asked_whose_answer_can_lead_to_a_move():
    view = View()
    view.may[5] = [2]
    view.without[(4, 5)] = 1100
    assert leaving.asks(view) == [(4, [2, 3])]
    view.near = [(5, 2)]  # to run it there may save the other host its radio
    assert leaving.asks(view) == [(4, [2, 3]), (5, [2])]
    view.near = []
    view.without[(4, 5)] = 1300  # or to run both there
    assert leaving.asks(view) == [(4, [2, 3]), (5, [2])]


def test_a_battery_that_is_nearly_empty_balances_no_more():
    view = View()
    view.whole = 32001
    assert leaving.asks(view) == []
    view.whole = 32000
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


def test_one_that_flees_asks_for_all_operators_after_a_round_without_a_move():
    view = View()
    view.low = view.stuck = True
    assert leaving.asks(view) == [(4, [2, 3]), (5, [3])]


def test_a_move_makes_batteries_emptier_by_a_sixth_less():
    view = View()
    # Now 1/1000 + 1/4000, then 1/3000 + 1/x: five sixths of it where x is 1412.
    assert chosen(view, {(4, 2): 1411}) is None
    assert chosen(view, {(4, 2): 1412}) == (4, 2)
    # The taker may last shorter than both did: what is left is used up in turn, and less of it is drawn.
    view.without[(4,)] = 100000
    assert chosen(view, {(4, 2): 606}, left=1010) is None
    assert chosen(view, {(4, 2): 607}, left=1010) == (4, 2)


def test_what_saves_most_wins_and_at_a_tie_the_order_of_the_process_file():
    view = View()
    assert chosen(view, {(4, 2): 2000, (4, 3): 2001}) == (4, 3)
    assert chosen(view, {(4, 2): 2000, (4, 3): 2000}) == (4, 2)
    view.low = True
    assert chosen(view, {(4, 2): 9, (4, 3): FOREVER, (5, 3): FOREVER}) == (4, 3)


def test_hosts_that_are_not_known_bear_no_more_than_half_of_the_relief():
    view = View()
    view.draws[((4,), 2)] = [0, -100, 0, 0, 50]
    assert chosen(view, {(4, 2): 2000}) == (4, 2)
    view.draws[((4,), 2)] = [0, -100, 0, 0, 51]
    assert chosen(view, {(4, 2): 2000}) is None
    view.low = True
    assert chosen(view, {(4, 2): 2000}) == (4, 2)


def test_what_hosts_bear_that_have_bid_counts_as_a_part_of_what_they_have():
    view = View()
    view.draws[((4,), 2)] = [0, -100, 0, 400000, 0]  # of 4000 mC that is 1/10000 a second
    assert chosen(view, {(4, 2): 2000, (5, 3): 10}) == (4, 2)
    view.draws[((4,), 2)] = [0, -100, 0, 1600000, 0]
    assert chosen(view, {(4, 2): 2000, (5, 3): 10}) is None


def test_a_chain_leaves_where_that_pays_only_together():
    view = View()
    view.may = {4: [3], 5: [3]}
    view.without = {(4,): 900, (5,): 900, (4, 5): 4000}
    view.draws = {((4,), 3): [0, 100, 0, 500000, 0], ((5,), 3): [0, 100, 0, 400000, 0]}
    view.draws[((4, 5), 3)] = [0, -750, 0, 100000, 0]
    bids = {(4, 3): 2666, (5, 3): 2857}  # with 4000 mC
    assert chosen(view, bids) == (5, 3)
    # .. and the shortest life is longer then.
    view.without[(4, 5)] = 1100
    assert chosen(view, bids) is None


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
    assert leaving.refusal(Taker(9000), 4, BALANCE, 1000, 1081, 0) == OK
    assert leaving.refusal(Taker(9000), 4, BALANCE, 1000, 1079, 0) == ENERGY


def test_rounds_come_less_often_the_less_they_bring_and_the_more_they_cost():
    assert [leaving.pause_s(n, False, 0, 1, FOREVER) for n in range(6)] == [300, 600, 1200, 2400, 2400, 2400]
    assert [leaving.pause_s(n, True, 0, 1, FOREVER) for n in range(8)] == [5, 10, 20, 40, 80, 160, 320, 320]
    assert [leaving.pause_s(n, True, 0, 1, 10) for n in range(8)] == [5] * 8
    # Where little time is left, less of it passes ..
    assert leaving.pause_s(3, False, 0, 1, 1600) == 100
    # .. and bids cost at most a thousandth of 0.5 mA, unless there would be less than sixteen rounds.
    assert leaving.pause_s(0, False, 14000000, 500000, FOREVER) == 28000
    assert leaving.pause_s(0, False, 14000000, 500000, 160000) == 10000
