"""Boards at this machine, real and virtual: what `hw board`, `hw flash`, `hw provision` and `hw monitor` do.

esptool and mpremote are used as programs: what they print is for people, and little of it is parsed here.
"""
