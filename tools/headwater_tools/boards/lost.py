"""`hw board lost`: a person says that a board will not come back."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..errors import UserError
from ..site.place import Place


def declare(place: Place, name: str, sure: bool, quiet: bool) -> tuple[int, dict[str, Any]]:
    """Say what follows, ask, and declare the board lost."""
    from headwater_gateway import UserError as GatewayTrouble
    from headwater_gateway import broker, registry

    try:
        if not sure:
            _ask(registry.lost(place.config, name, False), quiet)
        answer = registry.lost(place.config, name, True)
        told = broker.reload(place.folder)
    except GatewayTrouble as trouble:
        raise UserError(str(trouble))
    print("board %s is declared lost: the gateway and the other boards refuse its frames from now on" % name)
    for line in consequences(answer):
        print(line)
    print(
        "to use a board %s again: erase its flash, then `hw provision %s %s --renew`"
        % (name, name, place.shown)
    )
    if place.running(name):
        print("its virtual board runs here, as process %d: end that process" % place.running(name))
    if not told:
        print("the broker does not run here: tell it to read its passwords again")
    return 0, {**answer, "broker_told": bool(told)}


def _ask(answer: dict[str, Any], quiet: bool) -> None:
    name = answer["board"]
    out = sys.stderr if quiet else sys.stdout
    print(
        "board %s (link: %s) would be lost with all that its flash holds:" % (name, answer["link"]), file=out
    )
    for line in consequences(answer):
        print("  " + line, file=out)
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask for confirmation: add --yes; nothing was changed")
    print("type the name of the board to declare it lost: ", end="", file=out, flush=True)
    if sys.stdin.readline().strip() != name:
        raise UserError("board %s is not declared lost; nothing was changed" % name)


def consequences(answer: dict[str, Any]) -> list[str]:
    """What follows from the loss, a sentence a line."""
    if answer["process"] is None:
        return ["no process names it"]
    lines = []
    for source in answer["sources"]:
        what = source["stream"] or "source %s" % source["source"]
        if source["xi"] is None:
            lines.append("%s ends" % what)
        else:
            lines.append("%s ends: lost from xi %d%s" % (what, source["xi"] + 1, _at(source["ts_us"])))
    for operator in answer["operators"]:
        where = " or ".join(operator["candidates"])
        start = "starts on %s" % where if where else "runs nowhere: no host is left that may run it"
        lines.append("operator %s %s" % (operator["operator"], start))
    for one in answer["inputs"]:
        pair = (one["operator"], one["input"])
        lines.append(
            "operator %s waits for its input from %s: `hw deploy --close %s.%s` lets it go on without"
            % (*pair, *pair)
        )
    if answer["keep"]:
        lines.append(
            "level %s has too few hosts for %s: their checkpoints are kept by all that are left"
            % (answer["level"], ", ".join(answer["keep"]))
        )
    return lines


def _at(ts_us: int | None) -> str:
    if ts_us is None:
        return ""
    return ", ts %s" % time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ts_us / 1e6))
