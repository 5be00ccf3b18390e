#include "panels.h"

#include <algorithm>
#include <cstring>

#include "team.h"
#include "threads.h"

namespace mgx {

namespace {

constexpr int64_t deep = 64; // rows of a panel written per block: several cache lines of each column are read at once
constexpr int64_t shared = int64_t {1} << 18; // elements from which on the copy is parallel

struct Panels {
    int64_t count, depth, width;
    int64_t panel, row, column; // strides of the source

    void copy(const float *from, float *to, int64_t begin, int64_t end) const {
        for (int64_t p = begin; p < end; ++p) {
            const float *first = from + p * panel;
            float *out = to + p * depth * width;
            if (column == 1)
                for (int64_t k = 0; k < depth; ++k)
                    std::memcpy(out + k * width, first + k * row, width * sizeof(float));
            else
                for (int64_t k = 0; k < depth; k += deep)
                    transpose(first + k * row, out + k * width, std::min(deep, depth - k));
        }
    }

private:
    // Reads each cache line of a column once and completely: columns a power of two apart map to the same few cache sets and
    // would evict one another.
    void transpose(const float *from, float *out, int64_t rows) const {
        for (int64_t w = 0; w < width; ++w)
            for (int64_t k = 0; k < rows; ++k)
                out[k * width + w] = from[w * column + k * row];
    }
};

bool is_dense(const MemoryDesc &d) {
    return d.is_plain() && d.desc.get_ndims() == 3 && d.desc.get_data_type() == dnnl::memory::data_type::f32
            && d.desc.get_submemory_offset() == 0 && d.desc.get_padded_dims() == d.desc.get_dims();
}

} // namespace

bool copy_panels(const float *from, const MemoryDesc &source, float *to, const MemoryDesc &target) {
    if (!is_dense(source) || !is_dense(target) || source.desc.get_dims() != target.desc.get_dims()) return false;
    const Dims dims = source.desc.get_dims(), steps = source.desc.get_strides();
    if (target.desc.get_strides() != Dims {dims[1] * dims[2], dims[2], 1} || (steps[1] != 1 && steps[2] != 1)) return false;
    const Panels panels {dims[0], dims[1], dims[2], steps[0], steps[1], steps[2]};
    if (panels.count * panels.depth * panels.width < shared) {
        panels.copy(from, to, 0, panels.count);
        return true;
    }
    with_share(false, [&](int threads) {
        in_parts(threads, [&](int me) {
            panels.copy(from, to, panels.count * me / threads, panels.count * (me + 1) / threads);
        });
    });
    return true;
}

} // namespace mgx
