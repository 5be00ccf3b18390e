// Products of bytes in the tile registers (AMX): what compiled loops call for some rows and one panel of columns.
//
// A panel holds up to 64 columns of weights in tiles of 16 columns by 64 numbers of the depth: [depth / 64, tiles, 16, 16, 4],
// the innermost four numbers following each other along the depth, zeros where depth or columns end.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// sums[r][c] = start[c] + the sum over i < depth of left[r][i] * panel[i][c], exact modulo 2^32; r < rows rounded up to 16.
//
// left: rows, `left_step` bytes apart, of which whole tiles are read; depth: in steps of 64; sums: rows 64 numbers apart; rows: at
// most 32; tiles: those of the panel; prefetch: `ahead` cache lines from there on for each step of the depth and two tiles.
using ByteTile = void (*)(const uint8_t *left, int64_t left_step, const int8_t *panel, int64_t depth, int32_t *sums, int64_t rows,
        int64_t tiles, const int32_t *start, const char *prefetch, int64_t ahead);

// `count` rows of so many bytes, `left_step` apart, as rows `pitch` bytes apart: those of a tile that is not whole.
using ByteRows = void (*)(const uint8_t *left, int64_t left_step, int64_t count, int64_t bytes, uint8_t *rows, int64_t pitch);

// The address of a function by the name that compiled loops use; null for another name.
void *byte_tile_function(const std::string &name);

} // namespace mgx
