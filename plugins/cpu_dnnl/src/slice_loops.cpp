// Reductions of slices that differ in length (ReduceSlices).
#include <algorithm>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

constexpr int64_t columns = 64; // sums in registers and the first-level cache per pass over the rows of a slice
constexpr int64_t longest = 1024; // sums of more floats accumulate in double

enum class How { sum, mean, max, min };

// Returns a position within n rows, as Slice clips it.
int64_t clipped(int64_t at, int64_t n) { return std::clamp(at < 0 ? at + n : at, int64_t {0}, n); }

template <How how, typename Sum>
Sum combined(Sum sum, Sum x) {
    if constexpr (how == How::max)
        return x > sum || is_nan(x) ? x : sum;
    else if constexpr (how == How::min)
        return x < sum || is_nan(x) ? x : sum;
    else if constexpr (std::is_integral_v<Sum>) // wraps
        return static_cast<Sum>(static_cast<std::make_unsigned_t<Sum>>(sum) + static_cast<std::make_unsigned_t<Sum>>(x));
    else
        return sum + x;
}

template <How how, typename Sum>
Sum first() {
    if constexpr (how == How::max)
        return lowest<Sum>();
    else if constexpr (how == How::min)
        return std::numeric_limits<Sum>::has_infinity ? std::numeric_limits<Sum>::infinity() : std::numeric_limits<Sum>::max();
    else
        return Sum {0};
}

// Reduces `rows` rows of `width` elements.
template <How how, typename Sum, typename T>
void reduce_rows(const T *x, int64_t rows, int64_t width, T *out) {
    for (int64_t column = 0; column < width; column += columns) {
        const int64_t count = std::min(columns, width - column);
        Sum sums[columns];
        std::fill_n(sums, count, first<how, Sum>());
        for (int64_t i = 0; i < rows; ++i) {
            const T *row = x + i * width + column;
            for (int64_t j = 0; j < count; ++j)
                sums[j] = combined<how, Sum>(sums[j], static_cast<Sum>(widened(row[j])));
        }
        for (int64_t j = 0; j < count; ++j)
            store(out[column + j], how == How::mean ? static_cast<Sum>(sums[j] / static_cast<Sum>(rows)) : sums[j]);
    }
}

// Buffers: x [n, width], starts [k], ends [k], out [k, width].  Arguments: n, width.  Work items: slices.
template <How how, typename T>
void reduce_slices(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *starts = static_cast<const int64_t *>(buffers[1]), *ends = static_cast<const int64_t *>(buffers[2]);
    auto *out = static_cast<T *>(buffers[3]);
    ArgReader reader(args);
    const int64_t n = reader.next(), width = reader.next();
    for (int64_t k = begin; k < end; ++k) {
        const int64_t from = clipped(starts[k], n), rows = std::max(clipped(ends[k], n) - from, int64_t {0});
        const T *slice = x + from * width;
        if constexpr (std::is_same_v<Wide<T>, float> && (how == How::sum || how == How::mean))
            if (rows > longest) {
                reduce_rows<how, double>(slice, rows, width, out + k * width);
                continue;
            }
        reduce_rows<how, Wide<T>>(slice, rows, width, out + k * width);
    }
}

template <How how, typename Elements>
void add(NamedLoops &loops, const char *kind, Elements elements, const char *const *names) {
    each(elements, names, [&](auto element, const char *name) { add_loop(loops, kind, name, &reduce_slices<how, decltype(element)>); });
}

using Integers = Types<int32_t, int64_t>;
constexpr const char *integer_names[] = {"int32", "int64"};

} // namespace

void add_slice_loops(NamedLoops &loops) {
    add<How::sum>(loops, "reduce_slices_sum", Floating {}, floating_names);
    add<How::mean>(loops, "reduce_slices_mean", Floating {}, floating_names);
    add<How::max>(loops, "reduce_slices_max", Floating {}, floating_names);
    add<How::min>(loops, "reduce_slices_min", Floating {}, floating_names);
    add<How::sum>(loops, "reduce_slices_sum", Integers {}, integer_names);
    add<How::max>(loops, "reduce_slices_max", Integers {}, integer_names);
    add<How::min>(loops, "reduce_slices_min", Integers {}, integer_names);
}

} // namespace mgx
