// Vectors of MGX_LANES floats, and vectorized math functions for activations.
//
// Included by sources that are compiled once per instruction set, so everything here has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace {

constexpr int64_t lanes = MGX_LANES;

typedef float Floats __attribute__((vector_size(MGX_LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(MGX_LANES * 4)));

inline Floats load(const float *from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float *to, Floats v) { std::memcpy(to, &v, sizeof v); }

// Loads bfloat16.
inline Floats load(const uint16_t *from) {
#if MGX_LANES == 16
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    return (Floats)_mm512_slli_epi32(wide, 16);
#else
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    return (Floats)_mm256_slli_epi32(wide, 16);
#endif
}

// Loads the first `count` lanes; the others are 0.
inline Floats load_some(const float *from, int64_t count) {
#if MGX_LANES == 16
    return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#else
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (Floats)_mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), places));
#endif
}

// Stores the first `count` < MGX_LANES lanes.  AVX2 stores powers of two: masked stores take a dozen cycles on some processors.
inline void store_some(float *to, Floats v, int64_t count) {
#if MGX_LANES == 16
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), (__m512)v);
#else
    __m128 part = _mm256_castps256_ps128((__m256)v);
    if (count & 4) {
        _mm_storeu_ps(to, part);
        part = _mm256_extractf128_ps((__m256)v, 1);
        to += 4;
    }
    if (count & 2) {
        _mm_storel_pi(reinterpret_cast<__m64 *>(to), part);
        part = _mm_movehl_ps(part, part);
        to += 2;
    }
    if (count & 1) _mm_store_ss(to, part);
#endif
}

#if MGX_LANES == 16
// Rounds to bfloat16, to nearest even.
inline __m256i narrowed(Floats v) {
    const __m512i whole = (__m512i)v;
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(whole, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(0x7fff)), last);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q); // these stay NaN
    const __m512i found = _mm512_mask_or_epi32(rounded, nan, whole, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(found, 16));
}

inline void store(uint16_t *to, Floats v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), narrowed(v)); }

// Loads the lanes of a mask; the others are 0.
inline Floats load_lanes(const float *from, __mmask16 valid) { return (Floats)_mm512_maskz_loadu_ps(valid, from); }

inline void store_lanes(float *to, Floats v, __mmask16 valid) { _mm512_mask_storeu_ps(to, valid, (__m512)v); }

#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline Floats load_lanes(const uint16_t *from, __mmask16 valid) {
    return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(valid, from)), 16);
}

inline void store_lanes(uint16_t *to, Floats v, __mmask16 valid) { _mm256_mask_storeu_epi16(to, valid, narrowed(v)); }

inline Floats load_some(const uint16_t *from, int64_t count) { return load_lanes(from, static_cast<__mmask16>((1u << count) - 1)); }

inline void store_some(uint16_t *to, Floats v, int64_t count) { store_lanes(to, v, static_cast<__mmask16>((1u << count) - 1)); }
#endif
#endif

inline float number(float x) { return x; }

// Returns a bfloat16 as a float.
inline float number(uint16_t x) {
    const uint32_t wide = static_cast<uint32_t>(x) << 16;
    float found;
    std::memcpy(&found, &wide, sizeof found);
    return found;
}

inline Floats all(float x) { return x - Floats {}; }

// a < b ? a : b in one instruction, which compilers do not generate for mask registers.
inline Floats smaller(Floats a, Floats b) {
#if MGX_LANES == 16
    return (Floats)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return (Floats)_mm256_min_ps((__m256)a, (__m256)b);
#endif
}

// a > b ? a : b.
inline Floats larger(Floats a, Floats b) {
#if MGX_LANES == 16
    return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#endif
}

// e^x to a few ulp.  x is clamped so that neither the result nor its inverse overflows; NaN is preserved.
inline Floats exponential(Floats x) {
    x = larger(all(-87.0f), smaller(all(87.0f), x));
    const float magic = 12582912.0f; // adding it rounds to an integer, stored in the low mantissa bits
    Floats shifted = x * 1.44269504f + magic;
    Floats n = shifted - magic;
    Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
    Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Ints bits = ((Ints)shifted << 23) + 0x3f800000; // the shift drops the bits of `magic`
    return p * (Floats)bits;
}

// 1 / x to a few ulp for x from 1 to the largest result of `exponential`; NaN is preserved.
inline Floats inverse(Floats x) {
#if MGX_LANES == 16
    const Floats near = (Floats)_mm512_rcp14_ps((__m512)x); // a division costs as much as ten other operations
    return near + near * (1.0f - x * near);
#else
    return 1.0f / x;
#endif
}

inline Floats sigmoid(Floats x) { return inverse(1.0f + exponential(-x)); }

// log(1 + x) to a few ulp for x from 0 to 1: twice the inverse hyperbolic tangent of x / (2 + x), by its series.
inline Floats logarithm_beyond_1(Floats x) {
    const Floats ratio = x / (2.0f + x), square = ratio * ratio;
    Floats p = all(2.0f / 15.0f);
    for (int n = 13; n > 0; n -= 2)
        p = p * square + 2.0f / static_cast<float>(n);
    return ratio * p;
}

// tanh; uses its series near 0, where the formula below suffers from cancellation.
inline Floats hyperbolic(Floats x) {
    const Floats square = x * x;
    Floats p = square * (62.0f / 2835.0f) - 17.0f / 315.0f;
    p = p * square + 2.0f / 15.0f;
    p = p * square - 1.0f / 3.0f;
    return square < 0.0625f ? x + x * square * p : 2.0f * sigmoid(2.0f * x) - 1.0f;
}

// erf to a few ulp; NaN is preserved.  x times a polynomial: in x^2 with AVX2; with AVX-512 of lower degree around the table
// point nearest to |x|, with coefficients selected by a permute (as in `jit/math.py`).
inline Floats error_function(Floats x) {
#if MGX_LANES == 16
    alignas(64) static constexpr float columns[6][16] = {
        {1.1283791f, 1.1027663f, 1.03196f, 9.313557e-1f, 8.193742e-1f, 7.112934e-1f, 6.161289e-1f, 5.368965e-1f,
                4.7272137e-1f, 4.2106593e-1f, 3.791863e-1f, 3.44767e-1f, 3.1604695e-1f, 2.9173753e-1f, 2.7089942e-1f, 2.528395e-1f},
        {-3.9023795e-15f, -1.9027586e-1f, -3.366309e-1f, -4.1440895e-1f, -4.2513582e-1f, -3.8901192e-1f, -3.3107248e-1f, -2.706217e-1f,
                -2.178543e-1f, -1.7573278e-1f, -1.4340061e-1f, -1.18782744e-1f, -9.9870436e-2f, -8.5108295e-2f, -7.338614e-2f, -6.392777e-2f},
        {-3.7612185e-1f, -3.309541e-1f, -2.1608825e-1f, -7.9659656e-2f, 3.2100234e-2f, 9.663555e-2f, 1.16908714e-1f, 1.0921401e-1f,
                9.0094775e-2f, 7.0010185e-2f, 5.3306893e-2f, 4.070342e-2f, 3.1513315e-2f, 2.4820384e-2f, 1.9878887e-2f, 1.6163273e-2f},
        {5.816062e-13f, 1.0952128e-1f, 1.7006359e-1f, 1.6464452e-1f, 1.1316286e-1f, 5.0934166e-2f, 4.0551103e-3f, -1.9896755e-2f,
                -2.6253669e-2f, -2.3672836e-2f, -1.8456522e-2f, -1.3577966e-2f, -9.858266e-3f, -7.221561e-3f, -5.3819492e-3f, -4.086251e-3f},
        {1.1214014e-1f, 8.6073704e-2f, 2.5574772e-2f, -3.1837635e-2f, -5.8939327e-2f, -5.4182608e-2f, -3.3453733e-2f, -1.3102658e-2f,
                -6.1360304e-4f, 4.354104e-3f, 5.0202445e-3f, 4.102355e-3f, 2.9752946e-3f, 2.0798433e-3f, 1.4549955e-3f, 1.0339887e-3f},
        {-2.1025754e-11f, -3.7166312e-2f, -4.962618e-2f, -3.3965614e-2f, -7.1020448e-3f, 1.2146594e-2f, 1.72014e-2f, 1.2795208e-2f,
                6.265609e-3f, 1.7035439e-3f, -3.5674457e-4f, -8.76673e-4f, -7.8698754e-4f, -5.702696e-4f, -3.8683222e-4f, -2.6018513e-4f},
    };
    constexpr float step = 135.0f / 512.0f, edge = 15 * step, magic = 12582912.0f;
    x = larger(all(-edge), smaller(all(edge), x));
    const Floats size = (Floats)_mm512_abs_ps((__m512)x);
    const Floats shifted = size * (1.0f / step) + magic, near = size - (shifted - magic) * step;
    const auto coefficient = [&](int power) {
        return (Floats)_mm512_permutexvar_ps((__m512i)shifted, _mm512_load_ps(columns[power]));
    };
    Floats p = coefficient(5);
    for (int power = 4; power >= 0; --power)
        p = p * near + coefficient(power);
#else
    constexpr float edge = 3.92f; // erf is 1 in float from here on
    static constexpr float coefficients[] = {0.36073682f, -0.18010857f, 0.13408342f, -0.10918151f, 0.09062185f, -0.07399375f, 0.05818976f,
            -0.04356678f, 0.030533189f, -0.019664941f, 0.012378601f, -0.008107236f, 0.004136191f, -0.001088019f, 0.0007060194f,
            -0.00092775726f, 0.00035475201f};
    x = larger(all(-edge), smaller(all(edge), x));
    const Floats s = x * x * (2.0f / (edge * edge)) - 1.0f;
    Floats p = all(coefficients[16]);
    for (int power = 15; power >= 0; --power)
        p = p * s + coefficients[power];
#endif
    return x * p;
}

} // namespace
