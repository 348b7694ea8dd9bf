"""Line figures as SVG: panels side by side, one logarithmic scale for all, readable on white."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...svg import sheet, stroke, text

PANEL_W = 230
PANEL_H = 300
LEFT = 66
TOP = 64
GAP = 26
BOTTOM = 96
WIDTH_MIN = 720  # the title and the legend need this
# Dark enough for white paper, and told apart without colour by their marks.
STYLES = {
    "uncoordinated": ("#b3261e", "square"),
    "ecoc": ("#1a5fb4", "circle"),
    "extended": ("#26703a", "triangle"),
}


class Line(NamedTuple):
    name: str  # of STYLES
    dashed: bool
    values: Sequence[float]  # one for each x; what is not above 0 is left out


def draw(
    title: str,
    x_title: str,
    xs: Sequence[int],
    panels: dict[str, list[Line]],
    dashed_is: str,
    unit: str = "%",
) -> str:
    values = [v for lines in panels.values() for line in lines for v in line.values if v > 0]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    width = max(WIDTH_MIN, LEFT + len(panels) * (PANEL_W + GAP))
    height = TOP + PANEL_H + BOTTOM
    out = [text(LEFT, 24, title, "start", 15)]
    for number, (name, lines) in enumerate(panels.items()):
        x0 = LEFT + number * (PANEL_W + GAP)
        out += _panel(x0, name, lines, xs, low, high, unit if number == 0 else "")
    middle = LEFT + (len(panels) * (PANEL_W + GAP) - GAP) / 2
    out.append(text(middle, TOP + PANEL_H + 42, x_title, "middle", 12))
    out += _legend(TOP + PANEL_H + 74, dashed_is)
    return sheet(width, height, out) + "\n"


def _panel(
    x0: float, name: str, lines: list[Line], xs: Sequence[int], low: int, high: int, unit: str
) -> list[str]:
    def px(x: float) -> float:
        pad = 14
        return x0 + pad + (PANEL_W - 2 * pad) * (x - xs[0]) / (xs[-1] - xs[0])

    def py(value: float) -> float:
        return TOP + PANEL_H * (high - math.log10(value)) / (high - low)

    out = [text(x0 + PANEL_W / 2, TOP - 10, name, "middle", 13)]
    for decade in range(low, high + 1):
        y = py(10.0**decade)
        out.append(stroke(x0, y, x0 + PANEL_W, y, "#cccccc" if decade not in (low, high) else "#888888"))
        if unit:
            out.append(text(x0 - 8, y + 4, "%g %s" % (10.0**decade, unit), "end", 12))
        for step in range(2, 10):
            if decade < high:
                y = py(step * 10.0**decade)
                out.append(stroke(x0, y, x0 + PANEL_W, y, "#f0f0f0"))
    for x in (x0, x0 + PANEL_W):
        out.append(stroke(x, TOP, x, TOP + PANEL_H, "#888888"))
    for x in xs:
        bottom = TOP + PANEL_H
        out.append(stroke(px(x), bottom, px(x), bottom + 4, "#888888"))
        out.append(text(px(x), bottom + 18, str(x), "middle", 10))
    for line in lines:
        colour, mark = STYLES[line.name]
        points = [(px(x), py(v)) for x, v in zip(xs, line.values, strict=True) if v > 0]
        out.append(
            '<polyline points="%s" fill="none" stroke="%s" stroke-width="%s"%s/>'
            % (
                " ".join("%.1f,%.1f" % point for point in points),
                colour,
                "1.3" if line.dashed else "2",
                ' stroke-dasharray="5 4"' if line.dashed else "",
            )
        )
        out += [_mark(x, y, colour, mark, line.dashed) for x, y in points]
    return out


def _mark(x: float, y: float, colour: str, mark: str, hollow: bool) -> str:
    fill = "white" if hollow else colour
    look = 'fill="%s" stroke="%s" stroke-width="1.3"' % (fill, colour)
    if mark == "circle":
        return '<circle cx="%.1f" cy="%.1f" r="3.6" %s/>' % (x, y, look)
    if mark == "square":
        return '<rect x="%.1f" y="%.1f" width="6.6" height="6.6" %s/>' % (x - 3.3, y - 3.3, look)
    return '<path d="M%.1f %.1f l4.2 7.4 h-8.4 z" %s/>' % (x, y - 4.6, look)


def _legend(y: float, dashed_is: str) -> list[str]:
    out = []
    x = float(LEFT)
    for name, (colour, mark) in STYLES.items():
        out.append(stroke(x, y, x + 34, y, colour, "2"))
        out.append(_mark(x + 17, y, colour, mark, False))
        out.append(text(x + 42, y + 4, name, "start", 12))
        x += 70 + 8 * len(name)
    out.append(stroke(x, y, x + 34, y, "#222222", "1.3", ' stroke-dasharray="5 4"'))
    out.append(text(x + 42, y + 4, dashed_is, "start", 12))
    return out
