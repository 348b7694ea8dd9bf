# What a host shows to Bluetooth: the UUIDs of its service, INFO, and the service data of its advertisement.
#
# Anybody may read these, so they name nobody: a name is shown as a tag, the first bytes of its HMAC under a
# key that all hosts of a site share and no one else has. A tag proves nothing; seals do.

from ..offboard.compat import TYPE_CHECKING, const
from .sessions import hmac

if TYPE_CHECKING:
    from ..offboard.interfaces import Readable

SERVICE = "7d1e0001-8c5b-4a52-9b6e-1c1d5f6a0e01"
DOWN = "7d1e0002-8c5b-4a52-9b6e-1c1d5f6a0e01"  # the central writes, without response
UP = "7d1e0003-8c5b-4a52-9b6e-1c1d5f6a0e01"  # the peripheral notifies
INFO = "7d1e0004-8c5b-4a52-9b6e-1c1d5f6a0e01"  # read

VERSION = const(1)
INFO_BYTES = 20
DATA_BYTES = 5
# Flags of the service data.
WANTS = 1  # something waits here for the gateway
LOW = 2  # the battery runs low
LAST = 4  # only the gateway may connect now
# Flags of INFO.
PAIRS = 1  # a central may ask this host for LE Secure Connections
_FLAGS = const(16)  # where they are
_TAG = const(4)
_SITE = const(8)

# Names of the gateway: as a host of processes, and on the site link.
GATEWAY = "g"
SITE = "s"


# The key of the tags of a site, from the key that only the gateway has.
def tag_key(master: "Readable") -> bytes:
    return hmac(master, b"headwater bluetooth")


# What stands for a name of this site.
def tag(key: "Readable", name: str) -> bytes:
    return hmac(key, b"name", name.encode())[:_TAG]


def site_tag(key: "Readable") -> bytes:
    return hmac(key, b"site")[:_SITE]


# INFO of a host: the window and the longest frame that it takes.
def info(key: "Readable", name: str, window: int, longest: int) -> bytes:
    return bytes((VERSION, window, longest & 255, longest >> 8)) + tag(key, name) + site_tag(key) + bytes(4)


# INFO of a host that may be asked for LE Secure Connections.
def with_pairing(data: "Readable") -> bytes:
    return bytes(data[:_FLAGS]) + bytes((data[_FLAGS] | PAIRS,)) + bytes(data[_FLAGS + 1 :])


# Whether a host with this INFO may be asked for that.
def pairs(data: "Readable") -> bool:
    return len(data) >= INFO_BYTES and bool(data[_FLAGS] & PAIRS)


# (window, longest, tag) of a host of the site with this tag; None: another site, another version, or
# malformed. Of the last four bytes the first has flags; the others are of later versions, and not looked at.
def read_info(data: "Readable", site: bytes) -> "tuple[int, int, bytes] | None":
    if len(data) < INFO_BYTES or data[0] != VERSION or bytes(data[8:16]) != site:
        return None
    longest = data[2] | data[3] << 8
    if not data[1] or not longest:
        return None
    return data[1], longest, bytes(data[4:8])


# Service data: (tag, flags), or None.
def read_data(data: "Readable") -> "tuple[bytes, int] | None":
    if len(data) != DATA_BYTES:
        return None
    return bytes(data[:_TAG]), data[_TAG]
