"""A virtual radio: Bluetooth Low Energy without a transmitter, with air time, loss and faults.

Controllers are those of bumble (`antenna.py`), which meet in the air of this package (`air.py`); hosts are
real: NimBLE on a virtual board, bumble under the gateway's bleak. `station.py` runs all of it in a thread.
docs/testing.md says what is not real here.
"""
