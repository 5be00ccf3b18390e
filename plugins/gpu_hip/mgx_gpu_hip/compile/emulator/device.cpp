// Scheduler of the emulated device.  Threads run until they wait for their wave or their block.  Faults that a real device hides are
// made visible: shared memory is initialized to NaN and ends at a guard page, asynchronous copies complete as late as allowed,
// a barrier that some threads never reach is an error, and the order of threads (in reverse order: of blocks, too) is configurable.
#include "device.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace device {
void (*describe)(const void*, char*, size_t) = nullptr;
namespace {
const int MOST_THREADS = 1024, MOST_CLUSTER = 16;
const size_t STACK = 128 << 10, PAGE = 4096;
enum State : unsigned char { READY, AT_BARRIER, AT_WAVE, AT_CLUSTER, PAUSED, DONE };

struct Fiber {
#if defined(__x86_64__)
  void* sp;
#else
  ucontext_t context;
#endif
  char* stack;
};
struct Copy {
  void* to;
  int size;
  char bytes[16];
};
struct Copies {
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};
struct Stored {  // in the memory of a block of a cluster, before its wait number `wait`
  unsigned block, wait, bytes;
  void* to;
  char value[16];
};
struct Region {
  const void* key;
  size_t bytes, mapped;
  char *base, *at;
  unsigned long block;
};

Emulator emu;
struct Block {
  Fiber* of[MOST_THREADS];           // the fiber on which a thread is suspended
  State state[MOST_THREADS];
  unsigned exchanges[MOST_THREADS];  // shuffles made by a thread
  unsigned stamp[2][MOST_THREADS];   // index of the shuffle that owns a slot
  Copies copies[MOST_THREADS];
  unsigned waits[MOST_THREADS];      // of a thread for its cluster
  unsigned waited;                   // of the block
  unsigned long number;
  size_t shared_used, declared;      // declared: static shared memory, a part of shared_used
  bool any_copies;
  int left;                          // threads that have not ended
};
struct Parked {  // a block of a cluster while others run
  Block block;
  std::vector<std::vector<char>> memory;  // of each region
};

Fiber fibers[MOST_THREADS * MOST_CLUSTER];
int made;  // fibers with a stack
std::vector<Fiber*> idle;
alignas(64) char given[2][MOST_THREADS][64];
std::vector<Region> regions;
Block now;
int current, threads, wave_width;
unsigned long blocks_begun;
size_t dynamic_bytes;
bool progressed;
std::vector<Stored> stored;  // of a cluster
std::vector<Parked> parked;
const EmuKernel* kernel;
void** arguments;
char message[1024];
sigjmp_buf escape;
volatile sig_atomic_t inside;
pthread_t owner;

#if defined(__x86_64__)
extern "C" void mgx_emu_switch(void** save, void* to);
asm(".text\n.hidden mgx_emu_switch\n.globl mgx_emu_switch\n.type mgx_emu_switch,@function\nmgx_emu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\nmovq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size mgx_emu_switch,.-mgx_emu_switch\n");
void* main_sp;
void leave() { mgx_emu_switch(&now.of[current]->sp, main_sp); }
void enter(Fiber* f) { mgx_emu_switch(&main_sp, f->sp); }
#else
ucontext_t main_context;
void leave() { swapcontext(&now.of[current]->context, &main_context); }
void enter(Fiber* f) { swapcontext(&main_context, &f->context); }
#endif
void body() {
  for (;;) {
    kernel->call(arguments);
    now.state[current] = DONE;
    leave();
  }
}
void arm(Fiber* f) {
  if (!f->stack) {
    f->stack = (char*)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(f->stack, PAGE, PROT_NONE);  // guard page below the stack: catches overflow by large local arrays
    f->stack += PAGE;
  }
#if defined(__x86_64__)
  void** s = (void**)(f->stack + STACK);
  *--s = nullptr;
  *--s = (void*)body;
  s -= 6;
  memset(s, 0, 48);
  f->sp = s;
#else
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = nullptr;
  makecontext(&f->context, body, 0);
#endif
}
void place() {
  emu.thread.x = current % emu.block_dim.x;
  emu.thread.y = current / emu.block_dim.x % emu.block_dim.y;
  emu.thread.z = current / emu.block_dim.x / emu.block_dim.y;
}
[[noreturn]] void stop(int status) { siglongjmp(escape, status); }
int where(char* text, size_t size) {
  return snprintf(text, size, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel->name, emu.block.x, emu.block.y,
                  emu.block.z, emu.thread.x, emu.thread.y, emu.thread.z);
}
void wait(State why) {
  now.state[current] = why;
  leave();
}
void resume(int t) {
  if (!now.of[t]) {
    if (idle.empty()) {
      Fiber* f = &fibers[made++];
      arm(f);
      idle.push_back(f);
    }
    now.of[t] = idle.back();
    idle.pop_back();
  }
  current = t;
  place();
  now.state[t] = READY;
  enter(now.of[t]);
  if (now.state[t] == DONE) {
    idle.push_back(now.of[t]);
    now.of[t] = nullptr;
  }
}

// the table of functions
void barrier() { wait(AT_BARRIER); }
void wave_sync() { wait(AT_WAVE); }
void pause() { wait(PAUSED); }
void progress() { progressed = true; }
const char* gather(const void* value, unsigned bytes) {
  int t = current, p = ++now.exchanges[t] & 1;
  if (bytes > 64) {
    snprintf(message, sizeof message, "%u bytes a lane exchanged, at most 64", bytes);
    stop(FAILED);
  }
  memcpy(given[p][t], value, bytes);
  now.stamp[p][t] = now.exchanges[t];
  wait(AT_WAVE);
  return given[p][t / wave_width * wave_width];
}
bool took_part(int t) { return now.stamp[now.exchanges[current] & 1][t] == now.exchanges[current]; }
void exchange(const void* value, unsigned bytes, unsigned lane, void* out) {
  const char* all = gather(value, bytes);
  int t = current / wave_width * wave_width + (int)lane;
  if (lane >= (unsigned)wave_width || t >= threads || !took_part(t)) {
    int n = where(message, sizeof message);
    snprintf(message + n, sizeof message - n, ": shuffle from lane %u, which takes no part", lane);
    stop(FAILED);
  }
  memcpy(out, all + 64 * lane, bytes);
}
unsigned long long ballot(bool value) {
  int base = current / wave_width * wave_width;
  const char* all = gather(&value, sizeof value);
  unsigned long long out = 0;
  for (int i = 0; i < wave_width && base + i < threads; ++i)
    if (took_part(base + i) && all[64 * i]) out |= 1ull << i;
  return out;
}
void* shared(const void* key, unsigned long bytes) {
  if (!key) bytes = dynamic_bytes;
  Region* r = nullptr;
  for (Region& one : regions)
    if (one.key == key && one.bytes == bytes) r = &one;
  if (!r) {
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    char* base = (char*)mmap(nullptr, mapped + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(base + PAGE, mapped, PROT_READ | PROT_WRITE);
    regions.push_back({key, bytes, mapped, base, base + PAGE + (mapped - bytes) / 16 * 16, 0});
    r = &regions.back();
  }
  if (r->block != now.number) {
    r->block = now.number;
    now.shared_used += bytes;
    if (key) now.declared += bytes;
    if (now.declared > declared_limit(wave_width)) {
      snprintf(message, sizeof message, "kernel %s declares %zu bytes of shared memory, at most %zu are allowed; a launch may ask for more",
               kernel->name, now.declared, declared_limit(wave_width));
      stop(INVALID);
    }
    if (now.shared_used > shared_limit(wave_width)) {
      snprintf(message, sizeof message, "kernel %s: %zu bytes of shared memory, the device has %zu", kernel->name, now.shared_used,
               shared_limit(wave_width));
      stop(INVALID);
    }
    memset(r->base + PAGE, 0xff, r->mapped);
  }
  return r->at;
}
void async_copy(void* to, const void* from, int bytes) {
  Copy c = {to, bytes, {}};
  if (from) memcpy(c.bytes, from, bytes);
  now.any_copies = true;
  now.copies[current].open.push_back(c);
}
void async_commit() {
  now.copies[current].groups.emplace_back();
  now.copies[current].groups.back().swap(now.copies[current].open);
}
void async_wait(int left) {
  auto& groups = now.copies[current].groups;
  int done = (int)groups.size() - left;
  for (int i = 0; i < done; ++i)
    for (Copy& c : groups[i]) memcpy(c.to, c.bytes, c.size);
  if (done > 0) groups.erase(groups.begin(), groups.begin() + done);
}
void cluster_wait() {
  wait(AT_CLUSTER);
  const unsigned n = ++now.waits[current];
  if (n == now.waited) return;  // another thread was first
  now.waited = n;
  for (const Stored& s : stored)
    if (s.block == emu.block.x && s.wait == n) memcpy(s.to, s.value, s.bytes);
}
void cluster_store(void* to, unsigned rank, const void* value, unsigned bytes) {
  const unsigned own = emu.block.x % kernel->cluster;
  const bool outside = rank >= kernel->cluster, ended = !outside && rank != own && !parked[rank].block.left;
  if (outside || ended || !now.waits[current]) {
    int n = where(message, sizeof message);
    if (outside) snprintf(message + n, sizeof message - n, ": store in block %u of a cluster of %u", rank, kernel->cluster);
    else if (now.waits[current]) snprintf(message + n, sizeof message - n, ": store in block %u of a cluster, which has ended", rank);
    else snprintf(message + n, sizeof message - n, ": store in a cluster whose blocks may not have started");
    stop(FAILED);
  }
  Stored s = {emu.block.x - own + rank, now.waits[current] + 1, bytes, to, {}};
  memcpy(s.value, value, bytes);
  stored.push_back(s);
}
void misaligned(const void* address, int bytes) {
  int n = where(message, sizeof message);
  snprintf(message + n, sizeof message - n, ": access of %d bytes at %p is not aligned", bytes, address);
  stop(MISALIGNED);
}

struct Order {
  std::vector<int> waves, lanes;
};
void shuffle(std::vector<int>& v, uint64_t seed) {
  for (size_t i = v.size(); i > 1; --i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(v[i - 1], v[(seed >> 33) % i]);
  }
}
Order order_of(int how) {
  Order o;
  int waves = (threads + wave_width - 1) / wave_width;
  for (int i = 0; i < waves; ++i) o.waves.push_back(how == 1 ? waves - 1 - i : i);
  for (int i = 0; i < wave_width; ++i) o.lanes.push_back(how == 1 ? wave_width - 1 - i : i);
  if (how > 1) shuffle(o.waves, how), shuffle(o.lanes, how + 1);
  return o;
}
void begin_block() {
  now.number = ++blocks_begun;
  now.shared_used = now.declared = 0;
  memset(now.state, READY, threads);
  memset(now.exchanges, 0, sizeof now.exchanges);
  memset(now.stamp, 0, sizeof now.stamp);
  memset(now.waits, 0, sizeof now.waits);
  now.waited = 0;
  now.left = threads;
}
void run_block(const Order& order) {  // until all of its threads have ended or wait for its cluster
  for (int t = 0; t < threads; ++t)
    if (now.state[t] == AT_CLUSTER) now.state[t] = READY;
  while (now.left) {
    bool moved = false, paused = false;
    for (int t = 0; t < threads; ++t)
      if (now.state[t] == PAUSED) now.state[t] = READY, paused = true;
    progressed = false;
    for (int w : order.waves) {
      int first = w * wave_width, last = std::min(first + wave_width, threads);
      for (;;) {  // until the whole wave waits for the block or is done
        bool ran = false;
        for (int l : order.lanes) {
          int t = first + l;
          if (t >= last || now.state[t] != READY) continue;
          resume(t);
          ran = moved = true;
          now.left -= now.state[t] == DONE;
        }
        int waiting = 0, alive = 0;
        for (int t = first; t < last; ++t) waiting += now.state[t] == AT_WAVE, alive += now.state[t] != DONE;
        if (waiting && waiting == alive) {
          for (int t = first; t < last; ++t)
            if (now.state[t] == AT_WAVE) now.state[t] = READY;
          continue;
        }
        if (!ran || waiting != alive) break;
      }
    }
    int at_barrier = 0, at_wave = 0, at_cluster = 0, pausing = 0;
    for (int t = 0; t < threads; ++t)
      at_barrier += now.state[t] == AT_BARRIER, at_wave += now.state[t] == AT_WAVE, at_cluster += now.state[t] == AT_CLUSTER,
          pausing += now.state[t] == PAUSED;
    if (pausing) {
      if (progressed || !paused) continue;
      snprintf(message, sizeof message, "kernel %s, block (%u, %u, %u): %d threads wait for others, which make no progress", kernel->name,
               emu.block.x, emu.block.y, emu.block.z, pausing);
      stop(FAILED);
    }
    if (at_cluster == threads) return;
    if (at_barrier && at_barrier == now.left && now.left == threads) {
      for (int t = 0; t < threads; ++t) now.state[t] = READY;
    } else if (now.left && !at_wave) {
      snprintf(message, sizeof message, "kernel %s, block (%u, %u, %u): divergent barrier, %d of %d threads wait, %d are done",
               kernel->name, emu.block.x, emu.block.y, emu.block.z, at_barrier + at_cluster, threads, threads - now.left);
      stop(FAILED);
    } else if (now.left && !moved) {
      snprintf(message, sizeof message,
               "kernel %s, block (%u, %u, %u): divergent wave, %d threads wait for their wave and %d for the block",
               kernel->name, emu.block.x, emu.block.y, emu.block.z, at_wave, at_barrier);
      stop(FAILED);
    }
  }
  if (now.any_copies) {
    for (int t = 0; t < threads; ++t) now.copies[t].open.clear(), now.copies[t].groups.clear();
    now.any_copies = false;
  }
}

// Runs a parked block of a cluster until it has ended or waits for the cluster.
void run_parked(Parked& one, const Order& order) {
  std::swap(now, one.block);
  for (size_t i = 0; i < one.memory.size(); ++i)
    if (!one.memory[i].empty()) memcpy(regions[i].base + PAGE, one.memory[i].data(), one.memory[i].size()), regions[i].block = now.number;
  run_block(order);
  one.memory.assign(regions.size(), {});
  for (size_t i = 0; i < regions.size() && now.left; ++i)
    if (regions[i].block == now.number) one.memory[i].assign(regions[i].base + PAGE, regions[i].base + PAGE + regions[i].mapped);
  std::swap(now, one.block);
}

struct sigaction old_actions[64];
const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};
void on_signal(int number, siginfo_t* info, void* context) {
  if (!inside || !pthread_equal(owner, pthread_self())) {  // a fault of another thread
    struct sigaction& old = old_actions[number];
    if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(number, info, context);
    sigaction(number, &old, nullptr);
    return;
  }
  int n = where(message, sizeof message);
  if (number == SIGFPE) {
    snprintf(message + n, sizeof message - n, ": integer division by zero");
    stop(FAILED);
  }
  const char* a = (const char*)info->si_addr;
  char more[256] = "";
  for (Region& r : regions)
    if (a >= r.base && a < r.base + r.mapped + 2 * PAGE)
      snprintf(more, sizeof more, ", %td bytes from the start of a shared array of %zu bytes", a - r.at, r.bytes);
  for (int i = 0; i < made; ++i)
    if (a >= fibers[i].stack - PAGE && a < fibers[i].stack) snprintf(more, sizeof more, ", past the end of the thread's stack");
  if (!*more && describe) describe(a, more, sizeof more);
  snprintf(message + n, sizeof message - n, ": access out of bounds at %p%s", (const void*)a, more);
  stop(ILLEGAL_ADDRESS);
}
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
}  // namespace

const char* fault() { return message; }
Emulator* table() {
  emu.barrier = barrier;
  emu.wave_sync = wave_sync;
  emu.exchange = exchange;
  emu.gather = gather;
  emu.ballot = ballot;
  emu.shared = shared;
  emu.async_copy = async_copy;
  emu.async_commit = async_commit;
  emu.async_wait = async_wait;
  emu.pause = pause;
  emu.progress = progress;
  emu.misaligned = misaligned;
  emu.cluster_wait = cluster_wait;
  emu.cluster_store = cluster_store;
  return &emu;
}
size_t shared_limit(int wave) { return wave == 64 ? 65536 : 232448; }
size_t declared_limit(int wave) { return wave == 64 ? 65536 : 49152; }

int launch(const EmuKernel& k, int wave, EmuDim grid, EmuDim block, size_t shared_bytes, void** args, int how) {
  unsigned long n = (unsigned long)block.x * block.y * block.z;
  pthread_mutex_lock(&lock);
  *message = 0;
  int status = OK;
  if (!n || n > MOST_THREADS || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || grid.x % k.cluster ||
      shared_bytes > shared_limit(wave)) {
    int at = snprintf(message, sizeof message, "kernel %s: grid (%u, %u, %u) of blocks (%u, %u, %u) with %zu bytes of shared memory",
                      k.name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    if (k.cluster > 1) snprintf(message + at, sizeof message - at, ", in clusters of %u blocks", k.cluster);
    pthread_mutex_unlock(&lock);
    return INVALID;
  }
  kernel = &k, arguments = args, wave_width = wave, threads = (int)n, dynamic_bytes = shared_bytes;
  emu.grid_dim = grid, emu.block_dim = block;
  static char spare[64 << 10];
  stack_t mine = {}, before;
  mine.ss_sp = spare, mine.ss_size = sizeof spare;
  sigaltstack(&mine, &before);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int s : SIGNALS) sigaction(s, &action, &old_actions[s]);
  owner = pthread_self();
  inside = 1;
  status = sigsetjmp(escape, 1);
  if (!status) {
    Order order = order_of(how);
    unsigned long blocks = (unsigned long)grid.x * grid.y * grid.z;
    auto place_block = [&](unsigned long at) {
      emu.block = {unsigned(at % grid.x), unsigned(at / grid.x % grid.y), unsigned(at / grid.x / grid.y)};
    };
    parked.resize(k.cluster);
    for (unsigned long i = 0; i < blocks; i += k.cluster) {
      stored.clear();
      if (k.cluster == 1) {
        place_block(how == 1 ? blocks - 1 - i : i);
        for (begin_block(); now.left;) run_block(order);
        continue;
      }
      for (Parked& one : parked) begin_block(), std::swap(now, one.block);
      for (bool running = true; running;) {  // the blocks of a cluster in reverse order in any case
        running = false;
        for (unsigned j = 0; j < k.cluster; ++j) {
          unsigned long at = how == 1 ? blocks - 1 - i - j : i + k.cluster - 1 - j;
          Parked& one = parked[at % k.cluster];
          if (!one.block.left) continue;
          place_block(at);
          run_parked(one, order);
          running |= one.block.left > 0;
        }
      }
    }
  } else {  // the fibers are suspended inside the failed kernel: recreate all of them
    idle.clear();
    for (int i = 0; i < made; ++i) arm(&fibers[i]), idle.push_back(&fibers[i]);
    now = {};
    parked.clear();
  }
  inside = 0;
  for (int s : SIGNALS) sigaction(s, &old_actions[s], nullptr);
  sigaltstack(&before, nullptr);
  pthread_mutex_unlock(&lock);
  return status;
}
}  // namespace device
