"""A gateway in the process of the test: without a broker, its certificates and passwords."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headwater_gateway.config import Config, read
from headwater_gateway.keys import make
from headwater_gateway.service import Service
from headwater_gateway.web.http import make_token

BARE = '[mqtt]\ntls = false\nuser = ""\npassword_file = ""\n'


def configured(folder: Path, more: str = "") -> Config:
    """The folder of such a gateway. `more`: of its configuration, first what belongs to `[mqtt]`."""
    file = folder / "gateway.toml"
    file.write_text(BARE + more)
    for path, makes in (("master.key", make), ("token", make_token)):
        if not (folder / "secrets" / path).exists():
            makes(folder / "secrets" / path)
    return read(file)


@asynccontextmanager
async def running(config: Config, again: bool = False) -> AsyncIterator[Service]:
    service = Service(config, again)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
