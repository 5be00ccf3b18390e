#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <pybind11/stl.h>

#include "arena.h"
#include "panels.h"
#include "primitive.h"

namespace py = pybind11;

namespace mgx {

namespace {

constexpr size_t large_page = size_t {2} << 20;

// Maps memory, in huge pages if it fills at least one; returns null if out of memory.  mapped: the size of the mapping.
char *map_pages(size_t bytes, size_t &mapped) {
    bool large = bytes >= large_page;
    size_t unit = large ? large_page : 4096;
    mapped = (bytes + unit - 1) / unit * unit;
    size_t slack = large ? large_page : 0;
    void *found = mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return nullptr;
    auto start = reinterpret_cast<uintptr_t>(found);
    uintptr_t aligned = (start + slack) / unit * unit;
    if (large) {
        if (aligned > start) munmap(found, aligned - start);
        size_t tail = start + slack - aligned;
        if (tail) munmap(reinterpret_cast<void *>(aligned + mapped), tail);
        madvise(reinterpret_cast<void *>(aligned), mapped, MADV_HUGEPAGE);
    }
    return reinterpret_cast<char *>(aligned);
}

constexpr size_t shared_block = size_t {32} << 20;
constexpr size_t small_pages = size_t {512} << 10; // at the start of a shared block: the weights of a small model take no huge page

// Mapped memory, which is used from its start on.  It consists of huge pages where they fit, after `lead` bytes.
class Block {
public:
    Block(size_t bytes, size_t lead) : bytes_((bytes + 4095) / 4096 * 4096) {
        const size_t reserved = bytes_ + large_page;
        void *found = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED) throw Failure(Fault::device, "out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
        const auto start = reinterpret_cast<uintptr_t>(found);
        const uintptr_t data = (start + lead + large_page - 1) / large_page * large_page - lead;
        if (data > start) munmap(found, data - start);
        const size_t tail = start + reserved - (data + bytes_);
        if (tail) munmap(reinterpret_cast<void *>(data + bytes_), tail);
        data_ = reinterpret_cast<char *>(data);
        madvise(data_, bytes_, MADV_HUGEPAGE);
    }
    ~Block() { munmap(data_, bytes_); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    size_t room() const { return bytes_ - used_; }
    char *take(size_t bytes) {
        used_ += bytes;
        return data_ + used_ - bytes;
    }

private:
    char *data_;
    size_t bytes_, used_ = 0;
};

struct Header {
    size_t size; // usable bytes after the header
    size_t bin;
    size_t mapped; // bytes of the mapping; 0: allocated by the C library
};
static_assert(sizeof(Header) <= alignment);

Header *header_of(void *block) { return reinterpret_cast<Header *>(static_cast<char *>(block) - alignment); }

// Returns the size class: four per power of two, from 256 bytes on; size: the bytes of the class.
size_t bin_of(size_t bytes, size_t &size) {
    size_t power = 256;
    size_t bin = 0;
    while (power * 2 <= bytes) {
        power *= 2;
        bin += 4;
    }
    size_t quarter = power / 4;
    size_t extra = bytes > power ? (bytes - power + quarter - 1) / quarter : 0;
    size = power + extra * quarter;
    return bin + extra;
}

class Recycler {
public:
    void *allocate(size_t bytes) {
        size_t size = 0;
        size_t bin = bin_of(bytes + alignment, size);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (bin < bins_.size() && !bins_[bin].empty()) {
                void *block = bins_[bin].back();
                bins_[bin].pop_back();
                kept_ -= size;
                return block;
            }
        }
        size_t mapped = 0;
        char *base = size >= (size_t {1} << 17) ? map_pages(size, mapped)
                                                : static_cast<char *>(std::aligned_alloc(alignment, size));
        if (!base) return nullptr;
        new (base) Header {size - alignment, bin, mapped};
        return base + alignment;
    }

    void free(void *block) {
        Header *header = header_of(block);
        size_t size = header->size + alignment;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (kept_ + size <= limit_) {
                if (header->bin >= bins_.size()) bins_.resize(header->bin + 1);
                bins_[header->bin].push_back(block);
                kept_ += size;
                return;
            }
        }
        release(header);
    }

    void set_limit(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        limit_ = bytes;
        for (size_t bin = bins_.size(); bin-- > 0;)
            while (kept_ > limit_ && !bins_[bin].empty()) {
                Header *header = header_of(bins_[bin].back());
                bins_[bin].pop_back();
                kept_ -= header->size + alignment;
                release(header);
            }
    }

    size_t kept() {
        std::lock_guard<std::mutex> lock(mutex_);
        return kept_;
    }

private:
    static void release(Header *header) {
        if (header->mapped)
            munmap(header, header->mapped);
        else
            std::free(header);
    }

    std::mutex mutex_;
    std::vector<std::vector<void *>> bins_;
    size_t kept_ = 0;
    size_t limit_ = size_t {256} << 20;
};

Recycler &recycler() {
    static auto *instance = new Recycler(); // never destroyed: arrays may outlive static objects
    return *instance;
}

// Part of a Block, for one packed weight.
struct Packed {
    std::shared_ptr<Block> block;
    char *data;
};

// Allocates packed weights one after another in shared blocks.  Of their own, most have not the size of a huge page: they would
// fault in page by page, which takes four times as long, or be rounded up to the next 2 MiB.
Packed allocate_packed(size_t bytes) {
    static auto *mutex = new std::mutex(); // never destroyed: weights may outlive static objects
    static auto *current = new std::weak_ptr<Block>();
    const size_t size = (bytes + alignment - 1) / alignment * alignment;
    if (size > shared_block / 2) {
        auto own = std::make_shared<Block>(size, 0);
        return {own, own->take(size)};
    }
    std::lock_guard<std::mutex> lock(*mutex);
    auto block = current->lock();
    if (!block || block->room() < size) {
        block = std::make_shared<Block>(shared_block, small_pages);
        *current = block;
    }
    return {block, block->take(size)};
}

// Packed weights: a copy in another layout.
struct PackedBuffer {
    PackedBuffer(MemoryDesc desc, size_t bytes) : desc(std::move(desc)), bytes(bytes), memory(allocate_packed(bytes)) {}
    ~PackedBuffer() {
        if (memory.block.use_count() == 1) return; // the block is freed
        const auto first = (reinterpret_cast<uintptr_t>(memory.data) + 4095) / 4096 * 4096;
        const auto end = (reinterpret_cast<uintptr_t>(memory.data) + bytes) / 4096 * 4096;
        if (end > first) madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
    }
    PackedBuffer(const PackedBuffer &) = delete;
    PackedBuffer &operator=(const PackedBuffer &) = delete;

    MemoryDesc desc;
    size_t bytes;
    Packed memory;
};

std::shared_ptr<PackedBuffer> pack(size_t address, const MemoryDesc &from, const MemoryDesc &to) {
    auto packed = std::make_shared<PackedBuffer>(to, to.desc.get_size());
    if (from.desc == to.desc) {
        std::memcpy(packed->memory.data, reinterpret_cast<const void *>(address), from.desc.get_size());
        return packed;
    }
    if (copy_panels(reinterpret_cast<const float *>(address), from, reinterpret_cast<float *>(packed->memory.data), to))
        return packed;
    auto make = [](dnnl_primitive_desc_t *pd, const std::vector<MemoryDesc> &d, const_dnnl_primitive_attr_t attr) {
        auto engine = cpu_engine().get();
        return dnnl_reorder_primitive_desc_create(pd, d[0].get(), engine, d[1].get(), engine, attr);
    };
    Attributes attributes;
    attributes.attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    Primitive reorder("reorder", {DNNL_ARG_FROM, DNNL_ARG_TO}, {from, to}, attributes, make);
    reorder.execute_at({{DNNL_ARG_FROM, address}, {DNNL_ARG_TO, reinterpret_cast<size_t>(packed->memory.data)}});
    return packed;
}

} // namespace

void *recycled_allocate(size_t bytes) { return recycler().allocate(bytes); }
void recycled_free(void *block) { recycler().free(block); }
size_t recycled_size(void *block) { return header_of(block)->size; }
void set_recycling_limit(size_t bytes) { recycler().set_limit(bytes); }
size_t recycled_bytes() { return recycler().kept(); }

AlignedBuffer::AlignedBuffer(size_t bytes) : data_(nullptr), size_(bytes), mapped_(0) {
    if (!bytes) return;
    if (bytes >= 4096)
        data_ = map_pages(bytes, mapped_);
    else
        data_ = static_cast<char *>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
    if (!data_) throw Failure(Fault::device, "out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
}

AlignedBuffer::AlignedBuffer(AlignedBuffer &&other) noexcept
    : data_(other.data_), size_(other.size_), mapped_(other.mapped_) {
    other.data_ = nullptr;
    other.mapped_ = 0;
}

AlignedBuffer::~AlignedBuffer() {
    if (mapped_)
        munmap(data_, mapped_);
    else
        std::free(data_);
}

void AlignedBuffer::touch() {
    for (size_t at = 0; at < size_; at += 4096)
        *const_cast<volatile char *>(data_ + at) = 0;
}

void bind_memory(py::module_ &module) {
    py::class_<PackedBuffer, std::shared_ptr<PackedBuffer>>(module, "PackedBuffer", py::buffer_protocol())
            .def_buffer([](PackedBuffer &b) {
                return py::buffer_info(reinterpret_cast<unsigned char *>(b.memory.data),
                        static_cast<py::ssize_t>(b.bytes), true);
            })
            .def_property_readonly(
                    "address", [](const PackedBuffer &b) { return reinterpret_cast<size_t>(b.memory.data); })
            .def_property_readonly("nbytes", [](const PackedBuffer &b) { return b.bytes; })
            .def_property_readonly("md", [](const PackedBuffer &b) { return b.desc; });
    module.def("pack", &pack, py::arg("address"), py::arg("from_md"), py::arg("to_md"),
            py::call_guard<py::gil_scoped_release>());
    module.def("set_recycling_limit", &set_recycling_limit, py::arg("nbytes"));
    module.def("recycled_bytes", &recycled_bytes);
    module.def("arena_pool_bytes", &arena_pool_bytes);
}

} // namespace mgx
