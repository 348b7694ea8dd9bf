# Settings of ESP-IDF, in order: a later one counts.
set(IDF_TARGET esp32c3)

set(SDKCONFIG_DEFAULTS
    boards/sdkconfig.base
    boards/sdkconfig.ble
    boards/ESP32_GENERIC_C3/sdkconfig.c3usb
    ${MICROPY_BOARD_DIR}/sdkconfig.board
    ${CMAKE_BINARY_DIR}/sdkconfig.headwater
)

# The partition table is the one for which `hw image` and `hw flash` make their images. ESP-IDF looks for a
# relative name in MicroPython's tree, so it gets an absolute one.
get_filename_component(HEADWATER_PARTITIONS ${MICROPY_BOARD_DIR}/../../profiles/esp32c3/partitions.csv ABSOLUTE)
file(WRITE ${CMAKE_BINARY_DIR}/sdkconfig.headwater
    "CONFIG_PARTITION_TABLE_CUSTOM=y\nCONFIG_PARTITION_TABLE_CUSTOM_FILENAME=\"${HEADWATER_PARTITIONS}\"\n"
)

set(MICROPY_FROZEN_MANIFEST ${MICROPY_BOARD_DIR}/manifest.py)
