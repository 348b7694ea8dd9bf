"""Metrics for Prometheus: what the batches did, and what Spark reports about its triggers.

The listener is asynchronous and may miss the end: it feeds metrics, and nothing else relies on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass
class Report:
    """What a sink did since it was started."""

    batches: int = 0
    files: int = 0
    unreadable: int = 0
    rows_kept: int = 0
    rows_duplicate: int = 0
    rows_quarantined: int = 0
    seconds: float = 0.0
    maintained: list[dict[str, Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        more: dict[str, Any] = {"registry": self.registry}
        self.rows = Counter(
            "headwater_sink_rows", "rows of segments, by what became of them", ["fate"], **more
        )
        self.files = Counter("headwater_sink_files", "files of the landing zone", ["fate"], **more)
        self.batch_seconds = Histogram(
            "headwater_sink_batch_seconds",
            "time of a batch, acknowledgement included",
            buckets=SECONDS,
            **more,
        )
        self.trigger_seconds = Histogram(
            "headwater_sink_trigger_seconds",
            "time of a trigger, as Spark measures it",
            buckets=SECONDS,
            **more,
        )
        self.acknowledged = Gauge(
            "headwater_sink_acknowledged_timestamp_seconds", "when something was acknowledged last", **more
        )
        self.waiting = Gauge("headwater_sink_waiting_files", "files that wait for a later batch", **more)
        self.idle = Gauge(
            "headwater_sink_idle_timestamp_seconds", "when there was nothing to do last", **more
        )
        self.generation = Gauge("headwater_sink_generation", "generation of the progress", **more)
        self.batch = Gauge("headwater_sink_batch", "newest batch that is done", **more)
        self.numberings = Gauge("headwater_sink_numberings", "streams of `progress`, by incarnation", **more)
        self.settled = Gauge("headwater_sink_settled", "streams of the table `settled`, likewise", **more)
        self.maintained = Gauge("headwater_sink_maintained_timestamp_seconds", "last maintenance", **more)

    def serve(self, port: int, host: str) -> None:
        start_http_server(port, host, registry=self.registry)


class Listener(StreamingQueryListener):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._metrics.trigger_seconds.observe(progress.durationMs.get("triggerExecution", 0) / 1000)
        for source in progress.sources:
            self._metrics.waiting.set(float(source.metrics.get("numFilesOutstanding", 0)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._metrics.idle.set(time.time())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
