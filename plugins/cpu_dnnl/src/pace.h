// Which way to run a program where runs wait for processors.
#pragma once

#include <atomic>
#include <cstdint>

namespace mgx {

// One thread each never waits for another; all threads for one run after the other share what is in the caches.  Which of the
// two costs less depends on the program and the processor, so both are timed: the better one is taken, the other tried for a
// few runs in a row now and then.
class Pace {
public:
    bool single(int threads) {
        uint32_t block = asked_.fetch_add(1, std::memory_order_relaxed) / static_cast<uint32_t>(4 * threads);
        int64_t one = single_.load(std::memory_order_relaxed), all = whole_.load(std::memory_order_relaxed);
        if (!one || !all) return !one;
        bool better = one < all * threads;
        return block % trial ? better : !better;
    }

    void note(bool single, int64_t nanoseconds) {
        std::atomic<int64_t> &mean = single ? single_ : whole_;
        int64_t before = mean.load(std::memory_order_relaxed);
        mean.store(before ? before + (nanoseconds - before) / 8 : nanoseconds, std::memory_order_relaxed);
    }

private:
    static constexpr uint32_t trial = 32; // blocks of runs
    std::atomic<uint32_t> asked_ {0};
    std::atomic<int64_t> single_ {0};
    std::atomic<int64_t> whole_ {0};
};

} // namespace mgx
