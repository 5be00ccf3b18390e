// Products of many rows and 4-bit or 8-bit block-quantized weights: 32 columns of codes are dequantized to a float panel that
// stays in the L1 and L2 caches, by which the float GEMM micro-kernel multiplies all rows.
#include <algorithm>

#include <immintrin.h>

#include "loops.h"
#include "product_tiles.h"

namespace mgx {

namespace {

constexpr int64_t lanes = 16, width = 32; // columns of a panel
constexpr int64_t chunk = 256;            // depth of a panel; even, since a byte may hold two codes
constexpr int64_t max_rows = 12;              // rows of a tile

// Arguments, in this order.  Buffers: a [rows, depth], codes, scales, zero points (optional), out [rows, columns].
// Work items: panels.
struct Arguments {
    int64_t rows, depth, blocks, block, row_bytes, columns, bits, point;
};

// Dequantizes codes of sixteen columns with the scales and zero points of one block each.
struct Block {
    __m512 factor;
    __m512i point;

    __m512 operator()(__m512i codes) const {
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(codes, point)), factor);
    }
};

// Returns the shuffle that widens bytes 4 * place to 4 * place + 3 of each 128-bit lane to int32.
inline __m512i widening_shuffle(int place) {
    const __m128i bytes = _mm_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1);
    return _mm512_broadcast_i32x4(_mm_add_epi8(bytes, _mm_set1_epi32(4 * place)));
}

// Sixteen columns of codes, with their scales and zero points.
struct Columns {
    const Arguments &n;
    const uint8_t *codes[lanes]; // columns past the end repeat the last one
    const float *scales[lanes];
    const uint8_t *points[lanes];
    bool block_points;

    Columns(const Arguments &n, void *const *buffers, int64_t first) : n(n), block_points(n.point < 0) {
        for (int64_t c = 0; c < lanes; ++c) {
            const int64_t column = std::min(first + c, n.columns - 1);
            codes[c] = static_cast<const uint8_t *>(buffers[1]) + column * n.row_bytes;
            scales[c] = static_cast<const float *>(buffers[2]) + column * n.blocks;
            points[c] = block_points ? static_cast<const uint8_t *>(buffers[3]) + column * n.blocks : nullptr;
        }
    }

    Block block(int64_t number) const {
        alignas(64) float factor[lanes];
        alignas(64) int32_t point[lanes];
        for (int64_t c = 0; c < lanes; ++c) {
            factor[c] = scales[c][number];
            point[c] = block_points ? points[c][number] : int32_t(n.point);
        }
        return {_mm512_load_ps(factor), _mm512_load_si512(point)};
    }

    // Loads sixteen bytes of every fourth column from `first` on; `valid` masks bytes past the row's end.
    __m512i bytes(int64_t first, int64_t at, __mmask16 valid) const {
        const __m128i a = _mm_maskz_loadu_epi8(valid, codes[first] + at), b = _mm_maskz_loadu_epi8(valid, codes[first + 4] + at);
        const __m128i c = _mm_maskz_loadu_epi8(valid, codes[first + 8] + at), d = _mm_maskz_loadu_epi8(valid, codes[first + 12] + at);
        const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
        const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }

    // Dequantizes codes [begin, end) of all columns to rows of sixteen floats with a stride of `width`.
    template <int bits> void unpack(int64_t begin, int64_t end, float *to) const {
        const __m512i nibble = _mm512_set1_epi32(15);
        const __m512i orders[4] = {widening_shuffle(0), widening_shuffle(1), widening_shuffle(2), widening_shuffle(3)};
        Block dequantize{};
        int64_t number = begin / n.block, next = begin;
        for (int64_t k = begin, at = begin * bits / 8; k < end; at += 16) {
            const __mmask16 valid = n.row_bytes - at >= 16 ? 0xffff : __mmask16((1 << (n.row_bytes - at)) - 1);
            const __m512i a = bytes(0, at, valid), b = bytes(1, at, valid), c = bytes(2, at, valid), d = bytes(3, at, valid);
            const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
            const __m512i above = _mm512_unpackhi_epi8(a, b), below = _mm512_unpackhi_epi8(c, d);
            // each 128-bit lane: four consecutive bytes of each of four columns
            const __m512i fours[4] = {_mm512_unpacklo_epi16(ab, cd), _mm512_unpackhi_epi16(ab, cd),
                    _mm512_unpacklo_epi16(above, below), _mm512_unpackhi_epi16(above, below)};
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                if (k >= end) break;
                const __m512i row = _mm512_shuffle_epi8(fours[i / 4], orders[i % 4]);
                if (k == next) {
                    dequantize = block(number++);
                    next = number * n.block;
                }
                if constexpr (bits == 8) {
                    _mm512_storeu_ps(to, dequantize(row));
                } else { // blocks consist of whole bytes
                    _mm512_storeu_ps(to, dequantize(_mm512_and_si512(row, nibble)));
                    _mm512_storeu_ps(to + width, dequantize(_mm512_srli_epi32(row, 4)));
                }
                k += 8 / bits;
                to += 8 / bits * width;
            }
        }
    }
};

void coded_panels(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Arguments &n = *reinterpret_cast<const Arguments *>(args);
    const auto a = static_cast<const float *>(buffers[0]);
    const bool block_points = n.point < 0;
    const auto out = static_cast<float *>(buffers[block_points ? 4 : 3]);
    const ProductTile tile = product_tile_avx512(false);
    alignas(64) float panel[chunk * width];
    alignas(64) float sums[max_rows * width];
    for (int64_t p = begin; p < end; ++p) {
        const int64_t count = std::min(width, n.columns - p * width), vectors = (count + lanes - 1) / lanes;
        for (int64_t k = 0; k < n.depth; k += chunk) {
            const int64_t chunk_depth = std::min(chunk, n.depth - k);
            for (int64_t v = 0; v < vectors; ++v) {
                const Columns columns(n, buffers, p * width + v * lanes);
                n.bits == 4 ? columns.unpack<4>(k, k + chunk_depth, panel + v * lanes)
                            : columns.unpack<8>(k, k + chunk_depth, panel + v * lanes);
            }
            const int64_t parts = (n.rows + max_rows - 1) / max_rows, low = n.rows / parts, over = n.rows % parts;
            for (int64_t i = 0, row = 0; i < parts; ++i) {
                const int64_t high = low + (i < over);
                float *to = out + row * n.columns + p * width;
                const float *left = a + row * n.depth + k;
                if (count == vectors * lanes) {
                    tile(left, n.depth, panel, chunk_depth, to, n.columns, high, vectors, k > 0, nullptr, 0);
                } else {
                    tile(left, n.depth, panel, chunk_depth, sums, width, high, vectors, 0, nullptr, 0);
                    for (int64_t r = 0; r < high; ++r)
                        for (int64_t c = 0; c < count; ++c)
                            to[r * n.columns + c] = sums[r * width + c] + (k > 0 ? to[r * n.columns + c] : 0.0f);
                }
                row += high;
            }
        }
    }
}

} // namespace

void add_coded_panels(NamedLoops &loops) { loops["coded_panels_avx512"] = &coded_panels; }

} // namespace mgx
