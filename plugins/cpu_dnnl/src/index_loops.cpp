// Elements and slices taken from, or put to, places that indices give.
#include "indices.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// Buffers: x, indices, out.  Numbers: axis to cut; places in x; box of places (x, indices, out); box of a slice (x, out).
template <typename T>
void take(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[2]);
    Numbers numbers(args);
    const int64_t axis = numbers.next();
    const Places places(numbers, buffers[1]);
    Box<3> outer(numbers);
    Box<2> slice(numbers);
    cut(outer, slice, axis, begin, end);
    const bool lone = slice.elements() == 1;
    const int64_t in = outer.step(0), over = outer.step(2);
    outer.lines([&](const int64_t *offset) {
        const T *from = x + offset[0];
        T *to = out + offset[2];
        if (lone) {
            from += slice.start[0];
            to += slice.start[1];
            places.each(offset[1], outer.step(1), outer.length(),
                    [&](int64_t i, int64_t place) { to[i * over] = from[place + i * in]; });
        } else
            places.each(offset[1], outer.step(1), outer.length(),
                    [&](int64_t i, int64_t place) { copy_box(slice, from + place + i * in, to + i * over); });
    });
}

// Buffers: out, indices, updates.  Numbers: axis to cut; places in out; box of places (out, indices, updates); box of a slice
// (updates, out).
template <typename T>
void put(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *out = static_cast<T *>(buffers[0]);
    auto *updates = static_cast<const T *>(buffers[2]);
    Numbers numbers(args);
    const int64_t axis = numbers.next();
    const Places places(numbers, buffers[1]);
    Box<3> outer(numbers);
    Box<2> slice(numbers);
    cut(outer, slice, axis, begin, end);
    const bool lone = slice.elements() == 1;
    const int64_t in = outer.step(2), over = outer.step(0);
    outer.lines([&](const int64_t *offset) {
        const T *from = updates + offset[2];
        T *to = out + offset[0];
        if (lone) {
            from += slice.start[0];
            to += slice.start[1];
            places.each(offset[1], outer.step(1), outer.length(),
                    [&](int64_t i, int64_t place) { to[place + i * over] = from[i * in]; });
        } else
            places.each(offset[1], outer.step(1), outer.length(),
                    [&](int64_t i, int64_t place) { copy_box(slice, from + i * in, to + place + i * over); });
    });
}

// Buffers: data [outer, length, rows], indices, out [outer, indices, rows].  Numbers: length, indices, then the
// bytes of a row unless it is one element.  Work: rows of out.
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

} // namespace

void add_index_loops(NamedLoops &loops) {
    each(Sizes {}, size_names, [&](auto element, const char *name) {
        using T = decltype(element);
        loops[std::string("take_") + name] = &take<T>;
        loops[std::string("put_none_") + name] = &put<T>;
        add_gather<T, true>(loops, name);
    });
    add_gather<char, false>(loops, "rows");
}

} // namespace mgx
