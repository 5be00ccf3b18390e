// Synchronization of the threads that compute a recurrent layer together.  Each thread owns a range of units.  The protocol bounds
// every wait, so that a descheduled thread does not stall the layer.
//
// The leader publishes the number of a phase, computes its own units, and then uses a helper's results only if the helper was
// present when the phase began and finishes within the time that the leader itself took.  Otherwise the leader recomputes the
// helper's units.  A helper that returns from being descheduled skips the current phase and joins the next.  Helpers read the
// leader's state and write to private buffers, which the leader ignores if the helper is late.
//
// A late helper may read state while the leader overwrites it: formally a data race, which ThreadSanitizer may report (`do_units`
// called by `help`).  It is benign: aligned floats are read without tearing, no branch or address depends on the values, and the
// results are discarded, because the phase has ended by the time `done` is stored.  Vector loads have no atomic form.
//
// Included by sources that are compiled once per instruction set, so everything here has internal linkage.
#pragma once

#include <atomic>
#include <cstdint>

#include <immintrin.h>
#include <x86intrin.h>

namespace {

class Board {
public:
    static constexpr int64_t most_helpers = 7;

    // Called by the leader; phases are numbered from 1.
    bool present(int64_t helper, int64_t phase) const { return places_[helper].done.load(std::memory_order_acquire) == phase - 1; }

    void publish(int64_t phase) { published_.store(phase, std::memory_order_release); }

    void close() { publish(over); }

    // Spins for at most `ticks`; true if the helper has completed the phase.
    bool done(int64_t helper, int64_t phase, uint64_t ticks) const {
        const auto &done = places_[helper].done;
        for (const uint64_t from = __rdtsc(); done.load(std::memory_order_acquire) != phase; _mm_pause())
            if (__rdtsc() - from > ticks) return false;
        return true;
    }

    // Called by a helper: calls work(phase) for each phase that it is in time for, until the leader closes the board or publishes
    // nothing for `idle_ticks`.
    template <typename Work>
    void follow(int64_t helper, const Work &work) {
        auto &done = places_[helper].done;
        int64_t seen = published_.load(std::memory_order_acquire);
        for (done.store(seen, std::memory_order_release); seen != over;) {
            int64_t phase = seen;
            for (const uint64_t from = __rdtsc(); phase == seen; phase = published_.load(std::memory_order_acquire)) {
                if (__rdtsc() - from > idle_ticks) return;
                _mm_pause();
            }
            if (phase == seen + 1) work(phase);
            if (phase != over) done.store(phase, std::memory_order_release);
            seen = phase;
        }
    }

private:
    static constexpr int64_t over = INT64_MAX;
    static constexpr uint64_t idle_ticks = 500 * 1000; // about 200 microseconds

    struct alignas(64) Place {
        std::atomic<int64_t> done {-1}; // the last phase that the helper completed or skipped
    };
    alignas(64) std::atomic<int64_t> published_ {0};
    Place places_[most_helpers];
};

} // namespace
