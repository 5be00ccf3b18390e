// Matrix units by bytes of k: D = A B + C on pieces of 16 rows, 16 columns and 32 bytes of k; sums in i32, or float for floats.
//   nfrag<T>      an operand of i8, u8, an 8-bit or a 16-bit float, loaded from shared memory with k innermost (rows aligned to 16 bytes)
//   nfrag_c<S>    sums: c.x[i], i < FRAG_C, is element (frag_row(i), frag_col(i)), as in frag_c
// Units without unsigned operands get bytes less 128: nfrag_bias<T>() is the amount subtracted.  8-bit floats that a unit does not
// support are multiplied as half_t, which represents them exactly.
template <class T> struct narrow_sum { typedef float type; };
template <> struct narrow_sum<i8> { typedef i32 type; };
template <> struct narrow_sum<u8> { typedef i32 type; };
template <class T> struct is_byte { static constexpr bool value = same_type<typename narrow_sum<T>::type, i32>::value; };
template <class T> struct is_half { static constexpr bool value = sizeof(T) == 2; };
template <class T> DEV constexpr i32 nfrag_bias() { return FRAG == 2 && same_type<T, u8>::value ? 128 : 0; }
template <class S> struct nfrag_c { S x[FRAG_C]; };
template <class S> DEV void nfrag_zero(nfrag_c<S>& c) {
  UNROLL for (int i = 0; i < FRAG_C; ++i) c.x[i] = 0;
}

namespace unit {
template <class T> DEV T byte_of(const u32* w, u32 i) {
  u8 b = (u8)(w[i / 4] >> (8 * (i % 4)));
  return bits_as<T>(b);
}
template <class T> DEV typename narrow_sum<T>::type number_of(T v) {
  if constexpr (is_byte<T>::value) return (i32)v;
  else return to_f(v);
}
// Converts four 8-bit floats to two words of half_t.
template <class T> DEV u32 halves(u32 w, u32 pair) {
  u32 two = w >> (16 * pair);
#if GPU_CUDA && __CUDA_ARCH__ >= 890
  u32 out;
  u16 in = (u16)two;
  if constexpr (same_type<T, f8e4m3_t>::value) { asm("cvt.rn.f16x2.e4m3x2 %0,%1;" : "=r"(out) : "h"(in)); return out; }
  if constexpr (same_type<T, f8e5m2_t>::value) { asm("cvt.rn.f16x2.e5m2x2 %0,%1;" : "=r"(out) : "h"(in)); return out; }
#endif
  if constexpr (same_type<T, f8e5m2_t>::value) return (two & 0xffu) << 8 | (two & 0xff00u) << 16;
  else {
    T lo = {(u8)two}, hi = {(u8)(two >> 8)};
    return pair_of<half_t>(to_f(lo), to_f(hi));
  }
}
#if FRAG == 1
// m16n8k32: a row-major, b column-major; lane = 4 * group + t holds bytes 4 t .. of rows group and group + 8, and of k + 16.
#define NARROW_MMA(S, C, SUM, AT, BT)                                                                                          \
  asm volatile("mma.sync.aligned.m16n8k32.row.col." SUM "." AT "." BT "." SUM " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
               : "+" C(c[0]), "+" C(c[1]), "+" C(c[2]), "+" C(c[3])                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <class A, class B, class S> DEV void mma8(S* c, const u32* a, const u32* b) {
  if constexpr (is_half<A>::value) {  // the same bytes in the same lanes
    mma<A>(c, a, b);
    return;
  } else {
#if GPU_CUDA
  constexpr bool ua = same_type<A, u8>::value, ub = same_type<B, u8>::value;
  constexpr bool wide_a = same_type<A, f8e5m2_t>::value, wide_b = same_type<B, f8e5m2_t>::value;
  constexpr bool plain = (wide_a || same_type<A, f8e4m3_t>::value) && (wide_b || same_type<B, f8e4m3_t>::value);
  if constexpr (is_byte<A>::value) {
    if constexpr (ua && ub) NARROW_MMA(i32, "r", "s32", "u8", "u8");
    else if constexpr (ua) NARROW_MMA(i32, "r", "s32", "u8", "s8");
    else if constexpr (ub) NARROW_MMA(i32, "r", "s32", "s8", "u8");
    else NARROW_MMA(i32, "r", "s32", "s8", "s8");
    return;
  }
#if __CUDA_ARCH__ >= 890
  else if constexpr (plain) {
    if constexpr (wide_a && wide_b) NARROW_MMA(float, "f", "f32", "e5m2", "e5m2");
    else if constexpr (wide_a) NARROW_MMA(float, "f", "f32", "e5m2", "e4m3");
    else if constexpr (wide_b) NARROW_MMA(float, "f", "f32", "e4m3", "e5m2");
    else NARROW_MMA(float, "f", "f32", "e4m3", "e4m3");
    return;
  }
#endif
  else
    UNROLL for (u32 h = 0; h < 2; ++h) {
      u32 x[4], y[2];
      UNROLL for (int i = 0; i < 4; ++i) x[i] = halves<A>(a[i], h);
      UNROLL for (int i = 0; i < 2; ++i) y[i] = halves<B>(b[i], h);
      mma<half_t>(c, x, y);
    }
#elif GPU_HOST
  two<half_t> mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const char* all = emulator->gather(&mine, sizeof mine);
  u32 g = lane_id() / 4, t = lane_id() % 4;
  S row[2][32], col[2][32];
  for (u32 r = 0; r < 2; ++r)
    for (u32 k = 0; k < 32; ++k) {
      const two<half_t>* x = (const two<half_t>*)(all + 64 * (g * 4 + k % 16 / 4));
      const two<half_t>* y = (const two<half_t>*)(all + 64 * ((t * 2 + r) * 4 + k % 16 / 4));
      row[r][k] = number_of(byte_of<A>(x->a + (k / 16 * 2 + r), k % 4));
      col[r][k] = number_of(byte_of<B>(y->b + k / 16, k % 4));
    }
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < 32; ++k) c[j] += row[j / 2][k] * col[j % 2][k];
#endif
  }
}
#elif FRAG == 2
// lane: row l % 16 of A, column l % 16 of B, k = 8 * (l / 16) + j; sums: row 4 * (l / 16) + j, column l % 16.
typedef int i4 __attribute__((vector_size(16)));
template <class A, class B, class S> DEV void mfma8(S* c, const u32* a, const u32* b) {
  if constexpr (is_half<A>::value) {
    alignas(8) u32 x[2] = {a[0], a[1]}, y[2] = {b[0], b[1]};
    f4 s;
    GPU_MEMCPY(&s, c, 16);
    s = mfma<A>((const A*)x, (const A*)y, s);
    GPU_MEMCPY(c, &s, 16);
    return;
  } else {
#if GPU_HIP
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
  constexpr bool wide_a = same_type<A, f8e5m2z_t>::value, wide_b = same_type<B, f8e5m2z_t>::value;
  constexpr bool plain = (wide_a || same_type<A, f8e4m3z_t>::value) && (wide_b || same_type<B, f8e4m3z_t>::value);
#define NARROW_LONG 1
#elif defined(__gfx950__)
  constexpr bool wide_a = same_type<A, f8e5m2_t>::value, wide_b = same_type<B, f8e5m2_t>::value;
  constexpr bool plain = (wide_a || same_type<A, f8e4m3_t>::value) && (wide_b || same_type<B, f8e4m3_t>::value);
#define NARROW_LONG 1
#endif
  if constexpr (is_byte<A>::value) {
    i4 s;
    GPU_MEMCPY(&s, c, 16);
#ifdef NARROW_LONG
    long x, y;
    GPU_MEMCPY(&x, a, 8);
    GPU_MEMCPY(&y, b, 8);
    s = __builtin_amdgcn_mfma_i32_16x16x32_i8(x, y, s, 0, 0, 0);
#else
    s = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[0], (int)b[0], s, 0, 0, 0);
    s = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[1], (int)b[1], s, 0, 0, 0);
#endif
    GPU_MEMCPY(c, &s, 16);
    return;
  } else {
    f4 s;
    GPU_MEMCPY(&s, c, 16);
#ifdef NARROW_LONG
    if constexpr (plain) {
      long x, y;
      GPU_MEMCPY(&x, a, 8);
      GPU_MEMCPY(&y, b, 8);
      if constexpr (wide_a && wide_b) s = __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(x, y, s, 0, 0, 0);
      else if constexpr (wide_a) s = __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8(x, y, s, 0, 0, 0);
      else if constexpr (wide_b) s = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(x, y, s, 0, 0, 0);
      else s = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, s, 0, 0, 0);
      GPU_MEMCPY(c, &s, 16);
      return;
    }
#endif
    UNROLL for (u32 i = 0; i < 2; ++i) {
      alignas(8) u32 x[2] = {halves<A>(a[i], 0), halves<A>(a[i], 1)}, y[2] = {halves<B>(b[i], 0), halves<B>(b[i], 1)};
      s = mfma<half_t>((const half_t*)x, (const half_t*)y, s);
    }
    GPU_MEMCPY(c, &s, 16);
  }
#else
  struct P { u32 a[2], b[2]; } mine = {{a[0], a[1]}, {b[0], b[1]}};
  const char* all = emulator->gather(&mine, sizeof mine);
  u32 l = lane_id();
  for (u32 j = 0; j < 4; ++j)
    for (u32 k = 0; k < 32; ++k) {
      const P* x = (const P*)(all + 64 * (4 * (l / 16) + j + 16 * (k / 8)));
      const P* y = (const P*)(all + 64 * (l % 16 + 16 * (k / 8)));
      if constexpr (is_byte<A>::value) c[j] += (i32)byte_of<i8>(x->a, k % 8) * (i32)byte_of<i8>(y->b, k % 8);
      else c[j] += number_of(byte_of<A>(x->a, k % 8)) * number_of(byte_of<B>(y->b, k % 8));
    }
#endif
  }
}
#elif FRAG == 3
// lane: row l % 16 of A, column l % 16 of B, 16 bytes of k, in both halves of the wave; sums: row 2 * j + l / 16, column l % 16.
typedef int i4 __attribute__((vector_size(16)));
typedef int i8x __attribute__((vector_size(32)));
template <class A, class B, class S> DEV void wmma8(S* c, const u32* a, const u32* b) {
  if constexpr (is_byte<A>::value) {
#if GPU_HIP
    i8x s;
    i4 x, y;
    GPU_MEMCPY(&s, c, 32);
    GPU_MEMCPY(&x, a, 16);
    GPU_MEMCPY(&y, b, 16);
    s = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(!same_type<A, u8>::value, x, !same_type<B, u8>::value, y, s, false);
    GPU_MEMCPY(c, &s, 32);
#else
    struct P { u32 a[4], b[4]; } mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}};
    const char* all = emulator->gather(&mine, sizeof mine);
    u32 l = lane_id();
    for (u32 j = 0; j < 8; ++j)
      for (u32 k = 0; k < 16; ++k)
        c[j] += number_of(byte_of<A>(((const P*)(all + 64 * (2 * j + l / 16)))->a, k)) *
                number_of(byte_of<B>(((const P*)(all + 64 * (l % 16)))->b, k));
#endif
  } else {
    alignas(32) u32 x[8], y[8];
    UNROLL for (int i = 0; i < 8; ++i) x[i] = halves<A>(a[i / 2], i % 2), y[i] = halves<B>(b[i / 2], i % 2);
    f8 s;
    GPU_MEMCPY(&s, c, 32);
    s = wmma<half_t>((const half_t*)x, (const half_t*)y, s);
    GPU_MEMCPY(c, &s, 32);
  }
}
#endif
}  // namespace unit

// ---------------------------------------------------------------- fragments
#if FRAG == 1
template <class T> struct nfrag { u32 w[4]; };
template <class T> DEV void nfrag_load_a(nfrag<T>& f, const u8* p, u32 ld) {
  u32 l = lane_id();
  unit::ldmatrix<false>(f.w, p + l % 16 * ld + l / 16 * 16);
}
template <class T> DEV void nfrag_load_b(nfrag<T>& f, const u8* p, u32 ld) {  // B as [n][k]
  u32 l = lane_id();
  unit::ldmatrix<false>(f.w, p + (l / 16 * 8 + l % 8) * ld + l / 8 % 2 * 16);
}
template <class T> DEV void nfrag_ones(nfrag<T>& f) {
  UNROLL for (int i = 0; i < 4; ++i) f.w[i] = 0x01010101u;
}
template <class A, class B, class S> DEV void nfrag_mma(nfrag_c<S>& c, const nfrag<A>& a, const nfrag<B>& b) {
  unit::mma8<A, B>(c.x, a.w, b.w);
  unit::mma8<A, B>(c.x + 4, a.w, b.w + 2);
}
#elif FRAG == 2
template <class T> struct nfrag { u32 w[2]; };
template <class T> DEV void nfrag_load_a(nfrag<T>& f, const u8* p, u32 ld) {
  vec<u32, 2> q = ldv<u32, 2>(p + lane_id() % 16 * ld + lane_id() / 16 * 8);
  UNROLL for (int i = 0; i < 2; ++i) f.w[i] = q.v[i] ^ (nfrag_bias<T>() ? 0x80808080u : 0u);
}
template <class T> DEV void nfrag_load_b(nfrag<T>& f, const u8* p, u32 ld) { nfrag_load_a(f, p, ld); }
template <class T> DEV void nfrag_ones(nfrag<T>& f) { f.w[0] = f.w[1] = 0x01010101u; }
template <class A, class B, class S> DEV void nfrag_mma(nfrag_c<S>& c, const nfrag<A>& a, const nfrag<B>& b) {
  unit::mfma8<A, B>(c.x, a.w, b.w);
}
#elif FRAG == 3
template <class T> struct nfrag { u32 w[8]; };
template <class T> DEV void nfrag_load_a(nfrag<T>& f, const u8* p, u32 ld) {
  UNROLL for (int h = 0; h < 2; ++h) {
    vec<u32, 4> q = ldv<u32, 4>(p + lane_id() % 16 * ld + 16 * h);
    UNROLL for (int i = 0; i < 4; ++i) f.w[4 * h + i] = q.v[i];
  }
}
template <class T> DEV void nfrag_load_b(nfrag<T>& f, const u8* p, u32 ld) { nfrag_load_a(f, p, ld); }
template <class T> DEV void nfrag_ones(nfrag<T>& f) {
  UNROLL for (int i = 0; i < 8; ++i) f.w[i] = 0x01010101u;
}
template <class A, class B, class S> DEV void nfrag_mma(nfrag_c<S>& c, const nfrag<A>& a, const nfrag<B>& b) {
  if constexpr (is_half<A>::value) {
    alignas(32) u32 x[8], y[8];
    UNROLL for (int i = 0; i < 8; ++i) x[i] = a.w[i], y[i] = b.w[i];
    unit::f8 s;
    GPU_MEMCPY(&s, c.x, 32);
    s = unit::wmma<A>((const A*)x, (const A*)y, s);
    GPU_MEMCPY(c.x, &s, 32);
  } else {
    unit::wmma8<A, B>(c.x, a.w, b.w);
    unit::wmma8<A, B>(c.x, a.w + 4, b.w + 4);
  }
}
#else
// Without matrix units each lane reads the operands of its sums from shared memory.
template <class T> struct nfrag { const u8* p; u32 ld; };
template <class T> DEV void nfrag_load_a(nfrag<T>& f, const u8* p, u32 ld) { f.p = p, f.ld = ld; }
template <class T> DEV void nfrag_load_b(nfrag<T>& f, const u8* p, u32 ld) { f.p = p, f.ld = ld; }
template <class T> DEV void nfrag_ones(nfrag<T>& f) { f.p = 0, f.ld = 0; }
template <class T> DEV u32 nfrag_word(const nfrag<T>& f, u32 row, u32 k) {
  return f.p ? ldv<u32, 1>(f.p + row * f.ld + 4 * k).v[0] : 0x01010101u;
}
template <class A, class B, class S> DEV void nfrag_mma(nfrag_c<S>& c, const nfrag<A>& a, const nfrag<B>& b) {
  UNROLL for (u32 k = 0; k < 8; ++k) {
    u32 y = nfrag_word(b, frag_col(0), k);
    UNROLL for (u32 j = 0; j < FRAG_C; ++j) {
      u32 x = nfrag_word(a, frag_row(j), k);
      if constexpr (same_type<A, i8>::value && same_type<B, i8>::value) c.x[j] = dot4((i32)x, (i32)y, c.x[j]);
      else if constexpr (is_half<A>::value)
        UNROLL for (u32 i = 0; i < 2; ++i) {
          const A p = {(u16)(x >> (16 * i))};
          const B q = {(u16)(y >> (16 * i))};
          c.x[j] += to_f(p) * to_f(q);
        }
      else
        UNROLL for (u32 i = 0; i < 4; ++i)
          c.x[j] += unit::number_of(unit::byte_of<A>(&x, i)) * unit::number_of(unit::byte_of<B>(&y, i));
    }
  }
}
#endif

// Stores sums to shared memory, in rows of `ld`; ld and the address are even.
template <class S> DEV void nfrag_store(S* p, u32 ld, const nfrag_c<S>& c) {
#if FRAG == 1
  UNROLL for (u32 i = 0; i < FRAG_C; i += 2) {
    vec<S, 2> two = {{c.x[i], c.x[i + 1]}};
    stv<S, 2>(p + frag_row(i) * ld + frag_col(i), two);
  }
#else
  UNROLL for (u32 i = 0; i < FRAG_C; ++i) p[frag_row(i) * ld + frag_col(i)] = c.x[i];
#endif
}

// Copies N (4, 8 or 16) bytes to shared memory, `fill` in every byte if not `valid`; completes like async_copy.
template <int N> DEV void narrow_copy(void* shared, const void* global, bool valid, u32 fill) {
  if (valid || fill == 0) {
    async_copy<N>(shared, global, valid);
  } else {
    vec<u32, N / 4> filled;
    UNROLL for (int i = 0; i < N / 4; ++i) filled.v[i] = fill;
    stv<u32, N / 4>(shared, filled);
  }
}
