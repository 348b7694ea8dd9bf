# Why something that arrived, or was to be stored, was refused: a closed set of numbers. Hosts count by
# number; programs that show the counts to people use the text (offboard/reasons.py). So no text from outside
# ever becomes a label.

NO_ROOM, NO_HEAP, FRAME, STRANGER, RANGE, ROLE = 0, 1, 2, 3, 4, 5
CONTENT, BLOCK, CHECKPOINT, BEHIND, SITE = 6, 7, 8, 9, 10
REVOKED = 11
BARE = 12
LAST = BARE
SEAL = 16  # and a Peer.why
