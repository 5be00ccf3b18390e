// Register-tiled matrix products for AVX-512.
#define MGX_LANES 16
#define MGX_TALL 12
#define MGX_TILE product_tile_avx512
#define MGX_PANELS product_panels_avx512
#include "product_tile_loop.h"

#define MGX_ISA "avx512"
#define MGX_ADD_PRODUCTS add_products_avx512
#include "product_loop.h"
