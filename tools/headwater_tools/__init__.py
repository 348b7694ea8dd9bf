"""Headwater's tools: everything behind the `hw` command."""


class Trouble(Exception):
    """What stops a command through no fault of its own: says what, where, and what to do. Exit 2."""

    code = 2


class Failed(Trouble):
    """What a command needs has failed while it ran, and nothing that was asked was wrong. Exit 1."""

    code = 1
