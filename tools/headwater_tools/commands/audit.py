"""`hw audit LAKE`: what a lake holds, stream by stream, and which promises it keeps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .. import environment
from ..errors import UserError

if TYPE_CHECKING:
    from headwater_cloud.audit import Missing, Report, Stream
    from headwater_cloud.scan import Delay

SUMMARY = "reliability report of a lake: what is there, what is missing and why, how late, in which order"

SHOWN_MAX = 12  # missing ranges, and moves, of a stream on the page; --json has more
# Why operators move, by the names in the table `moves`.
REASONS = {
    "takeover": "taken over: %s was silent",
    "flee": "the battery of %s ran low",
    "balance": "the batteries last longer so",
    "command": "a person asked for it",
    "apart": "%s had lost touch with a producer",
    "given_up": "it gave up what only lost hosts had, and its streams begin at ξ 1, as another incarnation",
    "unknown": "why is not known",
}


# What a declared gap means.
GAPS = {
    "full": "a log was full, and the process file lets the oldest go then",
    "given up": "they lay only in the flash of a board where their operator does not run any more",
    "gateway lost": "only the database had them that the gateway has lost",
    "earlier version": "an earlier version of the process did not send them to the lake",
    "unreadable block": "their board sealed a block that no host can read",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import store

    parser.add_argument("lake", metavar="LAKE", help="folder of the lake, or its place on an object store")
    parser.add_argument("--stream", metavar="S", help="only this stream, like cardio/ecg")
    parser.add_argument(
        "--landing",
        metavar="LANDING",
        help="folder or URL of the landing zone: what waits there is on its way, however old it is",
    )
    parser.add_argument(
        "--overdue",
        type=float,
        default=900.0,
        metavar="S",
        help="seconds after which an element that is missing below newer ones counts as lost (900)",
    )
    store(parser)


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if not 0 <= args.overdue <= 10**9:
        raise UserError("--overdue %g: give 0 to 1000000000 seconds" % args.overdue)
    environment.ensure("lake")
    from headwater_cloud import access, audit, cli
    from headwater_cloud.errors import LakeError

    try:
        storage = access.for_delta_rs(*cli.store(args))
        report = audit.audit(args.lake, args.stream, args.landing, args.overdue, storage)
    except LakeError as error:
        raise UserError(str(error))
    for line in page(report):
        print(line)
    return (0 if report.ok else 1), audit.as_json(report)


def page(report: Report) -> Iterator[str]:
    """The report for people."""
    from headwater_cloud.audit import ENGINE, UNKNOWN

    rows = sum(stream.rows for stream in report.streams)
    yield "%s: %s rows read in %.1f s by %s" % (report.lake, number(rows), report.took_s, ENGINE)
    if not report.streams:
        yield "nothing has landed yet"
    for stream in report.streams:
        yield ""
        yield from _stream(stream)
    yield ""
    for process, holds in report.ieso.items():
        yield "process %s: IESO %s" % (
            process,
            "holds: across its streams, nothing could be read before something earlier"
            if holds
            else "does not hold: some rows could be read before earlier ones of another stream",
        )
    if report.files_refused:
        reasons = ", ".join("%d %s" % (n, reason) for reason, n in sorted(report.files_refused.items()))
        missing = report.files_awaited
        yield "files refused: %s; %s" % (
            reasons,
            "what %d of them held has not come since" % missing
            if missing
            else "what they held has come since",
        )
    yield from _verdict(report)
    yield "what no table can tell:"
    for what in UNKNOWN:
        yield "  - " + what


def _stream(s: Stream) -> Iterator[str]:
    from headwater_cloud.segment import hexadecimal

    yield "%s, incarnation %s, %s" % (
        s.stream,
        hexadecimal(s.incarnation),
        "of " + ", ".join(s.processes) if s.processes else "not in progress yet",
    )
    text = "%s of ξ 1 to %s; %s lost, %s dropped as declared, %s" % (
        number(s.delivered),
        number(s.last),
        number(s.of_kind("lost")),
        number(s.of_kind("gap")),
        counted(s.of_kind("hole"), "hole"),
    )
    if s.of_kind("in flight"):
        text += ", %s in flight" % number(s.of_kind("in flight"))
    if s.of_kind("erased"):
        text += ", %s erased" % number(s.of_kind("erased"))
    if s.of_kind("quarantined"):
        text += ", %s in quarantine only" % number(s.of_kind("quarantined"))
    yield _line("elements", text)
    yield _line(
        "rows",
        "%s twice, %s divergent (%s of them refused); ts falls %s"
        % (number(s.duplicates), number(s.divergent), number(s.refused), times(s.out_of_order)),
    )
    if s.unacknowledged:
        yield _line("", "%s not acknowledged yet" % counted(s.unacknowledged, "row"))
    yield _line("payloads", _payloads(s))
    for i, missing in enumerate(s.missing):
        if i == SHOWN_MAX:
            yield _line("", "and %d more (--json lists them)" % (len(s.missing) - i))
            break
        yield _line("missing" if i == 0 else "", _missing(missing))
    yield from _moves(s)
    for name in ("landed", "arrived"):
        delay = s.delays.get(name)
        if delay is not None and delay.rows:
            yield _line("delay" if name == "landed" else "", _delay(name, delay))
    if s.within_ms:
        late = s.delays["landed"].late if "landed" in s.delays else 0
        yield _line("", "asked for %s: %s later" % (duration(s.within_ms * 1000), counted(late, "row")))
    if s.unsync:
        text = "%s stamped before a clock was set: no delay is known of them"
        yield _line("", text % counted(s.unsync, "row"))
    yield _line("levels", ", ".join(_levels(s)))
    yield _line("sink's sum", _conservation(s))


def _moves(s: Stream) -> Iterator[str]:
    """Operators that this stream depends on and that have changed their host, the last ones."""
    shown = s.moves[-SHOWN_MAX:]
    for i, move in enumerate(shown):
        because = REASONS.get(move.reason, move.reason).replace("%s", move.from_host)
        text = "%s: %s from %s to %s, %s" % (
            moment(move.at_us), move.operator, move.from_host, move.to_host, because
        )  # fmt: skip
        yield _line("moves" if i == 0 else "", text)
    if len(s.moves) > len(shown):
        yield _line("", "and %d before them (--json lists them)" % (len(s.moves) - len(shown)))


def _payloads(s: Stream) -> str:
    """What the checksums and values of the rows show."""
    parts = []
    if s.changed:
        parts.append("CHANGED since they landed, at least one in %s" % _places(s.changed))
    if s.unfit:
        parts.append("NOT AS THEIR ALPHABET SAYS: %s" % _places(s.unfit))
    if s.strange:
        parts.append("of an alphabet that the table `streams` does not have: %s" % _places(s.strange))
    if s.unproven:
        text = "%s without a checksum: landed before there were any, or counts of rows differ"
        parts.append(text % counted(s.unproven, "row"))
    return "; ".join(parts) or "by their checksums as they landed"


def _places(ranges: list[tuple[int, int]]) -> str:
    shown = ["ξ %d" % a if a == b else "ξ %d to %d" % (a, b) for a, b in ranges[:SHOWN_MAX]]
    return ", ".join(shown) + (", and %d more" % (len(ranges) - SHOWN_MAX) if len(ranges) > SHOWN_MAX else "")


def _line(head: str, text: str) -> str:
    return "  %-11s %s" % (head, text)


def _missing(m: Missing) -> str:
    where = "ξ %d" % m.first if m.first == m.last else "ξ %d to %d" % (m.first, m.last)
    text = "%s: %s%s %s" % (where, m.kind, "" if m.kind == "erased" else ",", m.reason)
    if m.from_us is not None and m.to_us is not None:
        text += ", %s to %s (%s)" % (moment(m.from_us), moment(m.to_us), duration(m.to_us - m.from_us))
    if m.kind == "gap" and m.reason in GAPS:
        text += ": " + GAPS[m.reason]
    return text


def _delay(name: str, delay: Delay) -> str:
    parts = [
        "%s %s" % (text, duration(delay.percentile(share) or 0))
        for text, share in (("half within", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999))
    ]
    text = "until %s: %s, longest %s" % (name, ", ".join(parts), duration(delay.most))
    return text + (", some before their ts" if delay.least < 0 else "")


def _levels(s: Stream) -> Iterator[str]:
    from headwater_cloud.audit import levels

    held = levels(s)
    if held["LOLE"]:
        yield "LOLE"
    else:
        yield "LILO with LF %.6g, EF %.3g" % (held["LILO"]["LF"], held["LILO"]["EF"])
    lide = held["LIDE"]
    if lide["delta_us"] is not None:
        text = "LIDE with Δτ %s" % duration(lide["delta_us"])
        if lide["holds"] is not None:
            text += " (as asked)" if lide["holds"] else " (not as asked)"
        yield text
    yield "IASO" if held["IASO"] else "no IASO: some ξ could be read before lower ones"


def _conservation(s: Stream) -> str:
    if s.erasing:
        return "not to be told before an erasure that is under way is finished"
    if s.counts is None:
        return "unknown: progress has nothing of this stream"
    c = s.counts
    text = "landed %s = elements %s + duplicates %s + quarantined %s" % tuple(
        number(c[what]) for what in ("landed", "kept", "duplicate", "quarantined")
    )
    if s.conserved:
        return text
    return "WRONG: %s; the tables hold %s and %s" % (
        text,
        counted(s.rows - s.unacknowledged, "row"),
        counted(s.refused, "row", " in quarantine"),
    )


def _verdict(report: Report) -> Iterator[str]:
    from headwater_cloud.ranges import size

    on_the_way = sum(s.of_kind("in flight") for s in report.streams)
    if on_the_way:
        yield (
            "%s in flight: the lake has newer ones already, and the gateway keeps these until the sink has "
            "acknowledged them" % counted(on_the_way, "element")
        )
    if report.waiting:
        yield "%s in the landing zone for the sink" % counted(report.waiting, "element", " waits", " wait")
    for row in report.erasures:
        if row["status"] != "done":
            yield "erasure %s of %s is not finished: a sink that runs on the lake finishes it" % (
                row["id"],
                row["stream"],
            )
    if report.ok:
        yield "the promise holds: nothing lost, twice, divergent or changed, ts in order"
        return
    for table in report.tables_missing:
        yield (
            "THE PROMISE IS BROKEN: there are rows and no table `%s`: start `hw sink`, which makes it again; "
            "what only it held is lost" % table
        )
    if report.unaccounted:
        yield (
            "THE PROMISE IS BROKEN: %s of %s are unaccounted for: no batch of a sink brought them"
            % (
                counted(report.unaccounted, "row"),
                ", ".join(sorted({s.stream for s in report.streams if s.unacknowledged})),
            )
        )
    broken = [stream for stream in report.streams if not stream.ok]
    if not broken:
        return
    total = {
        "lost": sum(s.of_kind("lost") for s in broken),
        "twice": sum(s.duplicates for s in broken),
        "divergent": sum(s.divergent for s in broken),
        "out of order": sum(s.out_of_order for s in broken),
        "not as their alphabet says": sum(size(s.unfit) for s in broken),
        "of an unknown alphabet": sum(size(s.strange) for s in broken),
        "acknowledged beyond progress": sum(s.beyond for s in broken),
        "erased and there again": sum(size(s.returned) for s in broken),
    }
    parts = ["%s %s" % (number(n), what) for what, n in total.items() if n]
    parts += ["payloads changed"] if any(s.changed for s in broken) else []
    parts += ["the sink's counts do not add up"] if any(s.conserved is False for s in broken) else []
    yield "THE PROMISE IS BROKEN in %s: %s" % (
        ", ".join(sorted({stream.stream for stream in broken})),
        ", ".join(parts),
    )
    acknowledged = sum(s.lost_acknowledged for s in broken)
    if total["lost"]:
        yield "  of what is lost, %s acknowledged: %s" % (
            number(acknowledged),
            "these are lost permanently, and that is a defect: please report it"
            if acknowledged
            else "the gateway still has it. Look at `hw gateway state` and whether `hw sink` runs",
        )


# Numbers


def number(n: int) -> str:
    return format(n, ",")


def counted(n: int, what: str, more: str = "", more_of_several: str | None = None) -> str:
    last = more if n == 1 or more_of_several is None else more_of_several
    return "%s %s%s%s" % (number(n), what, "" if n == 1 else "s", last)


def times(n: int) -> str:
    return "nowhere" if n == 0 else "at %s" % counted(n, "place")


def moment(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(us: int) -> str:
    if us < 0:
        return "-" + duration(-us)
    if us < 1000:
        return "%d us" % us
    for limit, unit, text in (
        (1_000_000, 1000, "ms"),
        (120_000_000, 1_000_000, "s"),
        (7_200_000_000, 60_000_000, "min"),
        (172_800_000_000, 3_600_000_000, "h"),
    ):
        if us < limit:
            return "%.3g %s" % (us / unit, text)
    return "%.1f days" % (us / 86_400_000_000)
