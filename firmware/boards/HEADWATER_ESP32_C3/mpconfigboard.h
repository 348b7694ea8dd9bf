// An ESP32-C3 with Headwater: firmware/README.md says how it is built. Nothing here was built or run yet.

#define MICROPY_HW_BOARD_NAME               "Headwater on ESP32-C3"
#define MICROPY_HW_MCU_NAME                 "ESP32-C3"

// A prompt on the UART too, for modules with a USB adapter in front of it.
#define MICROPY_HW_ENABLE_UART_REPL         (1)

// Modules are used where they lie in the partition `romfs`. Without it they are copied into the heap.
#define MICROPY_VFS_ROM                     (1)

// The default of 16 KiB holds the program. The rest is for the TLS handshake, which runs on the same stack.
#define MICROPY_TASK_STACK_SIZE             (24 * 1024)
