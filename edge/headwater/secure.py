# What a TLS link is verified with. A board needs this once, at its start.

from .machine import BOARD


# From the settings of the broker: files in DER on a board, in PEM on CPython.
def context(broker):
    if BOARD:
        import tls

        def content(path):
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
