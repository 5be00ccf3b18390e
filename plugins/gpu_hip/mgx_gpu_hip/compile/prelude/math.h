// Scalar functions: namespace m for float and double (and integers where applicable), as mgx's primitives define them;
// namespace fast for float with an error of 1e-6; namespace coarse for results of 8 bits, with an error of 5e-4.
#if GPU_CUDA || (GPU_HIP && !defined(GPU_BARE))
#define GPU_LIBM(f) ::f
#elif GPU_HOST && !defined(SOFT_MATH)
#define GPU_LIBM(f) __builtin_##f
#else
#define SOFT_MATH 1
#endif

namespace m {
#if GPU_CUDA
DEV float floor(float x) { return ::floorf(x); }
DEV double floor(double x) { return ::floor(x); }
DEV float ceil(float x) { return ::ceilf(x); }
DEV double ceil(double x) { return ::ceil(x); }
DEV float trunc(float x) { return ::truncf(x); }
DEV double trunc(double x) { return ::trunc(x); }
DEV float round(float x) { return ::rintf(x); }
DEV double round(double x) { return ::rint(x); }
DEV float sqrt(float x) { return ::sqrtf(x); }
DEV double sqrt(double x) { return ::sqrt(x); }
DEV float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
DEV double fma(double a, double b, double c) { return ::fma(a, b, c); }
DEV float copysign(float a, float b) { return ::copysignf(a, b); }
DEV double copysign(double a, double b) { return ::copysign(a, b); }
DEV float fmod(float a, float b) { return ::fmodf(a, b); }
DEV double fmod(double a, double b) { return ::fmod(a, b); }
DEV float abs(float x) { return ::fabsf(x); }
DEV float at_least(float x, float low) { return ::fmaxf(x, low); }  // NaN becomes the bound, as in the next two
DEV float at_most(float x, float high) { return ::fminf(x, high); }
DEV double abs(double x) { return ::fabs(x); }
#else
DEV float floor(float x) { return __builtin_floorf(x); }
DEV double floor(double x) { return __builtin_floor(x); }
DEV float ceil(float x) { return __builtin_ceilf(x); }
DEV double ceil(double x) { return __builtin_ceil(x); }
DEV float trunc(float x) { return __builtin_truncf(x); }
DEV double trunc(double x) { return __builtin_trunc(x); }
DEV float round(float x) { return __builtin_rintf(x); }
DEV double round(double x) { return __builtin_rint(x); }
DEV float sqrt(float x) { return __builtin_sqrtf(x); }
DEV double sqrt(double x) { return __builtin_sqrt(x); }
DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEV float copysign(float a, float b) { return __builtin_copysignf(a, b); }
DEV double copysign(double a, double b) { return __builtin_copysign(a, b); }
DEV float fmod(float a, float b) { return __builtin_fmodf(a, b); }
DEV double fmod(double a, double b) { return __builtin_fmod(a, b); }
DEV float abs(float x) { return __builtin_fabsf(x); }
DEV float at_least(float x, float low) { return __builtin_fmaxf(x, low); }
DEV float at_most(float x, float high) { return __builtin_fminf(x, high); }
DEV double abs(double x) { return __builtin_fabs(x); }
#endif
DEV float within(float x, float low, float high) { return at_most(at_least(x, low), high); }
DEV float nan() { return bits_as<float>(0x7fc00000u); }
DEV float inf() { return bits_as<float>(0x7f800000u); }
DEV bool isnan(float x) { return (bits_as<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
DEV bool isnan(double x) { return (bits_as<u64>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
DEV bool isinf(float x) { return (bits_as<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
DEV bool isinf(double x) { return (bits_as<u64>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }
template <class T> DEV bool isnan(T) { return false; }
template <class T> DEV bool isinf(T) { return false; }

template <class T> DEV T abs(T x) { return x < (T)0 ? (T)(0 - x) : x; }
template <class T> DEV T floor(T x) { return x; }
template <class T> DEV T ceil(T x) { return x; }
template <class T> DEV T trunc(T x) { return x; }
template <class T> DEV T round(T x) { return x; }
template <class T> DEV T sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; }  // NaN and zeros are returned unchanged
template <class T> DEV T min(T a, T b) { return a < b || isnan(a) ? a : b; }
template <class T> DEV T max(T a, T b) { return a > b || isnan(a) ? a : b; }
DEV float min(float a, float b) {
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  float c;
  asm("min.NaN.f32 %0,%1,%2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a < b || a != a ? a : b;
#endif
}
DEV float max(float a, float b) {
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  float c;
  asm("max.NaN.f32 %0,%1,%2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a > b || a != a ? a : b;
#endif
}
DEV float div(float a, float b) { return a / b; }
DEV double div(double a, double b) { return a / b; }
// a / b for a constant b with rounded reciprocal r: the quotient is corrected by its remainder, so that it equals the division.
DEV float div_by(float a, float b, float r) {
  float q = a * r;
  float corrected = fma(fma(-q, b, a), r, q);
  return m::abs(q) < 3e38f ? corrected : q;  // infinities and NaN have no remainder
}
// The nearest integer (ties to even) of x, or of a / b as in div_by, clamped to integer bounds below 2^20; `none` for NaN.
// Adding 1.5 * 2^23 leaves it in the low bits: the conversion units are four times slower than an addition.
constexpr float low_bits = 12582912.f;
DEV i32 last_bits(float held) { return bits_as<i32>(held + low_bits) - 0x4b400000; }
DEV i32 nearest(float x, float low, float high, i32 none = 0) { return x == x ? last_bits(within(x, low, high)) : none; }
DEV i32 nearest_quotient(float a, float b, float r, float low, float high, i32 none = 0) {
  const float held = within(a, low * b, high * b), q = held * r;  // outside the bounds, the clamped operand gives the bound
  return a == a ? last_bits(fma(fma(-q, b, held), r, q)) : none;
}
// The integer nearest to x * r, where x is clamped to bounds; NaN becomes the lower one.
DEV i32 nearest_product(float x, float r, float low, float high) {
  return bits_as<i32>(fma(within(x, low, high), r, low_bits)) - 0x4b400000;
}
template <class T> DEV T div(T a, T b) { return b == (T)0 ? (T)0 : (T)-1 < (T)0 && b == (T)-1 ? (T)(0ull - (u64)a) : (T)(a / b); }
template <class T> DEV T fmod(T a, T b) { return b == (T)0 || ((T)-1 < (T)0 && b == (T)-1) ? (T)0 : (T)(a % b); }
DEV float mod(float a, float b) {
  float r = fmod(a, b);
  return r == 0 ? copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
}
DEV double mod(double a, double b) {
  double r = fmod(a, b);
  return r == 0 ? copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
}
template <class T> DEV T mod(T a, T b) {
  T r = fmod(a, b);
  return r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(r + b) : r;
}
template <class T, class S> DEV T shift_left(T a, S b) {
  return b < (S)0 || (u64)b >= sizeof(T) * 8 ? (T)0 : (T)((u64)a << (u32)b);
}
template <class T, class S> DEV T shift_right(T a, S b) {
  return b < (S)0 || (u64)b >= sizeof(T) * 8 ? (a < (T)0 ? (T)-1 : (T)0) : (T)(a >> (u32)b);
}
template <class T> DEV T pow(T a, T b) {  // integers, wrapping; negative powers truncate
  if (b < (T)0) {
    if (a == (T)1) return 1;
    if ((T)-1 < (T)0 && a == (T)-1) return b & 1 ? (T)-1 : (T)1;
    if (a == (T)0) return limits<T>::lowest();
    return 0;
  }
  u64 base = (u64)a, out = 1, n = (u64)b;
  for (; n; n >>= 1, base *= base)
    if (n & 1) out *= base;
  return (T)out;
}
}  // namespace m

#if SOFT_MATH
#include "softmath.h"
#else
namespace m {
#define GPU_UNARY(name)                                                 \
  DEV float name(float x) { return GPU_LIBM(name##f)(x); }              \
  DEV double name(double x) { return GPU_LIBM(name)(x); }
GPU_UNARY(exp)
GPU_UNARY(exp2)
GPU_UNARY(log)
GPU_UNARY(log2)
GPU_UNARY(expm1)
GPU_UNARY(log1p)
GPU_UNARY(sin)
GPU_UNARY(cos)
GPU_UNARY(tan)
GPU_UNARY(asin)
GPU_UNARY(acos)
GPU_UNARY(atan)
GPU_UNARY(sinh)
GPU_UNARY(cosh)
GPU_UNARY(tanh)
GPU_UNARY(asinh)
GPU_UNARY(acosh)
GPU_UNARY(atanh)
GPU_UNARY(erf)
DEV float pow(float a, float b) { return GPU_LIBM(powf)(a, b); }
DEV double pow(double a, double b) { return GPU_LIBM(pow)(a, b); }
}  // namespace m
#endif

namespace m {
#if GPU_CUDA
DEV float rsqrt(float x) { return ::rsqrtf(x); }
DEV double rsqrt(double x) { return ::rsqrt(x); }
#else
DEV float rsqrt(float x) { return 1.f / sqrt(x); }
DEV double rsqrt(double x) { return 1. / sqrt(x); }
#endif
}  // namespace m

namespace fast {
#if GPU_CUDA
DEV float exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float rsqrt(float x) { float y; asm("rsqrt.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float log2(float x) { float y; asm("lg2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
#elif GPU_HIP
DEV float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
DEV float rcp(float x) { return __builtin_amdgcn_rcpf(x); }
DEV float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
DEV float log2(float x) { return __builtin_amdgcn_logf(x); }
#else
DEV float exp2(float x) { return m::exp2(x); }
DEV float rcp(float x) { return 1.f / x; }
DEV float rsqrt(float x) { return m::rsqrt(x); }
DEV float log2(float x) { return m::log2(x); }
#endif
DEV float exp(float x) { return exp2(x * 1.44269504f); }
DEV float log(float x) { return log2(x) * 0.69314718f; }
DEV float div(float a, float b) { return a * rcp(b); }
DEV float sigmoid(float x) { return rcp(1.f + exp(-x)); }
DEV float tanh(float x) {
  float a = m::abs(x), t = 1.f - 2.f * rcp(1.f + exp(2.f * a)), s = x * x;
  float small = x * (1.f + s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f + s * 0.0218694885f))));
  return a < 0.3f ? small : m::copysign(t, x);
}
// Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7); a power series near 0, where it would lose precision.
DEV float erf(float x) {
  float a = m::abs(x), t = rcp(1.f + 0.3275911f * a);
  float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  float s = x * x, small = x * (1.128379167f + s * (-0.376126389f + s * (0.112837917f + s * (-0.0268661706f + s * 0.00522397762f))));
  return a < 0.4f ? small : x != x ? x : m::copysign(1.f - p * exp(-s), x);
}
}  // namespace fast

namespace coarse {
#if GPU_CUDA && __CUDA_ARCH__ >= 750
DEV float tanh(float x) { float y; asm("tanh.approx.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
#else
DEV float tanh(float x) { return 1.f - 2.f * fast::rcp(1.f + fast::exp(2.f * x)); }
#endif
}  // namespace coarse
