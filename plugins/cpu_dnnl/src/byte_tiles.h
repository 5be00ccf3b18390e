// GEMM micro-kernel on AMX tile registers, of int8 or bfloat16; called from compiled loops for some rows and one panel of columns.
//
// A panel holds up to 64 columns of weights in tiles of 16 columns by 64 bytes of depth: [depth / 64, tiles, 16, 16, 4], the
// innermost four bytes (elements of int8, or two of bfloat16) adjacent along the depth, zero-padded.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// Computes sums[r][c] = start[c] + sum over i < depth of left[r][i] * panel[i][c], for r up to `rows` rounded up to a multiple of
// 16: of bytes in int32, exact modulo 2^32; of bfloat16 in float32, which `start` and `sums` hold then.
//
// left: rows with a stride of `left_step` bytes, read in whole tiles; depth: in units of 64 bytes; sums: rows with a stride of 64
// elements; rows: at most 32; tiles: tiles of the panel; prefetch: start of the memory that is prefetched meanwhile, `ahead`
// cache lines per unit of depth and pair of tiles.
using ByteTile = void (*)(const uint8_t *left, int64_t left_step, const int8_t *panel, int64_t depth, int32_t *sums, int64_t rows,
        int64_t tiles, const int32_t *start, const char *prefetch, int64_t ahead);

// Copies `count` rows of `bytes` bytes (stride `left_step`) to rows with a stride of `pitch` bytes, padded with zeros; `pitch` is at
// most the next multiple of 64.
using ByteRows = void (*)(const uint8_t *left, int64_t left_step, int64_t count, int64_t bytes, uint8_t *rows, int64_t pitch);

// Returns the address of a function by the symbol that compiled loops use; null if unknown.
void *byte_tile_function(const std::string &name);

} // namespace mgx
