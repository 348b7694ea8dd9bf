# For firmware with Headwater frozen in: `FROZEN_MANIFEST` of a build of MicroPython 1.25. It freezes what
# `hw image BOARD --folder firmware/image` made; firmware/README.md tells where each file belongs.

metadata(description="Headwater for boards", license="Apache-2.0")  # noqa: F821
freeze_mpy("image/lib")  # noqa: F821
