// Register-tiled matrix products for AVX2.
#define MGX_LANES 8
#define MGX_TALL 6
#define MGX_TILE product_tile_avx2
#define MGX_PANELS product_panels_avx2
#include "product_tile_loop.h"

#define MGX_ISA "avx2"
#define MGX_ADD_PRODUCTS add_products_avx2
#include "product_loop.h"
