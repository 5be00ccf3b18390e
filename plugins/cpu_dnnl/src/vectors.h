// Vectors of MGX_LANES floats, and the functions on them that activations need.
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

// The first `count` lanes; the others are 0.
inline Floats load_some(const float *from, int64_t count) {
#if MGX_LANES == 16
    return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#else
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (Floats)_mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), places));
#endif
}

// Fewer than all lanes; with AVX2 by powers of two: some processors take a dozen cycles for a store under a mask.
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

inline Floats all(float x) { return x - Floats {}; }

// a < b ? a : b, in one instruction, which compilers do not find where there are masks.
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

// e^x, a few ulp; x is held where neither the result nor its inverse overflows, and what is not a number stays so.
inline Floats exponential(Floats x) {
    x = larger(all(-87.0f), smaller(all(87.0f), x));
    const float magic = 12582912.0f; // adding it rounds to an integer, which then sits in the low bits
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
    Ints bits = ((Ints)shifted << 23) + 0x3f800000; // nothing is left of the bits of `magic`
    return p * (Floats)bits;
}

// 1 / x, a few ulp, of numbers of at least 1 up to the largest that `exponential` gives; what is not a number stays so.
inline Floats inverse(Floats x) {
#if MGX_LANES == 16
    const Floats near = (Floats)_mm512_rcp14_ps((__m512)x); // a division takes the time of ten other operations
    return near + near * (1.0f - x * near);
#else
    return 1.0f / x;
#endif
}

inline Floats sigmoid(Floats x) { return inverse(1.0f + exponential(-x)); }

// tanh; near 0 by its series, since the difference below keeps no digits there.
inline Floats hyperbolic(Floats x) {
    const Floats square = x * x;
    Floats p = square * (62.0f / 2835.0f) - 17.0f / 315.0f;
    p = p * square + 2.0f / 15.0f;
    p = p * square - 1.0f / 3.0f;
    return square < 0.0625f ? x + x * square * p : 2.0f * sigmoid(2.0f * x) - 1.0f;
}

} // namespace
