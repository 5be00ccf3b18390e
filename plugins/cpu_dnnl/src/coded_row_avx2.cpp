// Products of one row with weights in codes of 4 bits, by sums of products of bytes in 16 bits.
//
// As `coded_row_vnni.cpp`: 128 numbers become integers of 24 bits, and those three signed bytes each. Sums of eight products of a
// code and a signed byte fit 16 bits, so that they are exact without dot products of bytes, too. A unit's weights have one scale.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "coded_scales.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int64_t width = 128;     // numbers of a unit
constexpr int64_t pieces = 3;      // signed bytes of a number
constexpr int64_t ahead = 1024;    // bytes of codes fetched before they are needed
constexpr float far = 128;         // times: numbers that far below the largest keep 16 of their digits
constexpr int32_t most_point = 15; // whose products with sums are integers of 32 bits
constexpr float most = 8355000;    // integer of the largest number: below 127 * (1 + 256 + 65536), whatever rounding adds

// The bytes of 128 numbers in the order in which codes leave their bytes: those at even places, then those at odd ones.
struct alignas(64) Unit {
    int8_t even[pieces][64], odd[pieces][64]; // the lowest byte first
    int32_t sums[8];                          // of each 16 numbers; times the point and negative where there is one for all
    float scale;                              // what an integer of 1 stands for; NaN where a number is not finite
    int32_t more;                             // the rest of the digits is in the unit `count` behind this one
    char rest[88];
};

static_assert(sizeof(Unit) == 512, "the plan gives as many bytes");

inline __m256i at(const void *p) { return _mm256_load_si256(static_cast<const __m256i *>(p)); }

// 128 codes: those of even places, then those of odd ones, each as two vectors.
struct Codes {
    __m256i even[2], odd[2];
};

// The products of 16 codes each with their numbers, as integers of 32 bits, added to `start`.
inline __m256i multiplied(const Codes &c, const Unit &x, __m256i start) {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto piece = [&](int p) {
        const __m256i even = _mm256_add_epi16(
                _mm256_maddubs_epi16(c.even[0], at(x.even[p])), _mm256_maddubs_epi16(c.even[1], at(x.even[p] + 32)));
        const __m256i odd = _mm256_add_epi16(
                _mm256_maddubs_epi16(c.odd[0], at(x.odd[p])), _mm256_maddubs_epi16(c.odd[1], at(x.odd[p] + 32)));
        return _mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
    };
    const __m256i upper = _mm256_add_epi32(_mm256_slli_epi32(piece(2), 8), piece(1));
    return _mm256_add_epi32(_mm256_slli_epi32(upper, 8), _mm256_add_epi32(piece(0), start));
}

// The largest magnitude of 128 numbers; NaN or infinity where there is one.
float largest_of(const float *numbers) {
    int32_t largest = 0;
    for (int64_t i = 0; i < width; ++i) {
        int32_t bits;
        std::memcpy(&bits, numbers + i, 4);
        largest = std::max(largest, bits & 0x7fffffff);
    }
    float found;
    std::memcpy(&found, &largest, 4);
    return found;
}

// True if most numbers that are not 0 are far below the largest.
bool mostly_far(const float *numbers, float largest) {
    const float bound = largest / far;
    int small = 0, others = 0;
    for (int64_t i = 0; i < width; ++i) {
        const float size = std::fabs(numbers[i]);
        small += size < bound && size > 0;
        others += !(size < bound);
    }
    return small > others;
}

// Makes 128 numbers a unit, and leaves in `numbers` what its integers are short of them.
void fill_unit(Unit &unit, float *numbers, float largest, int64_t point) {
    const float limit = std::max(largest, 0x1p-100f);
    const bool finite = std::isfinite(limit);
    const __m256 factor = _mm256_set1_ps(finite ? most / limit : 0.0f);
    unit.scale = finite ? limit / most : std::numeric_limits<float>::quiet_NaN();
    unit.more = 0;
    alignas(32) int32_t whole[width];
    for (int64_t i = 0; i < width; i += 8) {
        const __m256 given = _mm256_load_ps(numbers + i);
        const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(given, factor));
        _mm256_store_si256(reinterpret_cast<__m256i *>(whole + i), rounded);
        _mm256_store_ps(numbers + i, _mm256_fnmadd_ps(_mm256_cvtepi32_ps(rounded), _mm256_set1_ps(unit.scale), given));
    }
    for (int64_t p = 0; p < pieces; ++p)
        for (int64_t i = 0; i < width / 2; ++i) {
            const auto even = static_cast<int8_t>(whole[2 * i]), odd = static_cast<int8_t>(whole[2 * i + 1]);
            unit.even[p][i] = even;
            unit.odd[p][i] = odd;
            whole[2 * i] = (whole[2 * i] - even) >> 8;
            whole[2 * i + 1] = (whole[2 * i + 1] - odd) >> 8;
        }
    const __m256i times = _mm256_set1_epi8(static_cast<char>(point < 0 ? 1 : point)), zero = _mm256_setzero_si256();
    const __m256i sums = multiplied({{times, times}, {times, times}}, unit, zero);
    _mm256_store_si256(reinterpret_cast<__m256i *>(unit.sums), point < 0 ? sums : _mm256_sub_epi32(zero, sums));
}

// Buffers: x, units and as many for the rest of the digits.  Numbers: elements of x, the point of all weights (negative: they
// have their own), units.  Work: units.
void coded_units_avx2(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const float *x = static_cast<const float *>(buffers[0]);
    Unit *units = static_cast<Unit *>(buffers[1]);
    const int64_t count = args[0], point = args[1], behind = args[2];
    for (int64_t u = begin; u < end; ++u) {
        alignas(32) float numbers[width] = {};
        const int64_t left = std::min<int64_t>(count - u * width, width);
        if (left > 0) std::memcpy(numbers, x + u * width, static_cast<size_t>(left) * sizeof(float));
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

// A sum with the products of a unit and codes.  given: weights have points, of which only `plain` ones are known to be small.
template <bool given, bool plain>
inline __m256 added(const Codes &codes, const Unit &x, float scale, int point, __m256 sum) {
    __m256i start = at(x.sums);
    const __m256 sums = _mm256_cvtepi32_ps(start);
    const int usual = given && !plain ? std::min(point, most_point) : point;
    if constexpr (given) start = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_mullo_epi32(_mm256_set1_epi32(usual), start));
    __m256 found = _mm256_cvtepi32_ps(multiplied(codes, x, start));
    if constexpr (given && !plain) // the rest of the product is no integer of 32 bits
        found = _mm256_fnmadd_ps(_mm256_set1_ps(static_cast<float>(point - usual)), sums, found);
    return _mm256_fmadd_ps(found, _mm256_set1_ps(scale * x.scale), sum);
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

inline Codes codes_of(const uint8_t *from, int64_t left) {
    alignas(32) uint8_t part[64];
    if (left < 64) {
        std::memset(part, 0, sizeof part);
        std::memcpy(part, from, static_cast<size_t>(left));
        from = part;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    Codes made;
    for (int h = 0; h < 2; ++h) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + 32 * h));
        made.even[h] = _mm256_and_si256(pairs, nibble);
        made.odd[h] = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble);
    }
    return made;
}

float total(__m256 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// R weights, `apart` rows from each other: streams in pages of their own, whose addresses are translated at the same time.
// plain: units have all digits, and points are expected to be small.
template <int R, bool given, bool plain>
void dots(const Job &job, int64_t row, int64_t apart) {
    const int64_t units = job.count();
    const int64_t together = job.blocks == 1 ? units : job.block / width; // units with the same scale
    __m256 sums[R];
    int highest = 0;
    bool finite = true;
    for (int r = 0; r < R; ++r)
        sums[r] = _mm256_setzero_ps();
    for (int64_t b = 0, u = 0; b < job.blocks; ++b) {
        float scales[R];
        int points[R];
        for (int r = 0; r < R; ++r) {
            scales[r] = job.scales[(row + r * apart) * job.blocks + b];
            finite = finite && std::fabs(scales[r]) <= most_scale;
            points[r] = given ? job.points[(row + r * apart) * job.blocks + b] : 0;
            highest = std::max(highest, points[r]);
        }
        for (const int64_t last = std::min(u + together, units); u < last; ++u) {
            const Unit &x = job.units[u];
            const int64_t left = std::min<int64_t>(64, job.row_bytes - 64 * u);
            for (int r = 0; r < R; ++r) {
                const uint8_t *from = job.codes + (row + r * apart) * job.row_bytes + 64 * u;
                _mm_prefetch(reinterpret_cast<const char *>(from + ahead), _MM_HINT_T0);
                const Codes codes = codes_of(from, left);
                sums[r] = added<given, plain>(codes, x, scales[r], points[r], sums[r]);
                if (!plain && x.more) sums[r] = added<given, plain>(codes, job.units[u + units], scales[r], points[r], sums[r]);
            }
        }
    }
    if constexpr (given && plain)
        if (highest > most_point) return dots<R, given, false>(job, row, apart);
    for (int r = 0; r < R; ++r)
        job.out[row + r * apart] = finite ? total(sums[r]) : defined(job, row + r * apart);
}

template <bool given, bool plain>
void rows(const Job &job, int64_t begin, int64_t end) {
    const int64_t quarter = (end - begin) / 4;
    for (int64_t n = begin; n < begin + quarter; ++n)
        dots<4, given, plain>(job, n, quarter);
    for (int64_t n = begin + 4 * quarter; n < end; ++n)
        dots<1, given, plain>(job, n, 1);
}

// Buffers: a, its units, codes, scales, points (if there are any), out.  Numbers: elements of a, blocks, block size (a multiple of
// 128, or any if there is one block), bytes a row of codes, the point where there are none.  Work: rows of weights.
void coded_row_avx2(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
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
    if (given)
        plain ? rows<true, true>(job, begin, end) : rows<true, false>(job, begin, end);
    else
        plain ? rows<false, true>(job, begin, end) : rows<false, false>(job, begin, end);
}

} // namespace

void add_coded_rows_avx2(NamedLoops &loops) {
    loops["coded_units_avx2"] = &coded_units_avx2;
    loops["coded_row_avx2"] = &coded_row_avx2;
}

} // namespace mgx
