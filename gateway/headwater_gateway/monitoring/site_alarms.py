"""Alarms of a site for people at a terminal: `hw gateway alarms`, and the end of `hw gateway state`."""

from __future__ import annotations

import argparse
import re
import time
from typing import Any

from .. import UserError

UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
EVENTS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ack", action="append", default=[], metavar="ID", help="alarms: mark it as seen")
    parser.add_argument(
        "--mute",
        action="append",
        default=[],
        metavar="ID",
        help="alarms: ignore it for the time --for",
    )
    parser.add_argument(
        "--for", dest="mute_for", metavar="TIME",
        help="alarms: like 30m, 2h or 7d; at most 30d. watch: end after this time, if the gateway lives",
    )  # fmt: skip
    parser.add_argument(
        "--unmute", action="append", default=[], metavar="ID", help="alarms: stop ignoring it"
    )
    parser.add_argument(
        "--retry", action="append", default=[], metavar="RECEIVER",
        help="alarms: send again what this receiver has refused",
    )  # fmt: skip
    parser.add_argument("--events", action="store_true", help="alarms: print the latest events too")


def check(args: argparse.Namespace) -> None:
    """UserError if an option of `alarms` was given to another command."""
    given = [name for name in ("ack", "mute", "unmute", "retry", "events") if getattr(args, name)]
    if args.do == "watch" and not given:
        return
    if args.mute_for is not None:
        given.append("for")
    if given and args.do != "alarms":
        raise UserError("--%s belongs to `hw gateway alarms %s`" % (given[0], args.folder))
    if bool(args.mute) != (args.mute_for is not None):
        raise UserError("--mute ID and --for TIME belong together, like --mute broker --for 2h")


def request(args: argparse.Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {"ack": args.ack, "mute": args.mute, "unmute": args.unmute, "retry": args.retry}
    if args.mute_for is not None:
        body["seconds"] = seconds(args.mute_for)
    return body


def seconds(text: str) -> float:
    """30m, 2h, 7d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", text.strip())
    if found is None:
        raise UserError("--for %s: write a number and s, m, h or d, like 30m or 2h" % text)
    return float(found[1]) * UNITS_S[found[2]]


def exit_code(state: dict[str, Any]) -> int:
    """1 while an alarm is on that is not muted."""
    return int(any(alarm["muted_until_us"] is None for alarm in state["alarms"]))


def date(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(us / 1e6))


def lines(state: dict[str, Any]) -> list[str]:
    """A line for each alarm."""
    found = []
    for alarm in state["alarms"]:
        marks = "".join(
            mark
            for mark, on in (
                (", acknowledged", alarm["acked_us"]),
                (", muted until " + date(alarm["muted_until_us"] or 0), alarm["muted_until_us"]),
                (", as it was when last known", not alarm["sure"]),
            )
            if on
        )
        values = (alarm["severity"], date(alarm["since_us"]), marks, alarm["text"])
        found.append("%s alarm since %s%s: %s" % values)
    return found


def lines_with_cures(state: dict[str, Any]) -> list[str]:
    """A line for each alarm, with what to do."""
    return ["%s %s" % (line, alarm["do"]) for alarm, line in zip(state["alarms"], lines(state), strict=True)]


def page(answer: dict[str, Any], events: bool = False) -> list[str]:
    """Alarms with ids and what to do; mutes of alarms that are not on; the latest events."""
    found = [answer["headline"]["text"]]
    for alarm, line in zip(answer["alarms"], lines(answer), strict=True):
        found += [line, "  to do: " + alarm["do"], "  id: " + alarm["id"]]
    on = {alarm["id"] for alarm in answer["alarms"]}
    for ident, until in answer["mutes"].items():
        if ident not in on:
            found.append("%s is not on, and muted until %s" % (ident, date(until)))
    found += [_receiver(receiver) for receiver in answer["receivers"]]
    if events:
        found += ["%s %s" % (date(event["at_us"]), event["text"]) for event in answer["events"][-EVENTS:]]
    return found


def _receiver(receiver: dict[str, Any]) -> str:
    """What waits for a receiver of notices, since when, and why."""
    words = "receiver %s: " % receiver["name"]
    if receiver["waiting"]:
        words += "%s, the oldest of %s" % (_notices(receiver["waiting"], "waits"), date(receiver["since_us"]))
    else:
        words += "nothing waits"
    if receiver["failing_since_us"] is not None:
        since = date(receiver["failing_since_us"])
        words += "; no answer since %s: %s; next attempt in %d s" % (
            since,
            receiver["why"],
            receiver["next_s"],
        )
    if receiver["refused"]:
        words += "; %s refused: %s" % (_notices(receiver["refused"], "was"), receiver["refused_why"])
    if receiver["merged"]:
        words += "; %s merged since the start" % _notices(receiver["merged"], "was")
    return words


def _notices(n: int, verb: str) -> str:
    several = {"waits": "wait", "was": "were"}[verb]
    return "%d notice %s" % (n, verb) if n == 1 else "%d notices %s" % (n, several)


def lag(stream: dict[str, Any]) -> str:
    """How far behind the lake is, and what the board still holds."""
    parts = ["nothing waits" if stream["lag_s"] is None else "the oldest waits %.0f s" % stream["lag_s"]]
    if stream["on_board"] is None:
        parts.append("what the board holds is unknown")
    elif stream["on_board"]:
        age = stream["on_board_s"]
        more = "" if age is None else ", the oldest for at least %.0f s" % age
        parts.append("%d on the board%s" % (stream["on_board"], more))
    return "; ".join(parts)
