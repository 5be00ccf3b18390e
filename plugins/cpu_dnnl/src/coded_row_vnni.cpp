// Products of one row and 4-bit quantized weights with VNNI.
#include "coded_row.h"

namespace mgx {

namespace {

inline __m512i at(const void *p) { return _mm512_load_si512(p); }

struct Vectors {
    static constexpr int lanes = 16;
    static constexpr bool splits = true;
    static constexpr int32_t max_exact_point = 31; // largest zero point whose products with sums fit into int32

    using Unit = CodedUnit<lanes>;
    using Sums = __m512;
    using Scales = __m512; // one per 8 codes
    using Points = __m512i;

    struct Elements {
        __m512 at[8];

        Elements(const float *x, int64_t count) {
            for (int64_t i = 0; i < 8; ++i) {
                const int64_t left = std::clamp<int64_t>(count - 16 * i, 0, 16);
                at[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + 16 * i);
            }
        }

        float largest() const {
            __m512i largest = _mm512_setzero_si512();
            for (int64_t i = 0; i < 8; ++i)
                largest = _mm512_max_epi32(largest, _mm512_castps_si512(_mm512_abs_ps(at[i])));
            return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(largest))));
        }

        bool mostly_below(float limit) const {
            const __m512 bound = _mm512_set1_ps(limit);
            int small = 0, others = 0;
            for (int64_t i = 0; i < 8; ++i) {
                const __m512 size = _mm512_abs_ps(at[i]);
                const __mmask16 below = _mm512_cmp_ps_mask(size, bound, _CMP_LT_OQ);
                small += __builtin_popcount(_mm512_mask_cmp_ps_mask(below, size, _mm512_setzero_ps(), _CMP_GT_OQ));
                others += __builtin_popcount(static_cast<__mmask16>(~below));
            }
            return small > others;
        }
    };

    struct Codes {
        __m512i even, odd;

        explicit Codes(__m512i all) : even(all), odd(all) {}
        Codes(const uint8_t *from, int64_t left) {
            const __m512i nibble = _mm512_set1_epi8(15);
            const __m512i pairs = _mm512_maskz_loadu_epi8(~0ull >> (64 - left), from);
            even = _mm512_and_si512(pairs, nibble);
            odd = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), nibble);
        }
    };

    template <bool split>
    struct Lanes {
        __m512i places;
        explicit Lanes(int64_t block)
            : places(_mm512_srlv_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                      _mm512_set1_epi32(block == 16 ? 1 : block == 32 ? 2 : 3))) {}

        __m512 scales(const float *p, int64_t count) const {
            if constexpr (split) return _mm512_permutexvar_ps(places, _mm512_maskz_loadu_ps(first(count), p));
            return _mm512_set1_ps(*p);
        }
        __m512i points(const uint8_t *p, int64_t count) const {
            if constexpr (split)
                return _mm512_permutexvar_epi32(places, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(count), p)));
            return _mm512_set1_epi32(*p);
        }
        static __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
    };

    struct Maxima {
        __m512i point = _mm512_setzero_si512();
        __m512 scale = _mm512_setzero_ps();

        void add_scales(__m512 scales) { scale = _mm512_max_ps(_mm512_abs_ps(scales), scale); }
        void add_points(__m512i points) { point = _mm512_max_epi32(point, points); }
        bool has_large_points() const { return _mm512_cmpgt_epi32_mask(point, _mm512_set1_epi32(max_exact_point)); }
        bool has_finite_weights() const { return !_mm512_cmp_ps_mask(scale, _mm512_set1_ps(max_scale), _CMP_NLE_UQ); }
    };

    static __m512 zero_sums() { return _mm512_setzero_ps(); }

    static float total(__m512 x) { return _mm512_reduce_add_ps(x); }

    // Returns `start` plus the sums of 8 products of codes and elements per lane, which fit into 30 bits.
    static __m512i multiplied(const Codes &c, const Unit &x, __m512i start) {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i high = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, c.even, at(x.even[2])), c.odd, at(x.odd[2]));
        const __m512i middle = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, c.even, at(x.even[1])), c.odd, at(x.odd[1]));
        const __m512i low = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, c.even, at(x.even[0])), c.odd, at(x.odd[0]));
        return _mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), middle), 8), low);
    }

    static void quantize(Unit &unit, Elements &elements, float times) {
        const __m512 factor = _mm512_set1_ps(times);
        alignas(64) int8_t bytes[pieces][width];
        for (int64_t i = 0; i < 8; ++i) {
            __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(elements.at[i], factor));
            elements.at[i] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(unit.scale), elements.at[i]);
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
    }

    static void compute_sums(Unit &unit, int64_t point) {
        const __m512i times = _mm512_set1_epi8(static_cast<char>(point < 0 ? 1 : point)), zero = _mm512_setzero_si512();
        const __m512i sums = multiplied(Codes(times), unit, zero);
        _mm512_store_si512(unit.sums, point < 0 ? sums : _mm512_sub_epi32(zero, sums));
    }

    template <bool block_points, bool plain>
    static __m512 accumulate(const Codes &codes, const Unit &x, __m512 scales, __m512i points, __m512 sum) {
        __m512i start = at(x.sums), clamped = points;
        const __m512 sums = _mm512_cvtepi32_ps(start);
        if constexpr (block_points && !plain) clamped = _mm512_min_epi32(points, _mm512_set1_epi32(max_exact_point));
        if constexpr (block_points) start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_mullo_epi32(clamped, start));
        __m512 found = _mm512_cvtepi32_ps(multiplied(codes, x, start));
        if constexpr (block_points && !plain) // the rest of the product does not fit into int32
            found = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(points, clamped)), sums, found);
        return _mm512_fmadd_ps(found, _mm512_mul_ps(scales, _mm512_set1_ps(x.scale)), sum);
    }
};

} // namespace

void add_coded_loops_vnni(NamedLoops &loops) {
    loops["coded_units_vnni"] = &coded_units<Vectors>;
    loops["coded_row_vnni"] = &coded_row<Vectors>;
}

} // namespace mgx
