// AMX tile configuration: eight tiles of 16 rows of 64 bytes.
#pragma once

#include <cstdint>

namespace mgx {

namespace {

struct alignas(64) TilePalette {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

const TilePalette palette; // not constexpr: ldtilecfg reads all of it from memory, which the compiler does not know

} // namespace

} // namespace mgx
