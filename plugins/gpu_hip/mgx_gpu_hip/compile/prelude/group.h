// Warpgroup products (Hopper's wgmma): four waves multiply 64 rows of bytes by N columns, both in shared memory, as rows of 128 bytes
// of k, aligned to 1024 bytes and swizzled: the q-th 16 bytes of row r are at position q ^ r % 8.  The first wave's index is a
// multiple of four.
//   group_mma<A, B, N>(c, a, b, k, add): starts the product of 32 bytes from k on; c: the sums of this wave's 16 rows in pieces of
//                                        16 columns, an nfrag_c each; without `add` they start at zero
//   group_begin: precedes a set of products; group_commit ends it
//   group_wait<M>: waits until at most M sets are in flight; group_hold(c, n): keeps reads of the sums after it
//   group_shared: fence: makes this thread's writes to shared memory visible to products after a barrier
//   group_mma_rows<P>(c, a, b, k, add): starts the product of 64 rows of 16-bit floats, of which a has 16 per wave and 16 of k
//                                       (a frag_a), and elements k to k + 15 of 16 P rows of b, of 64 elements; P up to 4, c: frag_c
//   group_mma_columns(c, a, b): starts the product of such rows and 16 rows of b, whose 64 elements are columns, and adds it to c
//   keep(x): a use of x, so that its read is not removed; on the emulated device, so that guard pages detect wrong reads
// Elsewhere lanes multiply, for tests.
DEV void keep(u32 x) {
#if GPU_CUDA || GPU_HOST
  asm volatile("" ::"r"(x));
#endif
}
#if GPU_CUDA && defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace unit {
DEV u64 group_piece(const u8* p) {  // address of 16 bytes in that layout; eight rows per 1024 bytes
  u32 at = (u32)__cvta_generic_to_shared(p);
  return (u64)(at >> 4 & 0x3fffu) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}
#define GROUP_R1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define GROUP_R2 GROUP_R1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define GROUP_R3 GROUP_R2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define GROUP_R4 GROUP_R3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define GROUP_R8 GROUP_R4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GROUP_R12 GROUP_R8 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define GROUP_R16 GROUP_R12 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define GROUP_C(C, j) "+" C(c[j].x[0]), "+" C(c[j].x[1]), "+" C(c[j].x[2]), "+" C(c[j].x[3]), "+" C(c[j].x[4]), "+" C(c[j].x[5]), "+" C(c[j].x[6]), "+" C(c[j].x[7])
#define GROUP_C4(C, j) GROUP_C(C, j), GROUP_C(C, j + 1), GROUP_C(C, j + 2), GROUP_C(C, j + 3)
#define GROUP_L1(C) GROUP_C(C, 0)
#define GROUP_L2(C) GROUP_L1(C), GROUP_C(C, 1)
#define GROUP_L3(C) GROUP_L2(C), GROUP_C(C, 2)
#define GROUP_L4(C) GROUP_C4(C, 0)
#define GROUP_L8(C) GROUP_L4(C), GROUP_C4(C, 4)
#define GROUP_L12(C) GROUP_L8(C), GROUP_C4(C, 8)
#define GROUP_L16(C) GROUP_L12(C), GROUP_C4(C, 12)
#define GROUP_MMA(P, N, C, X, Y, ADD, TYPES, SCALES)                                                      \
  asm volatile("{.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k" TYPES \
               " {" GROUP_R##P "}, %" X ", %" Y ", add" SCALES ";}"                                        \
               : GROUP_L##P(C)                                                                             \
               : "l"(a), "l"(b), "r"(add)                                                                  \
               : "memory")
#define GROUP_SIZES(C, TYPES, SCALES)                                                \
  if constexpr (N == 32) GROUP_MMA(2, "32", C, "16", "17", "18", TYPES, SCALES);          \
  else if constexpr (N == 64) GROUP_MMA(4, "64", C, "32", "33", "34", TYPES, SCALES);          \
  else if constexpr (N == 128) GROUP_MMA(8, "128", C, "64", "65", "66", TYPES, SCALES);   \
  else if constexpr (N == 192) GROUP_MMA(12, "192", C, "96", "97", "98", TYPES, SCALES);  \
  else GROUP_MMA(16, "256", C, "128", "129", "130", TYPES, SCALES)
template <class A, class B, int N, class S> DEV void group_mma(nfrag_c<S>* c, u64 a, u64 b, u32 add) {
  static_assert(N == 32 || N == 64 || N == 128 || N == 192 || N == 256, "columns of a group's product");
  constexpr bool ua = same_type<A, u8>::value, ub = same_type<B, u8>::value;
  constexpr bool wide_a = same_type<A, f8e5m2_t>::value, wide_b = same_type<B, f8e5m2_t>::value;
  if constexpr (is_half<A>::value) {
    if constexpr (is_bf16<A>::value) { GROUP_SIZES("f", "16.f32.bf16.bf16", ", 1, 1, 0, 0"); }
    else { GROUP_SIZES("f", "16.f32.f16.f16", ", 1, 1, 0, 0"); }
  } else if constexpr (is_byte<A>::value) {
    if constexpr (ua && ub) { GROUP_SIZES("r", "32.s32.u8.u8", ""); }
    else if constexpr (ua) { GROUP_SIZES("r", "32.s32.u8.s8", ""); }
    else if constexpr (ub) { GROUP_SIZES("r", "32.s32.s8.u8", ""); }
    else { GROUP_SIZES("r", "32.s32.s8.s8", ""); }
  } else {
    if constexpr (wide_a && wide_b) { GROUP_SIZES("f", "32.f32.e5m2.e5m2", ", 1, 1"); }
    else if constexpr (wide_a) { GROUP_SIZES("f", "32.f32.e5m2.e4m3", ", 1, 1"); }
    else if constexpr (wide_b) { GROUP_SIZES("f", "32.f32.e4m3.e5m2", ", 1, 1"); }
    else { GROUP_SIZES("f", "32.f32.e4m3.e4m3", ", 1, 1"); }
  }
}
#define GROUP_HALF(P, N, W0, W1, W2, W3, B, ADD, TYPE, TRANSPOSE)                                                             \
  asm volatile("{.reg .pred add;\nsetp.ne.b32 add, %" ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE \
               " {" GROUP_R##P "}, {%" W0 ",%" W1 ",%" W2 ",%" W3 "}, %" B ", add, 1, 1, " TRANSPOSE ";}"                      \
               : GROUP_L##P("f")                                                                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)                                                  \
               : "memory")
#define GROUP_HALVES(TYPE)                                                                                             \
  if constexpr (TRANSPOSE) GROUP_HALF(4, "64", "32", "33", "34", "35", "36", "37", TYPE, "1");                         \
  else if constexpr (P == 1) GROUP_HALF(1, "16", "8", "9", "10", "11", "12", "13", TYPE, "0");                         \
  else if constexpr (P == 2) GROUP_HALF(2, "32", "16", "17", "18", "19", "20", "21", TYPE, "0");                       \
  else if constexpr (P == 3) GROUP_HALF(3, "48", "24", "25", "26", "27", "28", "29", TYPE, "0");                       \
  else GROUP_HALF(4, "64", "32", "33", "34", "35", "36", "37", TYPE, "0")
template <class T, int P, bool TRANSPOSE> DEV void group_halves(frag_c* c, const u32* a, u64 b, u32 add) {
  static_assert(P >= 1 && P <= 4, "pieces of a group's product");
  if constexpr (is_bf16<T>::value) { GROUP_HALVES("bf16"); }
  else { GROUP_HALVES("f16"); }
}
}  // namespace unit
template <class A, class B, int N, class S> DEV void group_mma(nfrag_c<S>* c, const u8* a, const u8* b, u32 k, bool add) {
  unit::group_mma<A, B, N>(c, unit::group_piece(a + k), unit::group_piece(b + k), (u32)add);
}
template <int P, class T> DEV void group_mma_rows(frag_c* c, const frag_a<T>& a, const T* b, u32 k, bool add) {
  unit::group_halves<T, P, false>(c, a.w, unit::group_piece((const u8*)(b + k)), (u32)add);
}
template <class T> DEV void group_mma_columns(frag_c* c, const frag_a<T>& a, const T* b) {
  unit::group_halves<T, 4, true>(c, a.w, unit::group_piece((const u8*)b), 1u);
}
DEV void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int M> DEV void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(M) : "memory"); }
DEV void group_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void group_hold(nfrag_c<i32>* c, int n) {
  UNROLL for (int j = 0; j < n; ++j) UNROLL for (int i = 0; i < FRAG_C; ++i) asm volatile("" : "+r"(c[j].x[i])::"memory");
}
template <class C> DEV void group_hold(C* c, int n) {  // nfrag_c<float> or frag_c
  UNROLL for (int j = 0; j < n; ++j) UNROLL for (int i = 0; i < FRAG_C; ++i) asm volatile("" : "+f"(c[j].x[i])::"memory");
}
#else
namespace unit {
template <class T> DEV typename narrow_sum<T>::type group_number(const u8* p, u32 row, u32 k) {
  const u8* const at = p + row * 128 + ((k / 16) ^ row % 8) * 16 + k % 16;
  if constexpr (is_half<T>::value) return to_f(*(const T*)at);
  else return number_of(bits_as<T>(*at)) - nfrag_bias<T>();
}
}  // namespace unit
template <class A, class B, int N, class S> DEV void group_mma(nfrag_c<S>* c, const u8* a, const u8* b, u32 k, bool add) {
  const u32 first = thread_id() / WAVE % 4 * 16;
  for (int j = 0; j < N / 16; ++j)
    for (u32 i = 0; i < FRAG_C; ++i) {
      S sum = add ? c[j].x[i] : (S)0;
      for (u32 n = k; n < k + 32; n += sizeof(A))
        sum += unit::group_number<A>(a, first + frag_row(i), n) * unit::group_number<B>(b, j * 16 + frag_col(i), n);
      c[j].x[i] = sum;
    }
}
#if FRAG == 1
namespace unit {
template <class T> DEV T group_half(const T* b, u32 row, u32 k) { return b[row * 64 + ((k / 8) ^ row % 8) * 8 + k % 8]; }
}  // namespace unit
template <int P, class T> DEV void group_mma_rows(frag_c* c, const frag_a<T>& a, const T* b, u32 k, bool add) {
  const u32 g = lane_id() / 4, t = k + lane_id() % 4 * 2;
  for (u32 j = 0; j < P; ++j) {
    frag_b<T> f;
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = j * 16 + i / 2 * 8 + g, at = t + i % 2 * 8;
      f.w[i] = pair(unit::group_half(b, row, at), unit::group_half(b, row, at + 1));
    }
    if (!add) frag_fill(c[j], 0.f);
    frag_mma(c[j], a, f);
  }
}
template <class T> DEV void group_mma_columns(frag_c* c, const frag_a<T>& a, const T* b) {
  const u32 g = lane_id() / 4, t = lane_id() % 4 * 2;
  for (u32 j = 0; j < 4; ++j) {
    frag_b<T> f;
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = t + i % 2 * 8, at = j * 16 + i / 2 * 8 + g;
      f.w[i] = pair(unit::group_half(b, row, at), unit::group_half(b, row + 1, at));
    }
    frag_mma(c[j], a, f);
  }
}
#endif
DEV void group_begin() {}
DEV void group_commit() {}
template <int M> DEV void group_wait() {}
DEV void group_shared() {}
template <class C> DEV void group_hold(C*, int) {}
#endif

// Rings of stages in shared memory, which some threads fill for others.  A ring_t (mbarrier) counts arrivals; it is
// initialized by one thread before a barrier, and its first phase is 0.
//   ring_init(r, n): a phase ends with n arrivals
//   ring_wait(r, p): waits until the phase of parity p has ended
//   ring_arrive(r): arrives, after this thread's reads
//   ring_arrive_copies(r): arrives when this thread's copies by async_copy are complete
//   group_registers<N, MORE>: changes the registers of each thread of four waves to N, a multiple of 8; all four execute it
typedef u64 ring_t;
#if GPU_HOST
DEV void ring_init(ring_t* r, u32 n) { *r = (u64)n << 32 | (u64)n << 8; }
DEV void ring_wait(ring_t* r, u32 parity) {
  while ((*(volatile u64*)r & 1) == parity) emulator->pause();
}
DEV void ring_arrive(ring_t* r) {
  const u64 n = *r >> 32, left = (*r >> 8 & 0xffffff) - 1, phase = *r & 1;
  *r = n << 32 | (left ? left : n) << 8 | (left ? phase : phase ^ 1);
  emulator->progress();
}
DEV void ring_arrive_copies(ring_t* r) {
  async_commit();
  async_wait<0>();
  ring_arrive(r);
}
template <int N, bool MORE> DEV void group_registers() {}
#elif GPU_CUDA && __CUDA_ARCH__ >= 900
DEV void ring_init(ring_t* r, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(r)), "r"(n) : "memory");
}
DEV void ring_wait(ring_t* r, u32 parity) {
  asm volatile("{.reg .pred done;\nwaiting:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra waiting;\n}"
               ::"r"((u32)__cvta_generic_to_shared(r)), "r"(parity) : "memory");
}
DEV void ring_arrive(ring_t* r) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((u32)__cvta_generic_to_shared(r)) : "memory");
}
DEV void ring_arrive_copies(ring_t* r) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"((u32)__cvta_generic_to_shared(r)) : "memory");
}
template <int N, bool MORE> DEV void group_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
  else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
#endif
