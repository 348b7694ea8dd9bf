"""Loading a process file: Python of the author's own that leaves one Process in a module variable.

Every mistake of the file is reported with its file and line, never with a traceback.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

from headwater.process import Process, ProcessError
from headwater.process.problems import ERROR, Problem

EXAMPLES = Path(__file__).parent / "examples"
MODULE = "headwater_process_file"


class ProcessFileError(Exception):
    """The file gives no process. `problem` tells where, what, and what to do."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def example(name: str) -> Path:
    """The process file of an example: sp1, sp2, sp3, sp4, diamond, cardio, own_operator."""
    return EXAMPLES / (name + ".py")


def load(path: str | Path) -> Process:
    """The one process that a file leaves. ProcessFileError if it does not; OSError if it cannot
    be read."""
    module = run(path)
    found: list[tuple[str, Process]] = []
    for name, value in vars(module).items():
        if isinstance(value, Process) and not any(value is process for _, process in found):
            found.append((name, value))
    if not found:
        raise _error(path, 1, "no process", 'Leave one in a variable: p = Process("name")')
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise _error(
            path, found[1][1].where[1], "%d processes: %s" % (len(found), names), "Leave one in each file"
        )
    return found[0][1]


def run(path: str | Path) -> ModuleType:
    """The module that a process file makes."""
    source = Path(path).read_bytes()
    try:
        code = compile(source, str(path), "exec")
    except (SyntaxError, ValueError) as e:
        raise _unreadable(path, e) from None
    folder = str(Path(path).resolve().parent)
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    sys.path.insert(0, folder)
    try:
        exec(code, vars(module))
    except SyntaxError as e:  # of a file that it imports
        raise _unreadable(path, e) from None
    except (Exception, SystemExit) as e:
        raise _error(path, _line(e, path), _what(e), _cure(e)) from None
    finally:
        sys.path.remove(folder)
    return module


def _unreadable(path: str | Path, error: SyntaxError | ValueError) -> ProcessFileError:
    file, line, what = str(path), 1, str(error)
    if isinstance(error, SyntaxError):
        file, line, what = error.filename or file, error.lineno or line, error.msg
    return _error(file, line, "Python cannot read this: %s" % what, "Correct the line")


def _line(error: BaseException, path: str | Path) -> int:
    """The innermost line of the file itself that led to the error."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return (lines[-1] if lines else None) or 1


def _what(error: BaseException) -> str:
    if isinstance(error, ProcessError):
        return str(error)
    if isinstance(error, SystemExit):
        return "the file ends the program"
    return "%s: %s" % (type(error).__name__, error)


def _cure(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "Remove exit(): a process file only describes"
    if isinstance(error, NameError):
        return "Import it, or correct its name"
    if isinstance(error, ImportError):
        return "Correct its name, or put the module beside this file"
    return "Correct the line"


def _error(file: str | Path, line: int, what: str, cure: str) -> ProcessFileError:
    return ProcessFileError(Problem(ERROR, (str(file), line), "process file", what, cure))
