// Micro-kernels of matrix products with packed weights, called by compiled loops.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// sums[r][c] = (add ? sums[r][c] : 0) + the sum over i < depth of left[r][i] * panel[i][c].
//
// left: rows, `left_step` elements apart; panel: `depth` rows of two vectors each; sums: rows, `sums_step` elements apart; rows,
// vectors: size of the tile (1 or 2 vectors); prefetch: address from which `ahead` cache lines are prefetched per 4 rows of the
// panel.
using ProductTile = void (*)(const float *left, int64_t left_step, const void *panel, int64_t depth, float *sums,
        int64_t sums_step, int64_t rows, int64_t vectors, int64_t add, const char *prefetch, int64_t ahead);

// sums[r][p * width + c] = the sum over i < depth of left[r][i] * panel[p][i][c], for one to three rows.
//
// size: elements between panels; other parameters as above.
using ProductPanels = void (*)(const float *left, int64_t left_step, const void *panels, int64_t size, int64_t depth, float *sums,
        int64_t sums_step, int64_t rows, int64_t count);

// Returns the address of a function that compiled loops import by name; null if the name is unknown.
void *product_function(const std::string &name);

ProductTile product_tile_avx2(bool bfloat16);
ProductTile product_tile_avx512(bool bfloat16);
ProductTile product_tile_pairs(); // of pairs of bfloat16, which take the place of floats
ProductPanels product_panels_avx2(bool bfloat16);
ProductPanels product_panels_avx512(bool bfloat16);

} // namespace mgx
