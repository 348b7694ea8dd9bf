"""Pieces of SVG drawings: sheets, texts and lines, readable on white."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"


def sheet(width: float, height: float, parts: Iterable[str]) -> str:
    """A whole drawing on white."""
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        'font-family="%s" font-size="12" fill="#222">' % (width, height, width, height, FONT)
    )
    paper = '<rect width="%d" height="%d" fill="white"/>' % (width, height)
    return "\n".join([head, paper, *parts, "</svg>"])


def stroke(x1: float, y1: float, x2: float, y2: float, colour: str, width: str = "1", more: str = "") -> str:
    form = '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%s"%s/>'
    return form % (x1, y1, x2, y2, colour, width, more)


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, more: str = "") -> str:
    form = '<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d"%s>%s</text>'
    return form % (x, y, anchor, size, more, escape(words))


def box(x: float, y: float, width: float, height: float, look: str, title: str = "") -> str:
    """A rectangle; `title` appears where a pointer rests on it."""
    inside = ">%s</rect>" % ("<title>%s</title>" % escape(title)) if title else "/>"
    form = '<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s'
    return form % (x, y, max(0.0, width), height, look) + inside
