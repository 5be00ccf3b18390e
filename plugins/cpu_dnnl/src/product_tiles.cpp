#include "product_tiles.h"

namespace mgx {

namespace {

template <class Function> void *address(Function function) { return reinterpret_cast<void *>(function); }

} // namespace

void *product_function(const std::string &name) {
    if (name == "mgx_product_tile_1_avx2_float") return address(product_tile_avx2(false));
    if (name == "mgx_product_tile_1_avx2_i16") return address(product_tile_avx2(true));
    if (name == "mgx_product_tile_1_avx512_float") return address(product_tile_avx512(false));
    if (name == "mgx_product_tile_1_avx512_i16") return address(product_tile_avx512(true));
    if (name == "mgx_product_tile_1_avx512_pairs") return address(product_tile_pairs());
    if (name == "mgx_product_panels_1_avx2_float") return address(product_panels_avx2(false));
    if (name == "mgx_product_panels_1_avx2_i16") return address(product_panels_avx2(true));
    if (name == "mgx_product_panels_1_avx512_float") return address(product_panels_avx512(false));
    if (name == "mgx_product_panels_1_avx512_i16") return address(product_panels_avx512(true));
    return nullptr;
}

} // namespace mgx
