#include "memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <pybind11/stl.h>

#include "arena.h"
#include "panels.h"
#include "primitive.h"

namespace py = pybind11;

namespace mgx {

namespace {

constexpr size_t large_page = size_t {2} << 20;
constexpr size_t shared_block = size_t {32} << 20;
constexpr int runs_before_collapse = 16;
constexpr int collapse = 25; // MADV_COLLAPSE, since Linux 6.1; older headers lack it

} // namespace

// Mapped memory, which is used from its start on.  Its pages are small at first: a process that runs a model once would wait for
// huge pages, which a virtual machine may have to request from its host.  `gather` makes them huge later.
class Block {
public:
    explicit Block(size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
        const size_t reserved = bytes_ + large_page;
        void *found = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED)
            throw Failure(Fault::device, "out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
        const auto start = reinterpret_cast<uintptr_t>(found);
        const uintptr_t data = (start + large_page - 1) / large_page * large_page;
        if (data > start) munmap(found, data - start);
        const size_t tail = start + reserved - (data + bytes_);
        if (tail) munmap(reinterpret_cast<void *>(data + bytes_), tail);
        data_ = reinterpret_cast<char *>(data);
    }
    ~Block() { munmap(data_, bytes_); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    size_t room() const { return bytes_ - used_; }
    char *take(size_t bytes) {
        used_ += bytes;
        return data_ + used_ - bytes;
    }
    // Returns a part's pages to the system.
    void release(char *part, size_t bytes) {
        partial_ = true;
        const auto first = (reinterpret_cast<uintptr_t>(part) + 4095) / 4096 * 4096;
        const auto end = (reinterpret_cast<uintptr_t>(part) + bytes) / 4096 * 4096;
        if (end > first) madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
    }
    // Replaces the pages in use by huge ones; returns their bytes.  used: bytes in use when it is called.
    size_t gather(size_t used) {
        size_t made = 0;
        for (; gathered_ + large_page <= used && !partial_; gathered_ += large_page) {
            madvise(data_ + gathered_, large_page, MADV_HUGEPAGE); // where the next call fails, the system may do it later
            if (madvise(data_ + gathered_, large_page, collapse) == 0) made += large_page;
        }
        return made;
    }
    size_t used() const { return used_; }

private:
    char *data_;
    size_t bytes_, used_ = 0, gathered_ = 0;
    std::atomic<bool> partial_ {false}; // a part has been freed: a huge page would take its memory again
};

namespace {

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

// A part of a Block.
struct Taken {
    std::shared_ptr<Block> block;
    char *data;
};

// The blocks of the process.
class Blocks {
public:
    // Allocates packed weights one after another in shared blocks: with mappings of their own, they could not be in huge pages
    // without being rounded up to them.
    Taken allocate(size_t bytes) {
        const size_t size = (bytes + alignment - 1) / alignment * alignment;
        std::lock_guard<std::mutex> lock(mutex_);
        if (size > shared_block / 2) return taken(added(size), size);
        auto block = current_.lock();
        if (!block || block->room() < size) current_ = block = added(shared_block);
        runs_left_.store(runs_before_collapse, std::memory_order_relaxed);
        return taken(block, size);
    }

    Taken own(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        return taken(added(bytes), bytes);
    }

    void count_run() {
        if (runs_left_.load(std::memory_order_relaxed) <= 0 || runs_left_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
        sigset_t all, before; // signals are for the application's threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread([this] { gather(); }).detach();
        } catch (const std::exception &) { // without threads, the pages stay small
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    size_t gathered() const { return gathered_.load(); }

private:
    std::shared_ptr<Block> added(size_t bytes) {
        auto made = std::make_shared<Block>(bytes);
        blocks_.erase(std::remove_if(blocks_.begin(), blocks_.end(), [](const auto &b) { return b.expired(); }), blocks_.end());
        blocks_.push_back(made);
        runs_left_.store(runs_before_collapse, std::memory_order_relaxed);
        return made;
    }

    static Taken taken(const std::shared_ptr<Block> &block, size_t size) { return {block, block->take(size)}; }

    void gather() {
        std::lock_guard<std::mutex> alone(gathering_);
        std::string enabled;
        std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), enabled);
        if (enabled.find("[always]") == std::string::npos && enabled.find("[madvise]") == std::string::npos) return;
        std::vector<std::pair<std::shared_ptr<Block>, size_t>> found;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (const auto &each : blocks_)
                if (auto block = each.lock()) found.emplace_back(block, block->used());
        }
        for (auto &[block, used] : found)
            gathered_ += block->gather(used);
    }

    std::mutex mutex_, gathering_;
    std::weak_ptr<Block> current_;
    std::vector<std::weak_ptr<Block>> blocks_;
    std::atomic<int> runs_left_ {0};
    std::atomic<size_t> gathered_ {0};
};

Blocks &blocks() {
    static auto *instance = new Blocks(); // never destroyed: memory may outlive static objects
    return *instance;
}

// Packed weights: a copy in another layout.
struct PackedBuffer {
    PackedBuffer(MemoryDesc desc, size_t bytes) : desc(std::move(desc)), bytes(bytes), memory(blocks().allocate(bytes)) {}
    ~PackedBuffer() {
        if (memory.block.use_count() > 1) memory.block->release(memory.data, bytes); // otherwise, the block is freed
    }
    PackedBuffer(const PackedBuffer &) = delete;
    PackedBuffer &operator=(const PackedBuffer &) = delete;

    MemoryDesc desc;
    size_t bytes;
    Taken memory;
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

void count_run() { blocks().count_run(); }

void *recycled_allocate(size_t bytes) { return recycler().allocate(bytes); }
void recycled_free(void *block) { recycler().free(block); }
size_t recycled_size(void *block) { return header_of(block)->size; }
void set_recycling_limit(size_t bytes) { recycler().set_limit(bytes); }
size_t recycled_bytes() { return recycler().kept(); }

AlignedBuffer::AlignedBuffer(size_t bytes) : data_(nullptr), size_(bytes), mapped_(0) {
    if (!bytes) return;
    if (bytes >= large_page) {
        const Taken own = blocks().own(bytes);
        block_ = own.block;
        data_ = own.data;
    } else if (bytes >= 4096)
        data_ = map_pages(bytes, mapped_);
    else
        data_ = static_cast<char *>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
    if (!data_) throw Failure(Fault::device, "out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
}

AlignedBuffer::AlignedBuffer(AlignedBuffer &&other) noexcept
    : data_(other.data_), size_(other.size_), mapped_(other.mapped_), block_(std::move(other.block_)) {
    other.data_ = nullptr;
    other.mapped_ = 0;
}

AlignedBuffer::~AlignedBuffer() {
    if (mapped_)
        munmap(data_, mapped_);
    else if (!block_)
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
    module.def("gathered_bytes", [] { return blocks().gathered(); });
    module.def("set_recycling_limit", &set_recycling_limit, py::arg("nbytes"));
    module.def("recycled_bytes", &recycled_bytes);
    module.def("arena_pool_bytes", &arena_pool_bytes);
}

} // namespace mgx
