"""The receiver `webhook`: one POST of JSON for each notice.

Any answer of 2xx accepts the notice. 408, 429 and 5xx, a time-out and anything that goes wrong on the way
are failures: the notice is sent again, not before `Retry-After`. Every other answer refuses it: to send the
same again would only be refused again. Redirects are refused too, since they would carry the secret
elsewhere.

The secret is read from its file for each attempt, so that it can be replaced while the gateway runs. It is
neither logged nor shown; of an answer only its status is.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from .. import UserError
from ..config import Config
from .lane import DELIVERED, Outcome

NAME = "webhook"
RETRIED = (408, 429)
AGENT = "headwater-gateway"


class Webhook:
    """UserError if its files cannot be read."""

    def __init__(self, config: Config) -> None:
        self.config = config.webhook
        self.secret_file = config.path(self.config.secret_file) if self.config.secret_file else None
        if self.secret_file is not None:
            try:
                secret(self.secret_file)
            except OSError as error:
                raise UserError(
                    'webhook.secret_file = "%s": %s: %s: write the value of the header %s into it'
                    % (self.config.secret_file, self.secret_file, error.strerror, self.config.header)
                )
        self.tls: ssl.SSLContext | bool = True
        if urlsplit(self.config.url).scheme == "https":
            ca = config.path(self.config.ca) if self.config.ca else None
            try:
                self.tls = ssl.create_default_context(cafile=str(ca) if ca else None)
            except OSError as error:
                raise UserError(
                    'webhook.ca = "%s": %s: name a file with certificates in PEM'
                    % (self.config.ca, error.strerror or error)
                )
            self.tls.minimum_version = ssl.TLSVersion.TLSv1_2

    async def send(self, message: dict[str, Any]) -> Outcome:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": message["id"],
            "User-Agent": AGENT,
        }
        try:
            if self.secret_file is not None:
                headers[self.config.header] = secret(self.secret_file)
        except UserError as trouble:
            return Outcome("failed", str(trouble))
        except OSError as error:
            return Outcome("failed", "webhook.secret_file: %s" % error.strerror)
        timeout = aiohttp.ClientTimeout(total=self.config.timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(
                    self.config.url, data=json.dumps(message).encode(), headers=headers,
                    allow_redirects=False, ssl=self.tls,
                ) as answer,
            ):  # fmt: skip
                return judged(answer.status, answer.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.TimeoutError, ValueError) as error:
            return Outcome("failed", reason(error, self.config.timeout_s))


def judged(status: int, retry_after: str) -> Outcome:
    """What an answer means."""
    why = "it answers with HTTP status %d" % status
    if 200 <= status < 300:
        return DELIVERED
    if status >= 500 or status in RETRIED:
        after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
        return Outcome("failed", why, after_s)
    if 300 <= status < 400:
        why += ", a redirect, and these are not followed"
    return Outcome("refused", why)


def reason(error: BaseException, timeout_s: float) -> str:
    """Why there was no answer; without the URL, which may name a person's account."""
    if isinstance(error, TimeoutError):
        return "no answer within %g s" % timeout_s
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        return "its certificate was not accepted (%s)" % getattr(
            found, "verify_message", type(found).__name__
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection (%s)" % (error.os_error.strerror or type(error.os_error).__name__)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no answer (%s)" % type(error).__name__


def secret(path: Path) -> str:
    """The value of the header. OSError, or UserError if it is none, or others may read it."""
    value = path.read_text(encoding="utf-8", errors="replace").strip()
    if path.stat().st_mode & 0o077:
        raise UserError("%s can be read by others: chmod 600 it" % path)
    if not value or not value.isascii() or not value.isprintable():
        raise UserError("%s: the value of a header is one line of ASCII letters" % path)
    return value
