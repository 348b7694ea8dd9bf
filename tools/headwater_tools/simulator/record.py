"""The results of a sweep in a file, so that a sweep that was stopped can be continued.

The file holds one JSON object a line. The first, the header, names the sweep and a digest of the code that
plays it; each of the others is one finished history. The promises:

- A line is written as soon as its history ends. A kill loses only the histories that were being played,
  and at most tears the last line; that line is dropped and its history played again.
- A file is continued only by the sweep that its header names, on the code that began it: together, its
  histories are those of one uninterrupted sweep.
- A file belongs to one running sweep at a time.
- A file that no sweep wrote is never changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import headwater
import headwater_gateway

from ..errors import UserError
from .jobs import Job, Outcome, plan_of_file

FORMAT = 1  # of the lines below; the header holds it under the key MARK
MARK = "headwater sim"

TOOLS = Path(__file__).resolve().parent.parent
# What determines a history, besides the core.
PLAYED = ("simulator/*.py", "examples/*.py", "process_file.py")
GATEWAY = ("boards.py", "keys.py", "deployments/numbers.py", "hosted.py", "deployments/switching.py")


@dataclass(frozen=True)
class Sweep:
    """What to play. `process` is a name of PROCESSES, or "" if `file` names a process file; `scenario` names
    the file that tells what happens, if chance does not."""

    process: str
    file: str
    seeds: range
    seconds: int
    faults: bool
    scenario: str = ""

    def jobs(self) -> list[Job]:
        rest = (self.process, self.file, self.seconds, self.faults, self.scenario)
        return [Job(seed, *rest) for seed in self.seeds]

    def header(self) -> dict[str, Any]:
        return {
            MARK: FORMAT,
            "process": self.process,
            "file": self.file,
            "seeds": [self.seeds.start, self.seeds.stop],
            "seconds": self.seconds,
            "faults": self.faults,
            "scenario": self.scenario,
            "code": digest(self.file, self.scenario),
        }


def digest(file: str, scenario: str = "") -> str:
    """Of everything that determines what a seed plays: core, simulator, a user's file and its modules, and a
    scenario."""
    paths = {path for root in headwater.__path__ for path in Path(root).resolve().rglob("*.py")}
    paths.update(path for pattern in PLAYED for path in TOOLS.glob(pattern))
    paths.update(Path(root).resolve() / name for root in headwater_gateway.__path__ for name in GATEWAY)
    if scenario:
        paths.add(Path(scenario).resolve())
    if file:
        plan_of_file(file)  # which imports the modules
        folder = Path(file).resolve().parent
        paths.add(Path(file).resolve())
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        found = (Path(name).resolve() for name in modules if name)
        paths.update(path for path in found if path.parent == folder)
    digests = sorted(path.name + hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def recorded(path: str) -> Sweep | None:
    """The sweep that a file records; None if there is no file yet."""
    try:
        with open(path, "rb") as lines:
            first = lines.readline()
    except FileNotFoundError:
        return None
    return _read_header(path, first)[0] if first else None


def _read_header(path: str, line: bytes) -> tuple[Sweep, str]:
    try:
        header = json.loads(line)
        if header[MARK] != FORMAT:
            raise ValueError
        seeds = range(*header["seeds"])
        played = header["process"], header["file"], seeds, header["seconds"], header["faults"]
        sweep = Sweep(*played, header.get("scenario", ""))
        return sweep, header["code"]
    except (ValueError, KeyError, TypeError):
        raise UserError(
            "%s: holds no results that this `hw sim` can continue: name a file that does not exist yet" % path
        ) from None


class Record:
    """The file of one sweep, open. `outcomes` are those of the histories that it held already."""

    def __init__(self, path: str, sweep: Sweep) -> None:
        self.path = path
        self.outcomes: list[Outcome] = []
        header = sweep.header()
        # Unbuffered: what append() wrote has left this process, so a kill cannot undo it.
        self.file = io.FileIO(path, "a+")
        try:
            self._lock()
            self.file.seek(0)
            text = self.file.readall()
            if text:
                self._continue(text, sweep, header["code"])
            else:
                self._write(header)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.file.close()

    def append(self, outcome: Outcome) -> None:
        """Write a finished history, shortened to what its story needs."""
        self._write(
            {
                "seed": outcome.job.seed,
                "title": outcome.title,
                "errors": outcome.errors,
                "counts": outcome.counts,
                "drawn": outcome.drawn,
                "trace": outcome.trace,
            }
        )

    def _lock(self) -> None:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "%s: another sweep is writing to it: wait until it ends, or name another file" % self.path
            ) from None

    def _continue(self, text: bytes, sweep: Sweep, code: str) -> None:
        *lines, torn = text.split(b"\n")
        found, began_with = _read_header(self.path, lines[0] if lines else b"")
        if found != sweep:
            raise UserError("%s: it has just become the file of another sweep: name another file" % self.path)
        if began_with != code:
            raise UserError(
                "%s: the code of the simulator, the core or the process has changed since this sweep began, "
                "so it cannot be continued: start again with a new file, or go back to the code that began it"
                % self.path
            )
        jobs = {job.seed: job for job in sweep.jobs()}
        for number, line in enumerate(lines[1:], 2):
            try:
                told = json.loads(line)
                job = jobs.pop(told.pop("seed"))
                self.outcomes.append(Outcome(job, **told))
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    "%s: line %d is damaged: delete that line, and its history is played again"
                    % (self.path, number)
                ) from None
        self.file.truncate(len(text) - len(torn))

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        try:
            while data:
                data = data[self.file.write(data) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None
