# What a board runs: the program of headwater/node.py with this board's hardware.

import time

import machine
from board import Board, set_clock
from headwater import node, settings
from headwater.once import let_go


def main():
    try:
        config = settings.load("config.json")
    except settings.SettingsError as e:
        print(e)
        time.sleep(10)  # so that it can be read
        machine.reset()
    let_go("settings")
    set_clock(config["issued"])
    node.live(node.Node(config, Board(config)))


main()
