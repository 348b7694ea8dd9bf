"""An S3 server for tests and `hw crash --store s3`: started, with a bucket, and how it is reached."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from headwater_cloud.location import Location

from .. import environment
from ..demo.subprocesses import free_port
from ..errors import UserError

START_S = 60.0
BUCKET = "headwater"


class Server:
    """It keeps everything in memory, and ends with `stop`."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "s3.txt"
        self.port = free_port()
        self.url = "http://127.0.0.1:%d" % self.port
        with open(self.log, "wb") as output:
            self._process = subprocess.Popen(
                environment.s3_server(self.port), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        until = time.monotonic() + START_S
        while True:
            try:
                self._ask("PUT", "/" + BUCKET)
                return
            except urllib.error.URLError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    raise UserError("the S3 server does not start:\n%s" % self.log.read_text()[-600:])
                time.sleep(0.1)

    def slow_down(self, every: int) -> int:
        """Answer every n-th request with 503 from now on, 0: none; how many were answered so before."""
        return int(self._ask("POST", "/-/slow/%d" % every))

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
            return bytes(answer.read())

    @property
    def storage(self) -> dict[str, str]:
        """delta-rs's options for it, and `--storage` of the commands."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "headwater",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_REGION": "us-east-1",
        }

    def location(self, path: str) -> Location:
        return Location.of("s3a://%s/%s" % (BUCKET, path), {**self.storage, "AWS_ALLOW_HTTP": "true"})

    def words(self) -> list[str]:
        """The arguments with which a command reaches it."""
        return [word for item in self.storage.items() for word in ("--storage", "%s=%s" % item)]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.stop()
