// The emulated device behind the API of the HIP runtime, with another prefix (host by default).
// Device 0 has waves of 64 lanes, device 1 of 32.  Streams are synchronous; capture records calls, a graph replays them.  Modules are
// shared objects compiled from kernel source.  Allocations are filled with 0xff (NaN) and end at a guard page.  Tests may set another
// fill byte, a guard page in front of allocations (SetGuard), and access rights of kernels to an allocation (Protect).
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device.h"
#ifndef API
#define API(name) host##name
#define PREFIX "host"
#endif

namespace {
typedef uintptr_t Handle;
typedef unsigned u32;
const int OUT_OF_MEMORY = 2, NO_BINARY = 209, NOT_FOUND = 500, NOT_READY = 600, UPDATE_FAILED = 910, IN_CAPTURE = 900, BAD_HANDLE = 400;
const size_t PAGE = 4096;
enum Access { NOTHING, READ, WRITE };

/* Objects behind handles; kept in a list so that leak checkers see them as reachable. */
struct Held {
  Held() { list(this, true); }
  Held(const Held&) : Held() {}
  ~Held() { list(this, false); }

 private:
  static void list(Held* one, bool made) {
    static std::mutex lock;
    static auto& all = *new std::set<Held*>;  // outlives static destruction
    std::lock_guard<std::mutex> hold(lock);
    if (made)
      all.insert(one);
    else
      all.erase(one);
  }
};
struct Block {
  size_t bytes, mapped;
  char* base;
  unsigned char canary;  // fills the padding between the bytes and the guard page
  int access;
};
struct Operation {
  const char* kind;
  std::function<int()> run;
};
struct Graph : Held {
  std::vector<Operation> operations;
  std::vector<std::shared_ptr<u32>> conditions;  // zero at the start of a launch
};
struct Stream : Held {
  Graph* capture = nullptr;
};
struct Event : Held {
  double at = -1;
};
struct Function {
  const EmuKernel* kernel;
  int wave;
};
struct Module : Held {
  void* library;
  int wave;
  std::vector<Function> functions;  // of the module's lifetime, which handles to them refer to
};

Stream null_stream;
std::map<Handle, Block> heap;
std::map<Handle, size_t> pinned;  // host memory accessible to the device
std::mutex heap_lock;
size_t used;
int order_of_threads;
unsigned char poison = 0xff;
bool guard_before;
const int DEVICES = 2, WAVES[DEVICES] = {64, 32};
thread_local int current_device;
const int RELAXED = 2;  // the mode in which a thread may allocate while it captures
thread_local int capture_mode, captures;
char last_fault[1024];

size_t total() {
  static size_t n = getenv("MGX_HOST_MEMORY") ? strtoull(getenv("MGX_HOST_MEMORY"), nullptr, 0) : size_t(8) << 30;
  return n;
}
Stream* stream_of(Handle s) { return s ? (Stream*)s : &null_stream; }
int submit(Handle s, const char* kind, std::function<int()> f) {
  if (Graph* g = stream_of(s)->capture) {
    g->operations.push_back({kind, f});
    return 0;
  }
  return f();
}
int run_all(const Graph& g) {
  for (auto& o : g.operations)
    if (int e = o.run()) return e;
  return 0;
}
bool inside(Handle p, size_t n) {
  std::lock_guard<std::mutex> hold(heap_lock);
  auto host = pinned.upper_bound(p);
  if (host != pinned.begin() && p + n <= std::prev(host)->first + std::prev(host)->second) return true;
  auto i = heap.upper_bound(p);
  if (i == heap.begin()) return !n;
  --i;
  return p + n <= i->first + i->second.bytes;
}
int bad_range(const char* what, Handle p, size_t n) {
  snprintf(last_fault, sizeof last_fault, "%s of %zu bytes at %p, which is not inside one allocation", what, n, (void*)p);
  return 1;
}
void describe(const void* address, char* text, size_t size) {  // called in a signal handler of the launching thread
  Handle a = (Handle)address;
  for (auto& [p, b] : heap)
    if (a >= (Handle)b.base - PAGE && a < (Handle)b.base + b.mapped + PAGE) {
      const char* why = b.access == WRITE ? "" : b.access == READ ? " that may only be read now" : " that may not be touched now";
      snprintf(text, size, ", byte %td of an allocation of %zu bytes%s", (ptrdiff_t)(a - p), b.bytes, why);
      return;
    }
  snprintf(text, size, ", which is in no allocation");
}
bool damaged(Handle p, const Block& b) {
  if (b.access == NOTHING) return false;  // checked when it was protected
  const unsigned char *at = (const unsigned char*)p, *last = (const unsigned char*)b.base + b.mapped;
  const unsigned char* end = last - (at + b.bytes) > 64 ? at + b.bytes + 64 : last;
  for (const unsigned char* c = at + b.bytes; c < end; ++c)
    if (*c != b.canary) return true;
  const unsigned char* low = at - 64 > (const unsigned char*)b.base ? at - 64 : (const unsigned char*)b.base;
  for (const unsigned char* c = low; c < at; ++c)
    if (*c != b.canary) return true;
  return false;
}
int overwritten(Handle p, const Block& b) {
  snprintf(last_fault, sizeof last_fault, "bytes next to an allocation of %zu bytes at %p were overwritten", b.bytes, (void*)p);
  return device::ILLEGAL_ADDRESS;
}
int check_heap() {
  std::lock_guard<std::mutex> hold(heap_lock);
  for (auto& [p, b] : heap)
    if (damaged(p, b)) {
      mprotect(b.base, b.mapped, PROT_READ | PROT_WRITE);
      b.access = WRITE;
      memset(b.base, b.canary, p - (Handle)b.base);
      memset((char*)p + b.bytes, b.canary, b.base + b.mapped - ((char*)p + b.bytes));
      return overwritten(p, b);
    }
  return 0;
}
double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

extern "C" {
void API(SetOrder)(int order) { order_of_threads = order; }
// Sets the fill byte of later allocations; before: the guard page precedes instead of follows them.
void API(SetGuard)(int byte, int before) { poison = (unsigned char)byte, guard_before = before; }
// Sets the access of kernels to an allocation: 0 none, 1 read, 2 read and write.
int API(Protect)(Handle p, int access) {
  std::lock_guard<std::mutex> hold(heap_lock);
  auto i = heap.find(p);
  if (i == heap.end() || access < NOTHING || access > WRITE) return 1;
  Block& b = i->second;
  bool bad = damaged(p, b);
  mprotect(b.base, b.mapped, access == NOTHING ? PROT_NONE : access == READ ? PROT_READ : PROT_READ | PROT_WRITE);
  b.access = access;
  return bad ? overwritten(p, b) : 0;
}
const char* API(LastFault)() {  // returns each fault once
  static thread_local char told[sizeof last_fault];
  memcpy(told, last_fault, sizeof told);
  *last_fault = 0;
  return told;
}

const char* API(GetErrorName)(int e) {
  switch (e) {
    case 0: return PREFIX "Success";
    case 1: return PREFIX "ErrorInvalidValue";
    case 2: return PREFIX "ErrorOutOfMemory";
    case 101: return PREFIX "ErrorInvalidDevice";
    case 209: return PREFIX "ErrorNoBinaryForGpu";
    case 400: return PREFIX "ErrorInvalidHandle";
    case 500: return PREFIX "ErrorNotFound";
    case 600: return PREFIX "ErrorNotReady";
    case 700: return PREFIX "ErrorIllegalAddress";
    case 716: return PREFIX "ErrorMisalignedAddress";
    case 719: return PREFIX "ErrorLaunchFailure";
    case 900: return PREFIX "ErrorStreamCaptureUnsupported";
    case 901: return PREFIX "ErrorStreamCaptureInvalidated";
    case 910: return PREFIX "ErrorGraphExecUpdateFailure";
  }
  return PREFIX "ErrorUnknown";
}
int API(Init)(u32) {
  device::describe = describe;
  return 0;
}
int API(DriverGetVersion)(int* v) { return *v = 1, 0; }
int API(GetDeviceCount)(int* n) { return *n = DEVICES, 0; }
int API(DeviceGet)(int* d, int i) { return *d = i, i < 0 || i >= DEVICES ? 101 : 0; }
int API(DeviceGetName)(char* b, int n, int d) { return snprintf(b, n, "emulated device, wave %d", WAVES[d]), 0; }
int API(DeviceGetAttribute)(int* v, int a, int d) {
  switch (a) {  // values of HIP's enumeration
    case 63: *v = 4; return 0;
    case 74: *v = WAVES[d] == 64 ? 65536 : 49152; return 0;
    case 87: *v = WAVES[d]; return 0;
    case 56: *v = 1024; return 0;
  }
  *v = 0;
  return 0;
}
int API(DeviceTotalMem)(size_t* n, int) { return *n = total(), 0; }
int API(DevicePrimaryCtxRetain)(Handle* c, int) { return *c = 1, 0; }
int API(SetDevice)(int d) { return current_device = d, 0; }
int API(DeviceSynchronize)() { return check_heap(); }
int API(MemGetInfo)(size_t* free, size_t* all) { return *free = total() - used, *all = total(), 0; }

int API(Malloc)(Handle* p, size_t n) {
  *p = 0;
  if (captures && capture_mode != RELAXED) return IN_CAPTURE;
  if (!n) return 0;
  size_t mapped = (n + PAGE - 1) / PAGE * PAGE;
  std::lock_guard<std::mutex> hold(heap_lock);
  if (n > total() || used + mapped > total()) return OUT_OF_MEMORY;
  char* base = (char*)mmap(nullptr, mapped + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return OUT_OF_MEMORY;
  base += PAGE;
  mprotect(base, mapped, PROT_READ | PROT_WRITE);
  char* at = guard_before ? base : base + (mapped - n) / 16 * 16;
  unsigned char canary = poison ^ 0x5a;
  memset(base, canary, at - base);
  memset(at, poison, n);
  memset(at + n, canary, base + mapped - at - n);
  heap[(Handle)at] = {n, mapped, base, canary, WRITE};
  used += mapped;
  *p = (Handle)at;
  return 0;
}
int API(Free)(Handle p) {
  if (!p) return 0;
  std::lock_guard<std::mutex> hold(heap_lock);
  auto i = heap.find(p);
  if (i == heap.end()) return 1;
  Block b = i->second;
  bool bad = damaged(p, b);
  munmap(b.base - PAGE, b.mapped + 2 * PAGE);
  used -= b.mapped;
  heap.erase(i);
  return bad ? overwritten(p, b) : 0;
}
int API(MemGetAddressRange)(Handle* base, size_t* bytes, Handle p) {
  std::lock_guard<std::mutex> hold(heap_lock);
  auto i = heap.upper_bound(p);
  if (i == heap.begin() || p >= (--i)->first + i->second.bytes) return BAD_HANDLE;
  return *base = i->first, *bytes = i->second.bytes, 0;
}
struct IpcHandle {
  char bytes[64];
};
// Memory shared between processes is a shared-memory object, whose name is the handle.
int API(IpcOpenMemHandle)(Handle* p, IpcHandle handle, u32) {
  char path[80] = "/dev/shm/";
  size_t length = strnlen(handle.bytes, sizeof handle.bytes);
  *p = 0;
  if (!length || *handle.bytes == '.' || memchr(handle.bytes, '/', length)) return BAD_HANDLE;
  memcpy(path + strlen(path), handle.bytes, length);
  int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return BAD_HANDLE;
  struct stat found;
  size_t n = fstat(file, &found) || !S_ISREG(found.st_mode) ? 0 : found.st_size;
  void* at = n ? mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (at == MAP_FAILED) return BAD_HANDLE;
  std::lock_guard<std::mutex> hold(heap_lock);
  heap[(Handle)at] = {n, n, (char*)at, 0, WRITE};
  return *p = (Handle)at, 0;
}
int API(IpcCloseMemHandle)(Handle p) {
  std::lock_guard<std::mutex> hold(heap_lock);
  auto i = heap.find(p);
  if (i == heap.end() || i->second.bytes != i->second.mapped) return BAD_HANDLE;
  munmap(i->second.base, i->second.mapped);
  return heap.erase(i), 0;
}
int API(MallocAsync)(Handle* p, size_t n, Handle) { return API(Malloc)(p, n); }
int API(FreeAsync)(Handle p, Handle) { return API(Free)(p); }
int API(HostMalloc)(Handle* p, size_t n, u32) {
  *p = (Handle)aligned_alloc(64, (n + 63) / 64 * 64);
  if (!*p) return OUT_OF_MEMORY;
  std::lock_guard<std::mutex> hold(heap_lock);
  return pinned[*p] = n, 0;
}
int API(HostRegister)(Handle p, size_t n, u32) {
  std::lock_guard<std::mutex> hold(heap_lock);
  if (!p || !n || pinned.count(p)) return BAD_HANDLE;
  return pinned[p] = n, 0;
}
int API(HostUnregister)(Handle p) {
  std::lock_guard<std::mutex> hold(heap_lock);
  return pinned.erase(p) ? 0 : BAD_HANDLE;
}
int API(HostFree)(Handle p) {
  std::lock_guard<std::mutex> hold(heap_lock);
  return pinned.erase(p), free((void*)p), 0;
}
int API(MemcpyHtoDAsync)(Handle to, Handle from, size_t n, Handle s) {
  if (!inside(to, n)) return bad_range("copy", to, n);
  return submit(s, "copy", [=] { return memcpy((void*)to, (void*)from, n), 0; });
}
int API(MemcpyDtoHAsync)(Handle to, Handle from, size_t n, Handle s) {
  if (!inside(from, n)) return bad_range("copy", from, n);
  return submit(s, "copy", [=] { return memcpy((void*)to, (void*)from, n), 0; });
}
int API(MemcpyDtoDAsync)(Handle to, Handle from, size_t n, Handle s) {
  if (!inside(to, n)) return bad_range("copy", to, n);
  if (!inside(from, n)) return bad_range("copy", from, n);
  return submit(s, "copy", [=] { return memmove((void*)to, (void*)from, n), 0; });
}
int API(MemsetD8Async)(Handle to, unsigned char v, size_t n, Handle s) {
  if (!inside(to, n)) return bad_range("fill", to, n);
  return submit(s, "fill", [=] { return memset((void*)to, v, n), 0; });
}
int API(MemsetD32Async)(Handle to, int v, size_t n, Handle s) {
  if (!inside(to, n * 4)) return bad_range("fill", to, n * 4);
  return submit(s, "fill", [=] {
    for (size_t i = 0; i < n; ++i) ((int*)to)[i] = v;
    return 0;
  });
}

int API(StreamCreateWithFlags)(Handle* s, u32) { return *s = (Handle) new Stream, 0; }
int API(StreamDestroy)(Handle s) { return delete (Stream*)s, 0; }
int API(StreamSynchronize)(Handle s) { return stream_of(s)->capture ? IN_CAPTURE : check_heap(); }
int API(StreamQuery)(Handle s) { return stream_of(s)->capture ? IN_CAPTURE : 0; }
int API(StreamIsCapturing)(Handle s, int* state) { return *state = stream_of(s)->capture ? 1 : 0, 0; }
int API(StreamWaitEvent)(Handle, Handle, u32) { return 0; }
int API(EventCreateWithFlags)(Handle* e, u32) { return *e = (Handle) new Event, 0; }
int API(EventRecord)(Handle e, Handle s) {
  return submit(s, "event", [=] { return ((Event*)e)->at = now(), 0; });
}
int API(EventSynchronize)(Handle) { return 0; }
int API(EventQuery)(Handle) { return 0; }
int API(EventElapsedTime)(float* ms, Handle a, Handle b) {
  if (((Event*)a)->at < 0 || ((Event*)b)->at < 0) return BAD_HANDLE;
  *ms = float(((Event*)b)->at - ((Event*)a)->at);
  return 0;
}
int API(EventDestroy)(Handle e) { return delete (Event*)e, 0; }

int API(ModuleLoadData)(Handle* m, Handle image) {  // the size of the ELF image follows from its section table
  auto* e = (const Elf64_Ehdr*)image;
  if (memcmp(e->e_ident, ELFMAG, SELFMAG)) return NO_BINARY;
  size_t n = e->e_shoff + size_t(e->e_shentsize) * e->e_shnum;
  const char* folder = getenv("TMPDIR");
  static std::atomic<int> count{0};
  char path[512];  // a new path each time, since dlopen identifies libraries by path
  snprintf(path, sizeof path, "%s/kernels-%d-XXXXXX", folder && *folder ? folder : "/tmp", count++);
  int file = mkstemp(path);
  bool ok = file >= 0 && write(file, (const void*)image, n) == (ssize_t)n;
  if (file >= 0) close(file);
  void* library = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) snprintf(last_fault, sizeof last_fault, "%s", ok ? dlerror() : "cannot write the module to a temporary file");
  if (file >= 0) unlink(path);
  auto start = library ? (const EmuKernel* (*)(Emulator*, int*))dlsym(library, "mgx_emulate") : nullptr;
  if (!start) return NO_BINARY;
  int wave = 0;
  const EmuKernel* kernels = start(device::table(), &wave);
  if (!wave) wave = WAVES[current_device];  // the kernels do not depend on it
  if (wave != WAVES[current_device]) {
    snprintf(last_fault, sizeof last_fault, "module for wave %d, the device has %d", wave, WAVES[current_device]);
    return dlclose(library), NO_BINARY;
  }
  auto* out = new Module{{}, library, wave, {}};
  for (; kernels->name; ++kernels) out->functions.push_back({kernels, wave});
  *m = (Handle)out;
  return 0;
}
int API(ModuleUnload)(Handle m) {
  dlclose(((Module*)m)->library);
  return delete (Module*)m, 0;
}
int API(ModuleGetFunction)(Handle* f, Handle m, const char* name) {
  for (auto& function : ((Module*)m)->functions)
    if (!strcmp(function.kernel->name, name)) return *f = (Handle)&function, 0;
  std::string names;
  for (auto& function : ((Module*)m)->functions) names += std::string(" ") + function.kernel->name;
  snprintf(last_fault, sizeof last_fault, "no kernel %s in a module of%s", name, names.c_str());
  return NOT_FOUND;
}
int API(ModuleLaunchKernel)(Handle f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, Handle s, Handle params, Handle) {
  auto* fn = (Function*)f;
  std::vector<std::vector<char>> values;  // copies of the arguments
  for (int i = 0; fn->kernel->sizes[i]; ++i) {
    const char* at = ((const char**)params)[i];
    values.emplace_back(at, at + fn->kernel->sizes[i]);
  }
  return submit(s, fn->kernel->name, [=] {
    std::vector<void*> at;
    for (auto& v : values) at.push_back((void*)v.data());
    int e = device::launch(*fn->kernel, fn->wave, {gx, gy, gz}, {bx, by, bz}, shared, at.data(), order_of_threads);
    if (e) snprintf(last_fault, sizeof last_fault, "%s", device::fault());
    return e;
  });
}
int API(FuncGetAttribute)(int* v, int, Handle) { return *v = 0, 0; }
int API(FuncSetAttribute)(Handle, int, int) { return 0; }
int API(ModuleOccupancyMaxActiveBlocksPerMultiprocessor)(int* n, Handle, int block, size_t) { return *n = 2048 / block, 0; }

int API(StreamBeginCapture)(Handle s, int) {
  if (!s || stream_of(s)->capture) return 1;
  stream_of(s)->capture = new Graph;
  ++captures;
  return 0;
}
int API(ThreadExchangeStreamCaptureMode)(int* mode) { return std::swap(*mode, capture_mode), 0; }
int API(StreamEndCapture)(Handle s, Handle* g) {
  *g = (Handle)stream_of(s)->capture;
  captures -= *g != 0;
  stream_of(s)->capture = nullptr;
  return *g ? 0 : 1;
}
int API(GraphGetNodes)(Handle g, Handle nodes, size_t* n) {
  if (!nodes) *n = ((Graph*)g)->operations.size();
  return 0;
}
int API(GraphInstantiateWithFlags)(Handle* x, Handle g, unsigned long long) { return *x = (Handle) new Graph(*(Graph*)g), 0; }
int API(GraphExecUpdate)(Handle x, Handle g, Handle* node, int* result) {
  auto &old = ((Graph*)x)->operations, &now = ((Graph*)g)->operations;
  bool same = old.size() == now.size();
  for (size_t i = 0; same && i < old.size(); ++i) same = !strcmp(old[i].kind, now[i].kind);
  *node = 0, *result = same ? 0 : 1;
  if (!same) return UPDATE_FAILED;
  old = now;
  return 0;
}
int API(GraphLaunch)(Handle x, Handle s) {
  if (stream_of(s)->capture) return IN_CAPTURE; // as CUDA does
  auto* g = (Graph*)x;
  return submit(s, "graph", [=] {
    for (auto& c : g->conditions) *c = 0;
    return run_all(*g);
  });
}
int API(GraphCreate)(Handle* g, u32) { return *g = (Handle) new Graph, 0; }
int API(GraphAddChildGraphNode)(Handle* node, Handle g, Handle*, size_t, Handle child) {
  Graph part = *(Graph*)child;
  ((Graph*)g)->operations.push_back({"graph", [=] { return run_all(part); }});
  return *node = 0, 0;
}
int API(GraphConditionalHandleCreate)(Handle* condition, Handle g, Handle, u32, u32) {
  auto& all = ((Graph*)g)->conditions;
  all.push_back(std::make_shared<u32>(0));
  return *condition = (Handle)all.back().get(), 0;
}
// A conditional node (type if), with CUDA's parameters; other types are rejected.
int API(GraphAddNode)(Handle* node, Handle g, Handle*, size_t, char* given) {
  struct Parameters {
    int type, reserved[3];
    const u32* condition;
    int kind;
    u32 branches;
    Handle* graphs;
  };
  struct Branch {
    Graph graph;
    Handle handle;
  };
  auto* p = (Parameters*)given;
  if (p->type != 13 || p->kind || p->branches != 1) return 1;
  auto branch = std::make_shared<Branch>();
  branch->handle = (Handle)&branch->graph;
  p->graphs = &branch->handle;
  const u32* condition = p->condition;
  ((Graph*)g)->operations.push_back({"choice", [=] { return *condition ? run_all(branch->graph) : 0; }});
  return *node = 0, 0;
}
int API(GraphExecDestroy)(Handle x) { return delete (Graph*)x, 0; }
int API(GraphDestroy)(Handle g) { return delete (Graph*)g, 0; }
}
