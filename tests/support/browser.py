"""A real Chromium without a window, driven through its DevTools protocol: one page that tests look at."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from headwater_tools import environment


class PageError(Exception):
    """A command of the protocol or a script in the page failed."""


class Browser:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="hw-chromium-", ignore_cleanup_errors=True)
        # Chromium chooses the port and writes it to a file.
        command = [
            *environment.chromium(),
            "--user-data-dir=" + self.folder.name,
            "--remote-debugging-port=0",
        ]
        self.process = subprocess.Popen(
            [*command, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.loop = asyncio.new_event_loop()
        self.problems: list[str] = []  # what the page's scripts complained of
        self._count = 0
        try:
            self._wait(self._open())
            for domain in ("Page", "Runtime", "Log"):
                self.call(domain + ".enable")
            self.call("Emulation.setScrollbarsHidden", hidden=True)
        except BaseException:
            self.close()
            raise

    _session: aiohttp.ClientSession | None = None
    _socket: aiohttp.ClientWebSocketResponse | None = None

    def _wait(self, what: Any, timeout_s: float = 30) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(what, timeout_s))

    async def _open(self) -> None:
        place = Path(self.folder.name) / "DevToolsActivePort"
        while not (place.exists() and place.read_text().count("\n")):
            assert self.process.poll() is None, "Chromium ended by itself"
            await asyncio.sleep(0.05)
        port = place.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        async with self._session.get("http://127.0.0.1:%s/json/list" % port) as answer:
            pages = [each for each in await answer.json(content_type=None) if each["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)

    def close(self) -> None:
        if self._socket is not None:
            self._wait(self._socket.close())
        if self._session is not None:
            self._wait(self._session.close())
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._wait(asyncio.sleep(0.05))
        self.loop.close()
        self.folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        return self._wait(self._call(method, params))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._socket is not None
        self._count += 1
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        while True:
            told = await self._socket.receive()
            assert told.type is aiohttp.WSMsgType.TEXT, "Chromium closed the connection"
            message = json.loads(told.data)
            if message.get("id") == self._count:
                if "error" in message:
                    raise PageError("%s: %s" % (method, message["error"].get("message")))
                result: dict[str, Any] = message["result"]
                return result
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            if message.get("method") == "Log.entryAdded":
                entry = message["params"]["entry"]
                if entry["level"] == "error" and entry["source"] != "network":
                    self.problems.append(entry["text"])

    # ---- the page

    def size(self, width: int, height: int, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=phone,
        )  # fmt: skip

    def dark(self, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def goto(self, url: str) -> None:
        found = self.call("Page.navigate", url=url)
        assert not found.get("errorText"), "%s: %s" % (url, found)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def get(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def until(self, script: str, timeout_s: float = 180) -> Any:
        """Wait until an expression is true; what it gave. While a page loads, much is not there yet."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                found = self.get(script)
            except PageError as error:
                found, why = None, str(error)
            else:
                why = repr(found)
            if found:
                return found
            if time.monotonic() > end:
                text = self.get("document.body ? document.body.innerText : ''")
                raise AssertionError(
                    "not in %g s: %s\nit was %s\nthe page says:\n%s" % (timeout_s, script, why, text)
                )
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        return str(self.get("(document.querySelector(%s) || {}).innerText || ''" % json.dumps(selector)))

    def keys(self, *names: str) -> None:
        """Press keys: a name like Tab or Enter, or text."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        for name in names:
            if name in codes:
                more = {"text": "\r"} if name == "Enter" else {"text": " "} if name == " " else {}
                key = {"key": name, "windowsVirtualKeyCode": codes[name]}
                self.call("Input.dispatchKeyEvent", type="keyDown", **key, **more)
                self.call("Input.dispatchKeyEvent", type="keyUp", **key)
            else:
                self.call("Input.insertText", text=name)

    def picture(self, path: Path, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
