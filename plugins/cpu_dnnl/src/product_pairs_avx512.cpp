// Register-tiled matrix products of bfloat16 for AVX512-BF16.
#define MGX_LANES 16
#define MGX_TALL 12
#define MGX_PAIRS
#define MGX_TILE product_tile_pairs
#include "product_tile_loop.h"
