// Element types missing in C++, and conversion between any two element types.
struct half_t { u16 x; };
struct bf16_t { u16 x; };
template <int EXP, int MAN, bool FNUZ> struct fp8_t { u8 x; };
typedef fp8_t<4, 3, false> f8e4m3_t;
typedef fp8_t<5, 2, false> f8e5m2_t;
typedef fp8_t<4, 3, true> f8e4m3z_t;
typedef fp8_t<5, 2, true> f8e5m2z_t;

DEV float to_f(float v) { return v; }
DEV float to_f(half_t h) {
#if GPU_CUDA
  float f;
  asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h.x));
  return f;
#else
  return (float)bits_as<_Float16>(h.x);
#endif
}
DEV half_t to_h(float f) {
  half_t h;
#if GPU_CUDA
  asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h.x) : "f"(f));
#else
  h.x = bits_as<u16>((_Float16)f);
#endif
  return h;
}
DEV float to_f(bf16_t b) { return bits_as<float>((u32)b.x << 16); }
DEV bf16_t to_b(float f) {
  bf16_t b;
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(b.x) : "f"(f));
#else
  u32 u = bits_as<u32>(f);
  b.x = (u & 0x7fffffffu) > 0x7f800000u ? (u16)((u >> 16) | 0x40) : (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
  return b;
}

// fp8: infinities and NaNs as in the OCP and FNUZ formats; values out of range become infinity, or NaN if the format has none.
template <int E, int M, bool Z> DEV float to_f(fp8_t<E, M, Z> v) {
#if GPU_CUDA && __CUDA_ARCH__ >= 890
  if constexpr (!Z) {
    u32 both;
    if constexpr (M == 3) asm("cvt.rn.f16x2.e4m3x2 %0,%1;" : "=r"(both) : "h"((u16)v.x));
    else asm("cvt.rn.f16x2.e5m2x2 %0,%1;" : "=r"(both) : "h"((u16)v.x));
    half_t low = {(u16)both};
    return to_f(low);
  }
#endif
  constexpr int bias = (1 << (E - 1)) - 1 + Z;
  u32 sign = (u32)(v.x >> 7) << 31, e = (v.x >> M) & ((1 << E) - 1), m = v.x & ((1 << M) - 1);
  if (Z) {
    if (v.x == 0x80) return bits_as<float>(0x7fc00000u);
  } else if (e == (1 << E) - 1) {
    if (M == 2) return bits_as<float>(sign | 0x7f800000u | (m ? 0x400000u : 0));
    if (m == (1 << M) - 1) return bits_as<float>(sign | 0x7fc00000u);
  }
  if (e) return bits_as<float>(sign | ((e + 127 - bias) << 23) | (m << (23 - M)));
  float f = (float)m * bits_as<float>((u32)(127 + 1 - bias - M) << 23);
  return sign ? -f : f;
}
template <int E, int M, bool Z> DEV fp8_t<E, M, Z> to_f8(float f) {
  constexpr int bias = (1 << (E - 1)) - 1 + Z;
  constexpr u32 nan = Z ? 0x80 : (M == 2 ? 0x7e : 0x7f);
  u32 u = bits_as<u32>(f), sign = (u >> 24) & 0x80, a = u & 0x7fffffffu;
  fp8_t<E, M, Z> out;
#if GPU_CUDA && __CUDA_ARCH__ >= 890
  if constexpr (!Z) {
    u16 two;
    if constexpr (M == 3) asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(two) : "f"(0.f), "f"(f));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0,%1,%2;" : "=h"(two) : "f"(0.f), "f"(f));
    const u32 beyond = sign | (M == 3 || a > 0x7f800000u ? nan : 0x7cu);  // where the instruction saturates; a select, no branch
    const float size = bits_as<float>(a);
    out.x = (u8)((M == 3 ? size <= 464.f : size < 61440.f) ? two : beyond);  // half an ulp beyond the largest rounds to even
    return out;
  }
#endif
  out.x = (u8)(Z ? nan : sign | nan);
  if (a > 0x7f800000u) return out;
  int e = (int)(a >> 23) - 127;
  int low = 1 - bias;                                   // exponent of the smallest normal number
  int drop = 23 - M + (e < low ? low - e : 0);          // bits of the significand rounded away
  u32 sig = (a & 0x7fffffu) | (a >> 23 ? 0x800000u : 0), r = 0;
  if (drop < 26) {
    u32 rest = sig & ((1u << drop) - 1), half = 1u << (drop - 1);
    r = sig >> drop;
    r += rest > half || (rest == half && (r & 1));
  }
  u32 code = e < low ? r : r + ((u32)(e + bias - 1) << M);  // the leading one of r carries into the exponent
  constexpr u32 most = Z ? 0x7f : (M == 2 ? 0x7b : 0x7e);
  if (code > most || a >= 0x7f800000u) {
    if (M == 2 && !Z) out.x = (u8)(sign | 0x7c);
    return out;
  }
  out.x = (u8)(Z && !code ? 0 : sign | code);
  return out;
}
template <class T> struct f8_of;
template <int E, int M, bool Z> struct f8_of<fp8_t<E, M, Z>> { DEV fp8_t<E, M, Z> from(float v) { return to_f8<E, M, Z>(v); } };

// The 8-bit float of v clipped to the range of its type; NaN is kept.
template <class T> DEV T saturated(float v, float low, float high) {
#if GPU_CUDA && __CUDA_ARCH__ >= 890
  constexpr bool wide = same_type<T, f8e5m2_t>::value;
  if constexpr (wide || same_type<T, f8e4m3_t>::value) {
    u16 two;
    if constexpr (wide) asm("cvt.rn.satfinite.e5m2x2.f32 %0,%1,%2;" : "=h"(two) : "f"(0.f), "f"(v));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(two) : "f"(0.f), "f"(v));
    return bits_as<T>((u8)two);
  }
#endif
  return f8_of<T>::from(v < low ? low : v > high ? high : v);
}

// Four of them in a word, the first one in the lowest byte; two are converted by one instruction.
template <class T> DEV u32 saturated_four(const float* v, float low, float high) {
#if GPU_CUDA && __CUDA_ARCH__ >= 890
  constexpr bool wide = same_type<T, f8e5m2_t>::value;
  if constexpr (wide || same_type<T, f8e4m3_t>::value) {
    u16 a, b;
    if constexpr (wide) {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0,%1,%2;" : "=h"(a) : "f"(v[1]), "f"(v[0]));
      asm("cvt.rn.satfinite.e5m2x2.f32 %0,%1,%2;" : "=h"(b) : "f"(v[3]), "f"(v[2]));
    } else {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(a) : "f"(v[1]), "f"(v[0]));
      asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(b) : "f"(v[3]), "f"(v[2]));
    }
    return (u32)a | (u32)b << 16;
  }
#endif
  u32 word = 0;
  UNROLL for (int i = 0; i < 4; ++i) word |= (u32)saturated<T>(v[i], low, high).x << 8 * i;
  return word;
}

// The type used to compute with an element type.
template <class T> struct wide_of { typedef T type; };
template <> struct wide_of<half_t> { typedef float type; };
template <> struct wide_of<bf16_t> { typedef float type; };
template <int E, int M, bool Z> struct wide_of<fp8_t<E, M, Z>> { typedef float type; };
template <class T> using wide_t = typename wide_of<T>::type;

template <class T> DEV T widen(T v) { return v; }
DEV float widen(half_t v) { return to_f(v); }
DEV float widen(bf16_t v) { return to_f(v); }
template <int E, int M, bool Z> DEV float widen(fp8_t<E, M, Z> v) { return to_f(v); }

template <class T> struct limits;
#define GPU_LIMITS(T, LOW, HIGH)                       \
  template <> struct limits<T> {                       \
    DEV T lowest() { return LOW; }                     \
    DEV T highest() { return HIGH; }                   \
  };
GPU_LIMITS(i8, -128, 127)
GPU_LIMITS(u8, 0, 255)
GPU_LIMITS(i16, -32768, 32767)
GPU_LIMITS(u16, 0, 65535)
GPU_LIMITS(i32, -2147483647 - 1, 2147483647)
GPU_LIMITS(u32, 0, 4294967295u)
GPU_LIMITS(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
GPU_LIMITS(u64, 0, 18446744073709551615ull)
GPU_LIMITS(bool, false, true)
GPU_LIMITS(float, -3.402823466e+38f, 3.402823466e+38f)  // finite; start a maximum at -infinity with m::inf
GPU_LIMITS(double, -1.7976931348623157e+308, 1.7976931348623157e+308)

// convert<To>(v): numeric conversion; floats to integers truncate and saturate, NaN becomes 0; anything to bool is != 0.
template <class To> struct converter {
  DEV To from(float v) { return real<float>(v); }
  DEV To from(double v) { return real<double>(v); }
  template <class From> DEV To from(From v) { return (To)v; }
  template <class F> DEV To real(F v) {
    if (!(v == v)) return 0;
        // the first number out of range: a power of two, exact in every float type; conversions via double would be slowest
    const bool negative = (To)-1 < (To)0;
    const F top = sizeof(To) == 8 ? (negative ? (F)9223372036854775808.0 : (F)18446744073709551616.0)
                                  : (F)(1ull << (8 * sizeof(To) - negative) % 64);
    if (v >= top) return limits<To>::highest();
    if (negative ? v <= -top : v <= 0) return limits<To>::lowest();
    return (To)v;
  }
};
template <> struct converter<bool> { template <class From> DEV bool from(From v) { return v != (From)0; } };
template <> struct converter<float> { template <class From> DEV float from(From v) { return (float)v; } };
template <> struct converter<double> { template <class From> DEV double from(From v) { return (double)v; } };
template <> struct converter<half_t> { template <class From> DEV half_t from(From v) { return to_h((float)v); } };
template <> struct converter<bf16_t> { template <class From> DEV bf16_t from(From v) { return to_b((float)v); } };
template <int E, int M, bool Z> struct converter<fp8_t<E, M, Z>> {
  template <class From> DEV fp8_t<E, M, Z> from(From v) { return to_f8<E, M, Z>((float)v); }
};
template <class To, class From> DEV To convert(From v) {
  if constexpr (same_type<To, From>::value) return v;
  else return converter<To>::from(widen(v));
}
