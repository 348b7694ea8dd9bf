// An ESP32 with Headwater: firmware/README.md says how it is built. Nothing here was built or run yet.

#define MICROPY_HW_BOARD_NAME               "Headwater on ESP32"
#define MICROPY_HW_MCU_NAME                 "ESP32"

// Modules are used where they lie in the partition `romfs`. Without it they are copied into the heap.
#define MICROPY_VFS_ROM                     (1)

// The default of 16 KiB holds the program. The rest is for the TLS handshake, which runs on the same stack.
#define MICROPY_TASK_STACK_SIZE             (24 * 1024)
