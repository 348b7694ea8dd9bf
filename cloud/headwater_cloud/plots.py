"""Pictures of a stream: its fields over time, and where it has gaps, by reason.

A picture is made of at most a few thousand points, however many rows there are: Spark gives the least and the
greatest value of each piece of time, so a single peak among millions of samples stays visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import LakeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

Span = tuple[int | None, int | None]  # µs; None: as far as there is data

LINE = "#1f4e79"
# One colour and one hatching for each reason, so that black and white print tells them apart too.
REASONS = {
    "restart": ("#e6a23c", "//"),
    "log full": ("#c0504d", "\\\\"),
    "sensor fault": ("#8064a2", "xx"),
    "full": ("#d06ba4", "--"),
    "given up": ("#7f7f7f", ".."),
    "gateway lost": ("#8c564b", "||"),
    "earlier version": ("#9edae5", "oo"),
}
OTHER = ("#555555", "++")
NARROW = 0.004  # of the width: a shorter gap is drawn as wide as this, to be visible


@dataclass(frozen=True)
class Shade:
    """Where a gap is, in µs."""

    start: int
    end: int
    kind: str
    reason: str


@dataclass
class Curve:
    """One or more fields over time."""

    times: np.ndarray[Any, Any]  # µs
    joins: np.ndarray[Any, Any]  # whether nothing is missing between a point and the one before
    spans: bool  # whether a point is several rows: the span of their values
    least: dict[str, np.ndarray[Any, Any]]
    most: dict[str, np.ndarray[Any, Any]]


def curve(rows: DataFrame, fields: list[str], span: Span, points: int) -> Curve:
    """What a picture needs of the typed rows of a stream."""
    from pyspark.sql import functions as F

    us = F.unix_micros("ts")
    start, end = span
    if start is not None:
        rows = rows.where(us >= start)
    if end is not None:
        rows = rows.where(us <= end)
    (n, low, high), *_ = rows.agg(F.count("*"), F.min(us), F.max(us)).collect()
    values = [F.col("`%s`" % field).cast("double") for field in fields]
    spans = n > points
    if not spans:
        one = [value.alias("v%d" % i) for i, value in enumerate(values)]
        found = rows.select(
            "incarnation", F.col("xi").alias("x0"), F.col("xi").alias("x1"), us.alias("t"), *one
        )
    else:
        piece = F.floor((us - low) * points / (high - low + 1))
        ends = [F.min(v).alias("v%d" % i) for i, v in enumerate(values)]
        ends += [F.max(v).alias("w%d" % i) for i, v in enumerate(values)]
        found = rows.groupBy("incarnation", piece.alias("piece")).agg(
            F.min("xi").alias("x0"),
            F.max("xi").alias("x1"),
            ((F.min(us) + F.max(us)) / 2).cast("bigint").alias("t"),
            *ends,
        )
    table = found.orderBy("t", "x0").toArrow()
    column = {name: table.column(name).to_numpy() for name in table.column_names}
    joins = np.ones(len(column["t"]), bool)
    joins[1:] = (column["x0"][1:] == column["x1"][:-1] + 1) & (
        column["incarnation"][1:] == column["incarnation"][:-1]
    )
    least = {field: column["v%d" % i].astype(float) for i, field in enumerate(fields)}
    most = {field: column.get("w%d" % i, least[field]).astype(float) for i, field in enumerate(fields)}
    return Curve(column["t"], joins, spans, least, most)


def shades(gaps: DataFrame, span: Span) -> list[Shade]:
    """The gaps that touch the span and have a known time."""
    from pyspark.sql import functions as F

    start = F.unix_micros(F.coalesce("from_ts", "to_ts"))
    end = F.unix_micros(F.coalesce("to_ts", "from_ts"))
    gaps = gaps.where("from_ts IS NOT NULL OR to_ts IS NOT NULL")
    if span[0] is not None:
        gaps = gaps.where(end >= span[0])
    if span[1] is not None:
        gaps = gaps.where(start <= span[1])
    found = gaps.select(start.alias("start"), end.alias("end"), "kind", "reason").orderBy("start")
    return [Shade(*row) for row in found.collect()]


def figure(title: str, curve: Curve, shades: list[Shade], span: Span) -> Figure:
    """The picture. It is closed for pyplot, so a notebook shows it once: as the value of its cell."""
    import matplotlib.pyplot as plt
    from matplotlib import dates

    if not len(curve.times) and not shades:
        raise LakeError("stream '%s' has neither rows nor gaps in that time" % title)
    figure, panels = plt.subplots(
        len(curve.least),
        sharex=True,
        squeeze=False,
        figsize=(11, 1.2 + 2.4 * len(curve.least)),
        layout="constrained",
    )
    width = _width(curve, shades, span)
    reasons: dict[str, Any] = {}
    for field, axes in zip(curve.least, panels[:, 0]):
        _draw(axes, curve, field)
        for shade in shades:
            reasons.setdefault("%s: %s" % (shade.kind, shade.reason), _shade(axes, shade, width))
        axes.set_xlim(_time(width[0]), _time(width[1]))
    untyped: Any = dates
    locator = untyped.AutoDateLocator(tz="UTC")
    panels[-1, 0].xaxis.set_major_locator(locator)
    panels[-1, 0].xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz="UTC"))
    panels[-1, 0].set_xlabel("time (UTC)")
    panels[0, 0].set_title(title, loc="left")
    if reasons:
        figure.legend(
            reasons.values(), reasons.keys(), loc="outside lower right", ncols=len(reasons), frameon=False
        )
    plt.close(figure)
    return figure


def _draw(axes: Any, curve: Curve, field: str) -> None:
    """One field; no line is drawn across what is missing."""
    at = np.flatnonzero(~curve.joins)
    stamps = curve.times.astype("datetime64[us]")
    times = np.insert(stamps, at, stamps[at])
    least, most = (np.insert(values[field], at, np.nan) for values in (curve.least, curve.most))
    if curve.spans:
        axes.fill_between(times, least, most, color=LINE, linewidth=0.6)
    else:
        axes.plot(times, least, color=LINE, linewidth=0.9, marker="." if len(times) < 200 else "")
    axes.set_ylabel(field)
    axes.grid(True, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _shade(axes: Any, shade: Shade, width: tuple[int, int]) -> Any:
    colour, hatch = REASONS.get(shade.reason, OTHER)
    wide = max(shade.end - shade.start, int((width[1] - width[0]) * NARROW))
    middle = (shade.start + shade.end) // 2
    return axes.axvspan(
        _time(middle - wide // 2),
        _time(middle + wide // 2),
        facecolor=colour + "40",
        edgecolor=colour,
        hatch=hatch,
        linewidth=0.5,
        zorder=0.5,
    )


def _width(curve: Curve, shades: list[Shade], span: Span) -> tuple[int, int]:
    times = [int(t) for t in curve.times[[0, -1]]] if len(curve.times) else []
    times += [time for shade in shades for time in (shade.start, shade.end)]
    low = min(times) if span[0] is None else span[0]
    high = max(times) if span[1] is None else span[1]
    room = max((high - low) // 100, 1)
    return low - room, high + room


def _time(us: int) -> Any:
    return np.datetime64(us, "us")
