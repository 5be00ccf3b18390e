// The micro-kernels of byte_tiles_amx.cpp with the tile registers in memory, for processors without them.
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace {

struct Tile {
    uint8_t rows[16][64];
};

thread_local Tile tiles[8];

void load(Tile &tile, const void *from, int64_t step) {
    for (int64_t r = 0; r < 16; ++r)
        std::memcpy(tile.rows[r], static_cast<const uint8_t *>(from) + r * step, 64);
}

void store(const Tile &tile, void *to, int64_t step) {
    for (int64_t r = 0; r < 16; ++r)
        std::memcpy(static_cast<uint8_t *>(to) + r * step, tile.rows[r], 64);
}

float widened(const uint8_t *narrow) {
    uint16_t half;
    std::memcpy(&half, narrow, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// sums[r][c] += the products of the four bytes, or two bfloat16, in each 32-bit element of a row and a column.
template <class Sum, class Product> void multiply(Tile &sums, const Tile &left, const Tile &right, Product product) {
    for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 16; ++c) {
            Sum sum;
            std::memcpy(&sum, sums.rows[r] + 4 * c, 4);
            for (int k = 0; k < 16; ++k)
                sum += product(left.rows[r] + 4 * k, right.rows[k] + 4 * c);
            std::memcpy(sums.rows[r] + 4 * c, &sum, 4);
        }
}

template <class Left> void multiply_bytes(Tile &sums, const Tile &left, const Tile &right) {
    multiply<int32_t>(sums, left, right, [](const uint8_t *a, const uint8_t *b) {
        int32_t sum = 0;
        for (int i = 0; i < 4; ++i)
            sum += static_cast<Left>(a[i]) * static_cast<int8_t>(b[i]);
        return sum;
    });
}

void multiply_bfloat16(Tile &sums, const Tile &left, const Tile &right) {
    multiply<float>(sums, left, right,
            [](const uint8_t *a, const uint8_t *b) { return widened(a) * widened(b) + widened(a + 2) * widened(b + 2); });
}

} // namespace

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig(palette) (void)(palette)
#define _tile_release() (void)0
#define _tile_loadd(tile, from, step) load(tiles[tile], from, step)
#define _tile_stored(tile, to, step) store(tiles[tile], to, step)
#define _tile_dpbssd(sums, left, right) multiply_bytes<int8_t>(tiles[sums], tiles[left], tiles[right])
#define _tile_dpbusd(sums, left, right) multiply_bytes<uint8_t>(tiles[sums], tiles[left], tiles[right])
#define _tile_dpbf16ps(sums, left, right) multiply_bfloat16(tiles[sums], tiles[left], tiles[right])

#include "byte_tiles_amx.cpp"

extern "C" {

void emulated_byte_tiles_1_begin() { mgx::begin_tiles(); }

void emulated_byte_tiles_1_end() { mgx::end_tiles(); }

void emulated_byte_tile_1_bfloat16(const uint8_t *left, int64_t step, const int8_t *panel, int64_t depth, int32_t *sums, int64_t rows,
        int64_t count, const int32_t *start, const char *prefetch, int64_t ahead) {
    mgx::byte_tile<mgx::Kind::bfloat16>(left, step, panel, depth, sums, rows, count, start, prefetch, ahead);
}

void emulated_byte_rows_1(const uint8_t *left, int64_t step, int64_t count, int64_t bytes, uint8_t *rows, int64_t pitch) {
    mgx::byte_rows(left, step, count, bytes, rows, pitch);
}
}
