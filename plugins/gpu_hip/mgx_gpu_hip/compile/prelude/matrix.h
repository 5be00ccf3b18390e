// Matrix units: D = A B + C on 16 x 16 x 16 pieces of half_t or bf16_t with float sums, one piece per wave.
//   frag_a<T>, frag_b<T>     operands, loaded from row-major memory of leading dimension ld (elements, a multiple of 8)
//   frag_c                   sums: c.x[i], i < FRAG_C, is element (frag_row(i), frag_col(i))
//   frag_load_runs<BYTES, LOW, HIGH>  A with rows of two runs of eight elements in shared memory, `low` and `high` elements after the
//                            start of the row: rows[i] for row run_row<BYTES>(i) of a lane, i < run_rows<BYTES>::count.  Elements
//                            after the first LOW and HIGH of a run are replaced by zeros; all addresses are multiples of BYTES.
// FRAG selects the instruction: 1 mma.sync (NVIDIA), 2 MFMA (CDNA), 3 WMMA (RDNA3), 0 none.  The host emulates 1 at wave 32 and
// 2 at wave 64 lane by lane, so that the index code of each is tested without the device.
#ifndef FRAG
#if GPU_CUDA && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define FRAG 1
#elif GPU_HIP && (defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__))
#define FRAG 2
#elif GPU_HIP && (defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1151__))
#define FRAG 3
#elif GPU_HOST
#define FRAG (WAVE == 32 ? 1 : 2)
#else
#define FRAG 0
#endif
#endif

template <class T> struct is_bf16 { static constexpr bool value = same_type<T, bf16_t>::value; };
template <class T> DEV u32 pair(T lo, T hi) { return lo.x | (u32)hi.x << 16; }
template <class T> DEV u32 pair_of(float lo, float hi) { return pair(convert<T>(lo), convert<T>(hi)); }

// ---------------------------------------------------------------- instructions, or their lane-by-lane emulation
namespace unit {
#if GPU_HOST
template <class T> struct two { u32 a[4], b[2]; };
template <class T> DEV float at(const u32* w, int i) { T t = {(u16)(w[i / 2] >> (16 * (i & 1)))}; return to_f(t); }
#endif
// m16n8k16: a row-major, b column-major; lane = 4 * group + t.
template <class T> DEV void mma(float* c, const u32* a, const u32* b) {
#if GPU_CUDA
  if constexpr (is_bf16<T>::value)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif GPU_HOST
  two<T> mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const char* all = emulator->gather(&mine, sizeof mine);
  u32 l = lane_id(), g = l / 4, t = l % 4;
  float row[2][16], col[2][16];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < 16; ++k) {
      row[r][k] = at<T>(((const two<T>*)(all + 64 * (g * 4 + k % 8 / 2)))->a, (k / 8 * 2 + r) * 2 + k % 2);
      col[r][k] = at<T>(((const two<T>*)(all + 64 * ((t * 2 + r) * 4 + k % 8 / 2)))->b, k / 8 * 2 + k % 2);
    }
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < 16; ++k) c[j] += row[j / 2][k] * col[j % 2][k];
#endif
}
// Four 8 x 8 pieces of 16-bit elements from shared memory; lane i holds the address of row i % 8 of piece i / 8.
template <bool TRANSPOSE> DEV void ldmatrix(u32* w, const void* row) {
#if GPU_CUDA
  u32 at = (u32)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
#elif GPU_HOST
  if ((u64)row % 16) emulator->misaligned(row, 16);
  const char* all = emulator->gather(&row, sizeof row);
  u32 l = lane_id();
  for (u32 p = 0; p < 4; ++p) {
    u32 e[2];
    for (u32 h = 0; h < 2; ++h) {
      u32 r = TRANSPOSE ? l % 4 * 2 + h : l / 4, k = TRANSPOSE ? l / 4 : l % 4 * 2 + h;
      e[h] = (*(const u16* const*)(all + 64 * (p * 8 + r)))[k];
    }
    w[p] = e[0] | e[1] << 16;
  }
#endif
}
#if FRAG == 2 || FRAG == 3
typedef float f4 __attribute__((vector_size(16)));
typedef float f8 __attribute__((vector_size(32)));
typedef short s2 __attribute__((vector_size(4)));
typedef short s4 __attribute__((vector_size(8)));
typedef short s16 __attribute__((vector_size(32)));
typedef _Float16 h4 __attribute__((vector_size(8)));
typedef _Float16 h16 __attribute__((vector_size(32)));
#endif
#if FRAG == 2
// lane: row l % 16 of A, column l % 16 of B, k = 4 * (l / 16) + j; sums: row 4 * (l / 16) + j, column l % 16.
template <class T> DEV f4 mfma(const T* a, const T* b, f4 c) {
#if GPU_HIP
  s4 x, y;
  GPU_MEMCPY(&x, a, 8);
  GPU_MEMCPY(&y, b, 8);
  if constexpr (!is_bf16<T>::value) return __builtin_amdgcn_mfma_f32_16x16x16f16(bits_as<h4>(x), bits_as<h4>(y), c, 0, 0, 0);
#if defined(__gfx908__)
  c = __builtin_amdgcn_mfma_f32_16x16x8bf16(s2{x[0], x[1]}, s2{y[0], y[1]}, c, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_16x16x8bf16(s2{x[2], x[3]}, s2{y[2], y[3]}, c, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, c, 0, 0, 0);
#endif
#else
  struct P { T a[4], b[4]; } mine;
  for (int j = 0; j < 4; ++j) mine.a[j] = a[j], mine.b[j] = b[j];
  const char* all = emulator->gather(&mine, sizeof mine);
  u32 l = lane_id();
  for (u32 j = 0; j < 4; ++j)
    for (u32 k = 0; k < 16; ++k)
      c[j] += to_f(((const P*)(all + 64 * (4 * (l / 16) + j + 16 * (k / 4))))->a[k % 4]) * to_f(((const P*)(all + 64 * (l % 16 + 16 * (k / 4))))->b[k % 4]);
  return c;
#endif
}
#elif FRAG == 3
// lane: row l % 16 of A, column l % 16 of B, all k, in both halves of the wave; sums: row 2 * j + l / 16, column l % 16.
template <class T> DEV f8 wmma(const T* a, const T* b, f8 c) {
#if GPU_HIP
  s16 x, y;
  GPU_MEMCPY(&x, a, 32);
  GPU_MEMCPY(&y, b, 32);
  if constexpr (is_bf16<T>::value) return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, c);
  else return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(bits_as<h16>(x), bits_as<h16>(y), c);
#else
  struct P { T a[16], b[16]; } mine;
  for (int j = 0; j < 16; ++j) mine.a[j] = a[j], mine.b[j] = b[j];
  const char* all = emulator->gather(&mine, sizeof mine);
  u32 l = lane_id();
  for (u32 j = 0; j < 8; ++j)
    for (u32 k = 0; k < 16; ++k)
      c[j] += to_f(((const P*)(all + 64 * (2 * j + l / 16)))->a[k]) * to_f(((const P*)(all + 64 * (l % 16)))->b[k]);
  return c;
#endif
}
#endif
}  // namespace unit

// ---------------------------------------------------------------- fragments
#if FRAG == 1
#define FRAG_C 8
#define FRAG_ROWS 2    // rows of C of which a lane holds elements
#define FRAG_SHARERS 4  // adjacent lanes (xor 1, 2, ..) that hold the rest of these rows
template <class T> struct frag_a { u32 w[4]; };
template <class T> struct frag_b { u32 w[4]; };
struct frag_c { float x[8]; };
DEV u32 frag_slot(u32 i) { return i / 2 % 2; }                                  // which of the lane's rows contains element i
DEV u32 frag_slot_row(u32 s) { return lane_id() / 4 + 8 * s; }
DEV u32 frag_col(u32 i) { return i / 4 * 8 + lane_id() % 4 * 2 + i % 2; }
template <class T> DEV void frag_load_a(frag_a<T>& f, const T* p, u32 ld) {
  u32 g = lane_id() / 4, t = lane_id() % 4 * 2;
  f.w[0] = ldv<u32, 1>(p + g * ld + t).v[0], f.w[1] = ldv<u32, 1>(p + (g + 8) * ld + t).v[0];
  f.w[2] = ldv<u32, 1>(p + g * ld + t + 8).v[0], f.w[3] = ldv<u32, 1>(p + (g + 8) * ld + t + 8).v[0];
}
template <class T> DEV void frag_load_b(frag_b<T>& f, const T* p, u32 ld) {      // B as [k][n]
  u32 g = lane_id() / 4, t = lane_id() % 4 * 2;
  UNROLL for (u32 h = 0; h < 2; ++h) {
    const T* q = p + t * ld + h * 8 + g;
    f.w[h * 2] = pair(q[0], q[ld]), f.w[h * 2 + 1] = pair(q[8 * ld], q[9 * ld]);
  }
}
template <class T> DEV void frag_load_bt(frag_b<T>& f, const T* p, u32 ld) {     // B as [n][k]
  u32 g = lane_id() / 4, t = lane_id() % 4 * 2;
  UNROLL for (u32 h = 0; h < 2; ++h) {
    const T* q = p + (h * 8 + g) * ld + t;
    f.w[h * 2] = ldv<u32, 1>(q).v[0], f.w[h * 2 + 1] = ldv<u32, 1>(q + 8).v[0];
  }
}
// From shared memory, rows aligned to 16 bytes.
template <class T> DEV void frag_load_a_shared(frag_a<T>& f, const T* p, u32 ld) {
  u32 l = lane_id();
  unit::ldmatrix<false>(f.w, p + l % 16 * ld + l / 16 * 8);
}
template <class T> DEV void frag_load_b_shared(frag_b<T>& f, const T* p, u32 ld) {
  u32 l = lane_id();
  unit::ldmatrix<true>(f.w, p + l % 16 * ld + l / 16 * 8);
}
template <class T> DEV void frag_load_bt_shared(frag_b<T>& f, const T* p, u32 ld) {
  u32 l = lane_id();
  unit::ldmatrix<false>(f.w, p + (l / 16 * 8 + l % 8) * ld + l / 8 % 2 * 8);
}
// Runs of eight (see above).  Loads pairs of adjacent elements, with zeros from element N of the run on.
template <int BYTES> struct run_rows { static constexpr int count = BYTES % 16 ? 2 : 1; };
template <int BYTES> DEV u32 run_row(u32 i) { return BYTES % 16 ? lane_id() / 4 + 8 * i : lane_id() % 16; }
template <int N> DEV u32 first_of_run(u32 w) {
  u32 t = lane_id() % 4 * 2;
  return t + 1 < N ? w : t < N ? w & 0xffffu : 0u;
}
template <int BYTES, int LOW, int HIGH, class T> DEV void frag_load_runs(frag_a<T>& f, const T* p, const u32* rows, u32 low, u32 high) {
  if constexpr (BYTES % 16 == 0) {
    unit::ldmatrix<false>(f.w, p + rows[0] + (lane_id() / 16 ? high : low));
  } else {
    UNROLL for (int i = 0; i < 4; ++i) {
      const T* q = p + rows[i % 2] + (i / 2 ? high : low) + lane_id() % 4 * 2;
      if constexpr (BYTES % 4 == 0) f.w[i] = ldv<u32, 1>(q).v[0];
      else f.w[i] = pair(q[0], q[1]);
    }
  }
  UNROLL for (int i = 0; i < 2; ++i) f.w[i] = first_of_run<LOW>(f.w[i]), f.w[i + 2] = first_of_run<HIGH>(f.w[i + 2]);
}
template <class T> DEV void frag_mma(frag_c& c, const frag_a<T>& a, const frag_b<T>& b) {
  unit::mma<T>(c.x, a.w, b.w);
  unit::mma<T>(c.x + 4, a.w, b.w + 2);
}
#define FRAG_LEFT 4
template <class T> DEV void frag_mma_left(frag_c& c, const frag_a<T>& a, const frag_b<T>& b) { unit::mma<T>(c.x, a.w, b.w); }
// Converts sums to a left operand (rounded to T).  scratch: 16 x 16 T of shared memory per wave; unused here.
template <class T> DEV void frag_c_to_a(frag_a<T>& a, const frag_c& c, T*) {
  UNROLL for (int i = 0; i < 4; ++i) a.w[i] = pair_of<T>(c.x[i * 2], c.x[i * 2 + 1]);
}
#elif FRAG == 2 || FRAG == 3
#define FRAG_ROWS FRAG_C
#define FRAG_SHARERS 16
DEV u32 frag_slot(u32 i) { return i; }
DEV u32 frag_col(u32) { return lane_id() % 16; }
#if FRAG == 2
#define FRAG_C 4
#define FRAG_K 4
DEV u32 frag_slot_row(u32 s) { return lane_id() / 16 * 4 + s; }
DEV u32 frag_first_k() { return lane_id() / 16 * 4; }
#else
#define FRAG_C 8
#define FRAG_K 16
DEV u32 frag_slot_row(u32 s) { return 2 * s + lane_id() / 16; }
DEV u32 frag_first_k() { return 0; }
#endif
template <class T> struct frag_a { alignas(8) T x[FRAG_K]; };
template <class T> struct frag_b { alignas(8) T x[FRAG_K]; };
struct frag_c { float x[FRAG_C]; };
template <class T> DEV void frag_load_a(frag_a<T>& f, const T* p, u32 ld) {
  p += lane_id() % 16 * ld + frag_first_k();
  UNROLL for (int j = 0; j < FRAG_K; j += 4) {
    vec<T, 4> q = ldv<T, 4>(p + j);
    UNROLL for (int i = 0; i < 4; ++i) f.x[j + i] = q.v[i];
  }
}
template <class T> DEV void frag_load_b(frag_b<T>& f, const T* p, u32 ld) {
  p += frag_first_k() * ld + lane_id() % 16;
  UNROLL for (int j = 0; j < FRAG_K; ++j) f.x[j] = p[j * ld];
}
template <class T> DEV void frag_load_bt(frag_b<T>& f, const T* p, u32 ld) {
  frag_a<T> a;
  frag_load_a(a, p, ld);
  UNROLL for (int j = 0; j < FRAG_K; ++j) f.x[j] = a.x[j];
}
template <int BYTES> struct run_rows { static constexpr int count = 1; };
template <int BYTES> DEV u32 run_row(u32) { return lane_id() % 16; }
template <int BYTES, int LOW, int HIGH, class T> DEV void frag_load_runs(frag_a<T>& f, const T* p, const u32* rows, u32 low, u32 high) {
  constexpr int some = BYTES % 8 == 0 ? 4 : BYTES % 4 == 0 ? 2 : 1;
  T zero = {0};
  UNROLL for (u32 j = 0; j < FRAG_K; j += some) {
    u32 k = frag_first_k() + j;
    vec<T, some> q = ldv<T, some>(p + rows[0] + (k < 8 ? low + k : high + k - 8));
    UNROLL for (u32 i = 0; i < some; ++i) f.x[j + i] = (k + i) % 8 < (k < 8 ? LOW : HIGH) ? q.v[i] : zero;
  }
}
template <class T> DEV void frag_mma(frag_c& c, const frag_a<T>& a, const frag_b<T>& b) {
#if FRAG == 2
  unit::f4 s;
  GPU_MEMCPY(&s, c.x, sizeof s);
  s = unit::mfma<T>(a.x, b.x, s);
#else
  unit::f8 s;
  GPU_MEMCPY(&s, c.x, sizeof s);
  s = unit::wmma<T>(a.x, b.x, s);
#endif
  GPU_MEMCPY(c.x, &s, sizeof s);
}
template <class T> DEV void frag_c_to_a(frag_a<T>& a, const frag_c& c, T* scratch) {
  wave_sync();
  UNROLL for (u32 i = 0; i < FRAG_C; ++i) scratch[frag_slot_row(i) * 16 + frag_col(i)] = convert<T>(c.x[i]);
  wave_sync();
  frag_load_a(a, scratch, 16);
}
#else
// Without matrix units operands are laid out like sums, element j * WAVE + lane, and lanes shuffle the elements they need.
#define FRAG_C (256 / WAVE)
#define FRAG_ROWS FRAG_C
#define FRAG_SHARERS 16
template <class T> struct frag_a { T x[FRAG_C]; };
template <class T> struct frag_b { T x[FRAG_C]; };
struct frag_c { float x[FRAG_C]; };
DEV u32 frag_slot(u32 i) { return i; }
DEV u32 frag_slot_row(u32 s) { return s * (WAVE / 16) + lane_id() / 16; }
DEV u32 frag_col(u32) { return lane_id() % 16; }
template <class T> DEV void frag_load_a(frag_a<T>& f, const T* p, u32 ld) {
  UNROLL for (u32 j = 0; j < FRAG_C; ++j) f.x[j] = p[frag_slot_row(j) * ld + frag_col(j)];
}
template <class T> DEV void frag_load_b(frag_b<T>& f, const T* p, u32 ld) {
  UNROLL for (u32 j = 0; j < FRAG_C; ++j) f.x[j] = p[frag_slot_row(j) * ld + frag_col(j)];
}
template <class T> DEV void frag_load_bt(frag_b<T>& f, const T* p, u32 ld) {
  UNROLL for (u32 j = 0; j < FRAG_C; ++j) f.x[j] = p[frag_col(j) * ld + frag_slot_row(j)];
}
template <int BYTES> struct run_rows { static constexpr int count = FRAG_C; };
template <int BYTES> DEV u32 run_row(u32 i) { return frag_slot_row(i); }
template <int BYTES, int LOW, int HIGH, class T> DEV void frag_load_runs(frag_a<T>& f, const T* p, const u32* rows, u32 low, u32 high) {
  u32 k = frag_col(0);
  T zero = {0};
  UNROLL for (u32 j = 0; j < FRAG_C; ++j)
    f.x[j] = k % 8 < (k < 8 ? LOW : HIGH) ? p[rows[j] + (k < 8 ? low + k : high + k - 8)] : zero;
}
// A loop over the rows of B that shifts them, so that registers have constant indices: unrolled, an attention kernel has 100 KB of
// code and takes a minute to compile.
template <class T> DEV void frag_mma(frag_c& c, const frag_a<T>& a, const frag_b<T>& b) {
  constexpr u32 rows = WAVE / 16;
  const u32 l = lane_id();
  frag_b<T> left = b;
  ROLLED for (u32 k = 0; k < 16; k += rows) {
    UNROLL for (u32 i = 0; i < rows; ++i) {
      const float y = to_f(wave_get(left.x[0], i * 16 + l % 16));
      UNROLL for (u32 j = 0; j < FRAG_C; ++j) c.x[j] += to_f(wave_get(a.x[j], (l & ~15u) + k + i)) * y;
    }
    UNROLL for (u32 j = 1; j < FRAG_C; ++j) left.x[j - 1] = left.x[j];
  }
}
template <class T> DEV void frag_c_to_a(frag_a<T>& a, const frag_c& c, T*) {
  UNROLL for (int j = 0; j < FRAG_C; ++j) a.x[j] = convert<T>(c.x[j]);
}
#endif

#if FRAG != 1
// The first FRAG_LEFT sums are columns 0 to 7; frag_mma_left may skip the others.
#define FRAG_LEFT FRAG_C
template <class T> DEV void frag_mma_left(frag_c& c, const frag_a<T>& a, const frag_b<T>& b) { frag_mma(c, a, b); }
template <class T> DEV void frag_load_a_shared(frag_a<T>& f, const T* p, u32 ld) { frag_load_a(f, p, ld); }
template <class T> DEV void frag_load_b_shared(frag_b<T>& f, const T* p, u32 ld) { frag_load_b(f, p, ld); }
template <class T> DEV void frag_load_bt_shared(frag_b<T>& f, const T* p, u32 ld) { frag_load_bt(f, p, ld); }
#endif
DEV u32 frag_row(u32 i) { return frag_slot_row(frag_slot(i)); }
DEV void frag_fill(frag_c& c, float v) {
  UNROLL for (int i = 0; i < FRAG_C; ++i) c.x[i] = v;
}
// Reduces a value per row over the lanes that share the row; each of them gets the result.
template <class Op> DEV float frag_row_reduce(float v) { return wave_reduce<Op, FRAG_SHARERS>(v); }
template <class T> DEV void frag_store(const frag_c& c, T* p, u32 ld) {
  UNROLL for (u32 i = 0; i < FRAG_C; ++i) p[frag_row(i) * ld + frag_col(i)] = convert<T>(c.x[i]);
}
