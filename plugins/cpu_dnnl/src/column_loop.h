// Sums and means over non-contiguous axes, with an encoded pointwise chain as prologue.  Included once per instruction set, with
// MGX_LANES, MGX_ISA and MGX_ADD_COLUMNS.
#include <algorithm>

#include "chain.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int max_loads = 8, max_axes = 12;
constexpr int64_t block = 64; // rows per partial sum: blocked summation reduces the rounding error

// The loop's arguments, encoded by `jit/native_columns.py`.  Along the last kept axis, all operands have a stride of 0 or 1.
struct Columns {
    int64_t mean, count, width, kept, reduced, loads, operations;
    const int64_t *extents, *buffers; // extents of kept, then reduced axes; buffer indices of the loads and the result
    const int64_t *steps;             // strides of each axis: of all loads, then of the result
    const Operation *chain;           // applied to the first load

    explicit Columns(const int64_t *args)
        : mean(args[0]), count(args[1]), width(args[2]), kept(args[3]), reduced(args[4]), loads(args[5]), operations(args[6]),
          extents(args + 7), buffers(extents + kept + reduced), steps(buffers + loads + 1),
          chain(reinterpret_cast<const Operation *>(steps + (kept + reduced) * (loads + 1))) {}

    const int64_t *along(int64_t axis) const { return steps + axis * (loads + 1); }
};

// Adds one row of `vectors` vectors to the sums.
template <int vectors, class Load> [[gnu::always_inline]] inline void add_row(const Columns &c, const float *const *at, Floats *sums, Load read) {
    const int64_t *inner = c.along(c.kept - 1);
    Floats x[vectors];
    apply(c.chain, c.operations, inner, at, x, read);
    for (int v = 0; v < vectors; ++v)
        sums[v] += x[v];
}

// Adds a block's partial sums to the sums and clears them.
template <int vectors> [[gnu::always_inline]] inline void flush_partial_sums(Floats *part, Floats *sums) {
    for (int v = 0; v < vectors; ++v) {
        sums[v] += part[v];
        part[v] = Floats{};
    }
}

// Sums `vectors` vectors of columns over all reduced axes.
template <int vectors, class Load> void sum_columns(const Columns &c, const float *const *begin, Floats *sums, Load read) {
    const int64_t *extents = c.extents + c.kept;
    const int64_t last = c.reduced - 1;
    int64_t index[max_axes] = {};
    const float *row[max_loads];
    std::copy(begin, begin + c.loads, row);
    Floats part[vectors] = {};
    int64_t room = block;
    for (;;) {
        const float *at[max_loads];
        std::copy(row, row + c.loads, at);
        const int64_t *step = c.along(c.kept + last);
        for (int64_t rows = extents[last]; rows > 0;) {
            const int64_t here = std::min(rows, room);
            for (int64_t i = 0; i < here; ++i) {
                add_row<vectors>(c, at, part, read);
                for (int64_t k = 0; k < c.loads; ++k)
                    at[k] += step[k];
            }
            rows -= here;
            room -= here;
            if (room == 0) {
                flush_partial_sums<vectors>(part, sums);
                room = block;
            }
        }
        int64_t axis = last - 1;
        for (; axis >= 0; --axis) {
            const int64_t *along = c.along(c.kept + axis);
            const bool on = ++index[axis] < extents[axis];
            for (int64_t k = 0; k < c.loads; ++k)
                row[k] += on ? along[k] : -along[k] * (extents[axis] - 1);
            if (on) break;
            index[axis] = 0;
        }
        if (axis < 0) break;
    }
    flush_partial_sums<vectors>(part, sums);
}

template <int vectors> void whole_vectors(const Columns &c, const float *const *begin, float *out) {
    Floats sums[vectors] = {};
    sum_columns<vectors>(c, begin, sums, [](const float *from) __attribute__((always_inline)) { return load(from); });
    for (int v = 0; v < vectors; ++v)
        store(out + v * lanes, c.mean ? sums[v] / all(static_cast<float>(c.count)) : sums[v]);
}

void column_sums(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Columns c(args);
    const int64_t inner = c.extents[c.kept - 1], blocks = (inner + c.width - 1) / c.width, last = c.kept - 1;
    for (int64_t item = begin; item < end; ++item) {
        const float *at[max_loads];
        int64_t place[max_loads + 1];
        const int64_t first = item % blocks * c.width;
        for (int64_t k = 0; k <= c.loads; ++k)
            place[k] = first * c.along(last)[k];
        int64_t rest = item / blocks;
        for (int64_t axis = last - 1; axis >= 0; --axis) {
            const int64_t index = rest % c.extents[axis];
            rest /= c.extents[axis];
            for (int64_t k = 0; k <= c.loads; ++k)
                place[k] += index * c.along(axis)[k];
        }
        for (int64_t k = 0; k < c.loads; ++k)
            at[k] = static_cast<const float *>(buffers[c.buffers[k]]) + place[k];
        float *to = static_cast<float *>(buffers[c.buffers[c.loads]]) + place[c.loads];
        int64_t left = std::min(c.width, inner - first);
        auto advance = [&](int64_t columns) {
            left -= columns;
            to += columns;
            for (int64_t k = 0; k < c.loads; ++k)
                at[k] += columns * c.along(last)[k];
        };
        for (; left >= 4 * lanes; advance(4 * lanes))
            whole_vectors<4>(c, at, to);
        for (; left >= lanes; advance(lanes))
            whole_vectors<1>(c, at, to);
        if (left > 0) {
            Floats sum[1] = {};
            sum_columns<1>(c, at, sum, [left](const float *from) { return load_some(from, left); });
            store_some(to, c.mean ? sum[0] / all(static_cast<float>(c.count)) : sum[0], left);
        }
    }
}

} // namespace

void MGX_ADD_COLUMNS(NamedLoops &loops) { loops["column_sums_" MGX_ISA] = column_sums; }

} // namespace mgx
