#include "product_tiles.h"

namespace mgx {

ProductTile product_tile(const std::string &name) {
    if (name == "mgx_product_tile_1_avx2_float") return product_tile_avx2(false);
    if (name == "mgx_product_tile_1_avx2_i16") return product_tile_avx2(true);
    if (name == "mgx_product_tile_1_avx512_float") return product_tile_avx512(false);
    if (name == "mgx_product_tile_1_avx512_i16") return product_tile_avx512(true);
    return nullptr;
}

} // namespace mgx
