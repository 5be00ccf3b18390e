// How threads share the phases of a recurrent layer, each with units of its own, so that none waits long for another.
//
// The leader publishes the number of a phase, does its own units, and takes over those of a helper only if the helper was there
// when the phase began and is done soon after the leader itself.  What a helper did not do in time the leader does.  A helper that was
// away sits out the phase that it finds, and takes part in the next.  It reads the leader's state, which may change under it if
// it is late, and writes to memory of its own, which the leader then does not read.
//
// These reads of a late helper are a data race by the letter of the language, which ThreadSanitizer may report (`do_units` called by
// `help`).  They are meant: the processor reads each float whole, what is computed from it is discarded, since the phase is over when
// `done` is stored, and no branch or address depends on it.  Loads of vectors have no atomic form.
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

    // by the leader: phases are numbered from 1
    bool present(int64_t helper, int64_t phase) const { return places_[helper].done.load(std::memory_order_acquire) == phase - 1; }

    void publish(int64_t phase) { published_.store(phase, std::memory_order_release); }

    void close() { publish(over); }

    // Waits for at most so many ticks; true if the helper is done with the phase.
    bool done(int64_t helper, int64_t phase, uint64_t ticks) const {
        const auto &done = places_[helper].done;
        for (const uint64_t from = __rdtsc(); done.load(std::memory_order_acquire) != phase; _mm_pause())
            if (__rdtsc() - from > ticks) return false;
        return true;
    }

    // by a helper: calls work(phase) for the phases that it is in time for, until the leader closes the board or publishes
    // nothing for `idle_ticks`
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
        std::atomic<int64_t> done {-1}; // the last phase that the helper did or sat out
    };
    alignas(64) std::atomic<int64_t> published_ {0};
    Place places_[most_helpers];
};

} // namespace
