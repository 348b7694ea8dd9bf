"""Boards at the desk and on this machine: what `hw board` does with them."""
