"""How a step of the set-up runs: quietly, and told in full when it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def say(text: str) -> None:
    print("hw: " + text, file=sys.stderr, flush=True)


def variables() -> dict[str, str]:
    """The environment variables for our own processes: our packages on the path, and no others."""
    env = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"):
        env.pop(name, None)
    env.setdefault("PATH", os.defpath)
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / room) for room in ("edge", "gateway", "cloud", "tools"))
    return env


def run(
    command: list[str],
    what: str,
    cure: str,
    cwd: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    """Run one step of the set-up, with `more` variables; its output is shown only when it fails."""
    import subprocess

    env = variables()
    env.pop("PYTHONPATH")
    env["PIP_USER"] = "0"  # someone's pip configuration may ask for it, and a venv refuses it
    env.update(more or {})
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise UserError(
            "%s failed: cannot start %s (%s). What to do: %s" % (what, command[0], error.strerror, cure)
        )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise UserError("%s failed:\n  %s\nWhat to do: %s" % (what, "\n  ".join(lines), cure))
