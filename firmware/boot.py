# Runs before main.py. Nothing of ours may hinder a board from being reached over its console: the
# pause below is the time in which Ctrl-C ends at the prompt instead of in the program.

import time

time.sleep_ms(1000)
