"""A virtual controller, as an ESP32 has one: bumble's, with what that one leaves open.

It speaks HCI with a host, in this process or behind a serial line, and meets other controllers in the air of
a `Radio`. Each correction of bumble is told where it is made, and has its test.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bumble import hci, ll
from bumble.controller import Connection, Controller, LegacyAdvertiser

from .air import Radio

NOT_ESTABLISHED = hci.HCI_ErrorCode.CONNECTION_FAILED_TO_BE_ESTABLISHED_ERROR
UNKNOWN = hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR
EXISTS = hci.HCI_ErrorCode.CONNECTION_ALREADY_EXISTS_ERROR
ADVERTISING_S = 0.000625  # the unit of advertising intervals
ADVERTISING_DELAY_S = 0.01  # the most by which an advertisement is delayed by chance
ACTIVE = hci.HCI_LE_Set_Scan_Parameters_Command.ACTIVE_SCANNING
REPORTS = hci.HCI_LE_Advertising_Report_Event
RESPONSE = hci.HCI_LE_Advertising_Report_Event.EventType.SCAN_RSP


class Advertiser(LegacyAdvertiser):
    """bumble takes the interval for milliseconds and never delays; here it is in its units of 625 us."""

    def _on_timer_fired(self) -> None:
        self.send_advertising_data()
        pause = self.advertising_interval_min * ADVERTISING_S + random.random() * ADVERTISING_DELAY_S
        self.timer_handle = asyncio.get_running_loop().call_later(pause, self._on_timer_fired)


class Antenna(Controller):
    """A controller with the buffers and features of an ESP32: Bluetooth 4.2, packets of 251 bytes. With
    extended advertising bumble would report only in its new form; MicroPython's NimBLE reads only the old."""

    le_acl_data_packet_length = 251
    total_num_le_acl_data_packets = 12
    supported_max_tx_octets = supported_max_rx_octets = 251
    le_features = (
        hci.LeFeatureMask.LE_ENCRYPTION
        | hci.LeFeatureMask.CONNECTION_PARAMETERS_REQUEST_PROCEDURE
        | hci.LeFeatureMask.EXTENDED_REJECT_INDICATION
        | hci.LeFeatureMask.PERIPHERAL_INITIATED_FEATURE_EXCHANGE
        | hci.LeFeatureMask.LE_PING
        | hci.LeFeatureMask.LE_DATA_PACKET_LENGTH_EXTENSION
        | hci.LeFeatureMask.LL_PRIVACY
    )

    def __init__(self, name: str, radio: Radio, address: str, source: Any = None, sink: Any = None) -> None:
        super().__init__(name, host_source=source, host_sink=sink, link=radio, public_address=address)
        self.radio = radio
        self.le_legacy_advertiser = Advertiser(self)
        self._incoming: ll.ConnectInd | None = None

    # Connections are found by both ends: bumble sends data in the name of the random address, and a host that
    # uses its public one is never heard.

    def link_to(self, other: Controller) -> Connection | None:
        """This end of the connection with another antenna."""
        for connection in self.le_connections.values():
            mirror = other.le_connections.get(connection.self_address)
            if mirror and mirror.self_address == connection.peer_address:
                return connection
        return None

    def other_end(self, connection: Connection) -> Antenna | None:
        for other in self.radio.controllers:
            mirror = other.le_connections.get(connection.self_address)
            if isinstance(other, Antenna) and mirror and mirror.self_address == connection.peer_address:
                return other
        return None

    def lose(self, connection: Connection, reason: int) -> None:
        """The connection is over, unless it was before."""
        if self.le_connections.get(connection.peer_address) is connection:
            self.on_le_disconnected(connection, reason)

    # HCI, without bumble's debug lines: it formats each packet even where nobody logs it

    def on_hci_packet(self, packet: hci.HCI_Packet) -> None:
        if isinstance(packet, hci.HCI_Command):
            self.on_hci_command_packet(packet)
        elif isinstance(packet, hci.HCI_AclDataPacket):
            self.on_hci_acl_data_packet(packet)

    def send_hci_packet(self, packet: hci.HCI_Packet) -> None:
        told = self._incoming
        if told and isinstance(packet, hci.HCI_LE_Connection_Complete_Event):
            # bumble tells a peripheral parameters of its own invention.
            packet = hci.HCI_LE_Connection_Complete_Event(
                status=packet.status,
                connection_handle=packet.connection_handle,
                role=packet.role,
                peer_address_type=packet.peer_address_type,
                peer_address=packet.peer_address,
                connection_interval=told.interval,
                peripheral_latency=told.latency,
                supervision_timeout=told.timeout,
                central_clock_accuracy=0,
            )
        elif isinstance(packet, REPORTS) and not self._answered(packet):
            return
        if self.host:
            asyncio.get_running_loop().call_soon(self.host.on_packet, bytes(packet))

    def _answered(self, packet: hci.HCI_LE_Advertising_Report_Event) -> bool:
        """Whether the report is to be told: bumble repeats the advertisement where the scan response belongs,
        and to who scans passively too."""
        (report,) = packet.reports
        if report.event_type != RESPONSE:
            return True
        if self.le_scan_type != ACTIVE:
            return False
        for other in self.radio.controllers:
            advertiser = other.le_legacy_advertiser
            if advertiser.enabled and advertiser.address == report.address:
                report.data = bytes(advertiser.scan_response_data)
                return bool(report.data)
        return False

    # Data: in the fragments in which the host gave it, at the speed of the air. bumble hands over whole
    # packets, larger than the buffers of a small host, and tells at once that they were sent.

    def on_hci_acl_data_packet(self, packet: hci.HCI_AclDataPacket) -> None:
        connection = self.find_le_connection_by_handle(packet.connection_handle)
        other = self.other_end(connection) if connection else None
        air = self.radio.between(self, other) if other else None
        if air:
            air.put(self, packet)

    # Connecting

    def on_hci_le_create_connection_command(self, command: hci.HCI_LE_Create_Connection_Command) -> None:
        if command.peer_address in self.le_connections:
            self._send_hci_command_status(EXISTS, command.op_code)
        else:
            super().on_hci_le_create_connection_command(command)

    def create_le_connection(self, peer_address: hci.Address) -> None:
        command = self.pending_le_connection
        if command is None or command.peer_address != peer_address:
            return
        if peer_address in self.le_connections:  # it connected to us in the meantime
            self._give_up_connecting(EXISTS)
            return
        super().create_le_connection(peer_address)
        connection = self.le_connections.get(peer_address)
        if connection:
            # bumble connects to a peer that does not hear it as well. A link layer waits six intervals.
            wait = 6 * _interval(command) * 0.00125
            asyncio.get_running_loop().call_later(wait, self._check_established, connection)

    def _check_established(self, connection: Connection) -> None:
        if not self.other_end(connection):
            self.lose(connection, NOT_ESTABLISHED)

    def on_le_connect_ind(self, packet: ll.ConnectInd) -> None:
        known = self.le_connections.get(packet.initiator_address)
        if known:
            other = self.other_end(known)
            both_ask = other is not None and self.radio.between(self, other) is None
            if not both_ask or bytes(known.self_address) < bytes(known.peer_address):
                return  # a second connection between two: the one who asks is not answered
            self.lose(known, NOT_ESTABLISHED)  # two asked at once, and a radio that sends hears nobody
        self._incoming = packet
        super().on_le_connect_ind(packet)
        self._incoming = None
        mine = self.le_connections.get(packet.initiator_address)
        central = self.other_end(mine) if mine else None
        if central:
            self.radio.join(central, self, packet)

    def on_hci_le_create_connection_cancel_command(
        self, _command: hci.HCI_LE_Create_Connection_Cancel_Command
    ) -> hci.HCI_StatusReturnParameters:
        """bumble only says that it cancels, and connects when it hears the peer."""
        if self.pending_le_connection is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        # The host hears of the command first.
        asyncio.get_running_loop().call_soon(self._give_up_connecting, UNKNOWN)
        return super().on_hci_le_create_connection_cancel_command(_command)

    def _give_up_connecting(self, status: int) -> None:
        command, self.pending_le_connection = self.pending_le_connection, None
        if command:
            self.send_hci_packet(
                hci.HCI_LE_Connection_Complete_Event(
                    status=status,
                    connection_handle=0,
                    role=hci.Role.CENTRAL,
                    peer_address_type=command.peer_address_type,
                    peer_address=command.peer_address,
                    connection_interval=0,
                    peripheral_latency=0,
                    supervision_timeout=0,
                    central_clock_accuracy=0,
                )
            )

    # Power

    def power_off(self) -> None:
        """Its host is gone: no word to anybody. Peers find out by their supervision timeout."""
        self.le_legacy_advertiser.stop()
        for each in self.advertising_sets.values():
            each.stop()
        self.le_scan_enable = False
        self.pending_le_connection = None
        self.radio.vanish(self)
        self.le_connections.clear()

    def on_hci_reset_command(self, _command: hci.HCI_Reset_Command) -> hci.HCI_StatusReturnParameters:
        """bumble's reset leaves all as it was."""
        self.power_off()
        return super().on_hci_reset_command(_command)


def _interval(
    command: hci.HCI_LE_Create_Connection_Command | hci.HCI_LE_Extended_Create_Connection_Command,
) -> int:
    if isinstance(command, hci.HCI_LE_Extended_Create_Connection_Command):
        return command.connection_interval_mins[0]
    return command.connection_interval_min
