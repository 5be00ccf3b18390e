"""Small device functions that kernel texts use: each is put in front of a text that names it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SNIPPETS", "needed"]

# name -> definition; a definition may use others
SNIPPETS: Final[dict[str, str]] = {
    "nan_max": "template <class T> DEV T nan_max(T a, T b) { return a > b || a != a ? a : b; }  // NaN if either is",
    "nan_min": "template <class T> DEV T nan_min(T a, T b) { return a < b || a != a ? a : b; }  // NaN if either is",
    "int_div": """// toward zero; 0 for a divisor of 0; no trap for the lowest value over -1
template <class T> DEV T int_div(T a, T b) { return b == 0 ? (T)0 : b == (T)-1 && (T)-1 < 0 ? (T)(0 - (u64)a) : (T)(a / b); }""",
    "int_fmod": """template <class T> DEV T int_fmod(T a, T b) { return b == 0 || b == (T)-1 && (T)-1 < 0 ? (T)0 : (T)(a % b); }""",
    "int_mod": """template <class T> DEV T int_mod(T a, T b) { T r = int_fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; }""",
    "int_pow": """// by squaring; negative powers as numpy has them: only 1 and -1 give anything
template <class T> DEV T int_pow(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (T)(b % 2 == 0 ? 1 : -1) : a == 0 ? (T)((u64)1 << (sizeof(T) * 8 - 1)) : (T)0;
  u64 r = 1, x = (u64)a;
  for (u64 n = (u64)b; n; n >>= 1) { if (n & 1) r *= x; x *= x; }
  return (T)r; }""",
    "float_mod": """template <class T> DEV T float_mod(T a, T b, T r) {
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : (b < 0 ? -(T)0 : (T)0) + (r != r ? r : (T)0); }""",
    "shift_left": "template <class T> DEV T shift_left(T a, T b) { return b < 0 || (u64)b >= sizeof(T) * 8 ? (T)0 : (T)((u64)a << b); }",
    "shift_right": """template <class T> DEV T shift_right(T a, T b) {
  return b < 0 || (u64)b >= sizeof(T) * 8 ? (T)(a < 0 ? -1 : 0) : (T)(a >> b); }""",
    "sign_of": "template <class T> DEV T sign_of(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }",
    "to_int": """// toward zero, NaN to 0, what is too large or too small to the limit
template <class T, class F> DEV T to_int(F x, F low, F high, T most) {
  return x != x ? (T)0 : x >= high ? most : (T)(x < low ? low : x); }""",
    "wave_all": """// the combination of `width` neighbouring lanes (a power of two, at most WAVE); every lane gets it
template <class Op, int width, class T> DEV T wave_all(T v) {
#pragma unroll
  for (int m = width / 2; m; m >>= 1) v = Op::f(v, wave_xor(v, m));
  return v; }""",
    "block_all": """// the combination of `waves` whole waves of a block; every thread gets it; `lds` is used once
template <class Op, int waves, class T> DEV T block_all(T v, T* lds) {
  v = wave_all<Op, WAVE>(v);
  u32 t = threadIdx.x + threadIdx.y * blockDim.x;
  if (t % WAVE == 0) lds[t / WAVE] = v;
  __syncthreads();
  T r = lds[0];
#pragma unroll
  for (int w = 1; w < waves; ++w) r = Op::f(r, lds[w]);
  return r; }""",
    "by_sum": "struct by_sum { template <class T> DEV T f(T a, T b) { return a + b; } };",
    "by_prod": "struct by_prod { template <class T> DEV T f(T a, T b) { return a * b; } };",
    "by_max": "struct by_max { template <class T> DEV T f(T a, T b) { return nan_max(a, b); } };",
    "by_min": "struct by_min { template <class T> DEV T f(T a, T b) { return nan_min(a, b); } };",
    "wrapped": """// a position counted from the end where negative, held inside the axis
DEV i64 wrapped(i64 at, i64 n) { at = at < 0 ? at + n : at; return at < 0 ? 0 : at >= n ? n - 1 : at; }""",
}


def needed(text: str) -> str:
    """The definitions that a text uses, in order, each guarded so that texts can be joined."""
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
