// Padding and nearest-neighbor upsampling: lines assembled from ranges of source elements.
#include <algorithm>
#include <cstring>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// `count` elements of a line: by `kind`, the source elements from `first` on, each repeated `times` times; the source elements
// from `first` backwards; or the filler.
struct Segment {
    enum Kind : int64_t { forward, backward, filler };
    int64_t kind, count, first, times;
};

template <int times, typename T>
inline void repeat(const T *from, T *__restrict__ to, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        for (int t = 0; t < times; ++t)
            to[i * times + t] = from[i];
}

template <typename T>
void write(const Segment &s, const T *line, T *to, T filler) {
    if (s.kind == Segment::filler) {
        std::fill_n(to, s.count, filler);
        return;
    }
    const T *from = line + s.first;
    if (s.kind == Segment::backward)
        for (int64_t i = 0; i < s.count; ++i)
            to[i] = from[-i];
    else if (s.times == 1)
        std::memcpy(to, from, static_cast<size_t>(s.count) * sizeof(T));
    else if (s.times == s.count)
        std::fill_n(to, s.count, *from);
    else if (s.times == 2)
        repeat<2>(from, to, s.count / 2);
    else if (s.times == 4)
        repeat<4>(from, to, s.count / 4);
    else
        for (int64_t i = 0; i < s.count / s.times; ++i)
            std::fill_n(to + i * s.times, s.times, from[i]);
}

// An outer axis: its strides, or the index in the arguments of a table of offsets in x (0: none, x is strided).  A negative
// offset represents the filler.
struct Axis {
    int64_t extent, out_step, x_step, table;
};

// Buffers: x, out.  Arguments: bits of the filler; line length; number of segments, and each `Segment`; number of outer axes,
// and each `Axis`; tables.  Work items: lines.
template <typename T>
void move_lines(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    ArgReader reader(args);
    const auto filler = static_cast<T>(reader.next());
    const int64_t length = reader.next(), segments = reader.next();
    auto *segment = reinterpret_cast<const Segment *>(reader.next(4 * segments));
    const int64_t rank = reader.next();
    auto *axes = reinterpret_cast<const Axis *>(reader.next(4 * rank));
    const T *previous_line = nullptr, *previous_result = nullptr; // the result is copied if the source line is the same
    for (int64_t n = begin; n < end; ++n) {
        const T *line = x;
        T *to = out;
        bool inside = true;
        int64_t rest = n;
        for (int64_t a = rank; a-- > 0; rest /= axes[a].extent) {
            const Axis &axis = axes[a];
            const int64_t i = rest % axis.extent;
            to += i * axis.out_step;
            const int64_t place = axis.table ? args[axis.table + i] : i * axis.x_step;
            inside = inside && place >= 0;
            line += place;
        }
        if (!inside)
            std::fill_n(to, length, filler);
        else if (line == previous_line)
            std::memcpy(to, previous_result, static_cast<size_t>(length) * sizeof(T));
        else {
            T *at = to;
            for (int64_t s = 0; s < segments; at += segment[s++].count)
                write(segment[s], line, at, filler);
            previous_line = line, previous_result = to;
        }
    }
}

} // namespace

void add_line_loops(NamedLoops &loops) {
    each(Sizes {}, size_names, [&](auto element, const char *name) { add_loop(loops, "move_lines", name, &move_lines<decltype(element)>); });
}

} // namespace mgx
