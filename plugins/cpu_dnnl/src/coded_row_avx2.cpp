// Products of one row and 4-bit quantized weights on AVX2, by vpmaddubsw.
//
// Sums of eight products of a code and a signed byte fit into int16, so they are exact without VNNI.
#include "coded_row.h"

namespace mgx {

namespace {

inline __m256i at(const void *p) { return _mm256_load_si256(static_cast<const __m256i *>(p)); }

struct Vectors {
    static constexpr int lanes = 8;
    static constexpr bool splits = false;
    static constexpr int32_t max_exact_point = 15; // largest zero point whose products with sums fit into int32

    using Unit = CodedUnit<lanes>;
    using Sums = __m256;
    using Scales = float;
    using Points = int;

    struct Elements {
        alignas(32) float at[width] = {};

        Elements(const float *x, int64_t count) {
            const int64_t left = std::min(count, width);
            if (left > 0) std::memcpy(at, x, static_cast<size_t>(left) * sizeof(float));
        }

        float largest() const {
            int32_t largest = 0;
            for (int64_t i = 0; i < width; ++i) {
                int32_t bits;
                std::memcpy(&bits, at + i, 4);
                largest = std::max(largest, bits & 0x7fffffff);
            }
            float found;
            std::memcpy(&found, &largest, 4);
            return found;
        }

        bool mostly_below(float bound) const {
            int small = 0, others = 0;
            for (int64_t i = 0; i < width; ++i) {
                const float size = std::fabs(at[i]);
                small += size < bound && size > 0;
                others += !(size < bound);
            }
            return small > others;
        }
    };

    // Even and odd codes, as two vectors each.
    struct Codes {
        __m256i even[2], odd[2];

        explicit Codes(__m256i all) : even {all, all}, odd {all, all} {}
        Codes(const uint8_t *from, int64_t left) {
            alignas(32) uint8_t part[64];
            if (left < 64) {
                std::memset(part, 0, sizeof part);
                std::memcpy(part, from, static_cast<size_t>(left));
                from = part;
            }
            const __m256i nibble = _mm256_set1_epi8(15);
            for (int h = 0; h < 2; ++h) {
                const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + 32 * h));
                even[h] = _mm256_and_si256(pairs, nibble);
                odd[h] = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble);
            }
        }
    };

    template <bool split>
    struct Lanes {
        explicit Lanes(int64_t) {}
        float scales(const float *p, int64_t) const { return *p; }
        int points(const uint8_t *p, int64_t) const { return *p; }
    };

    struct Maxima {
        int point = 0;
        bool finite = true;

        void add_scales(float scale) { finite = finite && std::fabs(scale) <= max_scale; }
        void add_points(int block_points) { point = std::max(point, block_points); }
        bool has_large_points() const { return point > max_exact_point; }
        bool has_finite_weights() const { return finite; }
    };

    static __m256 zero_sums() { return _mm256_setzero_ps(); }

    static float total(__m256 x) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

    // Returns `start` plus the int32 sums of 16 products of codes and elements per lane.
    static __m256i multiplied(const Codes &c, const Unit &x, __m256i start) {
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

    static void quantize(Unit &unit, Elements &elements, float times) {
        const __m256 factor = _mm256_set1_ps(times);
        alignas(32) int32_t whole[width];
        for (int64_t i = 0; i < width; i += 8) {
            const __m256 block_points = _mm256_load_ps(elements.at + i);
            const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(block_points, factor));
            _mm256_store_si256(reinterpret_cast<__m256i *>(whole + i), rounded);
            _mm256_store_ps(elements.at + i, _mm256_fnmadd_ps(_mm256_cvtepi32_ps(rounded), _mm256_set1_ps(unit.scale), block_points));
        }
        for (int64_t p = 0; p < pieces; ++p)
            for (int64_t i = 0; i < width / 2; ++i) {
                const auto even = static_cast<int8_t>(whole[2 * i]), odd = static_cast<int8_t>(whole[2 * i + 1]);
                unit.even[p][i] = even;
                unit.odd[p][i] = odd;
                whole[2 * i] = (whole[2 * i] - even) >> 8;
                whole[2 * i + 1] = (whole[2 * i + 1] - odd) >> 8;
            }
    }

    static void compute_sums(Unit &unit, int64_t point) {
        const __m256i times = _mm256_set1_epi8(static_cast<char>(point < 0 ? 1 : point)), zero = _mm256_setzero_si256();
        const __m256i sums = multiplied(Codes(times), unit, zero);
        _mm256_store_si256(reinterpret_cast<__m256i *>(unit.sums), point < 0 ? sums : _mm256_sub_epi32(zero, sums));
    }

    template <bool block_points, bool plain>
    static __m256 accumulate(const Codes &codes, const Unit &x, float scale, int point, __m256 sum) {
        __m256i start = at(x.sums);
        const __m256 sums = _mm256_cvtepi32_ps(start);
        const int clamped = block_points && !plain ? std::min(point, max_exact_point) : point;
        if constexpr (block_points) start = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_mullo_epi32(_mm256_set1_epi32(clamped), start));
        __m256 found = _mm256_cvtepi32_ps(multiplied(codes, x, start));
        if constexpr (block_points && !plain) // the rest of the product does not fit into int32
            found = _mm256_fnmadd_ps(_mm256_set1_ps(static_cast<float>(point - clamped)), sums, found);
        return _mm256_fmadd_ps(found, _mm256_set1_ps(scale * x.scale), sum);
    }
};

} // namespace

void add_coded_rows_avx2(NamedLoops &loops) {
    loops["coded_units_avx2"] = &coded_units<Vectors>;
    loops["coded_row_avx2"] = &coded_row<Vectors>;
}

} // namespace mgx
