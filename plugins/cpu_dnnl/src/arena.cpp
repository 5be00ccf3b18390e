#include "arena.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

namespace mgx {

namespace {

class Pool {
public:
    std::unique_ptr<AlignedBuffer> acquire(size_t bytes) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto fits = std::find_if(free_.rbegin(), free_.rend(), [&](auto &block) { return block->size() >= bytes; });
            if (fits != free_.rend()) {
                auto block = std::move(*fits);
                free_.erase(std::next(fits).base());
                return block;
            }
            if (!free_.empty()) free_.pop_back(); // too small for this run and probably for later ones
        }
        auto block = std::make_unique<AlignedBuffer>(bytes);
        block->touch();
        return block;
    }

    void release(std::unique_ptr<AlignedBuffer> block) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!sizes_.empty() && block->size() <= *sizes_.rbegin()) free_.push_back(std::move(block));
    }

    void register_size(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        sizes_.insert(bytes);
    }

    void unregister_size(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = sizes_.find(bytes);
        if (found != sizes_.end()) sizes_.erase(found);
        size_t max_size = sizes_.empty() ? 0 : *sizes_.rbegin();
        free_.erase(std::remove_if(free_.begin(), free_.end(), [&](auto &block) { return block->size() > max_size; }), free_.end());
    }

    size_t bytes() {
        std::lock_guard<std::mutex> lock(mutex_);
        size_t sum = 0;
        for (auto &block : free_)
            sum += block->size();
        return sum;
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<AlignedBuffer>> free_; // most recently used last: its pages are likely cached
    std::multiset<size_t> sizes_;
};

Pool &pool() {
    static auto *instance = new Pool(); // never destroyed: programs may outlive static objects
    return *instance;
}

} // namespace

ArenaBlock::ArenaBlock(size_t bytes) : block_(pool().acquire(bytes)) {}
ArenaBlock::~ArenaBlock() { pool().release(std::move(block_)); }

void register_arena(size_t bytes) { pool().register_size(bytes); }
void unregister_arena(size_t bytes) { pool().unregister_size(bytes); }
size_t arena_pool_bytes() { return pool().bytes(); }

} // namespace mgx
