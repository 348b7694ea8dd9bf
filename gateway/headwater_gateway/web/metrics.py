"""What Prometheus scrapes, read off the service when it asks.

The number of labels is limited: boards are those that are registered, streams those of deployed processes
(all incarnations of one together), reasons and kinds closed sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from .. import refused
from ..bluetooth.ways import BLUETOOTH
from ..monitoring import moves, operators
from ..site_clock import mono_us

if TYPE_CHECKING:
    from ..database.outbox import OutboxStream
    from ..service import Service

STREAM = ["process", "stream"]


def registry(service: Service) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Metrics(service))
    ProcessCollector(namespace="headwater", registry=made)
    return made


class Metrics:
    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Any]:
        if self.service.link is None:
            return
        yield from self._gateway()
        yield from self._alarms()
        yield from self._streams()
        yield from self._boards()
        yield from self._batteries()
        yield from self._operators()
        yield from self._moves()

    def _gateway(self) -> Iterator[Any]:
        s = self.service
        link = s.link
        assert link is not None
        yield _gauge("broker_up", "1 while connected to the broker", int(link.up))
        yield _counter("broker_connects", "Connections made to the broker", link.connects)
        yield _counter("frames_in", "Frames that came from the broker", link.received)
        yield _counter("frames_out", "Frames given to the broker", link.sent)
        yield _counter("frames_out_dropped", "Frames for the broker dropped from a full queue", link.dropped)
        family = CounterMetricFamily("headwater_frames_refused", "Frames refused", labels=["reason"])
        counts = s.dropped()
        for reason in refused.ALL:
            family.add_metric([reason], counts.get(reason, 0))
        yield family
        yield from self._bluetooth()
        yield from self._clock()
        yield _gauge("database_bytes", "Bytes that the database holds", s.db.size_bytes)
        yield _gauge("database_full", "1 while no entries are taken in", int(s.db.full))
        yield _counter("commits", "Commits of the database", s.db.commits)
        yield _gauge("commit_seconds", "Duration of the last commit", s.db.commit_s)
        yield _counter("segments", "Segments cut", s.segments.cut_count)
        yield _counter("segment_bytes", "Bytes of segments cut", s.segments.cut_bytes)
        yield _counter("segments_cut_again", "Segments cut again: unreadable, or vanished", s.segments.recut)
        yield _counter("segments_vanished", "Segments that vanished before the lake", s.segments.vanished)
        yield _counter("entries_damaged", "Entries that could not be decoded", s.segments.damaged)

    def _bluetooth(self) -> Iterator[Any]:
        view = self.service.ways.view() if self.service.ways else None
        if view is None:
            return
        yield _gauge("bluetooth_scanner_up", "1 while the adapter can be used", int(not view["problem"]))
        yield _gauge("bluetooth_boards", "Boards connected over Bluetooth now", len(view["connected"]))
        yield _gauge("bluetooth_waiting", "Boards in reach that wait for a connection", len(view["waiting"]))
        yield _counter("bluetooth_connects", "Bluetooth connections made", view["connects"])
        yield _counter("bluetooth_paired", "... with LE Secure Connections", view["paired"])
        yield _counter("bluetooth_unpaired", "... for which these were asked and failed", view["unpaired"])
        yield _counter("bluetooth_relayed", "Frames passed on between boards", view["relayed"])
        yield _counter("bluetooth_dropped", "Frames for a board that its full queue refused", view["dropped"])
        for name, text, counts in (
            ("bluetooth_ended", "Bluetooth connections that ended", view["ended"]),
            ("bluetooth_failures", "Failures of the Bluetooth adapter", view["failures"]),
        ):
            family = CounterMetricFamily("headwater_" + name, text, labels=["reason"])
            for reason, n in counts.items():
                family.add_metric([reason], n)
            yield family

    def _clock(self) -> Iterator[Any]:
        clock = self.service.clock.view(mono_us())
        trusted = int(clock["synchronised"])
        yield _gauge("clock_synchronised", "1 while the machine's clock is synchronised", trusted)
        yield _gauge("clock_ahead_seconds", "The site's time is ahead by this", clock["ahead_us"] / 1e6)
        yield _gauge("clock_right_in_seconds", "Until it is right again", clock["right_in_s"])
        if clock["error_us"] is not None:
            yield _gauge(
                "clock_error_seconds", "Largest error that the site's time may have", clock["error_us"] / 1e6
            )

    def _alarms(self) -> Iterator[Any]:
        watch = self.service.observer.watch
        family = GaugeMetricFamily(
            "headwater_alarms", "Alarms that are on and not muted", labels=["severity"]
        )
        for severity, n in watch.counts().items():
            family.add_metric([severity], n)
        yield family
        family = GaugeMetricFamily("headwater_alarms_by_kind", "Alarms that are on", labels=["kind"])
        for kind, n in watch.by_kind().items():
            family.add_metric([kind], n)
        yield family
        yield from self._notices()
        sink = self.service.observer.sink()
        if sink.silent_s is not None:
            yield _gauge("sink_silent_seconds", "Since the sink last gave a sign of life", sink.silent_s)

    def _notices(self) -> Iterator[Any]:
        lanes = self.service.notifier.notices.lanes
        labels = ["receiver"]
        for name, text, count in (
            ("delivered", "Notices of alarms that a receiver has accepted", "delivered"),
            ("failed_attempts", "Attempts to deliver a notice that failed", "failed"),
            ("refused", "Notices that a receiver did not accept", "refused"),
            ("merged", "Notices that were merged into others, because too many waited", "merged"),
        ):
            counter = CounterMetricFamily("headwater_notices_" + name, text, labels=labels)
            for lane in lanes.values():
                counter.add_metric([lane.name], getattr(lane, count))
            yield counter
        for name, text, count in (
            ("waiting", "Notices that wait for a receiver", "waiting"),
            ("parked", "Notices that were refused, and are not sent again by themselves", "parked"),
        ):
            gauge = GaugeMetricFamily("headwater_notices_" + name, text, labels=labels)
            for lane in lanes.values():
                gauge.add_metric([lane.name], len(getattr(lane, count)))
            yield gauge

    def _streams(self) -> Iterator[Any]:
        newest: dict[str, OutboxStream] = {}
        for end in self.service.ends.all.values():
            newest[end.lake] = end
        for name, text in (
            ("durable", "Entries durable here, of the newest incarnation"),
            ("cut", "Entries in segments, of the newest incarnation"),
            ("acked", "Entries in the lake, of the newest incarnation"),
        ):
            family = GaugeMetricFamily("headwater_stream_" + name, text, labels=STREAM)
            for end in newest.values():
                family.add_metric([end.process, end.lake], getattr(end, name))
            yield family
        facts = list(self.service.observer.streams())
        of_all: list[tuple[str, str, str]] = [
            ("unacknowledged_age_seconds", "Age of the oldest entry here that the lake lacks", "lag_s"),
            ("unacknowledged_entries", "Entries here that the lake lacks, of all incarnations", "waiting"),
            ("board_backlog_entries", "Entries that the board has and the gateway not", "on_board"),
            ("board_backlog_age_seconds", "Age of the oldest of these, at least", "on_board_s"),
        ]
        for name, text, key in of_all:
            family = GaugeMetricFamily("headwater_" + name, text, labels=STREAM)
            for fact in facts:
                value = getattr(fact, key)
                if value is None and key.endswith("_s") and (key == "lag_s" or fact.on_board == 0):
                    value = 0.0  # nothing waits
                if value is not None:  # unknown: no value
                    family.add_metric([fact.process, fact.stream], value)
            yield family

    def _boards(self) -> Iterator[Any]:
        labels = ["board"]
        up = GaugeMetricFamily("headwater_board_up", "1 while the board speaks", labels=labels)
        battery = GaugeMetricFamily("headwater_board_battery_volts", "Battery", labels=labels)
        clock = GaugeMetricFamily(
            "headwater_board_clock_error_seconds", "Largest error that its stamps may have", labels=labels
        )
        starts = GaugeMetricFamily("headwater_board_starts", "Times that it has started", labels=labels)
        over = GaugeMetricFamily(
            "headwater_board_over_bluetooth", "1 if it was heard over Bluetooth last", labels=labels
        )
        ways = self.service.ways
        for name, board in self.service.boards.all.items():
            up.add_metric([name], int(self.service.link_of(board) == "up"))
            if ways and ways.radio:
                over.add_metric([name], int(ways.via(name) == BLUETOOTH))
            for family, key, unit in ((battery, "battery", 1e3), (clock, "sync", 1e6), (starts, "boot", 1)):
                value = board.status.get(key)
                if value is not None:
                    family.add_metric([name], value / unit)
        yield from (up, over, battery, clock, starts)

    def _batteries(self) -> Iterator[Any]:
        """Of boards that know how long their battery lasts: those on mains have no value."""
        labels = ["board"]
        charge = GaugeMetricFamily("headwater_board_battery_percent", "Charge that is left", labels=labels)
        left = GaugeMetricFamily(
            "headwater_board_battery_left_seconds",
            "How long the battery lasts at its present draw",
            labels=labels,
        )
        for name, board in self.service.boards.all.items():
            known = operators.energy(board.status)
            if known:
                charge.add_metric([name], known["percent"])
                left.add_metric([name], known["left_s"])
        yield from (charge, left)

    def _operators(self) -> Iterator[Any]:
        labels = ["process", "operator"]
        place = GaugeMetricFamily(
            "headwater_operator_host",
            "1 for the host where an operator runs, or ran last",
            labels=[*labels, "host"],
        )
        epoch = GaugeMetricFamily(
            "headwater_operator_epoch", "Number of its epoch: it rises with every move", labels=labels
        )
        does = GaugeMetricFamily(
            "headwater_operators", "Operators, by what they do", labels=["process", "does"]
        )
        for name, process in self.service.processes.items():
            hosted = process.hosted
            assert hosted is not None
            counts = dict.fromkeys(operators.DOES, 0)
            for v in hosted.plan.vertices:
                if v.kind:
                    number, _, at = hosted.host.where[v.index]
                    place.add_metric([name, v.name, hosted.plan.hosts[at]], 1)
                    epoch.add_metric([name, v.name], number)
                    counts[operators.shown(self.service, process, v)["does"]] += 1
            for word, n in counts.items():
                does.add_metric([name, word], n)
        yield from (place, epoch, does)

    def _moves(self) -> Iterator[Any]:
        made = self.service.observer.moves
        moved = CounterMetricFamily(
            "headwater_operator_moves", "Moves of operators, by reason", labels=["process", "reason"]
        )
        for name in self.service.processes:
            for reason in moves.NAMES:
                moved.add_metric([name, reason], made.counts[name, reason])
        yield moved
        refused_moves = CounterMetricFamily(
            "headwater_operator_moves_refused", "Moves that a person asked for and that did not happen",
            labels=["reason"],
        )  # fmt: skip
        for reason in moves.REFUSED:
            refused_moves.add_metric([reason], made.refused[reason])
        yield refused_moves


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily("headwater_" + name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily("headwater_" + name, text, value=value)
