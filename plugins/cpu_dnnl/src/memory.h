// Memory aligned for vectors: large blocks move to huge pages after some runs, freed blocks are recycled.
#pragma once

#include <cstddef>
#include <memory>

#include <pybind11/pybind11.h>

namespace mgx {

constexpr size_t alignment = 64;

// Recycler: keeps freed blocks by size class, up to a limit, and reuses them without page faults.  Thread-safe.
void *recycled_allocate(size_t bytes);
void recycled_free(void *block);
size_t recycled_size(void *block); // usable bytes
void set_recycling_limit(size_t bytes);
size_t recycled_bytes(); // currently kept for reuse

class Block;

// Owns aligned memory; may be empty.  Throws Failure (device) if out of memory.
class AlignedBuffer {
public:
    explicit AlignedBuffer(size_t bytes);
    ~AlignedBuffer();
    AlignedBuffer(AlignedBuffer &&other) noexcept;
    AlignedBuffer(const AlignedBuffer &) = delete;
    AlignedBuffer &operator=(const AlignedBuffer &) = delete;
    AlignedBuffer &operator=(AlignedBuffer &&) = delete;

    char *data() const { return data_; }
    size_t size() const { return size_; }
    void touch(); // faults in all pages

private:
    char *data_;
    size_t size_;
    size_t mapped_;
    std::shared_ptr<Block> block_; // of large buffers
};

// Called after each run of a program: after some runs, a background thread moves weights and arenas to huge pages.
void count_run();

void bind_memory(pybind11::module_ &module);

} // namespace mgx
