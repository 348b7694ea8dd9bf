"""A Bluetooth adapter on the virtual radio: a bumble host in this process, for bleak's backend."""

from __future__ import annotations

from bumble.device import Device
from bumble.hci import Address
from bumble.host import Host
from bumble.pairing import PairingConfig
from bumble.transport.common import AsyncPipeSink, TransportSink, TransportSource

from .air import Radio
from .antenna import Antenna


async def adapter(radio: Radio, address: str, name: str = "gateway") -> tuple[Device, Antenna]:
    """A host in this process, and its antenna."""
    antenna = Antenna(name, radio, address)
    host = Host(antenna, AsyncPipeSink(antenna))
    antenna.host = host
    return await _started(host, address, name), antenna


async def adapter_at(
    source: TransportSource, sink: TransportSink, address: str, name: str = "gateway"
) -> Device:
    """A host in this process whose antenna is at the other end of a line."""
    return await _started(Host(source, sink), address, name)


async def _started(host: Host, address: str, name: str) -> Device:
    device = Device(name=name, address=Address(address), host=host)
    # Bonds are stored under this address: with the public one, a reconnect would not find its keys.
    device.pairing_config_factory = lambda _connection: PairingConfig(
        identity_address_type=PairingConfig.AddressType.RANDOM
    )
    await device.power_on()
    return device
