// Memory aligned for vectors: large blocks use huge pages, freed blocks are recycled.
#pragma once

#include <cstddef>

#include <pybind11/pybind11.h>

namespace mgx {

constexpr size_t alignment = 64;

// Recycler: keeps freed blocks by size class, up to a limit, and reuses them without page faults.  Thread-safe.
void *recycled_allocate(size_t bytes);
void recycled_free(void *block);
size_t recycled_size(void *block); // usable bytes
void set_recycling_limit(size_t bytes);
size_t recycled_bytes(); // currently kept for reuse

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
};

void bind_memory(pybind11::module_ &module);

} // namespace mgx
