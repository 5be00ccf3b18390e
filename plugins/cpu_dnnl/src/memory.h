// Memory that is aligned for vectors, backed by large pages where big, and recycled.
#pragma once

#include <cstddef>

#include <pybind11/pybind11.h>

namespace mgx {

constexpr size_t alignment = 64;

// Recycled blocks: freed memory of a size class is kept (up to a limit) and handed out again without page faults.
void *recycled_allocate(size_t bytes);
void recycled_free(void *block);
size_t recycled_size(void *block); // usable bytes
void set_recycling_limit(size_t bytes);
size_t recycled_bytes(); // kept for reuse now

// Memory for as long as the object lives; zero bytes are fine.
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
    void touch(); // have the pages now rather than at first use

private:
    char *data_;
    size_t size_;
    size_t mapped_;
};

void bind_memory(pybind11::module_ &module);

} // namespace mgx
