"""An S3 server on this machine that can simulate overload: run by path, with moto's packages.

    python s3_server.py PACKAGES PORT

`POST /-/slow/N` makes it answer every N-th request with 503 SlowDown, as S3 does when it throttles; 0 ends
that. Conditional requests are decided one at a time, as S3 does: moto looks, and then writes.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class Throttled:
    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self.application = application
        self.every = 0
        self.requests = itertools.count(1)
        self.refused = 0
        self.conditional = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/-/slow/"):
            self.every = int(path.rpartition("/")[2])
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"%d" % self.refused]
        if self.every and next(self.requests) % self.every == 0:
            self.refused += 1
            # What was sent has to be read, or the next request on this connection begins in the middle of it.
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [SLOW_DOWN]
        if environ["REQUEST_METHOD"] == "PUT" and {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys():
            with self.conditional:
                return list(self.application(environ, start_response))
        return self.application(environ, start_response)


def main(packages: str, port: str) -> None:
    sys.path.insert(0, packages)
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    MotoRequestHandler.protocol_version = "HTTP/1.1"  # connections that stay, as S3's
    application = Throttled(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(port), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(*sys.argv[1:])
