"""The timeline of a history as SVG: a lane for each host, bars for the operators on it, arrows for moves.

In a lane: its ground says what the host is (up, down, asleep, cut off, dead), the filled line what its
battery has left, a bar in the colour of each operator that it runs there. A bar is hollow where the operator
is not in touch with one of its producers, and dotted where it does not run yet. Faults are numbered at the
top, and told below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..svg import box, sheet, stroke, text
from .lanes import ALONE, ASLEEP, BEGINS, CUT, DEAD, DOWN, SECOND, UP, Lane, Lanes, Mark, Move, Span

WIDTH = 1240
LEFT = 112
RIGHT = 22
TOP = 46
BAR_H = 12
SLOT_H = 15
BATTERY_H = 26
PAD = 5
LANE_GAP = 8
WAITING_H = 70  # samples that wait, below the lanes
LINK_H = 25  # a link, below these
LINK_GAP = 4
LITTLE = 100  # bytes: below, a link's height is their number, above its logarithm
MARK_H = 15
AFTER_US = 3 * SECOND  # shown after the last thing that happened
LETTER_W = 6.2  # of a small letter, about
COLUMNS = 3
NOTES_MAX = 60

# Told apart without colour by the names in the bars; dark enough for white letters.
COLOURS = (
    "#1a5fb4", "#b3261e", "#26703a", "#8a4b08", "#6b3fa0", "#00707a", "#a3216c", "#5a6b00", "#3d4f8a",
    "#7a3b2e", "#2f6f9f", "#4d4d4d",
)  # fmt: skip
GROUND = {
    UP: "#f3f4f6", DOWN: "#f7cfcb", ASLEEP: "#d5e3f5", CUT: "url(#cut)", DEAD: "#8b8d91",
}  # fmt: skip
BATTERY = "#7fb58a"
BATTERY_LINE = "#26703a"
LOW = 20  # percent: below, a battery's line is red
LOW_LINE = "#b3261e"
ON_BOARDS = "#6f95c9"
EVERYWHERE = "#cfdcec"
LINK_COLOURS = ("#1a5fb4", "#6b3fa0", "#8a4b08")  # by kind, in the order of the first link of each
PLANNED = "#1a5fb4"
UNPLANNED = "#222222"

_HEAD = (
    '<marker id="%s" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="%s"/></marker>'
)
DEFINITIONS = "".join(
    (
        '<defs><pattern id="cut" width="7" height="7" patternUnits="userSpaceOnUse" ',
        'patternTransform="rotate(45)"><rect width="7" height="7" fill="#fdf1d3"/>',
        '<rect width="2.4" height="7" fill="#e8b23a"/></pattern>',
        _HEAD % ("planned", PLANNED),
        _HEAD % ("unplanned", UNPLANNED),
        "</defs>",
    )
)


def draw(shown: Lanes, title: str) -> str:
    return _Drawing(shown, title).svg()


class _Drawing:
    def __init__(self, shown: Lanes, title: str) -> None:
        self.shown = shown
        self.title = title
        self.end_us = self.shown_us()
        self.colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(shown.operators)}
        self.lanes = list(shown.lanes.values())
        self.slots = {lane.name: slots(lane, shown.operators) for lane in self.lanes}
        self.marks = [m for m in shown.marks if m.at_us <= self.end_us]
        self.rows = rows([self.x(m.at_us) for m in self.marks], MARK_H + 2)
        self.first: float = TOP + MARK_H * (max(self.rows, default=-1) + 1) + 22
        self.tops: dict[str, float] = {}
        y: float = self.first
        for lane in self.lanes:
            self.tops[lane.name] = y
            y += self.height(lane) + LANE_GAP
        self.panel = y
        self.links_top = y + (WAITING_H + LANE_GAP if shown.waiting else 0)
        self.bottom = self.links_top + (LINK_H + LINK_GAP) * len(shown.links)
        kinds = dict.fromkeys(link.kind for link in shown.links.values())
        self.kinds = {kind: LINK_COLOURS[k % len(LINK_COLOURS)] for k, kind in enumerate(kinds)}

    def svg(self) -> str:
        out = [DEFINITIONS, text(LEFT, 24, self.title, "start", 15)]
        out += self.axis()
        for lane in self.lanes:
            out += self.ground(lane)
        out += self.waiting()
        out += self.links()
        out += self.switches()
        for lane in self.lanes:
            out += self.bars(lane)
        for move in self.shown.moves:
            out += self.arrow(move)
        out += self.faults()
        legend, y = self.legend(self.bottom + 44)
        notes, y = self.notes(y + 12)
        return sheet(WIDTH, y + 14, [*out, *legend, *notes]) + "\n"

    # ---- time

    def shown_us(self) -> int:
        """Until shortly after the last thing that happened, and no longer."""
        found = [self.shown.calm_us]
        found += [w.at_us for w in self.shown.waiting[-1:]]
        found += [m.at_us for m in self.shown.moves] + [at for at, _ in self.shown.switches]
        for lane in self.shown.lanes.values():
            for spans in (lane.states, *lane.operators.values()):
                found += [s.start_us for s in spans]
        return max(SECOND, min(self.shown.end_us, max(found) + AFTER_US))

    def x(self, us: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(us, self.end_us) / self.end_us

    def axis(self) -> list[str]:
        step = next(
            s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300) if self.end_us <= 16 * s * SECOND or s == 300
        )
        out = []
        for s in range(0, self.end_us // SECOND + 1, step):
            x = self.x(s * SECOND)
            out.append(stroke(x, self.first - 4, x, self.bottom, "#dddddd"))
            out.append(text(x, self.bottom + 14, "%d" % s, "middle", 11))
        out.append(text(WIDTH - RIGHT, self.bottom + 27, "seconds", "end", 11))
        if self.shown.calm_us and self.shown.calm_us < self.end_us:
            out += self.line(self.shown.calm_us, "faults stop", "#888888")
        return out

    def line(self, at_us: int, words: str, colour: str) -> list[str]:
        x = self.x(at_us)
        return [
            stroke(x, self.first - 8, x, self.bottom, colour, "1.4", ' stroke-dasharray="2 3"'),
            text(x + 3, self.first - 6, words, "start", 10, ' fill="%s"' % colour),
        ]

    def switches(self) -> list[str]:
        return [part for at, words in self.shown.switches for part in self.line(at, words, "#6b3fa0")]

    # ---- lanes

    def height(self, lane: Lane) -> float:
        many = max(self.slots[lane.name].values(), default=-1) + 1
        return 2 * PAD + (BATTERY_H if lane.battery else 0) + max(1, many) * SLOT_H

    def ground(self, lane: Lane) -> list[str]:
        top, height = self.tops[lane.name], self.height(lane)
        out = [text(LEFT - 10, top + 15, lane.name, "end", 13)]
        for span in lane.states:
            if span.start_us < self.end_us:
                x, end = self.x(span.start_us), self.x(self.until(lane.states, span))
                told = "%s: %s, %.1f to %.1f s" % (
                    lane.name,
                    span.what,
                    span.start_us / SECOND,
                    span.end_us / SECOND,
                )
                out.append(box(x, top, end - x, height, 'fill="%s"' % GROUND[span.what], told))
                if span.what == DEAD:
                    out.append(text(x + 6, top + height / 2 + 4, "dead", "start", 11, ' fill="white"'))
        return out + self.battery(lane)

    def until(self, spans: list[Span], span: Span) -> int:
        """The last one goes on to the end if it was so at the last look."""
        last = span is spans[-1] and span.end_us >= self.shown.end_us - SECOND
        return self.end_us if last else span.end_us

    def battery(self, lane: Lane) -> list[str]:
        points = [(at, p) for at, p in lane.battery if at <= self.end_us]
        if not points:
            return []
        base = self.tops[lane.name] + PAD + BATTERY_H - 4
        end_us = next((s.start_us for s in lane.states if s.what == DEAD), self.end_us)
        steps: list[tuple[float, float]] = []
        for at, percent in points:
            y = base - (BATTERY_H - 6) * percent / 100
            if steps:
                steps.append((self.x(at), steps[-1][1]))
            steps.append((self.x(at), y))
        steps.append((self.x(end_us), steps[-1][1]))
        line = " ".join("%.1f,%.1f" % p for p in steps)
        area = "%.1f,%.1f %s %.1f,%.1f" % (steps[0][0], base, line, steps[-1][0], base)
        last = points[-1][1]
        colour = ' fill="%s"' % (LOW_LINE if last < LOW else BATTERY_LINE)
        return [
            '<polygon points="%s" fill="%s" fill-opacity="0.55"/>' % (area, BATTERY),
            '<polyline points="%s" fill="none" stroke="%s" stroke-width="1.2"/>' % (line, BATTERY_LINE),
            text(
                LEFT - 10,
                self.tops[lane.name] + 30,
                "%d \u2192 %d %%" % (points[0][1], last),
                "end",
                10,
                colour,
            ),
        ]

    # ---- samples that wait

    def waiting(self) -> list[str]:
        seen = [w for w in self.shown.waiting if w.at_us <= self.end_us]
        if not seen:
            return []
        most = max(1, *(w.everywhere for w in seen))
        base = self.panel + WAITING_H - 4
        out = [
            text(LEFT - 10, self.panel + 14, "waiting", "end", 13),
            text(LEFT - 10, self.panel + 29, "most: %s" % f"{most:,}", "end", 10, ' fill="#555"'),
            stroke(LEFT, base, self.x(self.end_us), base, "#bbbbbb"),
        ]
        for colour, counts in (
            (EVERYWHERE, [w.everywhere for w in seen]),
            (ON_BOARDS, [w.on_boards for w in seen]),
        ):
            points: list[tuple[float, float]] = [(LEFT, base)]
            for w, n in zip(seen, counts, strict=True):
                points.append((self.x(w.at_us), points[-1][1]))
                points.append((self.x(w.at_us), base - (WAITING_H - 14) * n / most))
            points.append((points[-1][0], base))
            line = " ".join("%.1f,%.1f" % p for p in points)
            out.append('<polygon points="%s" fill="%s"/>' % (line, colour))
        return out

    # ---- links

    def links(self) -> list[str]:
        """What each carried between two looks; the height is a logarithm, so that little is seen too."""
        shown = self.shown.links.values()
        most = max((n for link in shown for _, n in link.carried), default=0) or 1
        unit = (LINK_H - 4) / math.log1p(most / LITTLE)
        out = []
        for k, link in enumerate(shown):
            top = self.links_top + k * (LINK_H + LINK_GAP)
            base = top + LINK_H - 2
            for span in link.states:
                x, end = self.x(span.start_us), self.x(self.until(link.states, span))
                told = "%s: %s" % (link.name, span.what)
                out.append(box(x, top, end - x, LINK_H, 'fill="%s"' % GROUND[span.what], told))
            path = ""
            before = LEFT + 0.0
            for at, n in link.carried:
                x = self.x(at)
                if n:
                    high = base - max(1.0, unit * math.log1p(n / LITTLE))
                    path += "M%.1f %.1fV%.1fH%.1fV%.1fz" % (before, base, high, x, base)
                before = x
            colour = self.kinds[link.kind]
            total = sum(n for _, n in link.carried)
            out += [
                '<path d="%s" fill="%s"/>' % (path, colour),
                text(LEFT - 10, top + 11, link.name, "end", 11, ' fill="%s"' % colour),
                text(LEFT - 10, top + 22, amount(total), "end", 9, ' fill="#555"'),
            ]
        return out

    def slot_y(self, host: str, operator: str) -> float:
        lane = self.shown.lanes[host]
        below = BATTERY_H if lane.battery else 0
        return self.tops[host] + PAD + below + SLOT_H * self.slots[host].get(operator, 0) + 1

    def bars(self, lane: Lane) -> list[str]:
        out = []
        for operator, spans in lane.operators.items():
            y = self.slot_y(lane.name, operator)
            free = -math.inf  # where a name may stand again
            for span in spans:
                if span.start_us >= self.end_us:
                    continue
                x, end = self.x(span.start_us), self.x(self.until(spans, span))
                told = "%s at %s: %s, %.1f to %.1f s" % (
                    operator, lane.name, span.what, span.start_us / SECOND, span.end_us / SECOND,
                )  # fmt: skip
                out.append(self.bar(x, y, end - x, operator, span.what, told))
                if end - x > LETTER_W * len(operator) + 8 and x > free:
                    colour = self.colours[operator] if span.what in (ALONE, BEGINS) else "white"
                    out.append(text(x + 4, y + BAR_H - 3, operator, "start", 10, ' fill="%s"' % colour))
                    free = x + 240
        return out

    def bar(self, x: float, y: float, width: float, operator: str, what: str, told: str) -> str:
        colour = self.colours[operator]
        look = 'fill="%s" stroke="%s" rx="2"' % (colour, colour)
        if what == ALONE:
            look = 'fill="white" stroke="%s" stroke-width="1.4" rx="2"' % colour
        elif what == BEGINS:
            look = 'fill="white" stroke="%s" stroke-dasharray="2 2" rx="2"' % colour
        return box(x, y, max(1.5, width), BAR_H, look, told)

    # ---- moves

    def arrow(self, move: Move) -> list[str]:
        if move.at_us > self.end_us or move.giver == move.taker:
            return []
        x = self.x(move.at_us)
        y1 = self.slot_y(move.giver, move.operator) + BAR_H / 2
        y2 = self.slot_y(move.taker, move.operator) + BAR_H / 2
        name, colour = ("planned", PLANNED) if move.planned else ("unplanned", UNPLANNED)
        bend = 10 + min(24.0, abs(y2 - y1) / 12)
        dashes = "" if move.planned else ' stroke-dasharray="4 2"'
        told = "%s: %s to %s, %s, %.1f s" % (
            move.operator, move.giver, move.taker, move.why, move.at_us / SECOND,
        )  # fmt: skip
        path = "M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f" % (
            x - 5,
            y1,
            x - bend,
            y1,
            x - bend,
            y2,
            x - 1,
            y2,
        )
        return [
            '<path d="%s" fill="none" stroke="white" stroke-width="4"/>' % path,
            '<path d="%s" fill="none" stroke="%s" stroke-width="1.6"%s marker-end="url(#%s)">'
            "<title>%s</title></path>" % (path, colour, dashes, name, told),
        ]

    # ---- faults

    def faults(self) -> list[str]:
        out = []
        for number, (mark, row) in enumerate(zip(self.marks, self.rows), 1):
            x, y = self.x(mark.at_us), TOP + MARK_H * row
            out.append(stroke(x, y + 12, x, self.first - 4, "#c9a0a0", "0.8"))
            out.append(box(x - 7, y, 14, 12, 'fill="#fff" stroke="#b3261e" rx="4"', words(mark)))
            out.append(text(x, y + 9.5, str(number), "middle", 9, ' fill="#b3261e"'))
        if self.marks:
            out.append(text(LEFT - 10, TOP + 10, "faults", "end", 11))
        return out

    def notes(self, y: float) -> tuple[list[str], float]:
        """What the numbers mean, in columns."""
        told = [
            "%d\u2002%.1f s\u2002%s" % (k, m.at_us / SECOND, words(m)) for k, m in enumerate(self.marks, 1)
        ]
        more = len(told) - NOTES_MAX
        if more > 0:
            told = [*told[:NOTES_MAX], "and %d more" % more]
        width = (WIDTH - 30 - RIGHT) / COLUMNS
        letters = int(width / 5.9)
        deep = -(-len(told) // COLUMNS)
        out = []
        for k, line in enumerate(told):
            short = line if len(line) <= letters else line[: letters - 1] + "\u2026"
            out.append(
                text(30 + width * (k // deep), y + 14 * (k % deep), short, "start", 10, ' fill="#444"')
            )
        return out, y + 14 * deep

    # ---- legend

    def legend(self, y: float) -> tuple[list[str], float]:
        grey = "#555555"
        look = {
            "in touch": 'fill="%s" rx="2"' % grey,
            "not in touch": 'fill="white" stroke="%s" stroke-width="1.4" rx="2"' % grey,
            "begins": 'fill="white" stroke="%s" stroke-dasharray="2 2" rx="2"' % grey,
        }
        items = [(name, [box(0, 0, 26, BAR_H, how)]) for name, how in look.items()]
        for what in (UP, DOWN, ASLEEP, CUT, DEAD):
            items.append(
                (what, [box(0, 0, 26, BAR_H, 'fill="%s" stroke="#999" stroke-width="0.5"' % GROUND[what])])
            )
        if any(lane.battery for lane in self.lanes):
            area = box(0, 4, 26, 8, 'fill="%s" fill-opacity="0.55"' % BATTERY)
            items.append(("battery", [area, stroke(0, 4, 26, 4, BATTERY_LINE, "1.2")]))
        if self.shown.waiting:
            for name, colour in (("samples only on boards", ON_BOARDS), ("not in the lake yet", EVERYWHERE)):
                items.append((name, [box(0, 2, 26, BAR_H - 4, 'fill="%s"' % colour)]))
        for kind, colour in self.kinds.items():
            items.append(("carried over " + kind, [box(0, 2, 26, BAR_H - 4, 'fill="%s"' % colour)]))
        for name, dashes, colour, is_planned in (
            ("planned move", "", PLANNED, True),
            ("unplanned", ' stroke-dasharray="4 2"', UNPLANNED, False),
        ):
            if any(move.planned is is_planned for move in self.shown.moves):
                end = ' marker-end="url(#%s)"' % ("planned" if is_planned else "unplanned")
                items.append((name, [stroke(0, 6, 25, 6, colour, "1.6", dashes + end)]))
        return place(items, y)


def slots(lane: Lane, order: list[str]) -> dict[str, int]:
    """The row of each operator in a lane: operators that were never there together may share one."""
    found: dict[str, int] = {}
    taken: list[list[Span]] = []
    for operator in sorted(
        lane.operators, key=lambda name: (lane.operators[name][0].start_us, order.index(name))
    ):
        spans = lane.operators[operator]
        row = next((k for k, known in enumerate(taken) if not overlap(known, spans)), len(taken))
        if row == len(taken):
            taken.append([])
        taken[row] += spans
        found[operator] = row
    return found


def overlap(some: Iterable[Span], others: list[Span]) -> bool:
    apart = 4 * SECOND
    return any(a.start_us < b.end_us + apart and b.start_us < a.end_us + apart for a in some for b in others)


def rows(xs: list[float], width: float) -> list[int]:
    """Rows for marks from left to right, so that none hides another; at most six rows."""
    ends: list[float] = []
    found = []
    for x in xs:
        row = next((k for k, end in enumerate(ends) if end <= x), len(ends))
        if row == 6:
            row = ends.index(min(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = x + width
        found.append(row)
    return found


def amount(count: int) -> str:
    """Bytes, for people."""
    return "%.1f kB" % (count / 1000) if count < 100_000 else "%d kB" % (count // 1000)


def words(mark: Mark) -> str:
    return mark.text if mark.times == 1 else "%s, %d times" % (mark.kind, mark.times)


def place(items: list[tuple[str, list[str]]], y: float) -> tuple[list[str], float]:
    """Legend items beside each other, in as many lines as it takes."""
    out = []
    x = 30.0
    for name, parts in items:
        width = 26 + 8 + LETTER_W * len(name) + 22
        if x + width > WIDTH - RIGHT:
            x, y = 30.0, y + 20
        out.append('<g transform="translate(%.1f %.1f)">%s</g>' % (x, y, "".join(parts)))
        out.append(text(x + 33, y + 10, name, "start", 11))
        x += width
    return out, y + 26


__all__ = ["draw"]
