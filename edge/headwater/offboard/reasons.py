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
    "encrypted, and not to be read yet",
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
        "not encrypted, over a link that does not encrypt itself",
    )[reason]


# Why Bluetooth connections ended (BleCarrier.ended), by number.
OF_CONNECTIONS = (
    "",
    "value too short",
    "a fragment is missing",
    "impossible count",
    "more than the window",
    "impossible length of a frame",
    "nothing is acknowledged",
    "ended by the other end or the radio",
    "stranger",
    "no genuine frame",
    "second connection to one host",
    "nothing to send",
    "another host waited",
    "no slot",
)


# Names of why operators move (protocol/moves.py), for machines.
MOVES = ("start", "takeover", "flee", "balance", "command", "apart", "given_up")


# Why an operator runs where it does. there: the host where it ran before.
def because(why: int, there: str = "its host") -> str:
    return (
        "it began there",
        "%s was silent",
        "the battery of %s runs low",
        "the batteries last longer so",
        "a person asked for it",
        "%s had lost touch with a producer",
        "what its lost hosts had was given up",
    )[why].replace("%s", there)


# Names of why an operator was not moved (protocol/offers.py), for machines.
REFUSED = (
    "ok",
    "here",
    "no_candidate",
    "type",
    "heap",
    "log",
    "busy",
    "fleeing",
    "newer",
    "energy",
    "over",
    "unreadable",
    "silent",
    "not_ready",
    "unsent",
    "elsewhere",
    "draining",
    "recent",
    "unkept",
    "untold",
)


# Why an operator was not moved, of host `there`.
def refused(reason: int, there: str) -> str:
    return (
        "",
        "it runs on %s already",
        "the process file does not name %s as a host or backup of it",
        "%s does not have its operator type: its image is older than the process",
        "%s has not enough heap for it",
        "the flash of %s has no room for its checkpoint",
        "another operator is being moved from its host or to %s: try again when that is over",
        "%s is about to hand over its own operators, because its battery runs down",
        "it runs under a newer epoch by now: look at `hw gateway state`",
        "the battery of %s would not last long enough with it",
        "the offer to %s ended before the checkpoint was there: try again when the link is better",
        "%s cannot read its checkpoint",
        "%s does not answer: it is off, asleep or out of reach",
        "it does not run yet, or waits until a change of its parameters is stored: try again in a moment",
        "its host holds results in flash that it could not send: they must arrive before it moves to %s",
        "it does not run on the host that was asked: try again in a moment",
        "the process is about to change",
        "%s has refused it, or it has moved, not long ago",
        'the process makes no checkpoints (checkpoints="unsafe")',
        "the flash of %s is new, and it has not heard from the gateway since: try again when it has",
    )[reason].replace("%s", there)
