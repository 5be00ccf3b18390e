// Resizing and padding of an axis whose extents are arguments: tables of the elements that each new element is made from, and loops
// that read them.  Loops for fixed extents have the tables as arguments instead.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

enum Positions : int64_t { half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, tf_half_pixel_for_nn };
enum Kind : int64_t { nearest, linear, cubic };
enum Nearest : int64_t { round_prefer_floor, round_prefer_ceil, round_down, round_up, simple };
enum Border : int64_t { constant, reflect, edge, wrap };

constexpr int64_t most_taps = 4;

// A row of a table: the number of taps, their elements, and their weights as bits of doubles.
struct Row {
    int64_t count, index[most_taps], weight[most_taps];
    double weight_of(int64_t tap) const { return same_bits<double>(weight[tap]); }
    void add(int64_t element, double factor) {
        for (int64_t t = 0; t < count; ++t) // elements beyond the border are clamped to it; weights of different signs stay apart
            if (index[t] == element && (weight_of(t) > 0) == (factor > 0) && (weight_of(t) < 0) == (factor < 0)) {
                weight[t] = same_bits<int64_t>(weight_of(t) + factor);
                return;
            }
        index[count] = element;
        weight[count++] = same_bits<int64_t>(factor);
    }
};

// An axis of `size` elements that gets `out` elements.
struct Resized {
    int64_t size, out, positions;
    double scale;

    // Returns the position of a new element on the old axis, rounded to P.
    template <typename P>
    P at(int64_t element) const {
        const auto i = static_cast<double>(element), old = static_cast<double>(size), made = static_cast<double>(out);
        switch (positions) {
        case half_pixel: return static_cast<P>((i + 0.5) / scale) - P(0.5);
        case half_pixel_symmetric:
            return static_cast<P>((i + 0.5) / scale) - P(0.5) + static_cast<P>(old / 2 * (1 - made / (scale * old)));
        case pytorch_half_pixel: return out <= 1 ? P(0) : static_cast<P>((i + 0.5) / scale) - P(0.5);
        case align_corners: return out > 1 ? static_cast<P>(i * (old - 1) / (old * scale - 1)) : P(0);
        case asymmetric: return static_cast<P>(i / scale);
        default: return static_cast<P>((i + 0.5) / scale);
        }
    }
    int64_t inside(double element) const { return static_cast<int64_t>(std::min(std::max(element, 0.0), static_cast<double>(size - 1))); }
};

double rounded(float at, int64_t how, double scale) {
    switch (how) {
    case round_prefer_floor: return std::ceil(at - 0.5f);
    case round_prefer_ceil: return std::floor(at + 0.5f);
    case round_up: return std::ceil(at);
    case simple: return scale < 1 ? std::ceil(at) : std::floor(at);
    default: return std::floor(at);
    }
}

double weight_at(double distance, int64_t kind, double a) {
    const double d = std::fabs(distance);
    if (kind == linear) return std::max(1 - d, 0.0);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0.0;
}

// The taps of a resized axis.  Buffers: table.  Arguments: extents before and after; kind of interpolation; kind of positions;
// rounding of positions; 1 to leave out elements beyond the border; 1 to leave out weights of 0; bits of the factor (0: the
// quotient of the extents) and of the cubic coefficient.
void resize_taps(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *table = static_cast<Row *>(buffers[0]);
    ArgReader reader(args);
    Resized axis {};
    axis.size = reader.next(), axis.out = reader.next();
    const int64_t kind = reader.next();
    axis.positions = reader.next();
    const int64_t rounding = reader.next();
    const bool exclude = reader.next() != 0, fast = reader.next() != 0;
    const auto factor = same_bits<double>(reader.next()), coefficient = same_bits<double>(reader.next());
    axis.scale = factor != 0 ? factor : static_cast<double>(axis.out) / static_cast<double>(axis.size);
    const int64_t first = kind == cubic ? -1 : 0, taps = kind == cubic ? 4 : 2;
    for (int64_t i = 0; i < axis.out; ++i) {
        Row &row = table[i] = {};
        if (axis.size == axis.out && axis.scale == 1) {
            row.add(i, 1);
        } else if (kind == nearest) {
            row.add(axis.inside(rounded(axis.at<float>(i), rounding, axis.scale)), 1);
        } else {
            const double at = axis.at<double>(i), low = std::floor(at);
            double weights[most_taps], total = 0;
            for (int64_t t = 0; t < taps; ++t) {
                const double element = low + static_cast<double>(first + t);
                weights[t] = weight_at(element - at, kind, coefficient);
                if (exclude && (element < 0 || element >= static_cast<double>(axis.size))) weights[t] = 0;
                total += weights[t];
            }
            for (int64_t t = 0; t < taps; ++t) {
                const double weight = exclude ? weights[t] / total : weights[t];
                if (weight != 0 || !fast) row.add(axis.inside(low + static_cast<double>(first + t)), weight);
            }
        }
    }
}

// The taps of a padded axis, none for a constant.  Buffers: table.  Arguments: extents before and after; padding before; border.
void pad_taps(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *table = static_cast<Row *>(buffers[0]);
    const int64_t size = args[0], out = args[1], before = args[2], border = args[3];
    const int64_t period = std::max<int64_t>(border == reflect ? 2 * (size - 1) : size, 1);
    for (int64_t i = 0; i < out; ++i) {
        Row &row = table[i] = {};
        const int64_t at = i - before, phase = (at % period + period) % period;
        if (border == constant && (at < 0 || at >= size)) continue;
        row.add(border == constant  ? at
                : border == edge    ? std::min(std::max<int64_t>(at, 0), size - 1)
                : border == reflect ? std::min(phase, period - phase) % size
                                    : phase,
                1);
    }
}

// Images with padding around.  Buffers: x [outer, h, row], out [outer, height, width], both dense.  Arguments: h, height, lines of
// padding above; row, width and padding before the row, in bytes; the padding, a byte.  Work items: outer * height.
void padded_image(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const char *>(buffers[0]);
    auto *out = static_cast<char *>(buffers[1]);
    const int64_t h = args[0], height = args[1], above = args[2], row = args[3], width = args[4], before = args[5];
    const auto filler = static_cast<int>(args[6]);
    for (int64_t item = begin; item < end; ++item) {
        char *to = out + item * width;
        const int64_t image = item / height, line = item % height - above;
        if (line < 0 || line >= h) {
            std::memset(to, filler, static_cast<size_t>(width));
            continue;
        }
        std::memset(to, filler, static_cast<size_t>(before));
        std::memcpy(to + before, x + (image * h + line) * row, static_cast<size_t>(row));
        std::memset(to + before + row, filler, static_cast<size_t>(width - before - row));
    }
}

// Elements copied along an axis.  Buffers: x [outer, n, inner], table, out [outer, m, inner], all dense.  Arguments: n, m, inner,
// bits of the element where a row has no tap.  Work items: outer * m.
template <typename T>
void copied_taps(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *table = static_cast<const Row *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    const int64_t n = args[0], m = args[1], inner = args[2];
    const auto filler = static_cast<T>(args[3]);
    int64_t line = begin / m, i = begin % m;
    for (int64_t item = begin; item < end; ++item, ++i) {
        if (i == m) i = 0, ++line;
        T *to = out + item * inner;
        const Row &row = table[i];
        if (!row.count)
            std::fill_n(to, inner, filler);
        else if (const T *from = x + (line * n + row.index[0]) * inner; inner == 1)
            *to = *from;
        else
            std::memcpy(to, from, static_cast<size_t>(inner) * sizeof(T));
    }
}

// Weighted sums along an axis, like `copied_taps` without a filler.
template <typename T>
void summed_taps(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *table = static_cast<const Row *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    const int64_t n = args[0], m = args[1], inner = args[2];
    int64_t line = begin / m, i = begin % m;
    for (int64_t item = begin; item < end; ++item, ++i) {
        if (i == m) i = 0, ++line;
        T *__restrict__ to = out + item * inner;
        const Row &row = table[i];
        const T *from[most_taps];
        T weight[most_taps];
        for (int64_t t = 0; t < row.count; ++t) {
            from[t] = x + (line * n + row.index[t]) * inner;
            weight[t] = static_cast<T>(row.weight_of(t));
        }
        if (row.count == 1) {
            for (int64_t c = 0; c < inner; ++c)
                to[c] = from[0][c] * weight[0];
        } else if (row.count == 2) {
            for (int64_t c = 0; c < inner; ++c)
                to[c] = from[0][c] * weight[0] + from[1][c] * weight[1];
        } else {
            std::fill_n(to, inner, T(0));
            for (int64_t t = 0; t < row.count; ++t)
                for (int64_t c = 0; c < inner; ++c)
                    to[c] += from[t][c] * weight[t];
        }
    }
}

} // namespace

void add_resize_loops(NamedLoops &loops) {
    loops["resize_taps"] = &resize_taps;
    loops["pad_taps"] = &pad_taps;
    loops["padded_image"] = &padded_image;
    each(Sizes {}, size_names, [&](auto element, const char *name) { add_loop(loops, "copied_taps", name, &copied_taps<decltype(element)>); });
    loops["summed_taps_float32"] = &summed_taps<float>;
    loops["summed_taps_float64"] = &summed_taps<double>;
}

} // namespace mgx
