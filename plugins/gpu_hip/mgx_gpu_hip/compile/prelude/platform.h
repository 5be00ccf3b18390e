// Platforms of the kernel source: qualifiers, indices, barriers, shared memory.
//   HIP   hipRTC, or plain clang -x hip without ROCm's headers (-DGPU_BARE)
//   CUDA  NVRTC or nvcc
//   HOST  any C++17 host compiler; emulator/kernel.h is the device
// -DWAVE=32|64 is the device's wave width.
#pragma once
#if defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define GPU_HIP 1
#elif defined(__CUDACC__)
#define GPU_CUDA 1
#else
#define GPU_HOST 1
#endif
#ifndef WAVE
#error "pass -DWAVE=32 or -DWAVE=64"
#endif

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if GPU_CUDA
#define GPU_MEMCPY memcpy
#else
#define GPU_MEMCPY __builtin_memcpy
#endif
#define RESTRICT __restrict__
#if GPU_HIP || GPU_CUDA
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif

#if GPU_HIP && defined(GPU_BARE)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n, ...) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define GPU_INDEX(type, X, Y, Z)                                   \
  struct type {                                                     \
    __declspec(property(get = gx)) u32 x;                           \
    __declspec(property(get = gy)) u32 y;                           \
    __declspec(property(get = gz)) u32 z;                           \
    static __device__ u32 gx() { return X; }                        \
    static __device__ u32 gy() { return Y; }                        \
    static __device__ u32 gz() { return Z; }                        \
  };
GPU_INDEX(gpu_thread_t, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
GPU_INDEX(gpu_block_t, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
GPU_INDEX(gpu_width_t, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z())
GPU_INDEX(gpu_grid_t, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
          __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
          __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
static __device__ const gpu_thread_t threadIdx{};
static __device__ const gpu_block_t blockIdx{};
static __device__ const gpu_width_t blockDim{};
static __device__ const gpu_grid_t gridDim{};
static __device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ __forceinline__ void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
#endif

#if GPU_HOST
#include "kernel.h"
#endif

// DEV: a device function.  KERNEL(maximum threads per block) name(parameters) { ... }
#define DEV static __device__ __forceinline__
#define KERNEL(...) extern "C" __global__ __launch_bounds__(__VA_ARGS__) void

// SHARED(float, tile, [32][33]);  SHARED_DYNAMIC(char, bytes): `bytes` is the launch's dynamic shared memory, aligned to 16.
#if GPU_HOST
#define SHARED(type, name, dims)                                                                             \
  typedef type name##_shared_type dims;                                                                      \
  static char name##_shared_key;                                                                             \
  name##_shared_type& name = *(name##_shared_type*)emulator->shared(&name##_shared_key, sizeof(name##_shared_type))
#define SHARED_DYNAMIC(type, name) type* name = (type*)emulator->shared(0, 0)
#else
// alignas comes first: clang 17 (ROCm 6.0) accepts it only there
#define SHARED(type, name, dims) alignas(16) __shared__ type name dims
struct alignas(16) shared_word { u64 low, high; };
extern __shared__ shared_word gpu_dynamic_shared[];
#define SHARED_DYNAMIC(type, name) type* name = (type*)gpu_dynamic_shared
#endif

// Index of the lane in its wave, and of the wave in its block; waves are consecutive threads along x.
DEV u32 thread_id() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
#if GPU_HIP
DEV u32 lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) & (WAVE - 1); }
#else
DEV u32 lane_id() { return thread_id() % WAVE; }
#endif
DEV u32 wave_id() { return thread_id() / WAVE; }

// Barrier and memory fence for the lanes of a wave.
DEV void wave_sync() {
#if GPU_CUDA
  __syncwarp();
#elif GPU_HIP
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
  emulator->wave_sync();
#endif
}

// Programmatic dependent launch: a kernel launched with overlap (runtime: Launch(overlap=True)) calls grid_wait() before it accesses
// memory that other kernels write or read; grid_done() lets the next kernel start early, which must call grid_wait() (see Chained).
DEV void grid_wait() {
#if GPU_CUDA && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEV void grid_done() {
#if GPU_CUDA && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class A, class B> struct same_type { static constexpr bool value = false; };
template <class A> struct same_type<A, A> { static constexpr bool value = true; };

// Reinterprets the bits as another type of the same size.
template <class To, class From> DEV To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
#if GPU_CUDA
  union both { From from; To to; __device__ both() {} } b;
  b.from = from;
  return b.to;
#else
  return __builtin_bit_cast(To, from);
#endif
}
