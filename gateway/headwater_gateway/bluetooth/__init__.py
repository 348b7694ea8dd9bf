"""Bluetooth at the gateway: the driver under `BleCarrier`, which decides who is spoken to."""
