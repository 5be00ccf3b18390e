// The shapes of the tile registers of AMX: eight of 16 rows of 64 bytes.
#pragma once

#include <cstdint>

namespace mgx {

namespace {

struct alignas(64) TilePalette {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

const TilePalette palette; // in memory: the compiler does not see that all of it is read

} // namespace

} // namespace mgx
