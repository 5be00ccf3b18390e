// Evaluates an encoded chain of operations on loads, for several vectors at a time.  Included by sources that are compiled once
// per instruction set, so everything here has internal linkage.
#pragma once

#include "vectors.h"

namespace mgx {

namespace {

// One operation of a chain; the other operand is a load, or a constant if load < 0.
struct Operation {
    int64_t kind; // 0 add, 1 multiply, 2 maximum, 3 minimum
    int64_t load;
    int64_t constant; // bits of a float
};

// Maximum or minimum: with a constant, a NaN value is kept; of two values, NaN if either is.
inline Floats min_or_max(bool maximum, Floats x, Floats y, bool constant) {
    Floats best = maximum ? larger(y, x) : smaller(y, x);
    return constant ? best : y == y ? best : y;
}

// Computes `vectors` vectors of a chain's value.  inner: each load's innermost stride, 0 or 1; at: each load's address.  The
// first load is the initial value.
template <int vectors, class Load>
[[gnu::always_inline]] inline void apply(
        const Operation *chain, int64_t operations, const int64_t *inner, const float *const *at, Floats (&x)[vectors], Load read) {
    for (int v = 0; v < vectors; ++v)
        x[v] = inner[0] ? read(at[0] + v * lanes) : all(*at[0]);
    for (int64_t i = 0; i < operations; ++i) {
        const Operation &o = chain[i];
        Floats y[vectors];
        float constant;
        std::memcpy(&constant, &o.constant, sizeof constant);
        for (int v = 0; v < vectors; ++v)
            y[v] = o.load < 0 ? all(constant) : inner[o.load] ? read(at[o.load] + v * lanes) : all(*at[o.load]);
        for (int v = 0; v < vectors; ++v)
            switch (o.kind) {
            case 0: x[v] += y[v]; break;
            case 1: x[v] *= y[v]; break;
            default: x[v] = min_or_max(o.kind == 2, x[v], y[v], o.load < 0);
            }
    }
}

} // namespace

} // namespace mgx
