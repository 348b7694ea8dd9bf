# Offers of an operator to another host: why they are refused, and how long they last. A closed set: the
# numbers travel in messages (docs/spec.md has the same table), and programs show them as texts
# (offboard/reasons.py).

# Why an operator does not move, or OK. Up to LAST in REFUSE and ROOM.
OK = 0
HERE = 1  # it runs there already
NO_CANDIDATE = 2  # the plan does not let it run there
TYPE = 3  # that host does not have its operator type
HEAP = 4
LOG = 5
BUSY = 6  # another move is under way there
FLEEING = 7
NEWER = 8  # a newer epoch of it runs somewhere
ENERGY = 9  # that host would not last long enough with it
OVER = 10  # the offer has ended
UNREADABLE = 11  # its checkpoint
SILENT = 12  # that host does not answer
NOT_READY = 13  # it does not run yet, or has a decision of which too few hosts know
UNSENT = 14  # its host holds results that it cannot send now
ELSEWHERE = 15  # it does not run on the host that was asked
DRAINING = 16  # the plan is about to change
RECENT = 17  # it has moved, or that host has refused it, not long ago
UNKEPT = 18  # the process makes no checkpoints
UNTOLD = 19  # that host's flash is new, and the gateway has not told it yet which hosts are lost
LAST = UNTOLD
PENDING = 31  # ... or it is under way

FOREVER = (1 << 30) - 1  # seconds that a host lasts on mains; and bytes, where they are not known
RATES_MAX = 8  # numbers in the rates of an operator
_LINK_BYTES_S = 4096  # what a link carries at least, for a checkpoint that goes piece by piece


# For how long an offer of a checkpoint of this size may be taken up. step: Host.pace[2].
def lasts_us(step: int, size: int) -> int:
    return 2 * step + 2 * size * 1000000 // _LINK_BYTES_S
