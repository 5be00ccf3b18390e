// Products of many rows and 4-bit block-quantized weights on AMX tiles, at float32 precision.
//
// A float32 is split exactly into the sum of three bfloat16 values, and codes minus zero points are exact in bfloat16: three tile
// products with float32 accumulators compute the product of floats.  Scales are applied to the sums of a block.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "coded_scales.h"
#include "loops.h"
#include "tile_palette.h"

namespace mgx {

namespace {

constexpr int64_t side = 16;    // rows and columns of a tile
constexpr int64_t step = 32;    // depth of a tile product
constexpr int64_t pieces = 3;   // bfloat16 parts of a float
constexpr int64_t chunk = 1024; // depth of a block whose pieces stay in the L2 cache
constexpr int64_t height = 256; // rows of such a block

struct Job {
    const uint16_t *parts; // tiles [depth / 32, padded_rows / 16, 3, 16, 32]; strided rows would map to the same cache sets
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // zero points; null: one for all weights
    float *out;
    int64_t rows, padded_rows, blocks, block, row_bytes, out_step, columns;
    int point;
    int64_t numbers; // elements in a row of a
};

// Unpacks codes minus zero points of `side` rows of weights, `step` elements from byte `at` on, to a tile [16, 16, 2].
inline void unpack(__m512i offsets, int64_t at, const uint8_t *row, __m512 points, uint16_t *tile) {
    const __m512 table = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    for (int64_t four = 0; four < 4; ++four) {
        __m512i codes = _mm512_i32gather_epi32(offsets, row + at + 4 * four, 1);
        for (int64_t i = 0; i < 4; ++i) {
            const __m512 even = _mm512_sub_ps(_mm512_permutexvar_ps(codes, table), points);
            const __m512 odd = _mm512_sub_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table), points);
            const __m512i pair = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                    _mm512_and_si512(_mm512_castps_si512(odd), high));
            _mm512_store_si512(tile + 32 * (4 * four + i), pair);
            codes = _mm512_srli_epi32(codes, 8);
        }
    }
}

// Multiplies `count` tiles of rows by `steps` tiles of weights; stores one tile of sums each.
template <int count>
inline void multiply(const Job &job, int64_t row, int64_t k, int64_t steps, const uint16_t *tiles, float *sums) {
    _tile_zero(0);
    if constexpr (count > 1) _tile_zero(1);
    if constexpr (count > 2) _tile_zero(2);
    if constexpr (count > 3) _tile_zero(3);
    constexpr int64_t stride = pieces * side * step; // stride between tiles of rows
    for (int64_t s = 0; s < steps; ++s) {
        _tile_loadd(7, tiles + s * side * step, 64);
        for (int64_t p = 0; p < pieces; ++p) {
            const uint16_t *a = job.parts + (((k / step + s) * (job.padded_rows / side) + row / side) * pieces + p) * side * step;
            _tile_loadd(4, a, 64);
            _tile_dpbf16ps(0, 4, 7);
            if constexpr (count > 1) {
                _tile_loadd(5, a + stride, 64);
                _tile_dpbf16ps(1, 5, 7);
            }
            if constexpr (count > 2) {
                _tile_loadd(6, a + 2 * stride, 64);
                _tile_dpbf16ps(2, 6, 7);
            }
            if constexpr (count > 3) {
                _tile_loadd(4, a + 3 * stride, 64);
                _tile_dpbf16ps(3, 4, 7);
            }
        }
    }
    _tile_stored(0, sums, 64);
    if constexpr (count > 1) _tile_stored(1, sums + 256, 64);
    if constexpr (count > 2) _tile_stored(2, sums + 512, 64);
    if constexpr (count > 3) _tile_stored(3, sums + 768, 64);
}

// Accumulates blocks [first, last) of weights [n, n + 16) for rows [top, bottom).
void multiply_blocks(const Job &job, int64_t n, int64_t first, int64_t last, int64_t top, int64_t bottom) {
    alignas(64) uint16_t tiles[chunk / step * side * step];
    alignas(64) float sums[4 * side * side];
    const int64_t wide = std::min(side, job.columns - n), steps = job.block / step;
    const auto mask = static_cast<__mmask16>((1u << wide) - 1);
    const __m512i lanes = _mm512_min_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
            _mm512_set1_epi32(static_cast<int>(wide - 1)));
    const __m512i offsets = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(job.row_bytes)));
    const __m512i by_block = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(job.blocks)));
    for (int64_t b = first; b < last; ++b) {
        const __m512 scale = _mm512_i32gather_ps(by_block, job.scales + n * job.blocks + b, 4);
        alignas(64) float values[side];
        for (int64_t i = 0; i < side; ++i)
            values[i] = static_cast<float>(job.points ? job.points[(n + std::min(i, wide - 1)) * job.blocks + b] : job.point);
        const __m512 points = _mm512_load_ps(values);
        for (int64_t from = 0; from < steps; from += chunk / step) {
            const int64_t chunk_steps = std::min(chunk / step, steps - from), k = b * job.block + from * step;
            for (int64_t s = 0; s < chunk_steps; ++s)
                unpack(offsets, (k + s * step) / 2, job.codes + n * job.row_bytes, points, tiles + s * side * step);
            for (int64_t m = top; m < bottom; m += 4 * side) {
                switch (std::min<int64_t>(4, (bottom - m + side - 1) / side)) {
                    case 1: multiply<1>(job, m, k, chunk_steps, tiles, sums); break;
                    case 2: multiply<2>(job, m, k, chunk_steps, tiles, sums); break;
                    case 3: multiply<3>(job, m, k, chunk_steps, tiles, sums); break;
                    default: multiply<4>(job, m, k, chunk_steps, tiles, sums);
                }
                for (int64_t i = m; i < std::min(m + 4 * side, bottom); ++i) {
                    float *out = job.out + i * job.out_step + n;
                    const __m512 before = k ? _mm512_maskz_loadu_ps(mask, out) : _mm512_setzero_ps();
                    _mm512_mask_storeu_ps(out, mask, _mm512_fmadd_ps(_mm512_load_ps(sums + (i - m) * side), scale, before));
                }
            }
        }
    }
}

bool all_finite(const float *scales, int64_t count) {
    return std::all_of(scales, scales + count, [](float scale) { return std::fabs(scale) <= max_scale; });
}

// Computes a column like the reference implementation, for weights that may not be finite.
void compute_reference(const Job &job, int64_t n) {
    for (int64_t m = 0; m < job.rows; ++m) {
        float sum = 0;
        for (int64_t k = 0; k < job.numbers; ++k) {
            const int64_t tile = (k / step * (job.padded_rows / side) + m / side) * pieces;
            const uint16_t *parts = job.parts + tile * side * step + m % side * step + k % step;
            float a = 0;
            for (int64_t p = 0; p < pieces; ++p) {
                const uint32_t bits = static_cast<uint32_t>(parts[p * side * step]) << 16;
                float piece;
                std::memcpy(&piece, &bits, sizeof piece);
                a += piece;
            }
            const int code = job.codes[n * job.row_bytes + k / 2] >> (k % 2 * 4) & 15;
            const int64_t block = n * job.blocks + k / job.block;
            sum += static_cast<float>(code - (job.points ? job.points[block] : job.point)) * job.scales[block] * a;
        }
        job.out[m * job.out_step + n] = sum;
    }
}

// Buffers: the pieces of a, codes, scales, zero points (optional), out.  Arguments: rows of a, rows of its pieces, blocks, block
// size, bytes per row of codes, row stride of out, columns, the common zero point or a negative value, elements per row of a.
// Work items: 16 columns.
void coded_product_amx(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const bool block_points = args[7] < 0;
    const Job job {static_cast<const uint16_t *>(buffers[0]), static_cast<const uint8_t *>(buffers[1]),
            static_cast<const float *>(buffers[2]), block_points ? static_cast<const uint8_t *>(buffers[3]) : nullptr,
            static_cast<float *>(buffers[block_points ? 4 : 3]), args[0], args[1], args[2], args[3], args[4], args[5], args[6],
            static_cast<int>(args[7]), args[8]};
    _tile_loadconfig(&palette);
    const int64_t blocks_per_chunk = std::max<int64_t>(1, chunk / job.block);
    for (int64_t top = 0; top < job.rows; top += height)
        for (int64_t b = 0; b < job.blocks; b += blocks_per_chunk)
            for (int64_t g = begin; g < end; ++g)
                multiply_blocks(job, g * side, b, std::min(b + blocks_per_chunk, job.blocks), top, std::min(top + height, job.rows));
    _tile_release();
    for (int64_t n = begin * side; n < std::min(end * side, job.columns); ++n)
        if (!all_finite(job.scales + n * job.blocks, job.blocks)) compute_reference(job, n);
}

// Splits each float into three bfloat16 values that sum to it; of a non-finite value, the first piece holds the value.
// Buffers: x, out.  Arguments: rows, elements per row of x, its row stride, rows and depth of the pieces.  Work items: rows of
// the pieces.
void coded_pieces_amx(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t rows = args[0], count = args[1], depth = args[4];
    auto *out = static_cast<uint16_t *>(buffers[1]);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000)), quiet = _mm512_set1_epi32(0x00400000);
    for (int64_t m = begin; m < end; ++m) {
        const float *x = static_cast<const float *>(buffers[0]) + m * args[2];
        for (int64_t k = 0; k < depth; k += side) {
            const int64_t left = m < rows ? std::max<int64_t>(0, std::min(side, count - k)) : 0;
            __m512 rest = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + k);
            for (int64_t p = 0; p < pieces; ++p) {
                const __mmask16 odd = _mm512_cmp_ps_mask(rest, rest, _CMP_UNORD_Q);
                const __m512i whole = _mm512_castps_si512(rest);
                const __m512i piece = _mm512_and_si512(_mm512_mask_or_epi32(whole, odd, whole, quiet), high);
                const int64_t tile = (k / step * (args[3] / side) + m / side) * pieces + p;
                _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + tile * side * step + m % side * step + k % step),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(piece, 16)));
                rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(piece));
                rest = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q), rest);
            }
        }
    }
}

} // namespace

void add_coded_loops_amx(NamedLoops &loops) {
    loops["coded_product_amx"] = &coded_product_amx;
    loops["coded_pieces_amx"] = &coded_pieces_amx;
}

} // namespace mgx
