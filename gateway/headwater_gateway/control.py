"""Requests to a running gateway over its Unix socket; for `hw deploy` and `hw provision`."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from . import UserError
from .config import Config

TIMEOUT_S = 30.0


class NotRunning(UserError):
    """No gateway listens there."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self.path))


def ask(config: Config, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the gateway. NotRunning, or UserError with its error."""
    path = config.path(config.gateway.socket)
    connection = _Connection(path)
    try:
        if body is None:
            connection.request("GET", what)
        else:
            connection.request("POST", what, json.dumps(body), {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    except (FileNotFoundError, ConnectionRefusedError):
        text = "no gateway listens on %s: start it with `hw gateway run %s`"
        raise NotRunning(text % (path, config.folder))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UserError("the gateway at %s does not answer: %s" % (path, error))
    finally:
        connection.close()
    if "error" in answer:
        raise UserError(str(answer["error"]))
    return answer
