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

} // namespace

void add_index_loops(NamedLoops &loops) {
    each(Sizes {}, size_names, [&](auto element, const char *name) {
        using T = decltype(element);
        loops[std::string("take_") + name] = &take<T>;
        loops[std::string("put_none_") + name] = &put<T>;
    });
}

} // namespace mgx
