// Memory for runs, shared by all programs of the process: a run borrows a block, so that programs that run one after the
// other need no more than the largest of them.
#pragma once

#include <cstddef>
#include <memory>

#include "memory.h"

namespace mgx {

// A block for the time of a run; given back at the end.
class ArenaLoan {
public:
    explicit ArenaLoan(size_t bytes); // Failure: device if there is no memory
    ~ArenaLoan();
    ArenaLoan(const ArenaLoan &) = delete;
    ArenaLoan &operator=(const ArenaLoan &) = delete;
    char *data() const { return block_->data(); }

private:
    std::unique_ptr<AlignedBuffer> block_;
};

// Bytes that a live program may borrow; blocks beyond what live programs need are returned to the system.
void need_arena(size_t bytes);
void forget_arena(size_t bytes);
size_t arena_pool_bytes(); // of the blocks that wait

} // namespace mgx
