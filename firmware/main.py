# What a board runs: the program of headwater/board/program.py with this board's hardware.

import time

import machine
from board import Board, set_clock
from headwater.board import program, settings
from headwater.board.unload import unload


def main():
    try:
        config = settings.load("config.json")
    except settings.SettingsError as e:
        print(e)
        time.sleep(10)  # so that it can be read
        machine.reset()
    unload("board.settings")
    set_clock(config["issued"])
    program.live(program.Node(config, Board(config)))


main()
