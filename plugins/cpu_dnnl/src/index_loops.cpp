// Gather and scatter of elements and slices by indices.
#include <algorithm>

#include "indices.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

template <bool indexed_source, typename T>
void copy_slices(const Slices &slices, const T *from, T *to) {
    slices.each<indexed_source>(
            from, to, [](const T *source, T *target) { *target = *source; },
            [](const T *source, T *target, int64_t count) {
                std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
            },
            [&](const T *source, T *target) { copy_box(slices.slice, source, target); });
}

// Buffers: x, indices, out.  Arguments: see `Slices`.
template <typename T>
void take(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Slices slices(args, buffers[1], begin, end);
    copy_slices<true>(slices, static_cast<const T *>(buffers[0]), static_cast<T *>(buffers[2]));
}

// Buffers: out, indices, updates.  Arguments: see `Slices`.
template <typename T>
void put(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Slices slices(args, buffers[1], begin, end);
    copy_slices<false>(slices, static_cast<const T *>(buffers[2]), static_cast<T *>(buffers[0]));
}

// Buffers: data [outer, length, row], indices, out [outer, indices, row].  Arguments: length, number of indices, and bytes per
// row unless rows are single elements.  Work items: rows of out.
template <typename T, bool single, typename Index>
void gather(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *data = static_cast<const T *>(buffers[0]);
    auto *indices = static_cast<const Index *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    const int64_t length = args[0], count = args[1], row = single ? 1 : args[2];
    for (int64_t outer = begin / count; begin < end; ++outer) {
        const int64_t first = begin - outer * count, last = std::min(end - outer * count, count);
        const T *from = data + outer * length * row;
        T *to = out + begin * row;
        for (int64_t i = first; i < last; ++i, to += row) {
            const int64_t index = indices[i];
            if (index < -length || index >= length) return mgx_loop_failed(1, index);
            const T *source = from + (index < 0 ? index + length : index) * row;
            if constexpr (single)
                *to = *source;
            else
                std::memcpy(to, source, static_cast<size_t>(row));
        }
        begin += last - first;
    }
}

template <typename T, bool single>
void add_gather(NamedLoops &loops, const std::string &name) {
    loops["gather_" + name + "_int32"] = &gather<T, single, int32_t>;
    loops["gather_" + name + "_int64"] = &gather<T, single, int64_t>;
}

// Stores numbers that the program knows.  Buffers: out, int64.  Arguments: their count, the numbers.
void put_numbers(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    std::copy_n(args + 1, args[0], static_cast<int64_t *>(buffers[0]));
}

// Stores start, start + delta, .. up to the limit (exclusive).  Buffers: start, limit, delta, out.  Arguments: the count that the
// program expects.  Work items: elements.
template <typename T>
void range(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t start = *static_cast<const T *>(buffers[0]), limit = *static_cast<const T *>(buffers[1]);
    const int64_t delta = *static_cast<const T *>(buffers[2]);
    if (delta == 0) return mgx_loop_failed(3, delta);
    const auto within = [&](int64_t i) { // exact: the significand has 64 bits
        const long double at = static_cast<long double>(start) + static_cast<long double>(i) * static_cast<long double>(delta);
        return delta > 0 ? at < static_cast<long double>(limit) : at > static_cast<long double>(limit);
    };
    if (!within(args[0] - 1) || within(args[0])) return mgx_loop_failed(3, args[0]);
    auto *out = static_cast<T *>(buffers[3]);
    for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<T>(start + i * delta);
}

} // namespace

void add_index_loops(NamedLoops &loops) {
    loops["put_numbers"] = &put_numbers;
    loops["range_int32"] = &range<int32_t>;
    loops["range_int64"] = &range<int64_t>;
    each(Sizes {}, size_names, [&](auto element, const char *name) {
        using T = decltype(element);
        add_loop(loops, "take", name, &take<T>);
        add_loop(loops, "put_none", name, &put<T>);
        add_gather<T, true>(loops, name);
    });
    add_gather<char, false>(loops, "rows");
}

} // namespace mgx
