"""The gateway: the service that boards connect to, and that forwards their entries to the lake.

It runs the same core as a board (package `headwater`) on a database instead of flash, and keeps every
entry on its disk until the lake has acknowledged it.
"""


class UserError(Exception):
    """A problem that a person can solve: one sentence that says what, where, and what to do."""
