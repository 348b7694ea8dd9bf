"""`hw gateway`: the service, and the folder that it runs in; the program is in `headwater_gateway`."""

from __future__ import annotations

import argparse
from typing import Any

import headwater_gateway
from headwater_gateway import command

from .. import Trouble, house

SUMMARY = command.SUMMARY
arguments = command.arguments


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    house.ensure("gateway")
    try:
        return command.run(args, house.ROOT, house.mosquitto)  # a service may not write its environment
    except headwater_gateway.Trouble as trouble:
        raise Trouble(str(trouble))
