// The maximum of each window of an image, and where it was found.
#include "box.h"
#include "named_loops.h"
#include "scalars.h"

namespace mgx {

namespace {

struct Axis {
    int64_t extent, taps, stride, dilation, before; // of the image; of a window; padding before the image
    int64_t step, place; // strides in x, and of the place that is told
};

// Buffers: x; maxima and places, both row-major.  Numbers: elements of an image; spatial axes; seven numbers of each; windows
// along each; box of the images (x).
// Padding takes part with the lowest value and place -1.  Work: windows.
template <typename T>
void maxima(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *places = static_cast<int64_t *>(buffers[2]);
    Numbers numbers(args);
    const int64_t size = numbers.next(), rank = numbers.next();
    auto *axes = reinterpret_cast<const Axis *>(numbers.next(7 * rank));
    const int64_t *counts = numbers.next(rank);
    const Box<1> images(numbers); // strides in x
    int64_t windows = 1;
    for (int64_t a = 0; a < rank; ++a)
        windows *= counts[a];
    for (int64_t n = begin; n < end; ++n) {
        const int64_t image = n / windows;
        int64_t rest = n % windows, first[most_axes], tap[most_axes] = {};
        for (int64_t a = rank; a-- > 0; rest /= counts[a])
            first[a] = rest % counts[a] * axes[a].stride - axes[a].before;
        const T *at = x;
        images.points(image, image + 1, [&](const int64_t *offset) { at = x + offset[0]; });
        W best {};
        int64_t where = 0;
        for (bool more = true, start = true; more; start = false) {
            int64_t offset = 0, place = 0;
            bool inside = true;
            for (int64_t a = 0; a < rank; ++a) {
                const int64_t i = first[a] + tap[a] * axes[a].dilation;
                inside = inside && i >= 0 && i < axes[a].extent;
                offset += i * axes[a].step;
                place += i * axes[a].place;
            }
            const W c = inside ? widened(at[offset]) : lowest<W>();
            if (start || (!is_nan(best) && (is_nan(c) || c > best))) {
                best = c;
                where = inside ? place : -1;
            }
            more = false;
            for (int64_t a = rank; a-- > 0 && !more;) {
                more = ++tap[a] < axes[a].taps;
                if (!more) tap[a] = 0;
            }
        }
        store(values[n], best);
        places[n] = where + image * size;
    }
}

} // namespace

void add_window_loops(NamedLoops &loops) {
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        if constexpr (!std::is_same_v<T, Bool>) loops[std::string("max_pool_indices_") + name] = &maxima<T>;
    });
}

} // namespace mgx
