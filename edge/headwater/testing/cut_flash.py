# NOR flash in software, with the faults that real flash has when power goes away.
#
# It has the interface of esp32.Partition: readblocks and writeblocks with an offset, ioctl 4, 5, 6.
# A program only lets bits fall: one that would raise a bit, or that touches a byte in doubt, raises
# FlashError, a defect of the caller. `arm` cuts power at a chosen byte of a chosen operation; the
# device then refuses everything (PowerCut) until `revive`. All chance comes from the seed.
#
# How a cut leaves the operation that it hits:
#   a program at byte b          CLEAN    bytes before b are done, nothing else has changed
#                                TORN     and some bits of byte b have fallen
#                                SCATTER  some bits of every byte have fallen (a page is programmed at once)
#                                DECAY    bytes before b read as done, until `settle`: then some bits rise
#                                APPEAR   nothing seems done, until `settle`: then bytes before b are
#                                FLICKER  bytes before b read differently every time
#   an erase (b picks the share) CLEAN    nothing has changed
#                                TORN     every byte is old, blank or between
#                                SCATTER  whole regions are blank, others old, one is all zeros
#                                DECAY    all reads blank, until `settle`: then partly old again
#                                APPEAR   all reads as before, until `settle`: then partly blank
#                                FLICKER  every byte reads old or blank, differently every time
# Bytes in doubt settle permanently with `settle`, by themselves at the second `revive`, and by an erase.

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

    from ..offboard.interfaces import Readable, Writable

    # Data, doubt, erases; flickers, is old, is dead, random, operations.
    Shot = tuple[bytes, dict[int, tuple[int, int]], list[int], tuple[bool, bool, bool, int, int]]

CLEAN, TORN, SCATTER, DECAY, APPEAR, FLICKER = range(6)
KINDS = ("clean", "torn", "scatter", "decay", "appear", "flicker")


# A defect of the caller: it requested what flash cannot do.
class FlashError(Exception):
    pass


class PowerCut(Exception):
    pass


class CutFlash:
    def __init__(self, sectors: int, sector_size: int = 4096, seed: int = 1) -> None:
        self._sectors = sectors
        self.sector_size = sector_size
        self.data = bytearray(b"\xff" * (sectors * sector_size))
        self.erases = [0] * sectors
        self.stuck: dict[int, bool] = {}  # sector -> True: an erase of it fails
        self.programs = 0
        self.programmed = 0
        self.reads = 0
        self.time_us = 0
        self.op = 0  # programs and erases begun
        self.trace: list[tuple[int, int]] | None = (
            None  # a list: (kind, bytes) of every operation is recorded there
        )
        self.doubt: dict[
            int, tuple[int, int]
        ] = {}  # address -> (reads now, reads after settle); FLICKER: one of the two
        self._span = (0, 0, 0)  # how many bytes are in doubt, the first and the last
        self._flicker = False
        self._old = False
        self._armed = -1
        self._byte = 0
        self._kind = CLEAN
        self._dead = False
        self._random = seed * 2 + 1

    # Cuts power in operation `op` (counted from 0 since the device was made, see `.op`).
    def arm(self, op: int, byte: int = 0, kind: int = CLEAN) -> None:
        self._armed, self._byte, self._kind = op, byte, kind

    def disarm(self) -> None:
        self._armed = -1

    def revive(self) -> None:
        if self._old:
            self.settle()
        self._old = bool(self.doubt)
        self._dead = False
        self._armed = -1

    # What reads differently the second time has now done so.
    def settle(self) -> None:
        for at, pair in self.doubt.items():
            self.data[at] = pair[self._chance(2)] if self._flicker else pair[1]
        self.doubt = {}
        self._flicker = self._old = False

    def snapshot(self) -> "Shot":
        return (
            bytes(self.data),
            dict(self.doubt),
            list(self.erases),
            (self._flicker, self._old, self._dead, self._random, self.op),
        )

    def restore(self, shot: "Shot") -> None:
        self.data[:] = shot[0]
        self._span = (0, 0, 0)
        self.doubt = dict(shot[1])
        self.erases = list(shot[2])
        self._flicker, self._old, self._dead, self._random, self.op = shot[3]
        self._armed = -1

    def _chance(self, n: int) -> int:
        self._random = (self._random * 1103515245 + 12345) & 0x3FFFFFFF
        return (self._random >> 8) % n

    def _place(self, block: int, offset: int, length: int) -> int:
        if self._dead:
            raise PowerCut("the device is without power: revive it")
        if not 0 <= block < self._sectors or offset < 0:
            raise FlashError("no sector %d, offset %d" % (block, offset))
        at = block * self.sector_size + offset
        if at + length > len(self.data):
            raise FlashError("%d bytes at %d: beyond the end of the device" % (length, at))
        return at

    def readblocks(self, block: int, buf: "Writable", offset: int = 0) -> None:
        length = len(buf)
        at = self._place(block, offset, length)
        buf[:] = self.data[at : at + length]
        self.reads += 1
        self.time_us += 30 + length // 10
        if self.doubt and self._near_doubt(at, length):
            for place, pair in self.doubt.items():
                if at <= place < at + length:
                    buf[place - at] = pair[self._chance(2)] if self._flicker else pair[0]

    def writeblocks(self, block: int, buf: "Readable", offset: int | None = None) -> None:
        if offset is None:
            raise FlashError("writeblocks without an offset erases first on a board: never call it")
        length = len(buf)
        at = self._place(block, offset, length)
        if offset + length > self.sector_size:
            raise FlashError("a program crosses the end of sector %d" % block)
        old = bytes(self.data[at : at + length])
        new = bytes(buf)
        if old.count(b"\xff") != length:
            both = int.from_bytes(old, "little") & int.from_bytes(new, "little")
            if both != int.from_bytes(new, "little"):
                raise FlashError("a program at sector %d, offset %d would raise a bit" % (block, offset))
        if self.doubt and self._near_doubt(at, length):
            for place in self.doubt:
                if at <= place < at + length:
                    raise FlashError("a program at sector %d, offset %d: bytes in doubt" % (block, offset))
        self._begin(0, length)
        if self.op - 1 == self._armed:
            self._cut_program(at, old, new)
        self.data[at : at + length] = new
        self.programs += 1
        self.programmed += length
        self.time_us += 30 + 400 * ((length + 255) >> 8)

    def ioctl(self, request: int, block: int) -> int:
        if request == 4:
            return self._sectors
        if request == 5:
            return self.sector_size
        if request == 6:
            self._erase(block)
        return 0

    def _begin(self, kind: int, length: int) -> None:
        self.op += 1
        if self.trace is not None:
            self.trace.append((kind, length))

    def _erase(self, block: int) -> None:
        size = self.sector_size
        at = self._place(block, 0, size)
        self._begin(1, size)
        self.erases[block] += 1
        self.time_us += 45000
        for place in list(self.doubt):
            if at <= place < at + size:
                self.data[place] = self.doubt.pop(place)[1]
        if self.op - 1 == self._armed:
            self._cut_erase(at, bytes(self.data[at : at + size]))
        if block in self.stuck:
            self.data[at + size - 1] = 0
            return
        self.data[at : at + size] = b"\xff" * size

    def _cut_program(self, at: int, old: bytes, new: bytes) -> None:
        kind = self._kind
        cut = min(self._byte, len(new))
        if kind == CLEAN or kind == TORN:
            self.data[at : at + cut] = new[:cut]
            if kind == TORN and cut < len(new):
                self.data[at + cut] = old[cut] & (new[cut] | self._chance(256))
        elif kind == SCATTER:
            for i in range(len(new)):
                keep = self._chance(256)
                if i < cut:  # the further the cut, the more bits have fallen
                    keep &= self._chance(256) & self._chance(256)
                self.data[at + i] = old[i] & (new[i] | keep)
        else:
            self._flicker = kind == FLICKER
            for i in range(cut):
                partly = new[i] | (old[i] & self._chance(256))
                if kind == DECAY:
                    self._doubt(at + i, new[i], partly)
                elif kind == APPEAR:
                    self._doubt(at + i, old[i], new[i])
                else:
                    self._doubt(at + i, old[i], new[i])
        self._lose_power()

    def _cut_erase(self, at: int, old: bytes) -> None:
        kind = self._kind
        share = self._byte & 255
        if kind == SCATTER:
            region = max(16, len(old) >> 3)
            for i in range(0, len(old), region):
                state = self._chance(256)
                if state < share:
                    self.data[at + i : at + i + region] = b"\xff" * region
                elif state == 255 or i == share * region:
                    self.data[at + i : at + i + region] = bytes(region)
        elif kind != CLEAN:
            self._flicker = kind == FLICKER
            for i in range(len(old)):
                partly = 255 if self._chance(256) < share else old[i] | self._chance(256)
                if kind == TORN:
                    self.data[at + i] = partly
                elif old[i] == 255:
                    continue
                elif kind == DECAY:
                    self._doubt(at + i, 255, partly)
                else:
                    self._doubt(at + i, old[i], 255 if kind == FLICKER else partly)
        self._lose_power()

    # Doubt lies close together, where the last cuts were: most reads are far from it.
    def _near_doubt(self, at: int, length: int) -> bool:
        if len(self.doubt) != self._span[0]:
            self._span = (len(self.doubt), min(self.doubt), max(self.doubt))
        return at <= self._span[2] and self._span[1] < at + length

    def _doubt(self, at: int, now: int, later: int) -> None:
        if now != later:
            self.doubt[at] = (now, later)
        else:
            self.data[at] = now

    def _lose_power(self) -> "NoReturn":
        self._dead = True
        self._armed = -1
        self._span = (0, 0, 0)
        raise PowerCut("power was cut in operation %d" % (self.op - 1))
