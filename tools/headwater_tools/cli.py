"""The command line: finds the commands, parses, runs one, and prints for people or for machines.

A command is a module in `headwater_tools.commands`:
    SUMMARY                   one line for `hw --help`
    arguments(parser)         its arguments (--json is there already)
    run(args) -> (code, object or None)
                              0: its promise holds, 1: it does not; the object is what --json prints
    REST = True               optional: all words but --json (and --help alone) reach run as args.rest
Bad use and bad input (`UserError`, files that cannot be read) end with one message and exit 2, failures of
what a command needs (`Failed`) with one message and exit 1.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from . import commands, environment, interrupts
from .errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse whose errors are `UserError`, so that --json answers them too."""

    def error(self, message: str) -> NoReturn:
        raise UserError("%s (see `%s --help`)" % (message, self.prog))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does it, with the word that was probably meant."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            guess = near(str(value), known)
            text = "'%s' is unknown%s %s one of %s"
            words = (value, guess or ":", "Use" if guess else "use", ", ".join(known))
            raise argparse.ArgumentError(action, text % words)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            word = unknown[0].partition("=")[0]
            guess = near(word, known) if word.startswith("-") else ""
            self.error(
                "%s: there is no such %s%s"
                % (unknown[0], "option" if word.startswith("-") else "argument", guess)
            )
        return found


def near(word: str, known: Iterable[str]) -> str:
    """', did you mean x?' where one of the known words resembles this one, else ''."""
    found = difflib.get_close_matches(word, known, 1, 0.6)
    return ", did you mean '%s'?" % found[0] if found else ""


def names(package: ModuleType) -> list[str]:
    """The modules of a package, without importing them."""
    found = (m.name for m in pkgutil.iter_modules(package.__path__))
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def load(package: ModuleType, name: str) -> ModuleType:
    return importlib.import_module("%s.%s" % (package.__name__, name.replace("-", "_")))


def main(argv: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if argv is None else argv)
    wants_json = "--json" in words
    try:
        interrupts.as_exception()
        code, answer = _command(words)
    except UserError as trouble:
        code, answer = trouble.code, {"error": str(trouble)}
        print("hw: %s" % trouble, file=sys.stderr)
    except BrokenPipeError:
        # The reader of our output has closed it: there is nothing left to print.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        text = "%s: %s" % (error.filename, error.strerror)
        code, answer = 2, {"error": text}
        print("hw: %s" % text, file=sys.stderr)
    except KeyboardInterrupt:
        _interrupted()
    except Exception as error:
        # An interrupt may break a library that is cleaning up; it still counts as an interrupt.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is None:
            raise
        _interrupted()
    if wants_json:
        sys.stdout.flush()
        print(json.dumps({} if answer is None else answer), flush=True)
    sys.exit(code)


def _interrupted() -> NoReturn:
    print(interrupts.TEXT, file=sys.stderr)
    sys.exit(interrupts.CODE)


def _command(words: list[str]) -> tuple[int, dict[str, Any] | None]:
    known = names(commands) if environment.REPOSITORY else list(environment.INSTALLED)
    if not words or words[0] in ("-h", "--help", "help"):
        _print_help(known)
        return (0, None) if words else (2, {"error": "no command given"})
    name, rest = words[0], words[1:]
    if name == "--json" or name not in known:
        if name in names(commands):
            text = "hw %s needs the repository of Headwater; where its wheel is installed, hw has %s"
            raise UserError(text % (name, ", ".join(known)))
        text = "no command '%s'%s hw has %s"
        raise UserError(text % (name, near(name, known) or ":", ", ".join(known)))
    module = load(commands, name)
    parser = Parser(prog="hw " + name, description=module.SUMMARY, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    module.arguments(parser)
    if getattr(module, "REST", False):
        words = [word for word in rest if word != "--json"]
        own = ["--help"] if words in (["-h"], ["--help"]) else []
        args = parser.parse_args(own)
        args.rest = words
    else:
        args = parser.parse_args(rest)
    result: tuple[int, dict[str, Any] | None] = module.run(args)
    return result


def _print_help(known: list[str]) -> None:
    print("usage: hw COMMAND [arguments]\n")
    for name in known:
        print("  hw %-*s  %s" % (max(map(len, known)), name, load(commands, name).SUMMARY))
    print("\n`hw COMMAND --help` shows its arguments. With --json the last line is one JSON object.")
    print("Exit status: 0 success, 1 a check failed, 2 usage error, 130 interrupted.")
