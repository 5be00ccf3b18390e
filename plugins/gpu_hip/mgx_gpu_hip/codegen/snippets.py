"""Small device functions used by kernel sources; each is prepended to the sources that name it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SNIPPETS", "needed"]

# name -> definition; a definition may use others
SNIPPETS: Final[dict[str, str]] = {
    "load_many": """// more than 16 bytes, in accesses of 16
template <class T, int N> DEV vec<T, N> load_many(const T* p) {
  constexpr int M = 16 / (int)sizeof(T);
  vec<T, N> v;
  UNROLL for (int i = 0; i < N; i += M) {
    vec<T, M> part = ldv<T, M>(p + i);
    UNROLL for (int j = 0; j < M; ++j) v.v[i + j] = part.v[j];
  }
  return v; }""",
    "store_many": """template <class T, int N> DEV void store_many(T* p, vec<T, N> v) {
  constexpr int M = 16 / (int)sizeof(T);
  UNROLL for (int i = 0; i < N; i += M) {
    vec<T, M> part;
    UNROLL for (int j = 0; j < M; ++j) part.v[j] = v.v[i + j];
    stv<T, M>(p + i, part);
  }
}""",
    "max_pairs": """// the greater of each of two 16-bit numbers, i16 or u16
template <class T> DEV u32 max_pairs(u32 a, u32 b) {
#if GPU_CUDA && __CUDA_ARCH__ >= 900
  u32 both;
  if constexpr ((T)-1 < (T)0) asm("max.s16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  else asm("max.u16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  return both;
#else
  return (u32)(u16)m::max((T)a, (T)b) | (u32)(u16)m::max((T)(a >> 16), (T)(b >> 16)) << 16;
#endif
}""",
    "float8_order": """// four e4m3 as bytes in the order of signed integers, and back: negative ones have other bits inverted
DEV u32 float8_order(u32 a) {
  const u32 negative = a >> 7 & 0x01010101u;
  return a ^ ((negative << 7) - negative);
}""",
    "positive_nan": """// four e4m3, of which those that are NaN have no sign
DEV u32 positive_nan(u32 a) { return a & ~((a & 0x7f7f7f7fu) + 0x01010101u & 0x80808080u); }""",
    "wrapped": """// a position counted from the end where negative, held inside the axis
DEV i64 wrapped(i64 at, i64 n) { at = at < 0 ? at + n : at; return at < 0 ? 0 : at >= n ? n - 1 : at; }
DEV i64 wrapped(u64 at, i64 n) { return at >= (u64)n ? n - 1 : (i64)at; }""",
    "rounded_product": """// a product that is rounded before anything is added to it, whatever the compiler may contract
#if GPU_CUDA
DEV float rounded_product(float a, float b) { return __fmul_rn(a, b); }
DEV double rounded_product(double a, double b) { return __dmul_rn(a, b); }
#else
template <class T> DEV T rounded_product(T a, T b) {
  T c = a * b;
#if GPU_HIP
  asm("" : "+v"(c));
#else
  asm("" : "+m"(c));
#endif
  return c;
}
#endif""",
    "root_of_unity": """// exp(2 pi i k / N), k <= N: exact in the quarter, a short series within it
template <class T, u32 N> DEV vec<T, 2> root_of_unity(u32 k) {
  const u32 quarter = (4 * k + N / 2) / N;
  const T x = (T)((i32)(4 * k) - (i32)(quarter * N)) * (T)(1.5707963267948966 / N), s = x * x;
  constexpr int M = sizeof(T) == 8 ? 18 : 10;
  T c = 1, d = 1;
  UNROLL for (int i = M; i > 0; i -= 2) {
    c = 1 - s * c * (T)(1.0 / (i * (i - 1)));
    d = 1 - s * d * (T)(1.0 / (i * (i + 1)));
  }
  d *= x;
  const T real = quarter & 1 ? -d : c, imaginary = quarter & 1 ? c : d;
  return {quarter & 2 ? -real : real, quarter & 2 ? -imaginary : imaginary};
}""",
    "complex_product": """template <class T> DEV vec<T, 2> complex_product(vec<T, 2> a, vec<T, 2> b) {
  return {a.v[0] * b.v[0] - a.v[1] * b.v[1], a.v[0] * b.v[1] + a.v[1] * b.v[0]};
}""",
    "sampled_place": """// a coordinate -1..1 as a place on an axis of n elements; what is not finite lies outside
template <class T> DEV T sampled_place(T at, i32 n, bool corners) {
  at = at + 1;
  at = corners ? rounded_product(at / 2, (T)(n - 1)) : (rounded_product(at, (T)n) - 1) / 2;
  return m::isnan(at) || m::isinf(at) ? (T)-2 : m::min(m::max(at, (T)-1073741824), (T)1073741824);
}""",
    "reflected_place": """// a place mirrored at low and low + span until it lies between
template <class T> DEV T reflected_place(T at, T low, T span) {
  if (!(span > 0)) return low;
  const T phase = m::mod(at - low, 2 * span);
  return low + (phase > span ? 2 * span - phase : phase);
}""",
    "mirrored_index": """// an index mirrored at the edges of an axis of n elements (corners = 1: at its end elements)
DEV i32 mirrored_index(i32 at, i32 n, i32 corners) {
  u32 phase = (u32)(at < 0 ? corners - 1 - at : at);
  if (phase < (u32)n) return (i32)phase;
  const u32 period = n > corners ? 2u * (u32)(n - corners) : 1u;
  phase %= period;
  return (i32)(phase >= (u32)n ? period - 1 + corners - phase : phase);
}""",
}


def needed(text: str) -> str:
    """Returns the definitions that a source uses, in order, each guarded so that sources can be concatenated."""
    found: set[str] = set()
    pending = [text]
    while pending:
        words = set(re.findall(r"[A-Za-z_]\w*", pending.pop()))
        for name in SNIPPETS.keys() & words - found:
            found.add(name)
            pending.append(SNIPPETS[name])
    out = ""
    for name, code in SNIPPETS.items():
        if name in found:
            guard = f"MGX_{name.upper()}"
            out += f"#ifndef {guard}\n#define {guard}\n{code}\n#endif\n"
    return out
