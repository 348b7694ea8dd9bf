"""The filter of an erasure: which elements of a stream it selects.

    ts >= '2026-11-01' and ts < '2026-11-02' and (mV > 900 or lead = 2)

Names are ts, arrived, xi, incarnation, unsync and the declared fields of the stream, as its typed view has
them. Comparisons, `between`, `in`, `and`, `or`, `not`, parentheses. A field that a row's alphabet lacks is
unknown, as NULL is in SQL, and a row is selected only if the filter is true.

One tree is used in three ways: as SQL for Spark, made of this module's own words and of numbers, so that no
text of a user ever becomes SQL; row by row (`judge` of a row); and over ranges (`judge` of a box), which
shows that no row of a segment can be selected without reading it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import alphabet as alphabets
from . import views
from .errors import LakeError
from .moments import micros
from .segment import TIME_MAX, TIME_MIN, XI_MAX, signed

Box = Mapping[str, tuple[Any, Any]]  # name -> least and greatest value; a name that is not there is unknown

# Names that every stream has, and the types of their values.
COMMON = {"ts": "time", "arrived": "time", "xi": "i64", "incarnation": "incarnation", "unsync": "bool"}
TEXT_MAX = 4000
DEPTH_MAX = 50
DIGITS_MAX = 30
_NEW = 1 << 70  # stands for an incarnation that begins later: no literal can name it

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|`(?P<quoted>[A-Za-z_][A-Za-z0-9_]*)`|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|<>|!=|==|[<>=(),]))",
    re.ASCII,
)
_SIGNS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "=", "==": "=", "!=": "!=", "<>": "!="}
_WORDS = ("and", "or", "not", "between", "in", "true", "false")


class WhereError(LakeError):
    """A filter that cannot be evaluated, with the reason in a sentence."""


@dataclass(frozen=True)
class Test:
    name: str
    sign: str
    literal: str  # a number as it was written, a text in quotes, true or false


@dataclass(frozen=True)
class Both:
    """`and` or `or` of several."""

    word: str
    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Not:
    part: Tree


Tree = Test | Both | Not


class Where:
    """A filter whose text is valid; `check` tells whether it fits a stream."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split()) if "'" not in text else text.strip()
        self.tree = _Parser(self.text).whole()
        self.names = {test.name for test in _tests(self.tree)}

    def check(self, known: Iterable[str]) -> None:
        """WhereError if the filter does not fit rows of these alphabets."""
        texts = list(known)
        shown = {name for text in texts for name in fields(text)}
        for test in _tests(self.tree):
            if test.name not in COMMON and test.name not in shown:
                raise WhereError(
                    "the filter asks for '%s': the stream has %s"
                    % (test.name, ", ".join([*COMMON, *sorted(shown)]))
                )
            for text in texts or [""]:
                kind = _kind(test.name, text)
                if kind is not None:
                    _value(test, kind)

    def judge(self, box: Box, alphabet: str = "") -> bool | None:
        """Whether all rows within these limits are selected, or none (False); None if neither is certain. One
        row is selected if this is True."""
        return _judge(self.tree, box, alphabet)

    def sql(self, known: Iterable[str]) -> str:
        """The filter over the columns of a segment, for rows of these alphabets."""
        if self.names <= COMMON.keys():
            return _sql(self.tree, "")
        asked: dict[str, list[str]] = {}
        for text in sorted(set(known)):
            asked.setdefault(_sql(self.tree, text), []).append(text)
        parts = [
            "(alphabet IN (%s) AND %s)" % (", ".join(map(views.quoted, texts)), sql)
            for sql, texts in asked.items()
        ]
        return "(%s)" % " OR ".join(parts) if parts else "FALSE"

    def means_later(self, now_us: int, last: Mapping[int, int]) -> bool:
        """Whether it can select elements that are measured from now on; `last`: the last ξ by incarnation."""
        after = {"ts": (now_us, TIME_MAX), "arrived": (now_us, TIME_MAX)}
        boxes = [{**after, "incarnation": (_NEW, _NEW), "xi": (1, XI_MAX)}]
        boxes += [{**after, "incarnation": (i, i), "xi": (n + 1, XI_MAX)} for i, n in last.items()]
        return any(self.judge(box) is not False for box in boxes)


def fields(alphabet: str) -> dict[str, str]:
    """Field by its name in the typed view, where the columns that all streams have take precedence."""
    names = views.columns(views.Version(1, (alphabet,)))[len(views.COMMON) :]
    return dict(zip((name for name, _ in names), alphabets.fields(alphabet)))


def row_box(row: Mapping[str, Any]) -> Box:
    """A row of `elements` (times in µs) as limits that leave nothing open."""
    box = {name: row[name] for name in COMMON}
    places = alphabets.places(row["alphabet"])
    for name, field in fields(row["alphabet"]).items():
        column, at = places[field]
        if at < len(row[column]) and row[column][at] is not None:
            value = row[column][at]
            if alphabets.fields(row["alphabet"])[field] == "u64":
                value %= 1 << 64
            # As Spark orders them: a NaN is above every number.
            box[name] = math.inf if value != value else value
    return {name: (value, value) for name, value in box.items()}


# Text to tree


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text.encode()) > TEXT_MAX:
            raise WhereError("the filter has more than %d bytes" % TEXT_MAX)
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    def whole(self) -> Tree:
        if not self.tokens:
            raise WhereError("the filter is empty: write a condition, like ts < '2026-11-02'")
        tree = self.either()
        if self.at < len(self.tokens):
            raise WhereError("the filter cannot be read from '%s' on" % self.tokens[self.at][1])
        return tree

    def either(self) -> Tree:
        return self.chain("or", lambda: self.chain("and", self.one))

    def chain(self, word: str, part: Any) -> Tree:
        parts = [part()]
        while self.take("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Both(word, tuple(parts))

    def one(self) -> Tree:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise WhereError("the filter is nested more than %d deep" % DEPTH_MAX)
        try:
            if self.take("word", "not"):
                return Not(self.one())
            if self.take("sign", "("):
                tree = self.either()
                self.must("sign", ")")
                return tree
            return self.test()
        finally:
            self.depth -= 1

    def test(self) -> Tree:
        kind, name = self.next("a name")
        if kind not in ("word", "quoted") or (kind == "word" and name.lower() in _WORDS):
            raise WhereError("the filter has '%s' where the name of a column is expected" % name)
        negated = self.take("word", "not")
        if self.take("word", "between"):
            low = Test(name, ">=", self.literal())
            self.must("word", "and")
            tree: Tree = Both("and", (low, Test(name, "<=", self.literal())))
        elif self.take("word", "in"):
            self.must("sign", "(")
            tests = [Test(name, "=", self.literal())]
            while self.take("sign", ","):
                tests.append(Test(name, "=", self.literal()))
            self.must("sign", ")")
            tree = Both("or", tuple(tests))
        else:
            kind, sign = self.next("a comparison")
            if negated or kind != "sign" or sign not in _SIGNS:
                raise WhereError("the filter has '%s' after %s where a comparison is expected" % (sign, name))
            return Test(name, _SIGNS[sign], self.literal())
        return Not(tree) if negated else tree

    def literal(self) -> str:
        kind, text = self.next("a value")
        if kind in ("number", "text"):
            return text
        if kind == "word" and text.lower() in ("true", "false"):
            return text.lower()
        raise WhereError("the filter has '%s' where a number or a text in quotes is expected" % text)

    def next(self, wanted: str) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise WhereError("the filter ends where %s is expected" % wanted)
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, kind: str, text: str) -> bool:
        if self.at < len(self.tokens):
            have, said = self.tokens[self.at]
            if have == kind and said.lower() == text:
                self.at += 1
                return True
        return False

    def must(self, kind: str, text: str) -> None:
        if not self.take(kind, text):
            raise WhereError("the filter lacks a '%s'" % text)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise WhereError("the filter cannot be read from '%s' on" % text[at:].strip()[:40])
        assert match.lastgroup is not None
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _tests(tree: Tree) -> Iterator[Test]:
    if isinstance(tree, Test):
        yield tree
    elif isinstance(tree, Not):
        yield from _tests(tree.part)
    else:
        for part in tree.parts:
            yield from _tests(part)


# Names and values


def _kind(name: str, alphabet: str) -> str | None:
    """The type of a name's values in rows of an alphabet; None if they have none."""
    if name in COMMON:
        return COMMON[name]
    field = fields(alphabet).get(name) if alphabet else None
    return alphabets.fields(alphabet)[field] if field is not None else None


def _value(test: Test, kind: str) -> Any:
    """The literal of a test as a value of this kind."""
    text = test.literal
    try:
        if kind == "bool":
            if text in ("true", "false") and test.sign in ("=", "!="):
                return text == "true"
            raise WhereError("%s is true or false: compare it by = or !=" % test.name)
        if kind == "time":
            us = micros(text[1:-1]) if text[0] == "'" else None
            if us is None or not TIME_MIN <= us <= TIME_MAX:
                raise WhereError("%s is a time: write it like '2026-11-18 15:30:00', in UTC" % test.name)
            return us
        if kind == "incarnation":
            if re.fullmatch("'[0-9a-f]{16}'", text) and test.sign in ("=", "!="):
                return signed(int(text[1:-1], 16))
            raise WhereError(
                "an incarnation is compared by = or != with 16 hex digits in quotes, as `hw audit` shows"
            )
        if text[0] == "'" or text in ("true", "false"):
            raise WhereError("%s is a number, not %s" % (test.name, text))
        if kind in alphabets.INTEGERS:
            if not re.fullmatch("-?[0-9]{1,%d}" % DIGITS_MAX, text):
                raise WhereError("%s has whole numbers, not %s" % (test.name, text))
            return int(text)
        value = float(text)
        if kind == "f32":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        if not math.isfinite(value):
            raise OverflowError
        return value
    except OverflowError:
        raise WhereError("%s cannot be compared with %s: it is too large" % (test.name, text))
    except WhereError:
        raise
    except LakeError as error:
        raise WhereError(str(error))


# Tree to answers


def _judge(tree: Tree, box: Box, alphabet: str) -> bool | None:
    if isinstance(tree, Not):
        inner = _judge(tree.part, box, alphabet)
        return None if inner is None else not inner
    if isinstance(tree, Both):
        parts = [_judge(part, box, alphabet) for part in tree.parts]
        decided = tree.word == "or"
        return decided if decided in parts else None if None in parts else not decided
    kind = _kind(tree.name, alphabet)
    if kind is None or tree.name not in box:
        return None
    least, most = box[tree.name]
    value = _value(tree, kind)
    if tree.sign in ("=", "!="):
        same = True if least == most == value else None if least <= value <= most else False
        return same if same is None or tree.sign == "=" else not same
    if tree.sign in ("<", ">="):
        below = True if most < value else False if least >= value else None
        return below if below is None or tree.sign == "<" else not below
    above = True if least > value else False if most <= value else None
    return above if above is None or tree.sign == ">" else not above


def _sql(tree: Tree, alphabet: str) -> str:
    if isinstance(tree, Not):
        return "(NOT %s)" % _sql(tree.part, alphabet)
    if isinstance(tree, Both):
        return "(%s)" % (" %s " % tree.word.upper()).join(_sql(part, alphabet) for part in tree.parts)
    kind = _kind(tree.name, alphabet)
    if kind is None:
        return "CAST(NULL AS BOOLEAN)"
    value = _value(tree, kind)
    if kind == "time":
        literal = "timestamp_micros(%s)" % _long(value)
    elif kind == "bool":
        literal = str(value).upper()
    elif kind in alphabets.FLOATS:
        literal = "CAST('%r' AS DOUBLE)" % value
    else:
        literal = _long(value)
    return "(%s %s %s)" % (_column(tree.name, kind, alphabet), tree.sign, literal)


def _column(name: str, kind: str, alphabet: str) -> str:
    if name in COMMON:
        return name
    # `get` gives NULL if a list is too short; an index would end the whole query.
    raw = "get(%s, %d)" % alphabets.places(alphabet)[fields(alphabet)[name]]
    if kind != "u64":
        return raw
    wide = "CAST(%s AS DECIMAL(38,0))" % raw
    return "IF(%s < 0, %s + 18446744073709551616, %s)" % (raw, wide, wide)


def _long(value: int) -> str:
    """A whole number in Spark's SQL."""
    return "%dL" % value if abs(value) < 1 << 63 else "CAST('%d' AS DECIMAL(38,0))" % value
