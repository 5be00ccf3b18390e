#include "team.h"

#include "workers.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <new>

#include <emmintrin.h>
#include <sched.h>

namespace mgx {

namespace {

constexpr int64_t gather_spin = 100 * microsecond;
constexpr int64_t yielding = 1000 * microsecond; // longer waits inside a Gathering sleep between looks
constexpr timespec nap {0, 50 * microsecond};
constexpr int64_t slice = 1000 * microsecond; // steps at least this long use the team even if threads may be late
constexpr unsigned flush = 0x8040; // FTZ and DAZ bits of MXCSR

thread_local bool alone = false;
thread_local bool in_step = false;

Workers &workers() {
    static auto *made = new Workers(); // never destroyed: its threads outlive static objects
    return *made;
}

// The threads of a Gathering and the region that they execute; thread n executes part n.
struct Assembly {
    std::atomic<uint32_t> generation {0};
    std::atomic<uint32_t> arrived {0};
    std::atomic<int> present {0};
    std::atomic<bool> over {false};
    std::atomic<uint32_t> at_barrier {0}, barriers {0};
    Region region {};

    void serve() {
        if (over.load(std::memory_order_acquire)) return;
        const Seat own = seat;
        present.fetch_add(1, std::memory_order_acq_rel);
        for (uint32_t seen = 0;;) {
            wait_until([&] { return generation.load(std::memory_order_acquire) != seen || over.load(std::memory_order_acquire); });
            if (generation.load(std::memory_order_acquire) == seen) return;
            ++seen;
            if (own.index < region.parts) {
                seat = {own.index, region.parts, true};
                if (_mm_getcsr() != region.mode) _mm_setcsr(region.mode);
                region.part(region.data);
                seat = own;
            }
            arrived.fetch_add(1, std::memory_order_acq_rel);
        }
    }

    // Sleeps if it takes long: oneDNN generates the kernels of its gemm on one thread, for 25 ms, while the others wait here.
    template <typename Done>
    static void wait_until(const Done &done) {
        const int64_t began = nanoseconds_now();
        while (!spin(wait_spin, done)) {
            if (nanoseconds_now() < began + yielding) {
                sched_yield();
                continue;
            }
            while (!done())
                nanosleep(&nap, nullptr);
            return;
        }
    }
};

thread_local Assembly *assembly = nullptr; // of the Gathering that the calling thread owns or takes part in

} // namespace

Seat &own_seat() { return seat; }

int64_t nanoseconds_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void open_region(Region &region) {
    region.outer = seat;
    region.mode = _mm_getcsr();
    region.began = nanoseconds_now();
    region.in_step = in_step;
    const bool divided = region.parts > 1 && !region.outer.inside;
    if (divided && assembly) {
        assembly->region = region;
        assembly->arrived.store(0, std::memory_order_relaxed);
        assembly->generation.fetch_add(1, std::memory_order_acq_rel);
    } else {
        region.shared = divided && !alone && workers().post(region);
    }
    seat = {0, region.parts, region.outer.inside || region.parts > 1};
}

void close_region(Region &region) {
    int next = 1; // first part that is left to the caller
    if (region.parts > 1 && !region.outer.inside && assembly) {
        const int others = assembly->present.load(std::memory_order_relaxed);
        Assembly::wait_until([&] { return assembly->arrived.load(std::memory_order_acquire) == static_cast<uint32_t>(others); });
        next += others;
    } else if (region.shared) {
        workers().finish(region);
        next = region.parts;
    }
    for (; next < region.parts; ++next) {
        seat.index = next;
        region.part(region.data);
    }
    seat = region.outer;
}

Stepping::Stepping(StepTimes &times, int threads, int64_t now) : times_(times), began_(now), outer_alone_(alone), outer_in_step_(in_step) {
    in_step = true;
    const int64_t least = times.together.load(std::memory_order_relaxed);
    alone = threads <= 1;
    if (alone || !least || least >= slice || !workers().lateness.recent(now)) return;
    alone = true;
    workers().lateness.count_alone();
}

Stepping::~Stepping() {
    alone = outer_alone_;
    in_step = outer_in_step_;
}

int64_t Stepping::finished() {
    const int64_t now = nanoseconds_now(), taken = std::max<int64_t>(now - began_, 1);
    if (alone) return now;
    const int64_t known = times_.together.load(std::memory_order_relaxed); // minimum with slow decay: ignores preempted steps
    times_.together.store(known ? std::min(taken, known + known / 64 + 1) : taken, std::memory_order_relaxed);
    return now;
}

Flushing::Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | flush); }

Flushing::~Flushing() { _mm_setcsr(before_); }

bool stepping_alone() { return alone; }

void wake_team(int threads, int64_t now) {
    if (threads > 1 && !workers().lateness.recent(now)) workers().awaken(threads - 1);
}

TeamCounts team_counts() { return workers().counts(); }

Gathering::Gathering(int threads)
    : held_ {[](void *data) {
                 assembly = static_cast<Assembly *>(data);
                 assembly->serve();
                 assembly = nullptr;
             },
              nullptr, threads} {
    if (alone || threads <= 1 || assembly || seat.inside) return;
    auto *made = new Assembly();
    held_.data = made;
    open_region(held_);
    seat = held_.outer;
    complete_ = held_.shared && spin(gather_spin, [&] { return made->present.load(std::memory_order_acquire) == threads - 1; });
    if (complete_) {
        assembly = made;
        return;
    }
    if (held_.shared) workers().record_absence(gather_spin);
    disband();
}

Gathering::~Gathering() {
    if (complete_) disband();
}

void Gathering::disband() {
    auto *made = static_cast<Assembly *>(held_.data);
    assembly = nullptr;
    made->over.store(true, std::memory_order_release);
    close_region(held_);
    delete made;
}

void team_barrier() {
    if (!assembly || seat.count <= 1) return;
    const auto count = static_cast<uint32_t>(seat.count);
    const uint32_t before = assembly->barriers.load(std::memory_order_acquire);
    if (assembly->at_barrier.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        assembly->at_barrier.store(0, std::memory_order_relaxed);
        assembly->barriers.fetch_add(1, std::memory_order_release);
    } else {
        Assembly::wait_until([&] { return assembly->barriers.load(std::memory_order_acquire) != before; });
    }
}

void reset_team() { new (&workers()) Workers(); }

} // namespace mgx
