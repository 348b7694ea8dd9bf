# What a TLS link is verified with. A board needs this once, at its start.

from ..offboard.compat import TYPE_CHECKING
from .native import BOARD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


# From the settings of the broker. On a board files are in DER; CPython takes an authority in either form, and
# a certificate of its own in PEM alone.
def context(broker: "Mapping[str, str]") -> "Any":
    if BOARD:
        import tls  # type: ignore[import-not-found]

        def content(path: str) -> bytes:
            with open(path, "rb") as f:
                return f.read()

        made = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        made.verify_mode = tls.CERT_REQUIRED
        made.load_verify_locations(content(broker["ca"]))
        if broker.get("cert"):
            made.load_cert_chain(content(broker["cert"]), content(broker["cert_key"]))
        return made
    import ssl

    # Not `create_default_context`: from Python 3.13 on that demands extensions that a site's authority lacks.
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with open(broker["ca"], "rb") as f:
        ca = f.read()
    made.load_verify_locations(cadata=ca.decode() if ca.startswith(b"-----") else ca)
    if broker.get("cert"):
        made.load_cert_chain(broker["cert"], broker["cert_key"])
    return made
