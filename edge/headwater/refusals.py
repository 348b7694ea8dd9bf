# Why something that came, or was to be stored, was refused: a closed set of numbers. Hosts count by number;
# whoever shows the counts to people asks for the text. So no word of a stranger ever becomes a label.

from .seal import REASONS

NO_ROOM, NO_HEAP, FRAME, STRANGER, RANGE, ROLE, CONTENT, BLOCK, CHECKPOINT, BEHIND, SITE = range(11)
SEAL = 16  # and a number of seal.REASONS


def text(reason):
    if reason >= SEAL:
        return "seal: " + REASONS[reason - SEAL]
    return (
        "no room in flash",
        "no room in the heap",
        "malformed frame",
        "unknown sender",
        "unknown edge or operator",
        "not from a host that may say it",
        "content that cannot be read",
        "block that cannot be read",
        "checkpoint that cannot be read",
        "a producer holds nothing from where its consumer stands",
        "belongs to the site link",
    )[reason]
