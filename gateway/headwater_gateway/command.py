"""The program of the gateway: `hw gateway` in a repository, `headwater-gateway` where the wheel is installed.

Both take the same arguments. Nothing outside the standard library is imported before a command needs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwater.linux import serving

from . import UserError, units
from .monitoring import site_alarms

SUMMARY = (
    "the gateway: init makes its folder, run starts it, check validates its configuration, state and alarms "
    "show it, watch notices from another machine that it is dead, backup and restore copy its site, units "
    "makes services of it; host: see `hw host`"
)

CONFIG = "gateway.toml"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", choices=(*_DO, "units"), help="what to do")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        default=".",
        help="folder of the gateway, or its configuration file; restore: the archive; watch: the folder "
        "`watcher` of the site, or a copy of it; host: what `hw provision` made",
    )
    parser.add_argument(
        "other",
        metavar="OTHER",
        nargs="?",
        help="backup FOLDER FILE: the archive to make; restore FILE FOLDER: the new site; units "
        "FOLDER TARGET: where the units of systemd go; the folder of a host has a unit too",
    )
    parser.add_argument("--host", help="init: name or address of the broker (localhost)")
    parser.add_argument("--port", type=int, help="init: its port (8883)")
    parser.add_argument(
        "--new-authority",
        action="store_true",
        help="init: certificates of a new authority; every board must then be provisioned again",
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="run: the database was lost; register the boards by their keys and learn from them what runs",
    )
    parser.add_argument(
        "--board", action="append", default=[], metavar="NAME", help="init: register a board too"
    )
    serving.options(parser, "host: ")
    site_alarms.arguments(parser)


def main(argv: Sequence[str] | None = None) -> None:
    """The console script `headwater-gateway`."""
    parser = argparse.ArgumentParser(
        prog="headwater-gateway",
        description=SUMMARY,
        epilog="Where a message names `hw gateway`, this program does the same.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    arguments(parser)
    args = parser.parse_args(argv)
    try:
        code, answer = run(args)
    except UserError as trouble:
        print("headwater-gateway: %s" % trouble, file=sys.stderr)
        code, answer = 2, {"error": str(trouble)}
    if args.json:
        print(json.dumps({} if answer is None else answer))
    sys.exit(code)


def run(
    args: argparse.Namespace, root: Path | None = None, prepare: Callable[[], object] | None = None
) -> tuple[int, dict[str, Any] | None]:
    """`root`: the repository, if this is its `hw gateway`; `prepare` makes what its services cannot."""
    if args.rebuild and args.do != "run":
        raise UserError("--rebuild belongs to `hw gateway run`: `hw gateway run %s --rebuild`" % args.folder)
    if (args.log is not None or args.check) and args.do != "host":
        raise UserError("--log and --check belong to a host: `hw host %s`" % args.folder)
    site_alarms.check(args)
    if args.do != "units" and (args.other is None) == (args.do in ("backup", "restore")):
        what = "an argument is missing" if args.other is None else "one argument is too many, %s" % args.other
        raise UserError("%s: `hw gateway backup FOLDER FILE`, `hw gateway restore FILE FOLDER`" % what)
    if args.do == "units":
        return _units(args, root, prepare)
    return _DO[args.do](args)


def register(path: Path, name: str, renew: bool = False, bluetooth: str | None = None) -> Path:
    """Register a board with the gateway of this configuration, running or not; its folder. `renew`: the board
    is registered already, and gets a new password. `bluetooth`: on, only or off; None: as it is."""
    from . import keys, provision, registry
    from .config import read
    from .deployments import rebuild

    provision.check_name(name)
    config = read(path)
    master = keys.load(config.path(config.gateway.secrets) / "master.key")
    registry.finish(config)
    number = rebuild.registered(config, master, name, renew)
    if bluetooth:
        provision.links(config.folder, name, bluetooth, True)
    home = provision.board(config.folder, config, master, name, number)
    if bluetooth and not renew:
        provision.links(config.folder, name, bluetooth, False)
    return home


def config_path(folder: str) -> Path:
    path = Path(folder)
    return path / CONFIG if path.is_dir() else path


def _init(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from . import broker, provision

    if args.port is not None and not 1 <= args.port <= 65535:
        raise UserError("--port %d: give 1 to 65535" % args.port)
    folder = Path(args.folder)
    if not args.new_authority:
        differs = provision.differences(folder, args.host, args.port)
        if differs:
            return _differs(folder, differs)
    made = provision.site(folder, args.host or "localhost", args.port or 8883, args.new_authority)
    for path in made:
        print("made %s" % path)
    if not made:
        print("everything is there already; nothing was changed")
    elif broker.reload(folder):
        print("the broker has read its access list and passwords again")
    lacks = provision.acl_lacks(folder)
    if lacks:
        print(
            "%s was changed by hand; for alarms, heartbeat and Bluetooth it needs:"
            % (folder / "mosquitto" / "acl")
        )
        for line in lacks:
            print("      " + line)
    known = provision.boards_of(folder)
    if args.new_authority and known:
        print("the boards (%s) trust the previous authority: each needs" % ", ".join(known))
        print("      hw provision NAME %s --renew, and the new config.json and ca.der on it" % folder)
        print("restart the broker and the gateway")
    new = []
    for name in args.board:
        if name in known:
            print("board %s is registered already; it was not changed" % name)
        else:
            new.append(register(folder / CONFIG, name))
            print("made %s" % new[-1])
    print("next: hw broker run %s; hw provision NAME %s for each board;" % (folder, folder))
    print("      hw gateway run %s; hw deploy FILE --gateway %s" % (folder, folder))
    print("as services: hw gateway units %s" % folder)
    return 0, {"folder": str(folder), "made": made, "boards": [str(home) for home in new]}


def _differs(folder: Path, differs: list[str]) -> tuple[int, dict[str, Any]]:
    print("%s is a site already, and differs from what was asked for; nothing was changed:" % folder)
    for text in differs:
        print("  " + text)
    print(
        "to move the broker: change gateway.toml, mosquitto/mosquitto.conf and `broker` in config.json of "
        "each board by hand;\n  a host that the certificate does not name needs `hw gateway init %s "
        "--new-authority --host HOST`" % folder
    )
    return 1, {"folder": str(folder), "made": [], "boards": [], "differs": differs}


def _run(args: argparse.Namespace) -> tuple[int, None]:
    from .__main__ import run as serve

    return serve(str(config_path(args.folder)), args.rebuild), None


def _host(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    try:
        return serving.run(Path(args.folder), args.log, args.check)
    except serving.HostError as problem:
        raise UserError(str(problem))


def _check(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .config import ConfigError, read

    path = config_path(args.folder)
    try:
        read(path)
    except ConfigError as trouble:
        print(trouble)
        return 1, {"file": str(path), "ok": False, "problems": trouble.problems}
    print("%s: nothing is wrong" % path)
    return 0, {"file": str(path), "ok": True, "problems": []}


def _state(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .config import read
    from .control import ask

    state = ask(read(config_path(args.folder)), "/state")
    for line in page(state):
        print(line)
    return site_alarms.exit_code(state), state


def _board_alarm(alarm: dict[str, Any]) -> str:
    """An alarm that a board raises itself."""
    causes = ["silent for %g s" % (alarm["silent_ms"] / 1000)] if alarm["silent_ms"] else []
    causes += ["%s not 0" % alarm["field"]] if alarm["field"] else []
    values = (
        alarm["name"],
        alarm["driver"],
        alarm["host"],
        alarm["stream"],
        " or ".join(causes),
        alarm["state"],
    )
    text = "  alarm %s, %s of %s, of %s %s: %s" % values
    return text + ("; the board has no such actuator" if alarm["audible"] is False else "")


def _late(stream: dict[str, Any]) -> str:
    text = "  stream %s: within_ms=%d cannot be kept when a host dies: operators start elsewhere after %d ms"
    return text % (stream["stream"], stream["within_ms"], stream["least_ms"])


def _proposal(proposal: dict[str, Any]) -> list[str]:
    """What to change in the process file so that a battery lasts noticeably longer."""
    from headwater.process.proposal import life

    from .monitoring.proposals import BETTER

    if proposal["state"] != BETTER:
        return []
    more = "" if proposal["percent"] is None else ", %d %% longer" % proposal["percent"]
    then, now = proposal["then"], proposal["now"]
    whose = [" (%s)" % at["host"] if then["host"] != now["host"] else "" for at in (then, now)]
    first = proposal["which"] + ("" if whose[0] else " (%s)" % now["host"])
    values = (first, life(then["left_s"]), whose[0], life(now["left_s"]), whose[1], more)
    lines = ["  a better start: the %s would last %s%s instead of %s%s%s" % values]
    return lines + ["    %s: %s" % (move["operator"], move["on"]) for move in proposal["moves"]]


def page(state: dict[str, Any]) -> list[str]:
    """The state for people."""
    from .site_clock import told

    lines = [told(state["clock"]), *_bluetooth(state["bluetooth"])]
    for name, p in state["processes"].items():
        text = "process %s, deployment %d, version %s: %s"
        lines.append(text % (name, p["deployment"], p["version"], p["step"]))
        lines += ["  waiting: " + wait for wait in p["waits"]]
        for v in p["vertices"]:
            lines += _operator(v)
        lines += [_board_alarm(alarm) for alarm in p["alarms"]]
        lines += [_late(stream) for stream in p["late"]]
        lines += _proposal(p["proposal"])
        lines += ["  earlier: " + _earlier(entry) for entry in p["earlier"]]
    for name, entries in state["undeployed"].items():
        text = "process %s: undeployed; `hw deploy --rollback %s` deploys it again"
        lines.append(text % (name, name))
        lines += ["  earlier: " + _earlier(entry) for entry in entries]
    for name, board in state["boards"].items():
        battery = _battery(board)
        plan = "not reported yet" if board["learning"] else board["plan"] or "none"
        if board["leaving"]:
            plan = "none; process %s stops there when the board answers" % board["leaving"]
        via = " over Bluetooth" if board["via"] == "bluetooth" else ""
        lines.append("board %s: %s%s%s, plan %s" % (name, board["link"], via, battery, plan))
    for s in state["streams"]:
        text = "stream %s (%s): %d durable, %d cut, %d in the lake, %s"
        numbers = (s["durable"], s["cut"], s["acked"], site_alarms.lag(s))
        lines.append(text % (s["stream"], s["incarnation"], *numbers))
    return lines + site_alarms.lines_with_cures(state)


def _bluetooth(view: dict[str, Any] | None) -> list[str]:
    """The adapter: what is wrong with it, and which boards are connected or wait."""
    if view is None:
        return []
    text = "the adapter cannot be used: " + view["problem"] if view["problem"] else "the adapter works"
    text += "; %d of %d connections" % (len(view["connected"]), view["slots"])
    for key, what in (("connected", ": %s"), ("waiting", "; in the queue: %s"), ("away", "; not heard: %s")):
        if view[key]:
            text += what % ", ".join(view[key])
    return ["bluetooth: " + text]


def _operator(vertex: dict[str, Any]) -> list[str]:
    """Where an operator runs, since when and why; what it waits for; its parameters, if it has any."""
    if vertex["kind"] == "source":
        return []
    moved = vertex["moved"]
    since = "since %s" % time.strftime("%Y-%m-%d %H:%M", time.localtime(vertex["since_us"] / 1e6))
    if moved:
        since += ", before on %s: %s" % (moved["from"], moved["why"])
    links = [(c["host"], "" if c["link"] == "up" else " (%s)" % c["link"]) for c in vertex["candidates"]]
    others = ", ".join(host + link for host, link in links if host != vertex["host"])
    does = {"runs": "runs on %s", "moves": "moves away from %s", "unknown": "known last on %s"}
    text = does.get(vertex["does"], "waits on %s") % vertex["host"]
    text += " %s%s" % (since, "; may run on %s" % others if others else "")
    lines = ["  operator %s (%s) %s" % (vertex["name"], vertex["kind"], text)]
    if vertex["waits"]:
        lines.append("    %s" % vertex["waits"])
    if vertex["parameters"]:
        values = ", ".join("%s = %s" % item for item in vertex["parameters"].items() if item[1] != "")
        lines.append("    %s" % values)
    for change in vertex["open"]:
        waits = change["waits"] or "it has no position yet"
        lines.append("    change %d: %s; waiting: %s" % (change["number"], change["what"], waits))
    if vertex["refused"]:
        lines.append("    change %d was refused: %s" % tuple(vertex["refused"]))
    return lines


def _battery(board: dict[str, Any]) -> str:
    """Charge, voltage and time left, as far as the board knows them; empty on mains."""
    from .monitoring.alarms import span

    mv, energy = board["status"].get("battery"), board["energy"]
    known = ["%.2f V" % (mv / 1000)] if isinstance(mv, int) else []
    if energy:
        known = ["battery %d %%" % energy["percent"], *known, "%s left" % span(energy["left_s"])]
    return "".join(", " + text for text in known)


def _earlier(entry: dict[str, Any]) -> str:
    since, until = (
        time.strftime("%Y-%m-%d %H:%M", time.localtime(entry[key] / 1e6)) for key in ("since_us", "until_us")
    )
    return "deployment %d, version %s, %s to %s" % (entry["deployment"], entry["version"], since, until)


def _alarms(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .config import read
    from .control import ask

    answer = ask(read(config_path(args.folder)), "/alarms", site_alarms.request(args))
    for line in site_alarms.page(answer, args.events):
        print(line)
    return site_alarms.exit_code(answer), answer


def _watch(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .notices.watch import Watcher

    for_s = None if args.mute_for is None else site_alarms.seconds(args.mute_for)
    alive, text = Watcher(Path(args.folder)).run(for_s)
    print(text)
    return int(not alive), {"alive": alive, "text": text}


def _backup(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .database import backup

    archive = Path(args.other)
    summary = backup.make(config_path(args.folder), archive)
    print("made %s: %s" % (archive, _told(summary)))
    print("it holds the master key: keep it where no other user can read it")
    return 0, {"archive": str(archive), **summary._asdict()}


def _restore(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .database import backup

    folder = Path(args.other)
    summary = backup.restore(Path(args.folder), folder)
    print("restored %s, as it was on %s: %s" % (folder, summary.made, _told(summary)))
    if summary.processes:
        print(
            "the gateway learns from the boards what runs; a process that none of its boards runs any more "
            "is deployed again by `hw deploy --rollback PROCESS`"
        )
    print("a board that was provisioned or renewed after the backup: `hw provision NAME %s` again" % folder)
    print("next: hw broker run %s; hw gateway run %s" % (folder, folder))
    return 0, {"restored": str(folder), **summary._asdict()}


def _told(summary: Any) -> str:
    boards, processes = (", ".join(names) or "none" for names in (summary.boards, summary.processes))
    text = "%d files of %s bytes; boards %s; processes %s"
    return text % (summary.files, format(summary.bytes, ","), boards, processes)


def _units(
    args: argparse.Namespace, root: Path | None, prepare: Callable[[], object] | None
) -> tuple[int, dict[str, Any]]:
    from . import provision
    from .config import read

    host = units.host_in(Path(args.folder))
    folder = Path(args.folder).resolve() if host else read(config_path(args.folder)).folder
    target = Path(args.other) if args.other else None
    user = provision.owner(folder)
    program = Path(sys.argv[0]).resolve()
    if target is None:
        print("services of systemd for this %s, run by its owner %s; as root:" % (host or "site", user))
        words = "%s gateway" % (root / "hw") if root else str(program)
        print("  %s units %s /etc/systemd/system" % (words, folder))
        return 0, {"folder": str(folder), "user": user, "made": []}
    made = units.write(target, folder, user, root, program, host)
    if prepare and not host:
        prepare()
    for path in made:
        print("made %s" % path)
    if user == "root":
        print("they run as root, who owns %s: better give it to a user of its own" % folder)
    print("next: systemctl daemon-reload")
    if host:
        print("      systemctl enable --now %s" % made[0].stem)
    elif root:
        print("      systemctl enable --now headwater-broker headwater-gateway")
        print("      on the machine of the lake: hw sink %s/landing %s/lake --once; then" % (folder, folder))
        print("      systemctl enable --now headwater-sink headwater-maintenance.timer")
    else:
        print("      systemctl enable --now headwater-gateway")
        print("      the broker is a Mosquitto with %s/mosquitto/mosquitto.conf" % folder)
    return 0, {"folder": str(folder), "user": user, "made": [str(path) for path in made]}


_DO = {
    "init": _init,
    "run": _run,
    "check": _check,
    "host": _host,
    "state": _state,
    "alarms": _alarms,
    "watch": _watch,
    "backup": _backup,
    "restore": _restore,
}
