// Products of one row with weights in codes of 4 bits, on the processor's dot products of bytes.
//
// A row is cut into units of 128 numbers. Each number becomes an integer of 24 bits, a fraction of the largest of its unit, and
// that three signed bytes: products with codes are exact integers, and the result is as close as a sum of floats.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t width = 128;  // numbers of a unit: their codes are one vector
constexpr int64_t pieces = 3;   // signed bytes of a number
constexpr int64_t ahead = 1024;  // bytes of codes fetched before they are needed
constexpr float most = 8355000; // integer of the largest number: below 127 * (1 + 256 + 65536), whatever rounding adds

// The bytes of 128 numbers in the order in which codes leave their bytes: those at even places, then those at odd ones.
struct alignas(64) Unit {
    int8_t even[pieces][64], odd[pieces][64]; // the lowest byte first
    int32_t sums[16];                         // of each 8 numbers; times the point and negative where there is one for all
    float scale;                              // what an integer of 1 stands for; NaN where a number is not finite
    char rest[60];
};

inline __m512i at(const void *p) { return _mm512_load_si512(p); }

// The products of 8 codes each with their numbers, as integers of at most 30 bits, added to `start`.
inline __m512i multiplied(__m512i even, __m512i odd, const Unit &x, __m512i start) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i high = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, even, at(x.even[2])), odd, at(x.odd[2]));
    const __m512i middle = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, even, at(x.even[1])), odd, at(x.odd[1]));
    const __m512i low = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, even, at(x.even[0])), odd, at(x.odd[0]));
    return _mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), middle), 8), low);
}

// Buffers: x, units.  Numbers: elements of x, the point of all weights (negative: they have their own).  Work: units.
void coded_units_vnni(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const float *x = static_cast<const float *>(buffers[0]);
    Unit *units = static_cast<Unit *>(buffers[1]);
    const int64_t count = args[0], point = args[1];
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int64_t u = begin; u < end; ++u) {
        Unit &unit = units[u];
        __m512 numbers[8];
        __m512i largest = _mm512_setzero_si512();
        for (int64_t i = 0; i < 8; ++i) {
            const int64_t left = std::clamp<int64_t>(count - u * width - 16 * i, 0, 16);
            numbers[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + u * width + 16 * i);
            largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(numbers[i]), magnitude));
        }
        const int32_t bits = _mm512_reduce_max_epi32(largest);
        const float limit = std::max(_mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))), 0x1p-100f);
        const bool finite = bits < 0x7f800000;
        const __m512 factor = _mm512_set1_ps(finite ? most / limit : 0.0f);
        unit.scale = finite ? limit / most : std::numeric_limits<float>::quiet_NaN();
        alignas(64) int8_t bytes[pieces][width];
        for (int64_t i = 0; i < 8; ++i) {
            __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(numbers[i], factor));
            for (int64_t p = 0; p < pieces; ++p) {
                const __m128i low = _mm512_cvtepi32_epi8(whole);
                _mm_store_si128(reinterpret_cast<__m128i *>(bytes[p] + 16 * i), low);
                whole = _mm512_srai_epi32(_mm512_sub_epi32(whole, _mm512_cvtepi8_epi32(low)), 8);
            }
        }
        for (int64_t p = 0; p < pieces; ++p)
            for (int64_t i = 0; i < 2; ++i) {
                const __m512i pairs = at(bytes[p] + 64 * i);
                _mm256_store_si256(reinterpret_cast<__m256i *>(unit.even[p] + 32 * i), _mm512_cvtepi16_epi8(pairs));
                _mm256_store_si256(
                        reinterpret_cast<__m256i *>(unit.odd[p] + 32 * i), _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
            }
        const __m512i times = _mm512_set1_epi8(static_cast<char>(point < 0 ? 1 : point)), zero = _mm512_setzero_si512();
        const __m512i sums = multiplied(times, times, unit, zero);
        _mm512_store_si512(unit.sums, point < 0 ? sums : _mm512_sub_epi32(zero, sums));
    }
}

struct Job {
    const float *a;
    const Unit *units;
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // null: one point for all, which the units' sums hold
    float *out;
    int64_t depth, blocks, block, row_bytes;
    int point;

    int64_t count() const { return (depth + width - 1) / width; }
};

// Scales and points of a unit, a number for each 8 codes.  split: blocks are parts of a unit, else units parts of a block.
template <bool split>
struct Lanes {
    __m512i places;
    explicit Lanes(int64_t block)
        : places(_mm512_srlv_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                  _mm512_set1_epi32(block == 16 ? 1 : block == 32 ? 2 : 3))) {}

    __m512 scales(const float *p, __mmask16 some) const {
        if constexpr (split) return _mm512_permutexvar_ps(places, _mm512_maskz_loadu_ps(some, p));
        return _mm512_set1_ps(*p);
    }
    __m512i points(const uint8_t *p, __mmask16 some) const {
        if constexpr (split) return _mm512_permutexvar_epi32(places, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, p)));
        return _mm512_set1_epi32(*p);
    }
};

// R weights, `apart` rows from each other: streams in pages of their own, whose addresses are translated at the same time.
template <int R, bool split, bool given>
void dots(const Job &job, int64_t row, int64_t apart) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const Lanes<split> lanes(job.block);
    const int64_t each = split ? width / job.block : 1, units = job.count();
    const int64_t together = split ? 1 : job.blocks == 1 ? units : job.block / width; // units with the same scale
    __m512 sums[R];
    for (int r = 0; r < R; ++r)
        sums[r] = _mm512_setzero_ps();
    for (int64_t b = 0, u = 0; b < job.blocks; b += each) {
        const auto some = static_cast<__mmask16>((1u << std::min(each, job.blocks - b)) - 1);
        __m512 scales[R];
        __m512i points[R];
        for (int r = 0; r < R; ++r) {
            scales[r] = lanes.scales(job.scales + (row + r * apart) * job.blocks + b, some);
            if constexpr (given) points[r] = lanes.points(job.points + (row + r * apart) * job.blocks + b, some);
        }
        for (int64_t last = std::min(u + together, units); u < last; ++u) {
            const Unit &x = job.units[u];
            const __m512 scale = _mm512_set1_ps(x.scale);
            const int64_t left = std::min<int64_t>(64, job.row_bytes - 64 * u);
            const __mmask64 whole = ~0ull >> (64 - left);
            for (int r = 0; r < R; ++r) {
                const uint8_t *codes = job.codes + (row + r * apart) * job.row_bytes + 64 * u;
                _mm_prefetch(reinterpret_cast<const char *>(codes + ahead), _MM_HINT_T0);
                const __m512i pairs = _mm512_maskz_loadu_epi8(whole, codes);
                const __m512i even = _mm512_and_si512(pairs, nibble);
                const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble);
                __m512i start = at(x.sums);
                if constexpr (given) start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_mullo_epi32(points[r], start));
                const __m512 found = _mm512_cvtepi32_ps(multiplied(even, odd, x, start));
                sums[r] = _mm512_fmadd_ps(found, _mm512_mul_ps(scales[r], scale), sums[r]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        job.out[row + r * apart] = _mm512_reduce_add_ps(sums[r]);
}

template <bool split, bool given>
void rows(const Job &job, int64_t begin, int64_t end) {
    const int64_t quarter = (end - begin) / 4;
    for (int64_t n = begin; n < begin + quarter; ++n)
        dots<4, split, given>(job, n, quarter);
    for (int64_t n = begin + 4 * quarter; n < end; ++n)
        dots<1, split, given>(job, n, 1);
}

// As the definition: numbers that are not finite.
float defined(const Job &job, int64_t row, int64_t count) {
    float sum = 0;
    for (int64_t k = 0; k < count; ++k) {
        const int code = job.codes[row * job.row_bytes + k / 2] >> (k % 2 * 4) & 15;
        const int64_t block = row * job.blocks + k / job.block;
        sum += static_cast<float>(code - (job.points ? job.points[block] : job.point)) * job.scales[block] * job.a[k];
    }
    return sum;
}

// Buffers: a, its units, codes, scales, points (if there are any), out.  Numbers: elements of a, blocks, block size (a multiple of
// 128, or 16, 32 or 64, or any if there is one), bytes a row of codes, the point where there are none.  Work: rows of weights.
void coded_row_vnni(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const bool given = args[4] < 0;
    const Job job {static_cast<const float *>(buffers[0]), static_cast<const Unit *>(buffers[1]),
            static_cast<const uint8_t *>(buffers[2]), static_cast<const float *>(buffers[3]),
            given ? static_cast<const uint8_t *>(buffers[4]) : nullptr, static_cast<float *>(buffers[given ? 5 : 4]),
            args[1] * args[2], args[1], args[2], args[3], static_cast<int>(args[4])};
    for (int64_t u = 0; u < job.count(); ++u)
        if (std::isnan(job.units[u].scale)) {
            for (int64_t n = begin; n < end; ++n)
                job.out[n] = defined(job, n, args[0]);
            return;
        }
    const bool split = job.blocks > 1 && job.block < width;
    if (split)
        given ? rows<true, true>(job, begin, end) : rows<true, false>(job, begin, end);
    else
        given ? rows<false, true>(job, begin, end) : rows<false, false>(job, begin, end);
}

} // namespace

void add_coded_loops_vnni(NamedLoops &loops) {
    loops["coded_units_vnni"] = &coded_units_vnni;
    loops["coded_row_vnni"] = &coded_row_vnni;
}

} // namespace mgx
