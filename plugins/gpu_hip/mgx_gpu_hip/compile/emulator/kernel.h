// What a kernel sees of the emulated device.  The kernel's shared object is handed the device's table when it is loaded.
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
  void (*exchange)(const void* value, unsigned bytes, unsigned lane, void* out);  // the value that another lane gives
  const char* (*gather)(const void* value, unsigned bytes);                       // all lanes' values, 64 bytes apart
  unsigned long long (*ballot)(bool value);
  void* (*shared)(const void* key, unsigned long bytes);  // the block's array for a declaration; key 0: dynamic
  void (*async_copy)(void* shared, const void* global);
  void (*async_commit)();
  void (*async_wait)(int left);
  void (*misaligned)(const void* address, int bytes);
};
// one entry per kernel: how to call it with pointers to its arguments, and their sizes up to a 0
struct EmuKernel {
  const char* name;
  void (*call)(void**);
  const int* sizes;
};

static Emulator* emulator;
#define threadIdx (emulator->thread)
#define blockIdx (emulator->block)
#define blockDim (emulator->block_dim)
#define gridDim (emulator->grid_dim)
static inline void __syncthreads() { emulator->barrier(); }
static inline void __threadfence() {}

namespace emu {
namespace {  // else g++ makes `sizes` unique in the process, and no library that has it is ever unloaded
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
#define EMU_ENTRY(name, k) {name, &emu::entry<decltype(&k), &k>::call, emu::entry<decltype(&k), &k>::sizes()}
// after the kernels: EMU_MODULE(EMU_ENTRY("a", a), EMU_ENTRY("b", b))
#define EMU_MODULE(...)                                              \
  extern "C" const EmuKernel* mgx_emulate(Emulator* e, int* wave) {  \
    static const EmuKernel all[] = {__VA_ARGS__, {0, 0, 0}};         \
    emulator = e;                                                    \
    *wave = WAVE;                                                    \
    return all;                                                      \
  }
