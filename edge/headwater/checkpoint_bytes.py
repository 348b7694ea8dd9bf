# The bytes of a checkpoint: see checkpoint_file.py, which reads them.

from . import pack

FORMAT = 2


# Bytes of the body. flags: of every input [closed, incarnation, from ts]. front: ts of what was taken last.
# buf: see pack.dumps.
def body(version, pos, outs, flags, changed, front, state, buf=None):
    flags = [f if f[0] or f[2] else f[1] for f in flags]
    return pack.dumps([FORMAT, version, pos, outs, flags, changed, front, state], buf)


# The parts of a permanent checkpoint, for put_blob. parts: of every output port [start, blocks, turns];
# names: of every output port what it knows of its consumers.
def permanent(epoch, body, parts, names, buf=None):
    parts = [p if p[1] else 0 for p in parts]
    return [head(epoch, len(body)), body, pack.dumps([parts, names], buf)]


def head(epoch, length):
    return length.to_bytes(3, "little") + bytes([epoch[1]]) + epoch[0].to_bytes(4, "little")


def pending(cid, body):
    return [bytes([len(cid)]), cid, body]
