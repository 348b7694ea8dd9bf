"""`hw gateway`: the service, and the folder that it runs in; the program is in `headwater_gateway`."""

from __future__ import annotations

import argparse
from typing import Any

import headwater_gateway
from headwater_gateway import command

from .. import environment
from ..errors import UserError

SUMMARY = command.SUMMARY
arguments = command.arguments


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    environment.ensure("gateway")
    try:
        return command.run(
            args, environment.ROOT, environment.mosquitto
        )  # a service may not write its environment
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
