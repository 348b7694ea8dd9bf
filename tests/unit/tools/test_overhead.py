"""`hw bench overhead`: it counts what it says, and a claim that fails is told."""

from xml.etree import ElementTree

from headwater_tools.bench.overhead import (
    CYCLIC,
    INTERVALS,
    PROCESSES,
    Case,
    Cost,
    claims,
    lines,
    measure,
    measures,
)
from headwater_tools.bench.support.figure import draw

SVG = "{http://www.w3.org/2000/svg}"


def costs(checkpoint):
    """Made-up costs of all cases, with `checkpoint(case)` bytes of checkpoints."""
    cases = [Case(p, s, every) for p, kinds in PROCESSES.items() for s in kinds for every in INTERVALS]
    return {case: Cost(1000, 2000, checkpoint(case), 0, 10, 10, 0, 0, 1.0, 1.0) for case in cases}


def verdicts(checkpoint):
    return {claim.text: (claim.verdict, claim.ok) for claim in claims(costs(checkpoint))}


def test_a_case_measures_the_same_each_time():
    assert measure(Case("sp2", "extended", 500)) == measure(Case("sp2", "extended", 500))


def test_ecoc_stores_state_and_no_transfer_state():
    cost = measure(Case("sp1", "ecoc", 500))
    rounds = cost.elements / 500
    assert 11 < rounds < 13
    assert cost.committed == 24  # of two operators
    assert cost.checkpoint / cost.committed < 160  # a buffer of 500 elements packs to more than 300
    assert cost.urgent == cost.extended == 0
    assert cost.data > cost.elements  # two streams, each of more than half a byte an element
    assert cost.sent > cost.checkpoint  # each goes to its holder


def test_uncoordinated_stores_more_than_ecoc():
    assert measure(Case("sp1", "uncoordinated", 1000)).each > measure(Case("sp1", "ecoc", 1000)).each


def test_a_claim_is_met_or_not_by_its_numbers():
    low = verdicts(lambda case: 100 if case.strategy == "ecoc" else 1000)
    high = verdicts(lambda case: 3000 if case.strategy == "ecoc" else 1000)
    text = "ecoc below uncoordinated on SP1 and SP2, every interval"
    assert low[text] == ("met", True)
    assert high[text] == ("not met", False)
    assert low["processor: none measurable on servers"] == ("not measurable", True)


def test_the_bar_is_at_half_a_byte_per_element():
    def bar(size):
        return measures(costs(lambda case: size), lambda text: None)[0]

    assert (bar(500).value, bar(500).ok) == (0.5, True)
    assert (bar(501).value, bar(501).ok) == (0.501, False)


def test_the_figure_has_a_panel_a_process_and_a_line_a_strategy():
    panels = lines(costs(lambda case: 100 + case.every))
    root = ElementTree.fromstring(draw("a < b", "elements", INTERVALS, panels, "others"))
    texts = [text.text for text in root.iter(SVG + "text")]
    assert texts[0] == "a < b"
    assert [text for text in texts if text in panels] == ["SP1", "SP2", "SP3", "SP4"]
    curves = list(root.iter(SVG + "polyline"))
    assert len(curves) == 2 * (3 + 3 + 2 * len(CYCLIC))  # ours, and the thesis's
    assert all(len(curve.attrib["points"].split()) == len(INTERVALS) for curve in curves)
