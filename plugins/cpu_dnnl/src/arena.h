// Pool of arena blocks, shared by all programs of the process: a run acquires a block and releases it at the end, so that
// programs that run one after the other need only as much memory as the largest.
#pragma once

#include <cstddef>
#include <memory>

#include "memory.h"

namespace mgx {

// RAII handle of a block, released at the end of the run.
class ArenaBlock {
public:
    explicit ArenaBlock(size_t bytes); // Throws Failure (device) if allocation fails.
    ~ArenaBlock();
    ArenaBlock(const ArenaBlock &) = delete;
    ArenaBlock &operator=(const ArenaBlock &) = delete;
    char *data() const { return block_->data(); }

private:
    std::unique_ptr<AlignedBuffer> block_;
};

// Registers and unregisters the arena size of a live program; blocks larger than any registered size are freed.
void register_arena(size_t bytes);
void unregister_arena(size_t bytes);
size_t arena_pool_bytes(); // of the free blocks

} // namespace mgx
