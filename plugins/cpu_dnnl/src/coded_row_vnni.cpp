// Products of one row with weights in codes of 4 bits, on the processor's dot products of bytes.
//
// A row is cut into units of 128 numbers. Each number becomes an integer of 24 bits, a fraction of the largest of its unit, and
// that three signed bytes: products with codes are exact integers. Where the largest number is far above most others, what it
// leaves of their digits becomes a second unit, since its own code may stand for 0.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "coded_scales.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t width = 128;  // numbers of a unit: their codes are one vector
constexpr int64_t pieces = 3;   // signed bytes of a number
constexpr int64_t ahead = 1024;  // bytes of codes fetched before they are needed
constexpr float far = 128;      // times: numbers that far below the largest keep 16 of their digits
constexpr int32_t most_point = 31; // whose products with sums are integers of 32 bits
constexpr float most = 8355000; // integer of the largest number: below 127 * (1 + 256 + 65536), whatever rounding adds

// The bytes of 128 numbers in the order in which codes leave their bytes: those at even places, then those at odd ones.
struct alignas(64) Unit {
    int8_t even[pieces][64], odd[pieces][64]; // the lowest byte first
    int32_t sums[16];                         // of each 8 numbers; times the point and negative where there is one for all
    float scale;                              // what an integer of 1 stands for; NaN where a number is not finite
    int32_t more;                             // the rest of the digits is in the unit `count` behind this one
    char rest[56];
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

// The largest magnitude of 128 numbers; NaN or infinity where there is one.
float largest_of(const __m512 *numbers) {
    __m512i largest = _mm512_setzero_si512();
    for (int64_t i = 0; i < 8; ++i)
        largest = _mm512_max_epi32(largest, _mm512_castps_si512(_mm512_abs_ps(numbers[i])));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(largest))));
}

// True if most numbers that are not 0 are far below the largest.
bool mostly_far(const __m512 *numbers, float largest) {
    const __m512 bound = _mm512_set1_ps(largest / far);
    int small = 0, others = 0;
    for (int64_t i = 0; i < 8; ++i) {
        const __m512 size = _mm512_abs_ps(numbers[i]);
        const __mmask16 below = _mm512_cmp_ps_mask(size, bound, _CMP_LT_OQ);
        small += __builtin_popcount(_mm512_mask_cmp_ps_mask(below, size, _mm512_setzero_ps(), _CMP_GT_OQ));
        others += __builtin_popcount(static_cast<__mmask16>(~below));
    }
    return small > others;
}

// Makes 128 numbers a unit, and leaves in `numbers` what its integers are short of them.
void fill_unit(Unit &unit, __m512 *numbers, float largest, int64_t point) {
    const float limit = std::max(largest, 0x1p-100f);
    const bool finite = std::isfinite(limit);
    const __m512 factor = _mm512_set1_ps(finite ? most / limit : 0.0f);
    unit.scale = finite ? limit / most : std::numeric_limits<float>::quiet_NaN();
    unit.more = 0;
    alignas(64) int8_t bytes[pieces][width];
    for (int64_t i = 0; i < 8; ++i) {
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(numbers[i], factor));
        numbers[i] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(unit.scale), numbers[i]);
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

// Buffers: x, units and as many for the rest of the digits.  Numbers: elements of x, the point of all weights (negative: they
// have their own), units.  Work: units.
void coded_units_vnni(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const float *x = static_cast<const float *>(buffers[0]);
    Unit *units = static_cast<Unit *>(buffers[1]);
    const int64_t count = args[0], point = args[1], behind = args[2];
    for (int64_t u = begin; u < end; ++u) {
        __m512 numbers[8];
        for (int64_t i = 0; i < 8; ++i) {
            const int64_t left = std::clamp<int64_t>(count - u * width - 16 * i, 0, 16);
            numbers[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + u * width + 16 * i);
        }
        const float largest = largest_of(numbers);
        const bool more = std::isfinite(largest) && mostly_far(numbers, largest);
        fill_unit(units[u], numbers, largest, point);
        if (!more) continue;
        units[u].more = 1;
        fill_unit(units[u + behind], numbers, largest_of(numbers), point);
    }
}

struct Job {
    const float *a;
    const Unit *units;
    const uint8_t *codes;
    const float *scales;
    const uint8_t *points; // null: one point for all, which the units' sums hold
    float *out;
    int64_t numbers, depth, blocks, block, row_bytes; // numbers: of a; depth: whole blocks
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

// A sum with the products of a unit and codes.  points: one for each 8 codes, of which only `plain` ones are known to be small.
template <bool given, bool plain>
inline __m512 added(__m512i even, __m512i odd, const Unit &x, __m512 scales, __m512i points, __m512 sum) {
    __m512i start = at(x.sums), usual = points;
    const __m512 sums = _mm512_cvtepi32_ps(start);
    if constexpr (given && !plain) usual = _mm512_min_epi32(points, _mm512_set1_epi32(most_point));
    if constexpr (given) start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_mullo_epi32(usual, start));
    __m512 found = _mm512_cvtepi32_ps(multiplied(even, odd, x, start));
    if constexpr (given && !plain) // the rest of the product is no integer of 32 bits
        found = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(points, usual)), sums, found);
    return _mm512_fmadd_ps(found, _mm512_mul_ps(scales, _mm512_set1_ps(x.scale)), sum);
}

// As the definition: numbers that are not finite, or weights that may not be.
float defined(const Job &job, int64_t row) {
    float sum = 0;
    for (int64_t k = 0; k < job.numbers; ++k) {
        const int code = job.codes[row * job.row_bytes + k / 2] >> (k % 2 * 4) & 15;
        const int64_t block = row * job.blocks + k / job.block;
        sum += static_cast<float>(code - (job.points ? job.points[block] : job.point)) * job.scales[block] * job.a[k];
    }
    return sum;
}

// R weights, `apart` rows from each other: streams in pages of their own, whose addresses are translated at the same time.
// plain: units have all digits, and points are expected to be small.
template <int R, bool split, bool given, bool plain>
void dots(const Job &job, int64_t row, int64_t apart) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const Lanes<split> lanes(job.block);
    const int64_t each = split ? width / job.block : 1, units = job.count();
    const int64_t together = split ? 1 : job.blocks == 1 ? units : job.block / width; // units with the same scale
    __m512 sums[R];
    __m512i highest = _mm512_setzero_si512();
    __m512 largest = _mm512_setzero_ps();
    for (int r = 0; r < R; ++r)
        sums[r] = _mm512_setzero_ps();
    for (int64_t b = 0, u = 0; b < job.blocks; b += each) {
        const auto some = static_cast<__mmask16>((1u << std::min(each, job.blocks - b)) - 1);
        __m512 scales[R];
        __m512i points[R];
        for (int r = 0; r < R; ++r) {
            scales[r] = lanes.scales(job.scales + (row + r * apart) * job.blocks + b, some);
            largest = _mm512_max_ps(_mm512_abs_ps(scales[r]), largest);
            if constexpr (!given) continue;
            points[r] = lanes.points(job.points + (row + r * apart) * job.blocks + b, some);
            highest = _mm512_max_epi32(highest, points[r]);
        }
        for (int64_t last = std::min(u + together, units); u < last; ++u) {
            const Unit &x = job.units[u];
            const int64_t left = std::min<int64_t>(64, job.row_bytes - 64 * u);
            const __mmask64 whole = ~0ull >> (64 - left);
            for (int r = 0; r < R; ++r) {
                const uint8_t *codes = job.codes + (row + r * apart) * job.row_bytes + 64 * u;
                _mm_prefetch(reinterpret_cast<const char *>(codes + ahead), _MM_HINT_T0);
                const __m512i pairs = _mm512_maskz_loadu_epi8(whole, codes);
                const __m512i even = _mm512_and_si512(pairs, nibble);
                const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble);
                sums[r] = added<given, plain>(even, odd, x, scales[r], points[r], sums[r]);
                if (!plain && x.more)
                    sums[r] = added<given, plain>(even, odd, job.units[u + units], scales[r], points[r], sums[r]);
            }
        }
    }
    if constexpr (given && plain)
        if (_mm512_cmpgt_epi32_mask(highest, _mm512_set1_epi32(most_point))) return dots<R, split, given, false>(job, row, apart);
    const bool finite = !_mm512_cmp_ps_mask(largest, _mm512_set1_ps(most_scale), _CMP_NLE_UQ);
    for (int r = 0; r < R; ++r)
        job.out[row + r * apart] = finite ? _mm512_reduce_add_ps(sums[r]) : defined(job, row + r * apart);
}

template <bool split, bool given, bool plain>
void rows(const Job &job, int64_t begin, int64_t end) {
    const int64_t quarter = (end - begin) / 4;
    for (int64_t n = begin; n < begin + quarter; ++n)
        dots<4, split, given, plain>(job, n, quarter);
    for (int64_t n = begin + 4 * quarter; n < end; ++n)
        dots<1, split, given, plain>(job, n, 1);
}

template <bool split, bool given>
void rows_of(const Job &job, bool plain, int64_t begin, int64_t end) {
    plain ? rows<split, given, true>(job, begin, end) : rows<split, given, false>(job, begin, end);
}

// Buffers: a, its units, codes, scales, points (if there are any), out.  Numbers: elements of a, blocks, block size (a multiple of
// 128, or 16, 32 or 64, or any if there is one), bytes a row of codes, the point where there are none.  Work: rows of weights.
void coded_row_vnni(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const bool given = args[4] < 0;
    const Job job {static_cast<const float *>(buffers[0]), static_cast<const Unit *>(buffers[1]),
            static_cast<const uint8_t *>(buffers[2]), static_cast<const float *>(buffers[3]),
            given ? static_cast<const uint8_t *>(buffers[4]) : nullptr, static_cast<float *>(buffers[given ? 5 : 4]),
            args[0], args[1] * args[2], args[1], args[2], args[3], static_cast<int>(args[4])};
    bool plain = true;
    for (int64_t u = 0; u < job.count(); ++u) {
        plain = plain && !job.units[u].more;
        if (!std::isnan(job.units[u].scale)) continue;
        for (int64_t n = begin; n < end; ++n)
            job.out[n] = defined(job, n);
        return;
    }
    const bool split = job.blocks > 1 && job.block < width;
    if (split)
        given ? rows_of<true, true>(job, plain, begin, end) : rows_of<true, false>(job, plain, begin, end);
    else
        given ? rows_of<false, true>(job, plain, begin, end) : rows_of<false, false>(job, plain, begin, end);
}

} // namespace

void add_coded_loops_vnni(NamedLoops &loops) {
    loops["coded_units_vnni"] = &coded_units_vnni;
    loops["coded_row_vnni"] = &coded_row_vnni;
}

} // namespace mgx
