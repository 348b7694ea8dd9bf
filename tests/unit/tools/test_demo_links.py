"""Which link carried what: counted in cords and in the air, and shown in the timeline."""

from __future__ import annotations

import socket

from headwater_tools.demo.links import BLUETOOTH, MQTT, Links, alone
from headwater_tools.demo.observer import Seen
from headwater_tools.demo.subprocesses import Cord
from headwater_tools.demo.timeline import CUT, DEAD, DOWN, UP, Timeline
from headwater_tools.simulator import timeline

BETWEEN, BROKER = "chest \u2013 hip", "chest \u2013 broker"


def looked(*counts: tuple[int, int]) -> Links:
    """Links that were looked at each half second: bytes to the broker and between boards."""
    links = Links()
    now = [0, 0]
    links.add("chest", "broker", MQTT, lambda: now[0])
    links.add("chest", "hip", BLUETOOTH, lambda: now[1])
    for k, pair in enumerate(counts):
        now[:] = pair
        links.look(k / 2)
    return links


def test_what_a_link_carried_is_told_from_the_look_before_to_the_look_after() -> None:
    links = looked((0, 0), (100, 0), (100, 0), (100, 70), (100, 90), (130, 90))
    assert links.carried(1.2, 1.4) == {BROKER: 0, BETWEEN: 70}
    assert links.carried(1.0, 2.0) == {BROKER: 0, BETWEEN: 90}
    assert links.carried(0.9, 2.0) == {BROKER: 0, BETWEEN: 90}
    assert links.carried(0.4, 2.1) == {BROKER: 130, BETWEEN: 90}
    assert links.carried(2.2, 9.0) == {BROKER: 30, BETWEEN: 0}  # it was not looked at since
    assert links.totals() == {BROKER: 130, BETWEEN: 90}
    assert links.of(("hip", "chest")) == BETWEEN


def test_a_look_tells_what_was_carried_since_the_one_before() -> None:
    links = looked((10, 5))
    assert links.look(1.0) == {BROKER: 0, BETWEEN: 0}


def test_a_move_went_over_one_link_only_where_no_other_carried_a_byte() -> None:
    links = looked((0, 0), (0, 300), (1, 500), (9, 500))
    assert alone(links.carried(0.1, 0.4), BETWEEN)
    assert not alone(links.carried(0.1, 0.6), BETWEEN)
    assert not alone(links.carried(1.1, 1.4), BETWEEN)
    assert alone(links.carried(1.1, 1.4), BROKER)


def test_a_cord_counts_the_bytes_of_both_directions() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        cord = Cord(server.getsockname()[1])
        try:
            with socket.create_connection(("127.0.0.1", cord.port)) as near:
                far, _ = server.accept()
                with far:
                    near.sendall(b"there")
                    assert far.recv(9) == b"there"
                    far.sendall(b"and back")
                    assert near.recv(9) == b"and back"
        finally:
            cord.close()
        assert cord.carried == 13


def test_the_timeline_shows_links_with_the_state_of_the_worse_end() -> None:
    links = looked((0, 0))
    shown = Timeline(["chest", "hip", "broker"], [])
    steps = (
        ({"chest": UP, "hip": UP, "broker": UP}, {BROKER: 500, BETWEEN: 0}),
        ({"chest": UP, "hip": CUT, "broker": DOWN}, {BROKER: 0, BETWEEN: 1200}),
        ({"chest": DOWN, "hip": DEAD, "broker": UP}, {BROKER: 0, BETWEEN: 0}),
    )
    for k, (parts, carried) in enumerate(steps, 1):
        shown.look(Seen(k, 0, 0, 0), parts, {}, {})
        shown.look_at_links(links, carried, k, parts)
    assert [s.what for s in shown.lanes.links[BROKER].states] == [UP, DOWN]
    assert [s.what for s in shown.lanes.links[BETWEEN].states] == [UP, CUT, DEAD]
    drawn = timeline.draw(shown.lanes, "links")
    for words in (BROKER, BETWEEN, "0.5 kB", "1.2 kB", "carried over MQTT", "carried over Bluetooth"):
        assert ">%s</text>" % words in drawn


def test_a_timeline_without_links_has_nothing_of_them() -> None:
    shown = Timeline(["chest"], [])
    shown.look(Seen(1, 0, 0, 0), {"chest": UP}, {}, {})
    assert "carried over" not in timeline.draw(shown.lanes, "none")
