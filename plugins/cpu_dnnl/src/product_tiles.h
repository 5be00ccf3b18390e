// Register tiles of products with packed weights: what compiled loops call for some rows and one panel of columns.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// sums[r][c] = (add ? sums[r][c] : 0) + the sum over i < depth of left[r][i] * panel[i][c].
//
// left: rows, `left_step` elements apart; panel: `depth` rows of two vectors each; sums: rows `sums_step` elements apart; rows,
// vectors: the tile's size (1 or 2 vectors); prefetch: `ahead` cache lines from there on for each 4 rows of the panel.
using ProductTile = void (*)(const float *left, int64_t left_step, const void *panel, int64_t depth, float *sums,
        int64_t sums_step, int64_t rows, int64_t vectors, int64_t add, const char *prefetch, int64_t ahead);

// sums[r][p * width + c] = the sum over i < depth of left[r][i] * panel[p][i][c], for one to three rows.
//
// size: elements from one panel to the next; the rest as above.
using ProductPanels = void (*)(const float *left, int64_t left_step, const void *panels, int64_t size, int64_t depth, float *sums,
        int64_t sums_step, int64_t rows, int64_t count);

// The function of a name that compiled loops use; null for another name.
void *product_function(const std::string &name);

ProductTile product_tile_avx2(bool bfloat16);
ProductTile product_tile_avx512(bool bfloat16);
ProductPanels product_panels_avx2(bool bfloat16);
ProductPanels product_panels_avx512(bool bfloat16);

} // namespace mgx
