"""Linux as a board: the program of `board/program.py` on CPython, with a file for its flash."""
