// The kernel's view of the emulated device.  A kernel's shared object is passed the device's table of functions when it is loaded.
#pragma once
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

struct EmuDim {
  unsigned x, y, z;
};
struct Emulator {
  EmuDim thread, block, block_dim, grid_dim;
  void (*barrier)();
  void (*wave_sync)();
  void (*exchange)(const void* value, unsigned bytes, unsigned lane, void* out);  // shuffle: another lane's value
  const char* (*gather)(const void* value, unsigned bytes);                       // all lanes' values, at a stride of 64 bytes
  unsigned long long (*ballot)(bool value);
  void* (*shared)(const void* key, unsigned long bytes);  // the block's array of a SHARED declaration; key 0: dynamic
  void (*async_copy)(void* shared, const void* global, int bytes);
  void (*async_commit)();
  void (*async_wait)(int left);
  void (*pause)();     // lets other threads run; some of them must make progress until all threads have paused twice
  void (*progress)();  // what paused threads wait for may have changed
  void (*misaligned)(const void* address, int bytes);
  void (*cluster_wait)();
  // stores in the memory of a block of the cluster, visible after that block's wait of this number
  void (*cluster_store)(void* shared, unsigned rank, const void* value, unsigned bytes);
};
// one entry per kernel: a call wrapper, taking pointers to the arguments, the arguments' sizes up to a 0, and blocks of a cluster
struct EmuKernel {
  const char* name;
  void (*call)(void**);
  const int* sizes;
  unsigned cluster;
};

static Emulator* emulator;
#define threadIdx (emulator->thread)
#define blockIdx (emulator->block)
#define blockDim (emulator->block_dim)
#define gridDim (emulator->grid_dim)
static inline void __syncthreads() { emulator->barrier(); }
static inline void __threadfence() {}

namespace emu {
namespace {  // otherwise g++ emits `sizes` as a unique symbol, which prevents unloading the library
template <int... I> struct indices {};
template <int N, int... I> struct count : count<N - 1, N - 1, I...> {};
template <int... I> struct count<0, I...> { typedef indices<I...> type; };
template <class F, F f> struct entry;
template <class... A, void (*f)(A...)> struct entry<void (*)(A...), f> {
  template <int... I> static void go(void** p, indices<I...>) { f(*(A*)p[I]...); }
  static void call(void** p) { go(p, typename count<sizeof...(A)>::type()); }
  static const int* sizes() {
    static const int s[] = {(int)sizeof(A)..., 0};
    return s;
  }
};
}  // namespace
}  // namespace emu
#define EMU_ENTRY(name, k, cluster) {name, &emu::entry<decltype(&k), &k>::call, emu::entry<decltype(&k), &k>::sizes(), cluster}
// after the kernels: EMU_MODULE(EMU_ENTRY("a", a, 1), EMU_ENTRY("b", b, 8))
#ifndef MODULE_WAVE  // 0: the kernels do not depend on the wave's width
#define MODULE_WAVE WAVE
#endif
#define EMU_MODULE(...)                                              \
  extern "C" const EmuKernel* mgx_emulate(Emulator* e, int* wave) {  \
    static const EmuKernel all[] = {__VA_ARGS__, {0, 0, 0, 1}};        \
    emulator = e;                                                    \
    *wave = MODULE_WAVE;                                             \
    return all;                                                      \
  }
