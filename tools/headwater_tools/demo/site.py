"""The site of the demo: broker, gateway, sink and virtual boards, in one folder."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.process import Process
from headwater_gateway.command import register as provision

from .. import environment
from ..boards import virtual
from ..errors import UserError
from .subprocesses import Cord, Part, free_port, until

if TYPE_CHECKING:
    from ..radio.station import Station

PROCESS = Path(__file__).parents[1] / "examples" / "telemonitoring.py"
BOARDS = ("chest", "arm", "wrist", "hip")
HEAP = "192k"
SINK_AGAIN_S = 150  # for a sink to start: a JVM, Spark, the tables
# Links of a board, as `hw provision --bluetooth` names them.
OFF, ON, ONLY = "off", "on", "only"

# Different from the defaults: a demo must not wait long.
SETTINGS = """\
[gateway]
clock = "wall"
[mqtt]
host = "localhost"
port = %d
reconnect_max_s = 1
[lake]
segment_s = 1.0
acks_every_s = 0.3
[http]
port = %d
[boards]
silent_s = 4
"""
BLUETOOTH = "[bluetooth]\nenabled = true\n"


class Site:
    def __init__(self, folder: Path, station: Station | None = None) -> None:
        """With a `station` the gateway has Bluetooth, and boards may: its virtual radio is their air."""
        from headwater_gateway import config, provision

        self.folder = folder
        self.station = station
        self.port = free_port()
        self.page_port = free_port()
        self.lake = folder / "lake"
        provision.site(folder, "localhost", self.port)
        self.file = folder / "gateway.toml"
        self.file.write_text(SETTINGS % (self.port, self.page_port) + (BLUETOOTH if station else ""))
        self.config = config.read(self.file)
        conf = folder / "mosquitto" / "mosquitto.conf"
        text = conf.read_text().replace("listener %d" % self.port, "listener %d 127.0.0.1" % self.port)
        conf.write_text(text)
        (folder / "landing").mkdir(exist_ok=True)
        self.broker = Part(
            "the broker", [*environment.mosquitto(), "-c", str(conf)], folder / "mosquitto.log"
        )
        python = [sys.executable, "-P", "-m"]
        gateway = ["headwater_gateway"]
        if station:
            gateway = ["headwater_tools.radio.gateway", str(station.serve())]
        self.gateway = Part("the gateway", [*python, *gateway, str(self.file)], folder / "gateway.log")
        hw = [*python, "headwater_tools"]
        sink = [*hw, "sink", str(folder / "landing"), str(self.lake), "--trigger", "2"]
        self.sink = Part(
            "the sink", [*sink, "--maintain-every", "0", "--files-per-trigger", "20"], folder / "sink.log"
        )
        self.boards: dict[str, virtual.VirtualBoard] = {}
        self.cords: dict[str, Cord] = {}

    def start_broker(self) -> None:
        self.broker.start()
        until(self._answers, 10, "the broker does not answer: see %s" % self.broker.log)

    def _answers(self) -> bool:
        self.broker.must_run()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def start_gateway(self) -> None:
        self.gateway.start()
        until(self.speaks, 20, "the gateway does not answer: see %s" % self.gateway.log)

    def speaks(self) -> bool:
        """Whether the gateway answers."""
        self.gateway.must_run()
        return self.state() is not None

    def state(self) -> dict[str, Any] | None:
        """The gateway's state; None while it is down."""
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway import control

        try:
            return control.ask(self.config, "/state")
        except GatewayTrouble:
            return None

    def vertices(self, state: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The operators of what is deployed, as the gateway has them: in this state, or its present one."""
        state = state or self.state() or {"processes": {}}
        processes = state["processes"].values()
        return [v for process in processes for v in process["vertices"] if v["kind"] != "source"]

    def register(self, name: str) -> Path:
        """Make a board known to the gateway; the folder with its key and configuration."""
        return provision(self.file, name)

    def add_board(
        self,
        name: str,
        sensors: dict[str, Any],
        heap: str = HEAP,
        program: tuple[str, ...] = ("board_node",),
        sectors: int = virtual.SECTORS,
        energy: dict[str, Any] | None = None,
        on_line: Callable[[str], None] | None = None,
        bluetooth: str = OFF,
    ) -> virtual.VirtualBoard:
        """Provision a board and make it; it reaches the broker through a cord of its own. `energy`: what it
        is told of its battery; without it, it is on mains. `bluetooth`: OFF, ON or ONLY."""
        from headwater_gateway.provision import links

        home = self.register(name)
        if bluetooth != OFF:
            links(self.folder, name, bluetooth, False)
        config = json.loads((home / "config.json").read_text())
        folder = self.folder / "virtual" / name
        folder.mkdir(parents=True)
        (folder / "ca.der").write_bytes((home / "ca.der").read_bytes())
        (folder / "bluetooth.key").write_bytes((home / "bluetooth.key").read_bytes())
        config = {**config, "sensors": sensors, "status_s": 1, "energy": energy or {}}
        if config["broker"]:
            cord = self.cords[name] = Cord(self.port)
            broker = {"host": "127.0.0.1", "name": "localhost", "port": cord.port, "retry_s_max": 2}
            config["broker"] = {**config["broker"], **broker}
        key = (home / "board.key").read_bytes()
        made = self.boards[name] = virtual.VirtualBoard(
            name, folder, config, key, heap=heap, sectors=sectors, program=program, on_line=on_line,
            radio=self.station if bluetooth != OFF else None,
        )  # fmt: skip
        return made

    def deploy(self, process: Process | None = None) -> None:
        """Deploy this process; without one, that of the demo."""
        import base64

        from headwater.process.check import check
        from headwater_gateway import control

        from ..process_file import load

        report = check(process or load(str(PROCESS)))
        if report.plan is None:
            raise UserError("\n".join(map(str, report.problems)))
        control.ask(self.config, "/deploy", {"plan": base64.b64encode(report.plan).decode()})

    def deployed(self) -> bool:
        state = self.state()
        return state is not None and all(board["plan"] == "runs" for board in state["boards"].values())

    def stop_sensors(self) -> None:
        """No more samples from now on: every board loses power, and gets it back. A batch that was sealed at
        that moment is in no ledger."""
        for board in self.boards.values():
            board.kill()
            path = board.folder / "config.json"
            config = json.loads(path.read_text())
            for sensor in config["sensors"].values():
                sensor["until_us"] = time.time_ns() // 1000
            path.write_text(json.dumps(config))
            board.start()

    def close(self) -> None:
        """End everything that was started."""
        for board in self.boards.values():
            board.kill()
        self.gateway.stop()
        self.sink.stop(30)
        self.broker.kill()
        for cord in self.cords.values():
            cord.close()

    def wait_for_sink(self) -> None:
        """Until the sink has begun: its table of progress is there."""

        def begun() -> bool:
            self.sink.must_run()
            return (self.lake / "progress" / "_delta_log").is_dir()

        until(begun, SINK_AGAIN_S, "the sink did not begin in %d s: see %s" % (SINK_AGAIN_S, self.sink.log))
