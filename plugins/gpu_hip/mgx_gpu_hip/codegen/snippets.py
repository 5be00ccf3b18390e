"""Small device functions that kernel texts use: each is put in front of a text that names it."""

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
    "wrapped": """// a position counted from the end where negative, held inside the axis
DEV i64 wrapped(i64 at, i64 n) { at = at < 0 ? at + n : at; return at < 0 ? 0 : at >= n ? n - 1 : at; }
DEV i64 wrapped(u64 at, i64 n) { return at >= (u64)n ? n - 1 : (i64)at; }""",
}


def needed(text: str) -> str:
    """Returns the definitions that a text uses, in order, each guarded so that texts can be joined."""
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
