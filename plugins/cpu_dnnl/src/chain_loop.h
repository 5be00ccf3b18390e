// Loops over rows that evaluate an encoded pointwise chain.  Included once per instruction set, with MGX_LANES, MGX_ISA and
// MGX_ADD_CHAINS.
#include <algorithm>

#include "chain.h"
#include "loops.h"

namespace mgx {

namespace {

constexpr int max_loads = 8, max_axes = 12;

// The loop's arguments, encoded by `jit/native_chains.py`.  Loads have an innermost stride of 0 or 1, the result of 1.
struct Chains {
    int64_t length, part, axes, loads, operations;
    const int64_t *extents, *buffers; // extents of the outer axes; buffer indices of the loads and the result
    const int64_t *inner, *steps;     // strides of loads and result: along a row; along each outer axis
    const Operation *chain;           // applied to the first load

    explicit Chains(const int64_t *args)
        : length(args[0]), part(args[1]), axes(args[2]), loads(args[3]), operations(args[4]), extents(args + 5), buffers(extents + axes),
          inner(buffers + loads + 1), steps(inner + loads + 1), chain(reinterpret_cast<const Operation *>(steps + axes * (loads + 1))) {}
};

template <int vectors> void whole_vectors(const Chains &c, const float *const *at, float *to) {
    Floats x[vectors];
    apply(c.chain, c.operations, c.inner, at, x, [](const float *from) __attribute__((always_inline)) { return load(from); });
    for (int v = 0; v < vectors; ++v)
        store(to + v * lanes, x[v]);
}

// Work items: parts of rows, in row-major order of the outer axes, parts innermost.
void chain_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Chains c(args);
    const int64_t parts = (c.length + c.part - 1) / c.part;
    int64_t index[max_axes] = {}, part = begin % parts, place[max_loads + 1] = {};
    int64_t rest = begin / parts;
    for (int64_t axis = c.axes - 1; axis >= 0; --axis) {
        index[axis] = rest % c.extents[axis];
        rest /= c.extents[axis];
        for (int64_t k = 0; k <= c.loads; ++k)
            place[k] += index[axis] * c.steps[axis * (c.loads + 1) + k];
    }
    for (int64_t item = begin; item < end; ++item) {
        const float *at[max_loads];
        const int64_t first = part * c.part;
        for (int64_t k = 0; k < c.loads; ++k)
            at[k] = static_cast<const float *>(buffers[c.buffers[k]]) + place[k] + first * c.inner[k];
        float *to = static_cast<float *>(buffers[c.buffers[c.loads]]) + place[c.loads] + first;
        int64_t left = std::min(c.part, c.length - first);
        auto advance = [&](int64_t columns) {
            left -= columns;
            to += columns;
            for (int64_t k = 0; k < c.loads; ++k)
                at[k] += columns * c.inner[k];
        };
        for (; left >= 8 * lanes; advance(8 * lanes))
            whole_vectors<8>(c, at, to);
        for (; left >= 4 * lanes; advance(4 * lanes))
            whole_vectors<4>(c, at, to);
        for (; left >= lanes; advance(lanes))
            whole_vectors<1>(c, at, to);
        if (left > 0) {
            Floats x[1];
            apply(c.chain, c.operations, c.inner, at, x, [left](const float *from) { return load_some(from, left); });
            store_some(to, x[0], left);
        }
        if (++part < parts) continue;
        part = 0;
        for (int64_t axis = c.axes - 1; axis >= 0; --axis) {
            const int64_t *along = c.steps + axis * (c.loads + 1);
            const bool on = ++index[axis] < c.extents[axis];
            for (int64_t k = 0; k <= c.loads; ++k)
                place[k] += on ? along[k] : -along[k] * (c.extents[axis] - 1);
            if (on) break;
            index[axis] = 0;
        }
    }
}

} // namespace

void MGX_ADD_CHAINS(NamedLoops &loops) { loops["chain_rows_" MGX_ISA] = chain_rows; }

} // namespace mgx
