"""Headwater's tools: everything behind the `hw` command."""


class Trouble(Exception):
    """What stops a command through no fault of its own: says what, where, and what to do. Exit 2."""
