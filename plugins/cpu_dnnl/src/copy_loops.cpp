// Copies between strided layouts, copies of contiguous rows, interleaving of a few long rows (images from channels first to
// channels last), and fills.
#include <algorithm>
#include <cstring>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

constexpr int64_t block = 4096; // elements of a row per work item

// Advances both pointers to the element `number` of the outer axes, each given as extent, source stride and target stride.
template <typename T>
inline void advance(const T *&source, T *&target, int64_t number, int64_t axes, const int64_t *axis) {
    for (int64_t a = axes - 1; a >= 0; --a) {
        const int64_t index = number % axis[3 * a];
        number /= axis[3 * a];
        source += index * axis[3 * a + 1];
        target += index * axis[3 * a + 2];
    }
}

// Interleaves `rows` rows of 32-bit elements.  Arguments: number of outer axes, row length, row stride, then the extent, source
// stride and target stride of each outer axis.  Work items: blocks of rows, in row-major order of the outer axes,
// blocks innermost.
template <int rows> void interleave(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t axes = args[0], length = args[1], row_stride = args[2], blocks = (length + block - 1) / block;
    const int64_t *axis = args + 3;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t from = item % blocks * block, count = std::min(block, length - from);
        auto source = static_cast<const uint32_t *>(buffers[0]) + from;
        auto target = static_cast<uint32_t *>(buffers[1]) + from * rows;
        advance(source, target, item / blocks, axes, axis);
        const uint32_t *row[rows];
        for (int r = 0; r < rows; ++r)
            row[r] = source + r * row_stride;
        uint32_t *__restrict__ to = target;
        for (int64_t i = 0; i < count; ++i)
            for (int r = 0; r < rows; ++r)
                to[i * rows + r] = row[r][i];
    }
}

constexpr int64_t memcpy_from = 256; // bytes per row from which memcpy is faster

template <typename Vector>
inline void copy_vectors(char *to, const char *from, int64_t bytes) { // at least one vector; the last two may overlap
    auto one = [&](int64_t at) {
        Vector value;
        std::memcpy(&value, from + at, sizeof value);
        std::memcpy(to + at, &value, sizeof value);
    };
    for (int64_t at = 0; at < bytes - int64_t(sizeof(Vector)); at += sizeof(Vector))
        one(at);
    one(bytes - int64_t(sizeof(Vector)));
}

inline void copy_row(char *to, const char *from, int64_t bytes) { // at least 16
    if (bytes >= memcpy_from)
        std::memcpy(to, from, static_cast<size_t>(bytes));
    else if (bytes >= int64_t(sizeof(__m256i)))
        copy_vectors<__m256i>(to, from, bytes);
    else
        copy_vectors<__m128i>(to, from, bytes);
}

// Copies contiguous rows.  Arguments: number of outer axes, bytes per row (at least 16), bytes per work item, then the extent,
// source stride and target stride (in bytes) of each outer axis.  Work items: parts of rows, in row-major order of the outer
// axes, parts innermost.
void copy_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t axes = args[0], length = args[1], part = args[2], parts = (length + part - 1) / part;
    const int64_t *axis = args + 3, *last = axes > 0 ? axis + 3 * (axes - 1) : nullptr;
    for (int64_t item = begin; item < end;) {
        const int64_t from = item % parts * part, bytes = std::min(part, length - from);
        auto source = static_cast<const char *>(buffers[0]) + from;
        auto target = static_cast<char *>(buffers[1]) + from;
        advance(source, target, item / parts, axes, axis);
        if (parts > 1 || axes == 0) {
            std::memcpy(target, source, static_cast<size_t>(bytes));
            ++item;
            continue;
        }
        const int64_t rows = std::min(end - item, last[0] - item % last[0]);
        for (int64_t r = 0; r < rows; ++r)
            copy_row(target + r * last[2], source + r * last[1], bytes);
        item += rows;
    }
}

// Buffers: x, out.  Arguments: box (x, out).  Work items: elements.
template <typename T>
void copy(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    ArgReader reader(args);
    const Box<2> box(reader);
    const int64_t in = box.step(0), over = box.step(1);
    box.runs(begin, end, [&](const int64_t *offset, int64_t count) {
        const T *from = x + offset[0];
        T *to = out + offset[1];
        if (in == 1 && over == 1)
            std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
        else if (in == -1 && over == 1) // constant strides let the compiler vectorize
            for (int64_t i = 0; i < count; ++i)
                to[i] = from[-i];
        else
            for (int64_t i = 0; i < count; ++i)
                to[i * over] = from[i * in];
    });
}

// Buffers: out.  Arguments: the bits of an element.  Work items: elements.
template <typename T>
void fill(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *out = static_cast<T *>(buffers[0]);
    std::fill(out + begin, out + end, static_cast<T>(args[0]));
}

} // namespace

void add_copy_loops(NamedLoops &loops) {
    each(Sizes {}, size_names, [&](auto element, const char *name) {
        using T = decltype(element);
        add_loop(loops, "copy", name, &copy<T>);
        add_loop(loops, "fill", name, &fill<T>);
    });
    loops["copy_rows"] = copy_rows;
    loops["weave_2"] = interleave<2>;
    loops["weave_3"] = interleave<3>;
    loops["weave_4"] = interleave<4>;
}

} // namespace mgx
