// Products of rows and 4-bit or 8-bit block-quantized weights.  Codes are dequantized in registers or, for many rows, to a tile
// that stays in the L1 cache.
// Included with MGX_LANES (16: AVX-512, 8: AVX2) and MGX_ISA, the suffix of the loops' names.
#include <immintrin.h>

#include <algorithm>
#include <string>

#include "loops.h"

namespace mgx {

namespace {

#if MGX_LANES == 16
using Floats = __m512;
using Ints = __m512i;
inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats all(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float *p) { return _mm512_loadu_ps(p); }
inline void store(float *p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline float sum(Floats a) { return _mm512_reduce_add_ps(a); }
inline __m128 fold_to_128(Floats a) {
    const __m256 half = _mm256_add_ps(
            _mm512_castps512_ps256(a), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
inline Ints bytes(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); }
inline Ints high_nibbles(Ints c) { return _mm512_srli_epi32(c, 4); }
inline Floats difference(Ints c, Ints zero) { return _mm512_cvtepi32_ps(_mm512_sub_epi32(c, zero)); }
inline Ints all_ints(int x) { return _mm512_set1_epi32(x); }
// The dequantized values of the 16 codes; only the low 4 bits of a code are used.
struct Nibbles {
    Floats table;
    Nibbles() = default;
    Nibbles(int zero, float scale)
        : table(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,
                                                                          2, 1, 0),
                                      _mm512_set1_epi32(zero))),
                  _mm512_set1_ps(scale))) {}
    Floats operator()(Ints codes) const { return _mm512_permutexvar_ps(codes, table); }
};
#else
using Floats = __m256;
using Ints = __m256i;
inline Floats zeros() { return _mm256_setzero_ps(); }
inline Floats all(float x) { return _mm256_set1_ps(x); }
inline Floats load(const float *p) { return _mm256_loadu_ps(p); }
inline void store(float *p, Floats x) { _mm256_storeu_ps(p, x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline __m128 fold_to_128(Floats a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }
inline float sum(Floats a) {
    __m128 four = fold_to_128(a);
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline Ints bytes(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))); }
inline Ints high_nibbles(Ints c) { return _mm256_srli_epi32(c, 4); }
inline Floats difference(Ints c, Ints zero) { return _mm256_cvtepi32_ps(_mm256_sub_epi32(c, zero)); }
inline Ints all_ints(int x) { return _mm256_set1_epi32(x); }
struct Nibbles {
    Ints zero;
    Floats scale;
    Nibbles() = default;
    Nibbles(int zero, float scale) : zero(_mm256_set1_epi32(zero)), scale(_mm256_set1_ps(scale)) {}
    Floats operator()(Ints codes) const {
        return _mm256_mul_ps(difference(_mm256_and_si256(codes, _mm256_set1_epi32(15)), zero), scale);
    }
};
#endif

constexpr int64_t lanes = MGX_LANES;

struct Job {
    const float *a;
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // zero points; null: one for all weights
    float *out;
    int64_t blocks, block, row_bytes, a_step, out_step;
    int point;

    int point_of(int64_t row, int64_t block_number) const {
        return points ? points[row * blocks + block_number] : point;
    }
};

// R rows of 4-bit weights by M rows of activations.
template <int M, int R>
void dot_nibbles(const Job &job, int64_t row, int64_t first) {
    Floats sums[M][R][2];
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r)
            sums[m][r][0] = sums[m][r][1] = zeros();
    const float *a = job.a + first * job.a_step;
    const uint8_t *codes = job.codes + row * job.row_bytes;
    for (int64_t b = 0; b < job.blocks; ++b) {
        Nibbles numbers[R];
        for (int r = 0; r < R; ++r)
            numbers[r] = Nibbles(job.point_of(row + r, b), job.scales[(row + r) * job.blocks + b]);
        const int64_t end = (b + 1) * job.block;
        for (int64_t k = b * job.block; k < end; k += 2 * lanes) {
            Floats x[M][2];
            for (int m = 0; m < M; ++m) {
                x[m][0] = load(a + m * job.a_step + k);
                x[m][1] = load(a + m * job.a_step + k + lanes);
            }
            for (int r = 0; r < R; ++r) {
                const uint8_t *at = codes + r * job.row_bytes + k / 2;
                // Short rows are streams too short for the hardware prefetcher: prefetch the same offset R rows ahead.
                _mm_prefetch(reinterpret_cast<const char *>(at + R * job.row_bytes), _MM_HINT_T0);
                const Ints pair = bytes(at);
                const Floats even = numbers[r](pair), odd = numbers[r](high_nibbles(pair));
                for (int m = 0; m < M; ++m) {
                    sums[m][r][0] = fma(even, x[m][0], sums[m][r][0]);
                    sums[m][r][1] = fma(odd, x[m][1], sums[m][r][1]);
                }
            }
        }
    }
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r)
            job.out[(first + m) * job.out_step + row + r] = sum(sums[m][r][0]) + sum(sums[m][r][1]);
}

#define MGX_UNROLLED _Pragma("GCC unroll 4")

// As `dot_nibbles`, for 8-bit codes.
template <int M, int R>
void dot_bytes(const Job &job, int64_t row, int64_t first) {
    Floats sums[M][R];
    float rest[M][R] = {};
    MGX_UNROLLED
    for (int m = 0; m < M; ++m)
        MGX_UNROLLED
        for (int r = 0; r < R; ++r)
            sums[m][r] = zeros();
    const float *a = job.a + first * job.a_step;
    const uint8_t *codes = job.codes + row * job.row_bytes;
    for (int64_t b = 0; b < job.blocks; ++b) {
        const int64_t end = std::min((b + 1) * job.block, job.row_bytes);
        Ints points[R];
        Floats parts[M][R];
        MGX_UNROLLED
        for (int r = 0; r < R; ++r) {
            points[r] = all_ints(job.point_of(row + r, b));
            MGX_UNROLLED
            for (int m = 0; m < M; ++m)
                parts[m][r] = zeros();
        }
        int64_t k = b * job.block;
        for (; k + lanes <= end; k += lanes)
            MGX_UNROLLED
            for (int r = 0; r < R; ++r) {
                const uint8_t *at = codes + r * job.row_bytes + k;
                _mm_prefetch(reinterpret_cast<const char *>(at + R * job.row_bytes), _MM_HINT_T0); // as in `dot_nibbles`
                const Floats w = difference(bytes(at), points[r]);
                MGX_UNROLLED
                for (int m = 0; m < M; ++m)
                    parts[m][r] = fma(w, load(a + m * job.a_step + k), parts[m][r]);
            }
        MGX_UNROLLED
        for (int r = 0; r < R; ++r) {
            const float scale = job.scales[(row + r) * job.blocks + b];
            MGX_UNROLLED
            for (int m = 0; m < M; ++m)
                sums[m][r] = fma(parts[m][r], all(scale), sums[m][r]);
            for (int64_t i = k; i < end; ++i)
                MGX_UNROLLED
                for (int m = 0; m < M; ++m)
                    rest[m][r] += static_cast<float>(codes[r * job.row_bytes + i] - job.point_of(row + r, b))
                            * a[m * job.a_step + i] * scale;
        }
    }
    MGX_UNROLLED
    for (int m = 0; m < M; ++m)
        MGX_UNROLLED
        for (int r = 0; r < R; ++r)
            job.out[(first + m) * job.out_step + row + r] = sum(sums[m][r]) + rest[m][r];
}

template <int M>
void rows(const Job &job, bool half, int64_t begin, int64_t end, int64_t first) {
    int64_t n = begin;
    if (M < 4)
        for (; half && n + 4 <= end; n += 4)
            dot_nibbles<M, 4>(job, n, first);
    constexpr int streams = lanes == 16 && M > 1 ? 8 / M : 4 / M; // sums and operands fit the registers
    for (; !half && n + streams <= end; n += streams)
        dot_bytes<M, streams>(job, n, first);
    for (; half && n + 2 <= end; n += 2)
        dot_nibbles<M, 2>(job, n, first);
    for (; n < end; ++n)
        half ? dot_nibbles<M, 1>(job, n, first) : dot_bytes<M, 1>(job, n, first);
}

constexpr int64_t tile = 16; // rows of weights that stay in the L1 cache while rows of a are multiplied by them
constexpr int64_t chunk = 512; // elements of each that are unpacked at a time
constexpr int64_t stride = chunk + lanes; // row stride of unpacked weights, padded against conflicts of cache sets
constexpr int64_t rows_per_pass = 256; // rows of a per unpacking, which stay in the L2 cache

// Dequantizes 4-bit codes, in the order of `coded_order`.
void unpack(const Job &job, int64_t row, int64_t from, int64_t to, float *out) {
    const uint8_t *codes = job.codes + row * job.row_bytes;
    int64_t b = from / job.block;
    for (int64_t k = from; k < to; ++b) {
        const int64_t end = std::min(to, (b + 1) * job.block);
        const Nibbles numbers(job.point_of(row, b), job.scales[row * job.blocks + b]);
        for (; k < end; k += 2 * lanes, out += 2 * lanes) {
            const Ints pair = bytes(codes + k / 2);
            store(out, numbers(pair));
            store(out + lanes, numbers(high_nibbles(pair)));
        }
    }
}

// R rows of unpacked weights by M rows of activations: elements [from, from + count).
template <int M, int R>
void dots(const Job &job, const float *w, int64_t row, int64_t first, int64_t from, int64_t count) {
    Floats sums[M][R];
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r)
            sums[m][r] = zeros();
    const float *a = job.a + first * job.a_step + from;
    for (int64_t k = 0; k < count; k += lanes) {
        Floats x[M];
        for (int m = 0; m < M; ++m)
            x[m] = load(a + m * job.a_step + k);
        for (int r = 0; r < R; ++r) {
            const Floats y = load(w + r * stride + k);
            for (int m = 0; m < M; ++m)
                sums[m][r] = fma(x[m], y, sums[m][r]);
        }
    }
    for (int m = 0; m < M; ++m) {
        float *out = job.out + (first + m) * job.out_step + row;
        if constexpr (R == 4) {
            const __m128 pairs = _mm_hadd_ps(fold_to_128(sums[m][0]), fold_to_128(sums[m][1]));
            const __m128 four = _mm_hadd_ps(pairs, _mm_hadd_ps(fold_to_128(sums[m][2]), fold_to_128(sums[m][3])));
            _mm_storeu_ps(out, from ? _mm_add_ps(four, _mm_loadu_ps(out)) : four);
        } else {
            for (int r = 0; r < R; ++r)
                out[r] = sum(sums[m][r]) + (from ? out[r] : 0.0f);
        }
    }
}

template <int M>
void dot_unpacked(const Job &job, const float *w, int64_t begin, int64_t end, int64_t first, int64_t from, int64_t count) {
    int64_t n = begin;
    for (; n + 4 <= end; n += 4)
        dots<M, 4>(job, w + (n - begin) * stride, n, first, from, count);
    for (; n < end; ++n)
        dots<M, 1>(job, w + (n - begin) * stride, n, first, from, count);
}

// 4-bit weights with enough rows of a to make unpacking the weights once faster.
void many_rows(const Job &job, int64_t count, int64_t begin, int64_t end) {
    alignas(64) float w[tile * stride];
    const int64_t depth = job.blocks * job.block;
    for (int64_t top = 0; top < count; top += rows_per_pass) {
        const int64_t bottom = std::min(top + rows_per_pass, count);
        for (int64_t n = begin; n < end; n += tile) {
            const int64_t stop = std::min(n + tile, end);
            for (int64_t from = 0; from < depth; from += chunk) {
                const int64_t chunk_depth = std::min(chunk, depth - from);
                for (int64_t row = n; row < stop; ++row)
                    unpack(job, row, from, from + chunk_depth, w + (row - n) * stride);
                constexpr int high = lanes == 16 ? 4 : 2; // sums and operands fit the registers
                int64_t m = top;
                for (; m + high <= bottom; m += high)
                    dot_unpacked<high>(job, w, n, stop, m, from, chunk_depth);
                for (; m < bottom; ++m)
                    dot_unpacked<1>(job, w, n, stop, m, from, chunk_depth);
            }
        }
    }
}

// Buffers: a (float; for 4 bits in the order of `coded_order`), codes, scales, zero points (optional), out.
// Arguments: rows of a, their stride, blocks, block size, bytes per row of codes, row stride of out, bits, the common zero point
// or a negative value.  Work items: rows of weights.
void coded_product(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const bool block_points = args[7] < 0;
    Job job {static_cast<const float *>(buffers[0]), static_cast<const uint8_t *>(buffers[1]),
            static_cast<const float *>(buffers[2]), block_points ? static_cast<const uint8_t *>(buffers[3]) : nullptr,
            static_cast<float *>(buffers[block_points ? 4 : 3]), args[2], args[3], args[4], args[1], args[5],
            static_cast<int>(args[7])};
    const bool half = args[6] == 4;
    if (half && args[0] > 4)
        return many_rows(job, args[0], begin, end);
    for (int64_t n = begin; n < end; n += tile) {
        const int64_t stop = std::min(n + tile, end);
        int64_t m = 0;
        for (; m + 4 <= args[0]; m += 4)
            rows<4>(job, half, n, stop, m);
        for (; m + 2 <= args[0]; m += 2)
            rows<2>(job, half, n, stop, m);
        for (; m < args[0]; ++m)
            rows<1>(job, half, n, stop, m);
    }
}

// Permutes activations to the order in which 4-bit codes are unpacked: of each 2 * lanes elements the even ones, then the odd
// ones.  Buffers: x, out.  Arguments: elements per row of x, its row stride, elements per row of out.  Work items: rows.
void coded_order(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t count = args[0], step = args[1], padded = args[2];
    for (int64_t m = begin; m < end; ++m) {
        const float *x = static_cast<const float *>(buffers[0]) + m * step;
        float *out = static_cast<float *>(buffers[1]) + m * padded;
        for (int64_t k = 0; k < padded; ++k) {
            const int64_t group = k / (2 * lanes) * (2 * lanes), at = k % (2 * lanes);
            const int64_t source = group + (at < lanes ? 2 * at : 2 * (at - lanes) + 1);
            out[k] = source < count ? x[source] : 0.0f;
        }
    }
}

} // namespace

void MGX_ADD_LOOPS(NamedLoops &loops) {
    add_loop(loops, "coded_product", MGX_ISA, &coded_product);
    add_loop(loops, "coded_order", MGX_ISA, &coded_order);
}

} // namespace mgx
