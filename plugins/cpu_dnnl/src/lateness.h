// Decides whether using the thread team pays off when processors are shared with other load.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "team.h"

namespace mgx {

constexpr int64_t microsecond = 1000;
constexpr int64_t idle_spin = 1000 * microsecond; // covers the gaps between steps and between consecutive runs

// A preempted thread is acceptable if its parts saved more time than the caller waited for it, as is usual for occasional
// preemption.  If they saved less, short steps run on the caller alone for a while, with exponential backoff: the period doubles
// whenever the next attempt fails soon.
class Lateness {
public:
    bool recent(int64_t now) const { return now < until_.load(std::memory_order_relaxed); }

    // Records a wait of `lost` ns.  worked: total time of parts on threads of the team since the process started.
    void add(int64_t lost, int64_t worked, int64_t now) {
        const int64_t cost = lost - (worked - worked_.exchange(worked, std::memory_order_relaxed));
        if (cost <= 0) return;
        const int64_t trial = cost + idle_spin; // spinning threads compete with other processes
        const int64_t last = span_.load(std::memory_order_relaxed);
        const bool again = now < until_.load(std::memory_order_relaxed) + std::max(last, retry_window * trial);
        const int64_t span = std::clamp(again ? 2 * last : 0, initial_backoff * trial, max_backoff * trial);
        span_.store(span, std::memory_order_relaxed);
        until_.store(now + span, std::memory_order_relaxed);
        absences_.fetch_add(1, std::memory_order_relaxed);
    }

    void count_alone() { alone_.fetch_add(1, std::memory_order_relaxed); }

    int64_t absences() const { return absences_.load(std::memory_order_relaxed); }
    int64_t alone() const { return alone_.load(std::memory_order_relaxed); }

private:
    // Times as multiples of a trial's cost.
    static constexpr int64_t initial_backoff = 2;
    static constexpr int64_t max_backoff = 32;  // keeps the overhead of trials small
    static constexpr int64_t retry_window = 20; // a loss within this time after a backoff doubles the next

    std::atomic<int64_t> until_ {0}, span_ {0}, worked_ {0}, absences_ {0}, alone_ {0};
};

} // namespace mgx
