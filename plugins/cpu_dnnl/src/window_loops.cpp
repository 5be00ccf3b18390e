// The maximum of each window of an image, and where it was found.
#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

struct Axis {
    int64_t extent, taps, stride, dilation, before; // of the image; of a window; padding before the image
    int64_t step, place; // strides in x, and of the place that is told
};

// Buffers: x; maxima and places, both row-major.  Numbers: elements of an image; spatial axes; seven numbers of each; windows
// along each; box of the images (x).
// Padding takes part with the lowest value and place -1.  Scratch memory: two
// numbers of each tap.  Work: windows.
template <typename T>
void maxima(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *places = static_cast<int64_t *>(buffers[2]);
    Numbers numbers(args);
    const int64_t size = numbers.next(), rank = numbers.next();
    auto *axes = reinterpret_cast<const Axis *>(numbers.next(7 * rank));
    const int64_t *counts = numbers.next(rank);
    const Box<1> images(numbers); // strides in x
    int64_t windows = 1, taps = 1;
    for (int64_t a = 0; a < rank; ++a) {
        windows *= counts[a];
        taps *= axes[a].taps;
    }
    auto *steps = static_cast<int64_t *>(scratch), *moves = steps + taps; // of the taps, in x and among the places
    for (int64_t t = 0; t < taps; ++t) {
        int64_t rest = t;
        steps[t] = moves[t] = 0;
        for (int64_t a = rank; a-- > 0; rest /= axes[a].taps) {
            const int64_t far = rest % axes[a].taps * axes[a].dilation;
            steps[t] += far * axes[a].step;
            moves[t] += far * axes[a].place;
        }
    }
    auto is_inside = [&](int64_t t, const int64_t *first) {
        bool inside = true;
        for (int64_t a = rank; a-- > 0; t /= axes[a].taps) {
            const int64_t i = first[a] + t % axes[a].taps * axes[a].dilation;
            inside = inside && i >= 0 && i < axes[a].extent;
        }
        return inside;
    };
    const T *at = x;
    for (int64_t n = begin, image = -1; n < end; ++n) {
        if (n / windows != image) {
            image = n / windows;
            images.points(image, image + 1, [&](const int64_t *offset) { at = x + offset[0]; });
        }
        int64_t rest = n % windows, first[most_axes], origin = 0, place = 0;
        bool whole = true;
        for (int64_t a = rank; a-- > 0; rest /= counts[a]) {
            first[a] = rest % counts[a] * axes[a].stride - axes[a].before;
            whole = whole && first[a] >= 0 && first[a] + (axes[a].taps - 1) * axes[a].dilation < axes[a].extent;
            origin += first[a] * axes[a].step;
            place += first[a] * axes[a].place;
        }
        W best {};
        int64_t where = 0;
        for (int64_t t = 0; t < taps; ++t) {
            const bool inside = whole || is_inside(t, first);
            const W c = inside ? widened(at[origin + steps[t]]) : lowest<W>();
            if (t && (is_nan(best) || !(is_nan(c) || c > best))) continue;
            best = c;
            where = inside ? place + moves[t] : -1;
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
