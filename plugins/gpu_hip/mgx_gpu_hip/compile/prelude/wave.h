// Shuffles between lanes of a wave; reductions over a wave, a part of it, or a block.  All lanes of the wave must participate.
namespace lanes {
#if GPU_CUDA
DEV u32 get(u32 v, u32 lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEV u32 flip(u32 v, u32 mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
#elif GPU_HIP
DEV u32 get(u32 v, u32 lane) { return (u32)__builtin_amdgcn_ds_bpermute((int)(lane << 2), (int)v); }
DEV u32 flip(u32 v, u32 mask) { return get(v, lane_id() ^ mask); }
#else
DEV u32 get(u32 v, u32 lane) { u32 out; emulator->exchange(&v, 4, lane, &out); return out; }
DEV u32 flip(u32 v, u32 mask) { return get(v, lane_id() ^ mask); }
#endif
// A value of up to 32 bytes, word by word.
template <class T, class F> DEV T by_words(T v, F f) {
  constexpr int n = (sizeof(T) + 3) / 4;
  u32 w[n] = {};
  GPU_MEMCPY(w, &v, sizeof(T));
  UNROLL for (int i = 0; i < n; ++i) w[i] = f(w[i]);
  GPU_MEMCPY(&v, w, sizeof(T));
  return v;
}
struct getter { u32 lane; __device__ u32 operator()(u32 v) const { return get(v, lane); } };
struct flipper { u32 mask; __device__ u32 operator()(u32 v) const { return flip(v, mask); } };
}  // namespace lanes

template <class T> DEV T wave_get(T v, u32 lane) { return lanes::by_words(v, lanes::getter{lane}); }          // v of another lane
template <class T> DEV T wave_xor(T v, u32 mask) { return lanes::by_words(v, lanes::flipper{mask}); }         // of lane ^ mask
template <class T> DEV T wave_down(T v, u32 n) { u32 l = lane_id(); return wave_get(v, l + n < WAVE ? l + n : l); }  // its own value beyond the end
template <class T> DEV T wave_up(T v, u32 n) { u32 l = lane_id(); return wave_get(v, l >= n ? l - n : l); }

// One bit per lane.
DEV u64 wave_ballot(bool v) {
#if GPU_CUDA
  return __ballot_sync(0xffffffffu, v);
#elif GPU_HIP && WAVE == 64
  return __builtin_amdgcn_ballot_w64(v);
#elif GPU_HIP
  return __builtin_amdgcn_ballot_w32(v);
#else
  return emulator->ballot(v);
#endif
}
DEV bool wave_any(bool v) { return wave_ballot(v) != 0; }
DEV bool wave_all(bool v) { return wave_ballot(!v) == 0; }
DEV u32 bit_count(u64 v) {
#if GPU_CUDA
  return __popcll(v);
#else
  return __builtin_popcountll(v);
#endif
}

// Associative operations: Op::f(a, b), Op::id<T>().
struct Sum {
  template <class T> DEV T id() { return (T)0; }
  template <class T> DEV T f(T a, T b) { return a + b; }
};
struct Prod {
  template <class T> DEV T id() { return (T)1; }
  template <class T> DEV T f(T a, T b) { return a * b; }
};
struct Max {
  template <class T> DEV T id() {
    if constexpr (same_type<T, float>::value || same_type<T, double>::value) return (T)-m::inf();
    else return limits<T>::lowest();
  }
  template <class T> DEV T f(T a, T b) { return m::max(a, b); }
};
struct Min {
  template <class T> DEV T id() {
    if constexpr (same_type<T, float>::value || same_type<T, double>::value) return (T)m::inf();
    else return limits<T>::highest();
  }
  template <class T> DEV T f(T a, T b) { return m::min(a, b); }
};

// Reduces over groups of W adjacent lanes (a power of two up to WAVE); each lane gets its group's result.
template <class Op, int W = WAVE, class T> DEV T wave_reduce(T v) {
  UNROLL for (int mask = W / 2; mask; mask >>= 1) v = Op::f(v, wave_xor(v, mask));
  return v;
}
// Reduces over the block; each thread gets the result.  scratch: shared, 32 values; whole waves only.
template <class Op, class T> DEV T block_reduce(T v, T* scratch) {
  v = wave_reduce<Op>(v);
  u32 waves = blockDim.x * blockDim.y * blockDim.z / WAVE;
  if (waves <= 1) return v;
  u32 lane = lane_id();
  __syncthreads();  // scratch may still be in use by an earlier reduction
  if (lane == 0) scratch[wave_id()] = v;
  __syncthreads();
  v = lane < waves ? scratch[lane] : Op::template id<T>();
  return wave_reduce<Op>(v);
}
// Inclusive prefix scan over the wave.
template <class Op, class T> DEV T wave_scan(T v) {
  u32 lane = lane_id();
  UNROLL for (int n = 1; n < WAVE; n <<= 1) {
    T other = wave_up(v, n);
    if (lane >= (u32)n) v = Op::f(other, v);
  }
  return v;
}
