# Runs before main.py. A board must always be reachable over its console: during the pause below
# Ctrl-C leads to the prompt instead of interrupting the program.

import time

time.sleep_ms(1000)
