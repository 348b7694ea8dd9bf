"""What goes wrong between a gateway and its Bluetooth adapter, by kind: whether to try again, and how soon.

BlueZ reports most failures as text, so the kind is found in words. They are those of BlueZ 5.6x and of the
kernel's HCI errors as bleak passes them on.
"""

from __future__ import annotations

import enum

from bleak.exc import BleakBluetoothNotAvailableError, BleakDeviceNotFoundError


class Kind(enum.Enum):
    ABORTED = "the connection was not established"
    DROPPED = "the connection ended while it was set up"
    AWAY = "the board is out of range"
    SLOW = "the board does not answer in time"
    SLOTS = "the adapter has no connection left"
    ADAPTER = "the adapter is missing, off or not permitted"
    HUNG = "BlueZ does not answer: restart it"
    SERVICE = "the board has not our service"
    OTHER = "another error"


class Hung(Exception):
    """BlueZ did not answer within the time that is left to it."""


# The first row of which a word is in the text.
_WORDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (Kind.SLOTS, ("connection limit", "limited resources", "connection slots", "le-connection-limit")),
    (
        Kind.ADAPTER,
        (
            "no powered bluetooth", "no bluetooth adapter", "notready", "not ready", "not powered",
            "serviceunknown", "accessdenied", "no default controller", "bus.error.disconnected",
        ),
    ),
    (
        Kind.ABORTED,
        ("abort", "failed to be established", "in progress", "inprogress", "already exists", "le-connection"),
    ),
    (Kind.DROPPED, ("disconnect", "not connected", "connection refused", "terminated")),
    (Kind.SERVICE, ("was not found!", "no service", "characteristic")),
    (Kind.AWAY, ("not found", "does not exist", "unknownobject", "not heard", "page timeout")),
    (Kind.SLOW, ("timeout", "timed out", "no answer")),
)  # fmt: skip

# Pauses before further attempts, in seconds; then the board must be heard again.
PAUSES_S = {
    Kind.ABORTED: (0.1, 0.25, 0.5, 1.0),
    Kind.DROPPED: (0.25, 0.5, 1.0),
    Kind.OTHER: (0.5,),
}
# Before anybody is connected to again.
REST_S = {Kind.SLOTS: 4.0, Kind.ADAPTER: 4.0}


def words(error: BaseException) -> str:
    """What went wrong, as the machine has it."""
    if isinstance(error, FileNotFoundError):
        return "no D-Bus, over which BlueZ is reached"
    return str(error) or type(error).__name__


def kind(error: BaseException) -> Kind:
    if isinstance(error, Hung):
        return Kind.HUNG
    if isinstance(error, BleakDeviceNotFoundError):
        return Kind.AWAY
    if isinstance(error, (BleakBluetoothNotAvailableError, FileNotFoundError, PermissionError)):
        return Kind.ADAPTER
    if isinstance(error, TimeoutError):
        return Kind.SLOW
    text = str(error).lower()
    for found, words in _WORDS:
        if any(word in text for word in words):
            return found
    return Kind.OTHER
