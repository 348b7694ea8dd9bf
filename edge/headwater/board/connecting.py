# Opens a link to the broker, or tells why it cannot. It is in RAM only meanwhile.

from .mqtt import packet, text

# Codes of CONNACK.
REFUSED = ("", "protocol version", "client id", "broker not ready", "user or password", "not allowed")


def connect(name: str, keepalive_s: int, will: str, user: str | None, password: str | None) -> bytearray:
    flags = 6 | (0x80 if user else 0) | (0x40 if password else 0)  # clean; a will, of QoS 0
    parts = [text("MQTT"), bytes((4, flags)), keepalive_s.to_bytes(2, "big"), text(name), text(will), b"\0\0"]
    for s in (user, password):
        if s:
            parts.append(text(s))
    return packet(0x10, *parts)


# What mbedTLS reports about a certificate -> what to check.
_CURES = (
    ("expected CN", "look at broker.name"),
    ("trusted CA", "look at broker.ca"),
    ("expired", "the broker needs a new one"),
)


# In one line. An error that is raised again already has its suggested fix.
def why(e: Exception) -> str:
    s = str(e).strip().replace("\n", "; ") or type(e).__name__
    for part, cure in _CURES:
        if part in s and cure not in s:
            s += ": " + cure
    return s
