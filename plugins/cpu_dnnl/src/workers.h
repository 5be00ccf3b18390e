// Worker threads of the team, and the caller's wait for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include <emmintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lateness.h"
#include "team.h"

namespace mgx {

constexpr int64_t late = 200 * microsecond; // longer waits mean that a thread is descheduled
constexpr int64_t wait_spin = late;
constexpr int64_t move_interval = 1000 * microsecond;

inline thread_local Seat seat;

inline void futex_wait(std::atomic<uint32_t> &word, uint32_t seen) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t> &word, int count) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Spins until `done` or a timeout; true if done.
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

// Returns for how long the calling thread has not run (asleep or preempted), relative to an arbitrary origin.
inline int64_t descheduled_time() {
    timespec run {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
    return nanoseconds_now() - (static_cast<int64_t>(run.tv_sec) * 1000 * 1000 * microsecond + run.tv_nsec);
}

// Pool of threads that execute the parts of one region at a time.
class Workers {
public:
    Workers() { pinned_ = sched_getaffinity(0, sizeof cpus_, &cpus_) == 0; }

    // Publishes a region to the workers.  False if another region is in progress.
    bool post(const Region &region) {
        if (busy_.exchange(true, std::memory_order_acquire)) return false;
        grow(region.parts - 1);
        part_ = region.part;
        data_ = region.data;
        mode_ = region.mode;
        in_step_.store(region.in_step, std::memory_order_relaxed);
        processor_.store(sched_getcpu(), std::memory_order_relaxed);
        longest_away_.store(0, std::memory_order_relaxed);
        done_.store(0, std::memory_order_relaxed);
        const uint64_t generation = (state_.load(std::memory_order_relaxed) >> 32) + 1;
        state_.store(generation << 32 | static_cast<uint64_t>(region.parts) << 16 | 1, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst) > 0) wake(region.parts - 1);
        return true;
    }

    // Executes the next part; false if all parts are claimed.
    bool take() {
        uint64_t seen = state_.load(std::memory_order_acquire);
        for (;;) {
            const int next = static_cast<int>(seen & 0xffff), parts = static_cast<int>(seen >> 16 & 0xffff);
            if (next >= parts) return false;
            if (is_worker && sched_getcpu() == processor_.load(std::memory_order_relaxed) && leave_callers_processor()) {
                seen = state_.load(std::memory_order_acquire);
                continue;
            }
            if (!state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            const Seat before = seat;
            seat = {next, parts, true};
            if (_mm_getcsr() != mode_) _mm_setcsr(mode_);
            const int64_t from = is_worker ? nanoseconds_now() : 0;
            part_(data_);
            seat = before;
            if (is_worker) report(from);
            done_.fetch_add(1, std::memory_order_seq_cst);
            if (waiting_.load(std::memory_order_seq_cst)) futex_wake(done_, 1);
            return true;
        }
    }

    // Returns when all parts of a posted region are done; executes those that no worker has claimed.
    void finish(const Region &region) {
        const auto others = static_cast<uint32_t>(region.parts - 1);
        while (take()) {
        }
        auto done = [&] { return done_.load(std::memory_order_acquire) == others; };
        if (!done()) {
            const int64_t from = nanoseconds_now();
            if (!spin(wait_spin, done)) sleep_until(others);
            const int64_t lost = std::min(nanoseconds_now() - from, longest_away_.load(std::memory_order_relaxed));
            if (lost > late) record_absence(lost);
        }
        busy_.store(false, std::memory_order_release);
    }

    void wake(int count) {
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        futex_wake(epoch_, count);
    }

    // Wakes sleeping threads at the start of a run; they spin for its regions.
    void awaken(int count) {
        in_step_.store(true, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_relaxed) > 0) wake(count);
    }

    void record_absence(int64_t lost) { lateness.add(lost, worked_.load(std::memory_order_relaxed), nanoseconds_now()); }

    TeamCounts counts() const { return {lateness.absences(), lateness.alone(), watches_.load(std::memory_order_relaxed)}; }

    Lateness lateness;

private:
    // Migrates this worker off the caller's processor, on which the caller cannot run meanwhile.  The system may leave both there
    // for long if every other processor is busy, even with spinning threads.  False if it is impossible or was tried recently.
    bool leave_callers_processor() {
        static thread_local int64_t last = 0;
        const int64_t now = nanoseconds_now();
        cpu_set_t all, others;
        if (now - last < move_interval || sched_getaffinity(0, sizeof all, &all) != 0) return false;
        last = now;
        others = all;
        CPU_CLR(processor_.load(std::memory_order_relaxed), &others);
        if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
        sched_setaffinity(0, sizeof all, &all);
        return true;
    }

    // Called after a part: records its running time, and for how long this thread was descheduled.
    void report(int64_t from) {
        const int64_t taken = nanoseconds_now() - from, before = descheduled_before;
        int64_t away = 0;
        if (taken > late) {
            descheduled_before = descheduled_time();
            away = std::clamp(descheduled_before - before, int64_t {0}, taken);
        }
        worked_.fetch_add(taken - away, std::memory_order_relaxed);
        int64_t most = longest_away_.load(std::memory_order_relaxed);
        while (away > most && !longest_away_.compare_exchange_weak(most, away, std::memory_order_relaxed)) {
        }
    }

    void sleep_until(uint32_t others) {
        waiting_.store(true, std::memory_order_seq_cst);
        for (uint32_t seen; (seen = done_.load(std::memory_order_seq_cst)) != others;)
            futex_wait(done_, seen);
        waiting_.store(false, std::memory_order_relaxed);
    }

    void grow(int wanted) { // requires busy_
        if (made_ >= wanted) return;
        sigset_t all, before; // workers block all signals: they are for the application's threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (; made_ < wanted; ++made_)
                std::thread([this] { serve(); }).detach(); // until the process exits
        } catch (const std::exception &) { // proceed with the threads there are; the caller executes unclaimed parts
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    bool offered() const {
        const uint64_t seen = state_.load(std::memory_order_seq_cst);
        return (seen & 0xffff) < (seen >> 16 & 0xffff);
    }

    void serve() {
        if (pinned_) sched_setaffinity(0, sizeof cpus_, &cpus_); // the creating thread may be pinned
        is_worker = true;
        descheduled_before = descheduled_time();
        for (;;) {
            while (take()) {
            }
            // after a part of a run, the next region follows soon; after other work, Python code, during which spinning would only
            // take processor time
            if (in_step_.load(std::memory_order_relaxed) && !lateness.recent(nanoseconds_now())) {
                watches_.fetch_add(1, std::memory_order_relaxed);
                if (spin(idle_spin, [this] { return offered(); })) continue;
            }
            const uint32_t seen = epoch_.load(std::memory_order_seq_cst);
            sleeping_.fetch_add(1, std::memory_order_seq_cst);
            if (!offered()) futex_wait(epoch_, seen);
            sleeping_.fetch_sub(1, std::memory_order_relaxed);
            descheduled_before = descheduled_time();
        }
    }

    static inline thread_local bool is_worker = false; // the calling thread is a worker
    static inline thread_local int64_t descheduled_before = 0; // descheduled_time() at the last call

    alignas(64) std::atomic<uint64_t> state_ {0}; // generation << 32 | parts << 16 | next part
    void (*part_)(void *) = nullptr;
    void *data_ = nullptr;
    unsigned mode_ = 0;
    std::atomic<int> processor_ {-1}; // the caller's processor when it posted the region
    std::atomic<bool> in_step_ {false};
    alignas(64) std::atomic<uint32_t> done_ {0};
    std::atomic<bool> waiting_ {false};
    alignas(64) std::atomic<uint32_t> epoch_ {0};
    std::atomic<int> sleeping_ {0};
    alignas(64) std::atomic<bool> busy_ {false};
    alignas(64) std::atomic<int64_t> worked_ {0}; // running time of all parts that workers executed
    std::atomic<int64_t> longest_away_ {0}; // longest time that a worker was descheduled in the current region
    std::atomic<int64_t> watches_ {0};
    int made_ = 0;
    cpu_set_t cpus_; // affinity of the thread that loaded the module
    bool pinned_;
};

} // namespace mgx
