// Cumulative sums and products along an axis.
#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

template <typename T>
using Sum = std::conditional_t<std::is_integral_v<Wide<T>>, T, double>; // floats accumulate in double, integers wrap

template <bool product, typename A, typename X>
inline A further(A a, X x) {
    if constexpr (std::is_integral_v<A>)
        return static_cast<A>(product ? static_cast<uint64_t>(a) * static_cast<uint64_t>(x)
                                      : static_cast<uint64_t>(a) + static_cast<uint64_t>(x));
    else
        return product ? a * static_cast<A>(x) : a + static_cast<A>(x);
}

// Buffers: x, out.  Arguments: n, strides along the axis in x and out (negative for a reverse scan; the buffers then point to the
// last element), 1 for an exclusive scan; box of the other axes (x, out).  Work items: lines along the axis.
template <typename T, bool product>
void scan(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    using A = Sum<T>;
    constexpr int64_t most = 1024; // elements of a row that are read and written in one go
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    ArgReader reader(args);
    const int64_t n = reader.next(), in = reader.next(), over = reader.next(), exclusive = reader.next();
    const Box<2> box(reader);
    if (in == 1 || in == -1) { // contiguous lines, one at a time
        box.points(begin, end, [&](const int64_t *offset) {
            const T *from = x + offset[0];
            T *to = out + offset[1];
            A running = product ? 1 : 0;
            for (int64_t i = 0; i < n; ++i, from += in, to += over) {
                const A before = running;
                running = further<product>(before, widened(*from));
                store(*to, exclusive ? before : running);
            }
        });
        return;
    }
    box.runs(begin, end, [&](const int64_t *offset, int64_t total) {
        for (int64_t first = 0; first < total; first += most) { // several adjacent lines at a time
            const int64_t count = std::min(most, total - first);
            const T *from = x + offset[0] + first * box.step(0);
            T *to = out + offset[1] + first * box.step(1);
            A running[most];
            for (int64_t j = 0; j < count; ++j)
                running[j] = product ? 1 : 0;
            for (int64_t i = 0; i < n; ++i, from += in, to += over) {
                auto go = [&](int64_t a, int64_t b) {
                    for (int64_t j = 0; j < count; ++j) {
                        const A before = running[j];
                        running[j] = further<product>(before, widened(from[j * a]));
                        store(to[j * b], exclusive ? before : running[j]);
                    }
                };
                box.step(0) == 1 && box.step(1) == 1 ? go(1, 1) : go(box.step(0), box.step(1));
            }
        }
    });
}

} // namespace

void add_scan_loops(NamedLoops &loops) {
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        if constexpr (!std::is_same_v<T, Bool>) {
            add_loop(loops, "scan_sum", name, &scan<T, false>);
            add_loop(loops, "scan_prod", name, &scan<T, true>);
        }
    });
}

} // namespace mgx
