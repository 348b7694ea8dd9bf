# What a TLS link is verified with. A board needs this once, at its start.

from ..offboard.compat import TYPE_CHECKING
from .native import BOARD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


# From the settings of the broker: files in DER on a board, in PEM on CPython.
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

    made = ssl.create_default_context(cafile=broker["ca"])
    if broker.get("cert"):
        made.load_cert_chain(broker["cert"], broker["cert_key"])
    return made
