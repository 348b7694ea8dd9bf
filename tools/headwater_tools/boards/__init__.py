"""Real boards at this machine: their ports, what is flashed onto them, their console and their files.

esptool and mpremote are used as programs: what they print is for people, and little of it is parsed here.
"""
