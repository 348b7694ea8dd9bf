# Texts of the numbers by which hosts report why something is missing or was refused, for programs that show
# them to people. No board imports this.

from ..data.batch import LOG_FULL, RESTART, SENSOR
from ..protocol.refusals import SEAL

OF_HOLES = {RESTART: "restart", LOG_FULL: "log full", SENSOR: "sensor fault"}
# By Peer.why.
OF_SEALS = (
    "taken",
    "malformed",
    "from another host",
    "wrong seal",
    "repeated",
    "of an earlier boot",
    "no session yet",
    "opening",
    "of an earlier plan",
    "of an unknown plan",
)


# Of a refusal.
def text(reason: int) -> str:
    if reason >= SEAL:
        return "seal: " + OF_SEALS[reason - SEAL]
    return (
        "no room in flash",
        "no room in the heap",
        "malformed frame",
        "unknown sender",
        "unknown edge or operator",
        "not from a host that may send it",
        "content that cannot be read",
        "block that cannot be read",
        "checkpoint that cannot be read",
        "a producer has nothing from its consumer's position on",
        "belongs to the site link",
        "from a board that was declared lost",
    )[reason]
