# heap: 128k
# The flash log keeps what it acknowledged: streams, facts, blobs, over restarts and power cuts.

from binascii import hexlify

from headwater.storage.log import Log, LogError, LogFull
from headwater.testing.cut_flash import APPEAR, DECAY, FLICKER, SCATTER, TORN, CutFlash, PowerCut

NUMBER = 0x1122334455667788


def new(sectors=10, size=512, reserve=()):
    flash = CutFlash(sectors, size, 3)
    Log.format(flash, NUMBER)
    return flash, mounted(flash, reserve)


def mounted(flash, reserve=()):
    log = Log(flash, reserve, 256)
    log.mount()
    return log


def fails(kind, call, *args):
    try:
        call(*args)
    except kind as e:
        return e.args[0]
    return ""


def body(k, size=40):
    return bytes([(k * 37 + i * 11) & 255 for i in range(size)])


def read(log, stream, xi):
    buf = bytearray(512)
    return bytes(buf[: log.read_run(stream, xi, buf)])


def test_what_was_appended_is_read_by_any_xi_it_holds():
    _, log = new()
    assert log.append_run(1, 1, 5, 1000, body(1))
    assert log.append_run(1, 6, 2, 1500, body(2))
    assert read(log, 1, 1) == read(log, 1, 5) == body(1)
    assert read(log, 1, 6) == read(log, 1, 7) == body(2)
    assert read(log, 1, 8) == read(log, 2, 1) == b""
    assert log.tail(1) == (7, 1500)
    assert log.tail(2) == (0, 0)


def test_streams_facts_and_blobs_are_there_after_a_restart():
    flash, log = new()
    log.append_run(1, 1, 5, 1 << 50, body(1))
    log.put(7, b"seven")
    log.put(8, b"")
    log.put_blob(3, [body(1, 300), b"", body(2, 500)])
    log = mounted(flash)
    assert log.log_number == NUMBER
    assert log.tail(1) == (5, 1 << 50)
    assert read(log, 1, 3) == body(1)
    assert [log.get(key) for key in log.keys()] == [b"seven", b""]
    assert log.get_blob(3) == body(1, 300) + body(2, 500)
    assert log.blob_size(3) == 800


def test_blobs_fit_into_a_buffer_of_any_size():
    for scratch in range(257, 274):
        flash, _ = new(20)
        log = Log(flash, (), scratch)
        log.mount()
        log.put_blob(7, body(scratch, 900))
        log = mounted(flash)
        assert log.get_blob(7) == body(scratch, 900)


def test_xi_and_ts_beyond_thirty_bits_are_kept():
    flash, log = new()
    log.start_stream(1, (1 << 60) - 1, 1 << 61)
    assert log.append_run(1, 1 << 60, 3, (1 << 61) + 5, body(1))
    assert log.append_run(1, (1 << 60) + 3, 3, (1 << 62), body(2))
    log = mounted(flash)
    assert log.tail(1) == ((1 << 60) + 5, 1 << 62)
    assert read(log, 1, (1 << 60) + 1) == body(1)
    assert read(log, 1, (1 << 60) + 3) == body(2)


def test_a_run_that_does_not_follow_the_tail_is_refused():
    _, log = new()
    assert log.append_run(1, 1, 5, 0, body(1))
    assert "cannot follow" in fails(LogError, log.append_run, 1, 7, 1, 0, body(1))
    assert "cannot follow" in fails(LogError, log.append_run, 1, 5, 1, 0, body(1))
    assert "never goes back" in fails(LogError, log.start_stream, 1, 4, 0)
    assert log.tail(1) == (5, 0)


def test_the_tail_of_a_quiet_stream_outlives_many_turns_of_the_ring():
    flash, log = new()
    log.append_run(9, 1, 3, 77, body(9))
    log.trim(9, 3)
    xi = 1
    for k in range(300):
        assert log.append_run(1, xi, 1, k, body(k))
        log.trim(1, xi - 1)
        log.idle()
        xi += 1
    assert min(flash.erases) > 3
    assert log.tail(9) == (3, 77)
    log = mounted(flash)
    assert log.tail(9) == (3, 77)
    assert log.first(9) == 4
    assert read(log, 1, 300) == body(299)


def test_a_pinned_stream_is_carried_round_the_ring():
    flash, log = new(8, 1024)
    assert log.append_run(9, 1, 2, 77, body(9))
    for k in range(300):
        assert log.append_run(1, k + 1, 1, k, body(k))
        log.trim(1, k)
        log.idle()
    assert log.stats()["reclaimed"] > 3
    for _ in range(2):
        assert read(log, 9, 1) == read(log, 9, 2) == body(9)
        log = mounted(flash)


def test_the_reserve_is_refused_to_streams_and_open_to_the_rest():
    flash, log = new(13, 512, (500,))
    k = 0
    while log.append_run(1, k + 1, 1, k, body(k)):
        k += 1
    assert log.free_bytes() < 64
    assert log.tail(1) == (k, k - 1)
    log.put_blob(1, body(1, 500))
    log.put(1, body(2, 50))
    assert not log.append_run(1, k + 1, 1, k, body(k))
    log = mounted(flash, (500,))
    assert log.get_blob(1) == body(1, 500)
    assert [read(log, 1, i + 1) for i in range(k)] == [body(i) for i in range(k)]
    log.trim(1, k)
    log.drop_blob(1)
    assert log.append_run(1, k + 1, 1, k, body(k))


def test_a_log_that_is_full_to_the_brim_says_so_and_lives_on():
    flash, log = new()
    key = 0
    while not fails(LogFull, log.put_blob, key % 5, body(key, 200 + 100 * key)):
        key += 1
    log = mounted(flash)
    held = log.blob_keys()
    assert held
    for key in held:
        log.drop_blob(key)
    log.put_blob(1, body(1, 900))
    assert log.get_blob(1) == body(1, 900)


def test_a_rename_replaces_its_destination():
    flash, log = new()
    log.put_blob(1, body(1, 600))
    log.put_blob(2, body(2, 30))
    log.rename_blob(1, 2)
    assert "no blob 1" in fails(LogError, log.rename_blob, 1, 2)
    for _ in range(2):
        assert log.blob_keys() == [2]
        assert log.get_blob(2) == body(1, 600)
        assert log.get_blob(1) is None
        assert log.blob_size(1) == 0
        log = mounted(flash)


def test_a_blob_is_read_in_parts():
    _, log = new()
    log.put_blob(1, body(1, 700))
    part = bytearray(100)
    assert log.read_blob(1, 650, part) == 50
    assert part[:50] == body(1, 700)[650:]
    assert log.read_blob(1, 240, part) == 100
    assert part == body(1, 700)[240:340]
    assert log.read_blob(1, 700, part) == 0
    assert log.read_blob(2, 0, part) == 0


def test_a_stream_forgotten_and_begun_again_holds_nothing_of_its_earlier_life():
    flash, log = new()
    log.append_run(1, 1, 4, 5, body(1))
    log.forget(1)
    assert log.tail(1) == (0, 0)
    log.append_run(1, 1, 2, 3, body(2))
    for _ in range(2):
        assert read(log, 1, 1) == body(2)
        assert read(log, 1, 3) == b""
        assert log.tail(1) == (2, 3)
        log = mounted(flash)


def test_a_declared_jump_lets_go_of_what_was_held():
    flash, log = new()
    log.append_run(1, 1, 4, 5, body(1))
    log.start_stream(1, 100, 9)
    assert log.append_run(1, 101, 1, 10, body(2))
    for _ in range(2):
        assert log.first(1) == 101
        assert read(log, 1, 4) == b""
        assert read(log, 1, 101) == body(2)
        log = mounted(flash)


def test_a_device_without_a_log_is_refused_in_one_sentence():
    flash = CutFlash(8, 512, 1)
    assert fails(LogError, Log(flash).mount) == "no log on this device: format it first"
    flash.data[:] = bytes([(i * 7919) >> 3 & 255 for i in range(len(flash.data))])
    assert fails(LogError, Log(flash).mount) == "no log on this device: format it first"
    assert "sectors" in fails(LogError, Log, CutFlash(3, 512, 1))


def test_a_log_is_used_only_after_mounting():
    flash, _ = new()
    assert "mount" in fails(LogError, Log(flash).put, 1, b"x")


def test_formatting_again_leaves_nothing_of_the_old_log():
    flash, log = new()
    log.put(1, b"x")
    log.append_run(1, 1, 1, 1, body(1))
    Log.format(flash, 5)
    log = mounted(flash)
    assert log.log_number == 5
    assert log.keys() == log.streams() == log.blob_keys() == []


def test_a_hundred_brownouts_do_not_fill_the_ring():
    flash, log = new(8)
    log.append_run(1, 1, 1, 1, body(1))
    log.put_blob(1, body(2, 300))
    before = log.free_bytes()
    for k in range(100):
        flash.arm(flash.op + k % 9, k, 1 + k % 5)
        try:
            log = mounted(flash)
            log.put(1, bytes([k]))
        except PowerCut:
            pass
        flash.revive()
    log = mounted(flash)
    assert log.free_bytes() > before - 600
    assert read(log, 1, 1) == body(1)
    assert log.get_blob(1) == body(2, 300)


# The record is cut in each way at its last byte, where it may read well at first, or later.
def test_an_xi_is_never_given_twice_when_weak_bits_change_their_mind():
    for kind in (TORN, SCATTER, DECAY, APPEAR, FLICKER):
        for byte in (10, 50, 64):
            flash, log = new(6)
            assert log.append_run(1, 1, 3, 10, body(1, 50))
            flash.arm(flash.op, byte, kind)
            assert fails(PowerCut, log.append_run, 1, 4, 3, 20, body(2, 50))
            flash.revive()
            log = mounted(flash)
            last = log.tail(1)[0]
            assert last in (3, 6)
            flash.settle()
            assert log.append_run(1, last + 1, 1, 30, body(3))
            for _ in range(2):
                assert read(log, 1, 1) == body(1, 50)
                assert read(log, 1, last + 1) == body(3)
                assert last == 3 or read(log, 1, 4) == body(2, 50)
                log = mounted(flash)
                assert log.tail(1) == (last + 1, 30)


def test_a_sector_that_does_not_erase_is_retired():
    flash, log = new(9)
    flash.stuck[4] = True
    flash.stuck[7] = True
    for k in range(200):
        assert log.append_run(1, k + 1, 1, k, body(k))
        log.trim(1, k)
        log.put(1, bytes([k]))
        log.idle()
    assert log.stats()["bad"] == 2
    log = mounted(flash)
    assert log.stats()["bad"] == 2
    assert log.get(1) == bytes([199])
    assert read(log, 1, 200) == body(199)


def test_an_append_costs_one_program_and_never_an_erase_when_idle_had_time():
    flash, log = new(8, 1024)
    log.append_run(1, 1, 1, 0, body(0))
    log.idle()
    log.idle()
    for k in range(1, 120):
        erases = sum(flash.erases)
        programs = flash.programs
        assert log.append_run(1, k + 1, 1, k, body(k))
        assert sum(flash.erases) == erases
        assert flash.programs - programs in (1, 3, 4)  # 3, 4: a new sector, header and table
        log.trim(1, k)
        log.idle()
        log.idle()


def test_a_record_of_an_earlier_sequence_is_not_taken():
    flash, log = new()
    at = log._p * 512 + log._pos
    log.put(1, b"old!")
    old = bytes(flash.data[at : at + 16])
    for k in range(100):
        log.put(2, bytes([k]))
    log.put(1, b"new!")
    at = log._p * 512 + log._pos
    flash.data[at : at + 16] = old
    log = mounted(flash)
    assert log.get(1) == b"new!"
    assert log.stats()["skipped"] > 0


def test_the_bytes_are_those_of_the_specification():
    flash = CutFlash(5, 512, 1)
    Log.format(flash, NUMBER)
    assert hexlify(bytes(flash.data[:64])) == HEADER + TABLE
    log = mounted(flash)
    at = log._p * 512 + log._pos
    assert hexlify(bytes(flash.data[at - 16 : at])) == CLOSING_NOTE
    log.append_run(2, 1, 360, 1000000, b"body")
    log.put(3, b"fact")
    log.put_blob(4, b"blob")
    end = log._p * 512 + log._pos
    assert hexlify(bytes(flash.data[at:end])) == BEGINNING + RUN + FACT + BLOB


HEADER = b"48774c010000000088776655443322110100000001000000000000005fa272ca"
TABLE = b"7c8d3d2310d0008002e00000014006900000010000000000ffffffffffffffff"
CLOSING_NOTE = b"2d93b51002e001000000ffffffffffff"
BEGINNING = (
    b"2d16e9511c30020000000000000000000000000000000000000000000000000000000000ffffffffffffffffffffffff"
)
RUN = b"5fd437890a100200680140420f00626f6479ffffffffffffffffffffffffffff"
FACT = b"ac5ca4450460030066616374ffffffff"
BLOB = b"5a34da8404800400626c6f62ffffffff"
