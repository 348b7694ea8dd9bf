# What is frozen into the firmware: MicroPython's own modules, and the two files that start the program. The
# program itself lies in the partition `romfs`, so that it changes without another firmware. Frozen files are
# taken before those of the file system.

include("$(PORT_DIR)/boards/manifest.py")  # noqa: F821
module("boot.py", base_path="../..")  # noqa: F821
module("main.py", base_path="../..")  # noqa: F821
