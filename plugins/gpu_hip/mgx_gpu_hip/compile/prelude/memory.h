// Memory: vector accesses, asynchronous copies to shared memory, atomics.
template <class T, int N> struct alignas(sizeof(T) * N) vec { T v[N]; };

namespace words {
struct alignas(16) w16 { u32 a, b, c, d; };
struct alignas(8) w8 { u32 a, b; };
template <int BYTES> struct of;
template <> struct of<16> { typedef w16 type; };
template <> struct of<8> { typedef w8 type; };
template <> struct of<4> { typedef u32 type; };
template <> struct of<2> { typedef u16 type; };
template <> struct of<1> { typedef u8 type; };
template <class V, class W> union both {
  W w;
  V v;
  __device__ both() {}
};
}  // namespace words

// ldv<T, N>(p): loads N elements at p, aligned to their total size of 1, 2, 4, 8 or 16 bytes; stv(p, v) stores them.
template <class T, int N> DEV vec<T, N> ldv(const void* p) {
  typedef typename words::of<sizeof(T) * N>::type W;
#if GPU_HOST
  if ((u64)p % (sizeof(T) * N)) emulator->misaligned(p, sizeof(T) * N);
#endif
  words::both<vec<T, N>, W> u;
  u.w = *(const W*)p;
  return u.v;
}
template <class T, int N> DEV void stv(void* p, vec<T, N> v) {
  typedef typename words::of<sizeof(T) * N>::type W;
#if GPU_HOST
  if ((u64)p % (sizeof(T) * N)) emulator->misaligned(p, sizeof(T) * N);
#endif
  words::both<vec<T, N>, W> u;
  u.v = v;
  *(W*)p = u.w;
}

// async_copy<N>: copies N (4, 8 or 16) bytes from global to shared memory, zeros if not `valid`; complete after async_wait, visible
// to other threads after a barrier.  async_commit ends a group; async_wait<N> waits until at most N of the thread's newest groups
// are in flight.
template <int N> DEV void async_copy(void* shared, const void* global, bool valid = true) {
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  u32 to = (u32)__cvta_generic_to_shared(shared);
  int bytes = valid ? N : 0;
  if (N == 16)
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0],[%1],%2,%3;" ::"r"(to), "l"(global), "n"(N), "r"(bytes) : "memory");
#elif GPU_HOST
  if ((u64)shared % N || (valid && (u64)global % N)) emulator->misaligned(valid ? global : shared, N);
  emulator->async_copy(shared, valid ? global : 0, N);
#else
  typedef typename words::of<N>::type W;
  W q = {};
  if (valid) q = *(const W*)global;
  *(W*)shared = q;
#endif
}
DEV void async_commit() {
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif GPU_HOST
  emulator->async_commit();
#endif
}
template <int N> DEV void async_wait() {
#if GPU_CUDA && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#elif GPU_HOST
  emulator->async_wait(N);
#endif
}

// Atomics on global or shared memory; each returns the previous value.
namespace atomics {
template <class T> struct bits_of;
template <> struct bits_of<float> { typedef u32 type; };
template <> struct bits_of<double> { typedef u64 type; };
template <> struct bits_of<i32> { typedef u32 type; };
template <> struct bits_of<u32> { typedef u32 type; };
template <> struct bits_of<i64> { typedef u64 type; };
template <> struct bits_of<u64> { typedef u64 type; };
#if GPU_CUDA
DEV u32 swap(u32* p, u32 old, u32 now) { return atomicCAS(p, old, now); }
DEV u64 swap(u64* p, u64 old, u64 now) { return atomicCAS(p, old, now); }
#else
template <class U> DEV U swap(U* p, U old, U now) {
  __atomic_compare_exchange_n(p, &old, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return old;
}
#endif
template <class Op, class T> DEV T update(T* p, T v) {
  typedef typename bits_of<T>::type U;
  U seen = *(volatile U*)p, expected;
  do {
    expected = seen;
    const U now = bits_as<U>(Op::f(bits_as<T>(expected), v));
    if (now == expected) break;  // no write needed: most values are not a new extreme
    seen = swap((U*)p, expected, now);
  } while (seen != expected);
  return bits_as<T>(seen);
}
// 16-bit elements: by compare-and-swap on the containing 32-bit word.
template <class Op, class T> DEV T update16(T* p, T v) {
  u32* word = (u32*)((u64)p & ~3ull);
  u32 shift = (u32)((u64)p & 2) * 8, seen = *(volatile u32*)word, expected;
  do {
    expected = seen;
    T old = {(u16)(expected >> shift)}, now = convert<T>(Op::f(to_f(old), to_f(v)));
    if (now.x == old.x) break;
    seen = swap(word, expected, (expected & ~(0xffffu << shift)) | ((u32)now.x << shift));
  } while (seen != expected);
  T out = {(u16)(seen >> shift)};
  return out;
}
// Both elements of an aligned word at once.
template <class Op, class T> DEV void update_two(T* p, T a, T b) {
  u32 seen = *(volatile u32*)p, expected;
  do {
    expected = seen;
    T low = {(u16)expected}, high = {(u16)(expected >> 16)};
    low = convert<T>(Op::f(to_f(low), to_f(a))), high = convert<T>(Op::f(to_f(high), to_f(b)));
    const u32 now = (u32)low.x | (u32)high.x << 16;
    if (now == expected) break;
    seen = swap((u32*)p, expected, now);
  } while (seen != expected);
}
}  // namespace atomics
template <class T> DEV T atomic_add(T* p, T v) { return atomics::update<Sum>(p, v); }
template <class T> DEV T atomic_mul(T* p, T v) { return atomics::update<Prod>(p, v); }
template <class T> DEV T atomic_max(T* p, T v) { return atomics::update<Max>(p, v); }
template <class T> DEV T atomic_min(T* p, T v) { return atomics::update<Min>(p, v); }
#define GPU_ATOMIC16(T)                                                                     \
  DEV T atomic_add(T* p, T v) { return atomics::update16<Sum>(p, v); }                      \
  DEV T atomic_mul(T* p, T v) { return atomics::update16<Prod>(p, v); }                     \
  DEV T atomic_max(T* p, T v) { return atomics::update16<Max>(p, v); }                      \
  DEV T atomic_min(T* p, T v) { return atomics::update16<Min>(p, v); }
GPU_ATOMIC16(half_t)
GPU_ATOMIC16(bf16_t)
#if GPU_CUDA
DEV float atomic_add(float* p, float v) { return atomicAdd(p, v); }
DEV double atomic_add(double* p, double v) { return atomicAdd(p, v); }
DEV i32 atomic_add(i32* p, i32 v) { return atomicAdd(p, v); }
DEV u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
DEV u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
DEV i64 atomic_add(i64* p, i64 v) { return (i64)atomicAdd((u64*)p, (u64)v); }
DEV i32 atomic_max(i32* p, i32 v) { return atomicMax(p, v); }
DEV i32 atomic_min(i32* p, i32 v) { return atomicMin(p, v); }
#else
DEV i32 atomic_add(i32* p, i32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u32 atomic_add(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV i64 atomic_add(i64* p, i64 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEV u64 atomic_add(u64* p, u64 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
#endif
// Adjacent elements in global memory, aligned to their total size.
#define GPU_ATOMICS(NAME, OP)                                                                       \
  template <class T, int N> DEV void NAME(T* p, vec<T, N> v) {                                      \
    if constexpr (same_type<T, half_t>::value || same_type<T, bf16_t>::value) {                     \
      UNROLL for (int i = 0; i < N; i += 2) atomics::update_two<OP>(p + i, v.v[i], v.v[i + 1]);     \
    } else {                                                                                        \
      UNROLL for (int i = 0; i < N; ++i) NAME(p + i, v.v[i]);                                       \
    }                                                                                               \
  }
GPU_ATOMICS(atomic_add, Sum)
GPU_ATOMICS(atomic_mul, Prod)
GPU_ATOMICS(atomic_max, Max)
GPU_ATOMICS(atomic_min, Min)
#if GPU_CUDA && __CUDA_ARCH__ >= 900
DEV void atomic_add(float* p, vec<float, 4> v) {
  asm volatile("red.global.add.v4.f32 [%0],{%1,%2,%3,%4};"
               ::"l"(p), "f"(v.v[0]), "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3]) : "memory");
}
#endif

// a . b + c over four signed bytes.
DEV i32 dot4(i32 a, i32 b, i32 c) {
#if GPU_CUDA
  return __dp4a(a, b, c);
#else
  UNROLL for (int i = 0; i < 4; ++i) c += (i32)(i8)(a >> (8 * i)) * (i32)(i8)(b >> (8 * i));
  return c;
#endif
}
