#include "team.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <exception>
#include <new>
#include <thread>

#include <emmintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mgx {

namespace {

constexpr int64_t microsecond = 1000;
constexpr int64_t idle_spin = 1000 * microsecond; // covers the gaps between steps, and between runs that follow each other
constexpr int64_t late = 200 * microsecond; // later than any processor that is there
constexpr int64_t wait_spin = late;
constexpr int64_t gather_spin = 100 * microsecond;
constexpr int64_t slice = 1000 * microsecond; // a share of this length is worth the risk of waiting
constexpr int64_t caution = 2; // times what was lost by waiting: how long short steps stay alone at first
constexpr int64_t memory = 20; // times what was lost: for how long a second loss counts as the same trouble
constexpr unsigned flush = 0x8040; // of the mode: results below the normal range are 0, and so are such operands
constexpr int64_t most_caution = 1000 * 1000 * microsecond;

thread_local Seat seat;
thread_local bool alone = false;

void futex_wait(std::atomic<uint32_t> &word, uint32_t seen) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> &word, int count) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Spins until `done` or for so long; true if done.
template <typename Done>
bool spin(int64_t nanoseconds, const Done &done) {
    int64_t end = 0;
    for (int n = 1;; ++n) {
        if (done()) return true;
        _mm_pause();
        if (n % 32) continue;
        const int64_t now = nanoseconds_now();
        if (!end) end = now + nanoseconds;
        if (now >= end) return false;
    }
}

// How late the team was of late.  After a thread did not run when it was waited for, short steps stay alone for a while: not long
// the first time, since every processor is away now and then, and twice as long whenever the next try fails soon again.
class Lateness {
public:
    bool recent(int64_t now) const { return now < until_.load(std::memory_order_relaxed); }

    void add(int64_t waited, int64_t now) {
        const int64_t last = span_.load(std::memory_order_relaxed);
        const bool again = now < until_.load(std::memory_order_relaxed) + std::max(last, memory * waited);
        const int64_t span = std::min(most_caution, std::max(caution * waited, again ? 2 * last : 0));
        span_.store(span, std::memory_order_relaxed);
        until_.store(now + span, std::memory_order_relaxed);
    }

private:
    std::atomic<int64_t> until_ {0}, span_ {0};
};

class Workers {
public:
    Workers() { pinned_ = sched_getaffinity(0, sizeof cpus_, &cpus_) == 0; }

    // False if others use them, or there are none.
    bool post(const Region &region) {
        if (busy_.exchange(true, std::memory_order_acquire)) return false;
        grow(region.parts - 1);
        part_ = region.part;
        data_ = region.data;
        mode_ = region.mode;
        done_.store(0, std::memory_order_relaxed);
        const uint64_t generation = (state_.load(std::memory_order_relaxed) >> 32) + 1;
        state_.store(generation << 32 | static_cast<uint64_t>(region.parts) << 16 | 1, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst) > 0) wake(region.parts - 1);
        return true;
    }

    // Does the next part; false if all have been taken.
    bool take() {
        uint64_t seen = state_.load(std::memory_order_acquire);
        for (;;) {
            const int next = static_cast<int>(seen & 0xffff), parts = static_cast<int>(seen >> 16 & 0xffff);
            if (next >= parts) return false;
            if (!state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            const Seat before = seat;
            seat = {next, parts, true};
            if (_mm_getcsr() != mode_) _mm_setcsr(mode_);
            part_(data_);
            seat = before;
            done_.fetch_add(1, std::memory_order_seq_cst);
            if (waiting_.load(std::memory_order_seq_cst)) futex_wake(done_, 1);
            return true;
        }
    }

    // Until the other parts of a posted region are done.
    void finish(const Region &region) {
        const auto others = static_cast<uint32_t>(region.parts - 1);
        while (take()) {
        }
        auto done = [&] { return done_.load(std::memory_order_acquire) == others; };
        if (!done()) {
            const int64_t from = nanoseconds_now();
            if (!spin(wait_spin, done)) sleep_until(others);
            const int64_t now = nanoseconds_now(), waited = now - from;
            if (waited > late && waited > 2 * (from - region.began)) lateness.add(waited, now);
        }
        busy_.store(false, std::memory_order_release);
    }

    void wake(int count) {
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        futex_wake(epoch_, count);
    }

    void awaken(int count) {
        if (sleeping_.load(std::memory_order_relaxed) > 0) wake(count);
    }

    Lateness lateness;

private:
    void sleep_until(uint32_t others) {
        waiting_.store(true, std::memory_order_seq_cst);
        for (uint32_t seen; (seen = done_.load(std::memory_order_seq_cst)) != others;)
            futex_wait(done_, seen);
        waiting_.store(false, std::memory_order_relaxed);
    }

    void grow(int wanted) { // busy
        if (made_ >= wanted) return;
        sigset_t all, before; // signals are for the caller's threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (; made_ < wanted; ++made_)
                std::thread([this] { serve(); }).detach(); // for as long as the process lasts
        } catch (const std::exception &) { // those that are there do it
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    bool offered() const {
        const uint64_t seen = state_.load(std::memory_order_seq_cst);
        return (seen & 0xffff) < (seen >> 16 & 0xffff);
    }

    void serve() {
        if (pinned_) sched_setaffinity(0, sizeof cpus_, &cpus_); // not that of the thread that was first
        for (;;) {
            while (take()) {
            }
            const bool soon = lateness.recent(nanoseconds_now());
            if (spin(soon ? 0 : idle_spin, [this] { return offered(); })) continue;
            const uint32_t seen = epoch_.load(std::memory_order_seq_cst);
            sleeping_.fetch_add(1, std::memory_order_seq_cst);
            if (!offered()) futex_wait(epoch_, seen);
            sleeping_.fetch_sub(1, std::memory_order_relaxed);
        }
    }

    alignas(64) std::atomic<uint64_t> state_ {0}; // generation, parts, the next part
    void (*part_)(void *) = nullptr;
    void *data_ = nullptr;
    unsigned mode_ = 0;
    alignas(64) std::atomic<uint32_t> done_ {0};
    std::atomic<bool> waiting_ {false};
    alignas(64) std::atomic<uint32_t> epoch_ {0};
    std::atomic<int> sleeping_ {0};
    alignas(64) std::atomic<bool> busy_ {false};
    int made_ = 0;
    cpu_set_t cpus_; // of the thread that loaded this
    bool pinned_;
};

Workers &workers() {
    static auto *made = new Workers(); // never destroyed: its threads outlive statics
    return *made;
}

// Threads that were gathered, and the region that they do together, each the part of its number.
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
            patiently([&] { return generation.load(std::memory_order_acquire) != seen || over.load(std::memory_order_acquire); });
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

    template <typename Done>
    static void patiently(const Done &done) {
        while (!spin(wait_spin, done))
            sched_yield();
    }
};

thread_local Assembly *assembly = nullptr; // the one that the calling thread has gathered, or is in

} // namespace

Seat &own_seat() { return seat; }

int64_t nanoseconds_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void open_region(Region &region) {
    region.outer = seat;
    region.mode = _mm_getcsr();
    region.began = nanoseconds_now();
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
    int next = 1; // of those that are left to the caller
    if (region.parts > 1 && !region.outer.inside && assembly) {
        const int others = assembly->present.load(std::memory_order_relaxed);
        Assembly::patiently([&] { return assembly->arrived.load(std::memory_order_acquire) == static_cast<uint32_t>(others); });
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

Stepping::Stepping(StepTimes &times, int threads, int64_t now) : times_(times), began_(now), outer_alone_(alone) {
    const int64_t least = times.together.load(std::memory_order_relaxed);
    alone = threads <= 1 || (least && least < slice && workers().lateness.recent(now));
}

Stepping::~Stepping() { alone = outer_alone_; }

int64_t Stepping::finished() {
    const int64_t now = nanoseconds_now(), taken = std::max<int64_t>(now - began_, 1);
    if (alone) return now;
    const int64_t known = times_.together.load(std::memory_order_relaxed); // a processor that is away says nothing about the step
    times_.together.store(known ? std::min(taken, known + known / 64 + 1) : taken, std::memory_order_relaxed);
    return now;
}

Flushing::Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | flush); }

Flushing::~Flushing() { _mm_setcsr(before_); }

bool stepping_alone() { return alone; }

void awaken_team(int threads, int64_t now) {
    if (threads > 1 && !workers().lateness.recent(now)) workers().awaken(threads - 1);
}

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
    if (held_.shared) workers().lateness.add(gather_spin, nanoseconds_now());
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

void wait_for_others() {
    if (!assembly || seat.count <= 1) return;
    const auto count = static_cast<uint32_t>(seat.count);
    const uint32_t before = assembly->barriers.load(std::memory_order_acquire);
    if (assembly->at_barrier.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        assembly->at_barrier.store(0, std::memory_order_relaxed);
        assembly->barriers.fetch_add(1, std::memory_order_release);
    } else {
        Assembly::patiently([&] { return assembly->barriers.load(std::memory_order_acquire) != before; });
    }
}

void forget_team() { new (&workers()) Workers(); }

} // namespace mgx
