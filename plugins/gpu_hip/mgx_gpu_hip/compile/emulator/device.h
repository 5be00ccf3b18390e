// The emulated device: runs a kernel's blocks one after the other, with each GPU thread as a fiber.
#pragma once
#include <cstddef>

#include "kernel.h"

namespace device {
enum Status { OK = 0, INVALID = 1, ILLEGAL_ADDRESS = 700, MISALIGNED = 716, FAILED = 719 };

// order: 0 threads in order, 1 threads and blocks in reverse order, 2 and above threads shuffled with that seed.
int launch(const EmuKernel& kernel, int wave, EmuDim grid, EmuDim block, size_t shared_bytes, void** arguments, int order);
const char* fault();      // message of the last launch that failed
Emulator* table();
size_t shared_limit(int wave);    // per block: AMD's for waves of 64 lanes, Hopper's for 32
size_t declared_limit(int wave);  // static shared memory per kernel
// Called for a faulting address: writes a description (the allocation next to it) for the message.
extern void (*describe)(const void* address, char* text, size_t size);
}  // namespace device
