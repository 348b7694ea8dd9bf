"""The errors that end a command with one sentence."""


class UserError(Exception):
    """A problem that stops a command and is not a defect of it: what, where, and what to do. Exit 2."""

    code = 2


class Failed(UserError):
    """Something that a command needs failed while it ran, although the request was valid. Exit 1."""

    code = 1
