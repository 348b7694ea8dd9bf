# Why an operator runs where it does: a closed set. The numbers travel in messages (docs/spec.md has the same
# table), and programs show them as texts (offboard/reasons.py).

START = 0  # it began there
TAKEOVER = 1  # its host was silent, or had lost it
FLEE = 2  # the battery of its host ran down
BALANCE = 3  # the batteries last longer so
COMMAND = 4  # a person asked for it
APART = 5  # its host had lost touch with a producer
GIVEN_UP = 6  # what its lost hosts had was given up, and it begins anew
WHY_MAX = GIVEN_UP
