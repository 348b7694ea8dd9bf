# Runs on MicroPython: the heap of what a host knows of its energy, at rest and while it decides.
# The bench puts a plan into it, in which host 1 runs operators that other hosts may run.
# Prints bytes: at rest; then twice, beside that: most during a round, while it waits for answers, after it.

import gc

from headwater.plan import model

GIVEN = {
    "capacity_mc": 1440000, "awake_ua": 31120, "asleep_ua": 5, "compute_ua": 17000, "copy_ns": 4000,
    "flash_byte_pc": 313700, "radio_ua": 68880,
    "discharge": [[3300, 0], [3600, 5], [3700, 25], [3750, 40], [3800, 50], [3850, 60], [3900, 70],
                  [4000, 80], [4100, 90], [4200, 100]],
    "links": {"wifi": [59552, 27552, 3444000]},
}  # fmt: skip


class Thing:
    pass


def said(*what):
    return True


def host_of(plan):
    host = Thing()
    host.now = 0
    host.me = 1
    host.plan = plan
    host.pace = (5000000, 30000000, 2000000)
    host.period_us = 5000000
    host.store = Thing()
    host.store.stats = lambda: {"programmed": 0}
    host.store.get_blob = said and (lambda key: None)
    host.store.blob_size = lambda key: 300
    host.store.usable_bytes = lambda: 100000
    host.store.free_bytes = lambda: 90000
    host.exchange = Thing()
    host.exchange.links = {n: None for n in range(len(plan.hosts)) if n != 1}
    host.exchange.say = said
    host.exchange.writer = Thing()
    host.exchange.writer.mtu = 512
    host.scheduler = Thing()
    host.scheduler.time = said
    host.words = Thing()
    host.words.dead = lambda n: False
    host.site = lambda: 0
    host.moves = {}
    host.refused_by = {}
    host.where = [(1, v.hosts[0], v.hosts[0]) for v in plan.vertices]
    host.giving = host.taking = None
    host.quiet = False
    host.sources = {}
    host.ports = {}
    host.instances = {}
    for v in plan.vertices:
        if v.hosts[0] == 1 and v.kind:
            inst = Thing()
            inst.status = 0
            inst.ports = []
            inst.inputs = []
            for e in plan.ins(v.index):
                i = Thing()
                i.edge = e
                i.cur = Thing()
                i.cur.xi = 1000
                inst.inputs.append(i)
            host.instances[v.index] = inst
    return host


def used():
    gc.collect()
    gc.collect()
    return gc.mem_alloc()


def run():
    host = host_of(model.loads(bytes.fromhex("PLAN")))
    before = used()
    from headwater.plan import profile_reader
    from headwater.runtime.meter import Meter

    energy = Meter(host, profile_reader.read(GIVEN), lambda: 3800)
    for _ in range(3):
        host.now += 5000000
        energy.tick()
    rest = used() - before
    print(rest)
    for _ in range(2):
        decided, waited = decide(energy.open())
        energy.open().asks(None)
        energy.rest()
        print(decided - before - rest, waited - before - rest, used() - before - rest)


# A round of bids, to its end: the most heap, while it asks and while it chooses; and while it waits. What
# asking has loaded is unloaded meanwhile, as on a board.
def decide(energy):
    asking = ask(energy)
    waiting = used()
    return max(asking, waiting, choose(energy)), waiting


def ask(energy):
    from headwater.runtime import bids

    asked, most = questions(energy)
    energy.rests()
    found = bids.Round(energy, asked, False)
    energy.asks(found)
    found.say(energy)
    most = max(most, used())
    for v, hosts in asked:
        for h in hosts:
            found.heard(h, (0, v, found.number, 100000, 90000, 1000000, 0))
    return most


# All that may be asked, so that there is something to choose from; and the heap while it is found.
def questions(energy):
    from headwater.runtime import leaving, outlook

    view = outlook.View(energy)
    asked = leaving.asks(view)
    if not asked:
        for v in view.operators():
            asked.append((v, view.candidates(v)))
    return asked, used()


def choose(energy):
    from headwater.runtime import leaving, outlook

    view = outlook.View(energy)
    found = energy.meter.round
    leaving.choose(view, found.bids, found.rooms)
    return used()


run()
