// Products of 4-bit or 8-bit block-quantized weights and activations that are dynamically quantized to int8, with VNNI.
//
// A row is split into units of as many elements as 64 bytes of codes hold, and these into parts that are each within one block of
// the weights.  Parts are scaled so that the largest magnitude becomes 127.  Sums over a part are exact in int32 and are
// converted to float once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <immintrin.h>

#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t lanes = 16;
constexpr int64_t vectors = 2, width = vectors * lanes; // columns of a panel
constexpr int64_t chunk = 4;                            // units of a panel
constexpr int64_t max_parts = 8;                       // of a unit
constexpr int max_rows = 6;                              // most rows accumulated in registers
constexpr int64_t ahead = 1024;                         // prefetch distance in bytes of codes
constexpr float min_magnitude = 0x1p-100f;                      // parts with a smaller maximum are quantized to 0

#define MGX_UNROLLED _Pragma("GCC unroll 8")

// The quantized elements that one vector of codes is multiplied by; halves: codes per byte, low nibbles first.
template <int halves> struct alignas(64) Unit {
    int8_t bytes[halves][64];
    int32_t start[lanes]; // the sum of each lane's bytes; multiplied by the negated zero point if all weights share one
    float scales[lanes];  // scale of each lane's part
    float totals[lanes];  // sum of the bytes of each lane's part
};

// Arguments of all three loops, in this order.  point: zero point of all weights; negative: one per block.
struct Arguments {
    int64_t rows, depth, blocks, block, row_bytes, columns, point, units, part;
};

template <int halves> constexpr int64_t unit_size = 64 * halves; // elements of a unit

// Sums each group of `count` lanes and broadcasts the sum to its lanes.
inline __m512i sum_lanes(__m512i x, int64_t count) {
    if (count >= 2) x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, _MM_PERM_CDAB));
    if (count >= 4) x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, _MM_PERM_BADC));
    if (count >= 8) x = _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, _MM_SHUFFLE(2, 3, 0, 1)));
    if (count >= 16) x = _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, _MM_SHUFFLE(1, 0, 3, 2)));
    return x;
}

template <int halves> void quantize_unit(Unit<halves> &unit, const float *x, int64_t count, int64_t part, int64_t point) {
    alignas(64) int8_t bytes[unit_size<halves>] = {};
    const int64_t count_lanes = part / (4 * halves);
    for (int64_t first = 0; first < unit_size<halves>; first += part) {
        __m512 numbers[8] = {}, largest = _mm512_setzero_ps();
        const int64_t filled = (part + lanes - 1) / lanes;
        for (int64_t i = 0; i < filled; ++i) {
            const int64_t left = std::clamp<int64_t>(count - first - lanes * i, 0, lanes);
            numbers[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + first + lanes * i);
            largest = _mm512_castsi512_ps(
                    _mm512_max_epi32(_mm512_castps_si512(largest), _mm512_castps_si512(_mm512_abs_ps(numbers[i]))));
        }
        const int32_t digits = _mm512_reduce_max_epi32(_mm512_castps_si512(largest));
        const float maximum = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(digits)));
        const bool finite = std::isfinite(maximum), nonzero = finite && maximum >= min_magnitude;
        const __m512 factor = _mm512_set1_ps(nonzero ? 127.0f / maximum : 0.0f);
        for (int64_t i = 0; i < filled && nonzero; ++i)
            _mm_store_si128(reinterpret_cast<__m128i *>(bytes + first + lanes * i),
                    _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(numbers[i], factor))));
        const float scale = nonzero ? maximum / 127.0f : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        std::fill_n(unit.scales + first / (4 * halves), count_lanes, scale);
    }
    if constexpr (halves == 1) {
        _mm512_store_si512(unit.bytes[0], _mm512_load_si512(bytes));
    } else {
        for (int64_t i = 0; i < 2; ++i) { // elements at even indices are multiplied by low nibbles
            const __m512i pairs = _mm512_load_si512(bytes + 64 * i);
            _mm256_store_si256(reinterpret_cast<__m256i *>(unit.bytes[0] + 32 * i), _mm512_cvtepi16_epi8(pairs));
            const __m512i odd = _mm512_srli_epi16(pairs, 8);
            _mm256_store_si256(reinterpret_cast<__m256i *>(unit.bytes[1] + 32 * i), _mm512_cvtepi16_epi8(odd));
        }
    }
    __m512i sums = _mm512_setzero_si512();
    for (int64_t h = 0; h < halves; ++h)
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_load_si512(unit.bytes[h]));
    _mm512_store_ps(unit.totals, _mm512_cvtepi32_ps(sum_lanes(sums, count_lanes)));
    if (point >= 0) sums = _mm512_mullo_epi32(sums, _mm512_set1_epi32(static_cast<int>(-point)));
    _mm512_store_si512(unit.start, sums);
}

// Buffers: a [rows, depth], units [rows, units].  Work items: rows.
template <int halves> void quantize_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Arguments &n = *reinterpret_cast<const Arguments *>(args);
    auto *units = static_cast<Unit<halves> *>(buffers[1]);
    for (int64_t row = begin; row < end; ++row) {
        const float *x = static_cast<const float *>(buffers[0]) + row * n.depth;
        for (int64_t u = 0; u < n.units; ++u)
            quantize_unit(units[row * n.units + u], x + u * unit_size<halves>, n.depth - u * unit_size<halves>, n.part, n.point);
    }
}

struct Weights {
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // zero points; null: one for all weights, included in `Unit::start`
    float *out;

    Weights(const Arguments &n, void *const *buffers)
        : codes(static_cast<const uint8_t *>(buffers[1])), scales(static_cast<const float *>(buffers[2])),
          points(n.point < 0 ? static_cast<const uint8_t *>(buffers[3]) : nullptr),
          out(static_cast<float *>(buffers[n.point < 0 ? 4 : 3])) {}
};

inline __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline __mmask64 bytes_of_row(int64_t left) { return ~0ull >> (64 - std::min<int64_t>(left, 64)); }

// Loads bytes of codes, zeros if masked off; with two halves, low nibbles and high nibbles.
template <int halves> inline void load_codes(const uint8_t *from, __mmask64 valid, __m512i *to) {
    const __m512i all = _mm512_maskz_loadu_epi8(valid, from);
    if constexpr (halves == 1) {
        to[0] = all;
    } else {
        const __m512i nibble = _mm512_set1_epi8(15);
        to[0] = _mm512_and_si512(all, nibble);
        to[1] = _mm512_and_si512(_mm512_srli_epi16(all, 4), nibble);
    }
}

// R rows of weights, `stride` rows from each other: R streams in different pages, so that their TLB misses overlap.
// split: units contain several blocks; otherwise blocks contain several units.
template <int halves, int R, bool block_points, bool split>
void dots(const Arguments &n, const Weights &w, const Unit<halves> *units, int64_t row, int64_t stride) {
    const int64_t each = unit_size<halves> / n.part; // parts of a unit
    const __m512i places = _mm512_srlv_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
            _mm512_set1_epi32(__builtin_ctzll(static_cast<uint64_t>(lanes / each))));
    const __m512i zero = _mm512_setzero_si512();
    __m512 sums[R];
    MGX_UNROLLED
    for (int r = 0; r < R; ++r)
        sums[r] = _mm512_setzero_ps();
    for (int64_t u = 0; u < n.units; ++u) {
        const Unit<halves> &x = units[u];
        const int64_t block = split ? u * each : n.blocks == 1 ? 0 : u * unit_size<halves> / n.block;
        const __mmask16 mask = first(std::min(each, n.blocks - block));
        const __mmask64 valid = bytes_of_row(n.row_bytes - 64 * u);
        const __m512 unit_scales = _mm512_load_ps(x.scales);
        MGX_UNROLLED
        for (int r = 0; r < R; ++r) {
            const int64_t weight = row + r * stride, at = weight * n.blocks + block;
            const uint8_t *from = w.codes + weight * n.row_bytes + 64 * u;
            _mm_prefetch(reinterpret_cast<const char *>(from + ahead), _MM_HINT_T0);
            __m512i codes[halves], start = _mm512_load_si512(x.start);
            load_codes<halves>(from, valid, codes);
            if constexpr (block_points) {
                __m512i points = _mm512_set1_epi32(w.points[at]);
                if constexpr (split)
                    points = _mm512_permutexvar_epi32(places, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, w.points + at)));
                start = _mm512_sub_epi32(zero, _mm512_mullo_epi32(points, start));
            }
            MGX_UNROLLED
            for (int h = 0; h < halves; ++h)
                start = _mm512_dpbusd_epi32(start, codes[h], _mm512_load_si512(x.bytes[h]));
            __m512 scales = _mm512_set1_ps(w.scales[at]);
            if constexpr (split) scales = _mm512_permutexvar_ps(places, _mm512_maskz_loadu_ps(mask, w.scales + at));
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(start), _mm512_mul_ps(scales, unit_scales), sums[r]);
        }
    }
    MGX_UNROLLED
    for (int r = 0; r < R; ++r)
        w.out[row + r * stride] = _mm512_reduce_add_ps(sums[r]);
}

template <int halves, bool block_points, bool split>
void weights_of_row(const Arguments &n, const Weights &w, const Unit<halves> *units, int64_t begin, int64_t end) {
    const int64_t quarter = (end - begin) / 4;
    for (int64_t row = begin; row < begin + quarter; ++row)
        dots<halves, 4, block_points, split>(n, w, units, row, quarter);
    for (int64_t row = begin + 4 * quarter; row < end; ++row)
        dots<halves, 1, block_points, split>(n, w, units, row, 1);
}

template <int halves, bool block_points>
void weights_of(const Arguments &n, const Weights &w, const Unit<halves> *units, int64_t begin, int64_t end) {
    const bool split = n.block < unit_size<halves> && n.blocks > 1;
    split ? weights_of_row<halves, block_points, true>(n, w, units, begin, end)
          : weights_of_row<halves, block_points, false>(n, w, units, begin, end);
}

// Buffers: units of one row, codes, scales, zero points (optional), out.  Work items: rows of weights.
template <int halves> void bytes_row(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Arguments &n = *reinterpret_cast<const Arguments *>(args);
    const Weights w(n, buffers);
    const auto *units = static_cast<const Unit<halves> *>(buffers[0]);
    w.points ? weights_of<halves, true>(n, w, units, begin, end) : weights_of<halves, false>(n, w, units, begin, end);
}

// Transposes a 16 x 16 matrix of int32.
inline void transpose(__m512i *x) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(x[i], x[i + 1]), b = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(x[i + 2], x[i + 3]), d = _mm512_unpackhi_epi32(x[i + 2], x[i + 3]);
        y[i] = _mm512_unpacklo_epi64(a, c);
        y[i + 1] = _mm512_unpackhi_epi64(a, c);
        y[i + 2] = _mm512_unpacklo_epi64(b, d);
        y[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; ++i) { // y[4 * g + i]: elements i, 4 + i, 8 + i, 12 + i of columns 4 * g to 4 * g + 3
        const __m512i a = _mm512_shuffle_i32x4(y[i], y[4 + i], 0x44), b = _mm512_shuffle_i32x4(y[8 + i], y[12 + i], 0x44);
        const __m512i c = _mm512_shuffle_i32x4(y[i], y[4 + i], 0xee), d = _mm512_shuffle_i32x4(y[8 + i], y[12 + i], 0xee);
        x[i] = _mm512_shuffle_i32x4(a, b, 0x88);
        x[4 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
        x[8 + i] = _mm512_shuffle_i32x4(c, d, 0x88);
        x[12 + i] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

// A packed panel: up to `chunk` units of 32 columns of weights.  For each group of four bytes the codes of all columns, for each
// part the scales and zero points.
template <int halves> struct Panel {
    alignas(64) uint8_t codes[chunk][lanes][halves][vectors][64];
    alignas(64) float scales[chunk * max_parts][vectors][lanes], points[chunk * max_parts][vectors][lanes];

    void fill(const Arguments &n, const Weights &w, int64_t column, int64_t unit, int64_t count) {
        const int64_t each = unit_size<halves> / n.part;
        for (int64_t v = 0; v < vectors; ++v) {
            int64_t columns[lanes]; // columns past the end repeat the last one
            for (int64_t c = 0; c < lanes; ++c)
                columns[c] = std::min(column + v * lanes + c, n.columns - 1);
            for (int64_t u = 0; u < count; ++u) {
                const int64_t at = 64 * (unit + u);
                const __mmask64 valid = bytes_of_row(n.row_bytes - at);
                __m512i rows[lanes];
                for (int64_t c = 0; c < lanes; ++c)
                    rows[c] = _mm512_maskz_loadu_epi8(valid, w.codes + columns[c] * n.row_bytes + at);
                transpose(rows);
                for (int64_t i = 0; i < lanes; ++i) {
                    const __m512i nibble = _mm512_set1_epi8(15);
                    _mm512_store_si512(codes[u][i][0][v], halves == 1 ? rows[i] : _mm512_and_si512(rows[i], nibble));
                    if constexpr (halves == 2)
                        _mm512_store_si512(codes[u][i][1][v], _mm512_and_si512(_mm512_srli_epi16(rows[i], 4), nibble));
                }
            }
            for (int64_t p = 0; p < count * each; ++p) {
                const int64_t block = std::min((unit * each + p) * n.part / n.block, n.blocks - 1);
                for (int64_t c = 0; c < lanes; ++c) {
                    scales[p][v][c] = w.scales[columns[c] * n.blocks + block];
                    points[p][v][c] = float(w.points ? w.points[columns[c] * n.blocks + block] : n.point);
                }
            }
        }
    }
};

// Multiplies H rows, `pitch` units apart, by a panel and adds the products to `sums` [H, width].
template <int halves, int H>
void tile(const Panel<halves> &panel, const Unit<halves> *units, int64_t pitch, int64_t count, int64_t each, float *sums) {
    __m512 acc[H][vectors];
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < vectors; ++v)
            acc[r][v] = _mm512_load_ps(sums + r * width + v * lanes);
    const int64_t steps = lanes / each;
    for (int64_t u = 0; u < count; ++u)
        for (int64_t p = 0; p < each; ++p) {
            __m512i whole[H][vectors];
            MGX_UNROLLED
            for (int r = 0; r < H; ++r)
                MGX_UNROLLED
                for (int v = 0; v < vectors; ++v)
                    whole[r][v] = _mm512_setzero_si512();
            for (int64_t i = p * steps; i < (p + 1) * steps; ++i)
                MGX_UNROLLED
                for (int h = 0; h < halves; ++h) {
                    __m512i columns[vectors];
                    MGX_UNROLLED
                    for (int v = 0; v < vectors; ++v)
                        columns[v] = _mm512_load_si512(panel.codes[u][i][h][v]);
                    MGX_UNROLLED
                    for (int r = 0; r < H; ++r) {
                        int32_t four;
                        std::memcpy(&four, units[r * pitch + u].bytes[h] + 4 * i, 4);
                        const __m512i all = _mm512_set1_epi32(four);
                        MGX_UNROLLED
                        for (int v = 0; v < vectors; ++v)
                            whole[r][v] = _mm512_dpbusd_epi32(whole[r][v], columns[v], all);
                    }
                }
            const int64_t at = u * each + p;
            MGX_UNROLLED
            for (int r = 0; r < H; ++r) {
                const Unit<halves> &x = units[r * pitch + u];
                const __m512 total = _mm512_set1_ps(x.totals[p * steps]), scale = _mm512_set1_ps(x.scales[p * steps]);
                MGX_UNROLLED
                for (int v = 0; v < vectors; ++v) {
                    const __m512 sum = _mm512_cvtepi32_ps(whole[r][v]);
                    const __m512 found = _mm512_fnmadd_ps(_mm512_load_ps(panel.points[at][v]), total, sum);
                    acc[r][v] = _mm512_fmadd_ps(found, _mm512_mul_ps(_mm512_load_ps(panel.scales[at][v]), scale), acc[r][v]);
                }
            }
        }
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < vectors; ++v)
            _mm512_store_ps(sums + r * width + v * lanes, acc[r][v]);
}

template <int halves> using Tile = void (*)(const Panel<halves> &, const Unit<halves> *, int64_t, int64_t, int64_t, float *);

template <int halves, size_t... H> constexpr std::array<Tile<halves>, max_rows> tiles(std::index_sequence<H...>) {
    return {tile<halves, int(H) + 1>...};
}

// Buffers: units, codes, scales, zero points (optional), out [rows, columns].  Work items: panels.
template <int halves> void bytes_panels(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    static constexpr auto table = tiles<halves>(std::make_index_sequence<max_rows>());
    const Arguments &n = *reinterpret_cast<const Arguments *>(args);
    const Weights w(n, buffers);
    const auto *units = static_cast<const Unit<halves> *>(buffers[0]);
    Panel<halves> panel;
    alignas(64) float sums[max_rows * width];
    const int64_t parts = (n.rows + max_rows - 1) / max_rows, low = n.rows / parts, over = n.rows % parts;
    for (int64_t p = begin; p < end; ++p) {
        const int64_t column = p * width, valid = std::min(width, n.columns - column);
        for (int64_t u = 0; u < n.units; u += chunk) {
            const int64_t count = std::min(chunk, n.units - u);
            panel.fill(n, w, column, u, count);
            for (int64_t i = 0, row = 0; i < parts; ++i) {
                const int64_t high = low + (i < over);
                float *to = w.out + row * n.columns + column;
                std::memset(sums, 0, sizeof(sums));
                for (int64_t r = 0; r < high && u; ++r)
                    std::memcpy(sums + r * width, to + r * n.columns, size_t(valid) * sizeof(float));
                table[size_t(high - 1)](panel, units + row * n.units + u, n.units, count, unit_size<halves> / n.part, sums);
                for (int64_t r = 0; r < high; ++r)
                    std::memcpy(to + r * n.columns, sums + r * width, size_t(valid) * sizeof(float));
                row += high;
            }
        }
    }
}

} // namespace

void add_coded_bytes(NamedLoops &loops) {
    loops["coded_bytes_4_round"] = &quantize_rows<2>;
    loops["coded_bytes_8_round"] = &quantize_rows<1>;
    loops["coded_bytes_4_row"] = &bytes_row<2>;
    loops["coded_bytes_8_row"] = &bytes_row<1>;
    loops["coded_bytes_4_panels"] = &bytes_panels<2>;
    loops["coded_bytes_8_panels"] = &bytes_panels<1>;
}

} // namespace mgx
