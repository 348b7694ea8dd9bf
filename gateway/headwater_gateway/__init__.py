"""The gateway: the service that boards speak to, and that hands what they send to the lake.

It runs the same core as a board (package `headwater`) on a database instead of flash, and keeps every
entry on its disk until the lake has acknowledged it.
"""


class Trouble(Exception):
    """Something that a person can put right: one sentence that says what, where, and what to do."""
