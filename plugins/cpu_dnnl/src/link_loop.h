// Applies encoded epilogues (`links.h`) to vectors of MGX_LANES floats: activations and elementwise operations with operands.
#pragma once

#include "links.h"
#include "vectors.h"

#define MGX_INLINE inline __attribute__((always_inline))

namespace {

using namespace mgx;

// Results of a tile: `columns` vectors per row, `size` in total.  One function serves tiles of all sizes.
struct Results {
    Floats *at;
    int columns, size;
};

// Results of one row of known size: a function of its own for small tiles, in which the loop's overhead matters.
template <int SIZE>
struct RowOfResults {
    static constexpr int columns = SIZE, size = SIZE;
    Floats *at;
};

template <typename F>
MGX_INLINE void map(Results v, const F &f) {
#pragma GCC unroll 4
    for (int n = 0; n < v.size; ++n)
        v.at[n] = f(v.at[n]);
}

template <int SIZE, typename F>
MGX_INLINE void map(RowOfResults<SIZE> v, const F &f) {
    for (int n = 0; n < SIZE; ++n)
        v.at[n] = f(v.at[n]);
}

// The valid outputs of a tile of some columns and the valid channels of a vector.
struct Part {
    int64_t rows, columns, count;
};

template <typename R, typename T, typename Combine>
MGX_INLINE void combine(R v, const Link &link, const T *from, Part part, const Combine &with) {
    auto read = [&](const T *at) {
        return link.channel == 0 ? all(number(*at)) : part.count == lanes ? load(at) : load_some(at, part.count);
    };
    if (link.row == 0 && link.column == 0) {
        const Floats same = read(from);
        return map(v, [&](Floats a) { return with(a, same); });
    }
    for (int64_t row = 0; row < part.rows; ++row)
        for (int64_t column = 0; column < part.columns; ++column) {
            Floats &one = v.at[row * v.columns + column];
            one = with(one, read(from + row * link.row + column * link.column));
        }
}

// Applies a link to the results of a tile, a `Results` or `RowOfResults`; T: float, or uint16_t for bfloat16.  Neither inlined nor
// cloned, which would compile it for each use.
template <typename R, typename T>
[[gnu::noinline, gnu::noclone]] void apply(const Link &link, R v, const T *from, Part part) {
    const Floats alpha = all(link.alpha), beta = all(link.beta);
    auto binary = [&](auto with) { combine(v, link, from, part, with); };
    switch (link.kind) {
        case LinkKind::add: return binary([](Floats a, Floats b) { return a + b; });
        case LinkKind::mul: return binary([](Floats a, Floats b) { return a * b; });
        case LinkKind::sub: return binary([](Floats a, Floats b) { return a - b; });
        case LinkKind::div: return binary([](Floats a, Floats b) { return a / b; });
        case LinkKind::max: return binary([](Floats a, Floats b) { return a < b ? b : a; });
        case LinkKind::min: return binary([](Floats a, Floats b) { return a > b ? b : a; });
        case LinkKind::relu: return map(v, [&](Floats a) { return a < 0.0f ? a * alpha : a; });
        case LinkKind::linear: return map(v, [&](Floats a) { return a * alpha + beta; });
        case LinkKind::clip:
            return map(v, [&](Floats a) {
                a = a < alpha ? alpha : a;
                return a > beta ? beta : a;
            });
        case LinkKind::logistic: return map(v, [](Floats a) { return sigmoid(a); });
        case LinkKind::swish: return map(v, [&](Floats a) { return a / (1.0f + exponential(-alpha * a)); });
        case LinkKind::hardswish:
            return map(v, [&](Floats a) {
                Floats gate = a * alpha + beta;
                gate = gate < 0.0f ? all(0.0f) : gate;
                return a * (gate > 1.0f ? all(1.0f) : gate);
            });
        case LinkKind::tanh: return map(v, [](Floats a) { return hyperbolic(a); });
        case LinkKind::gelu_erf: return map(v, [](Floats a) { return 0.5f * a * (1.0f + error_function(a * 0.70710678f)); });
        case LinkKind::gelu_tanh:
            return map(v, [](Floats a) { return 0.5f * a * (1.0f + hyperbolic(a * (0.79788456f + 0.035677408f * (a * a)))); });
    }
}

// The indices of the first result of a tile.
struct Place {
    int64_t image, row, column, channel;
};

// Returns the operand of a binary link from the first result on; null for other links.
template <typename T>
MGX_INLINE const T *operand_of(const Link &link, void *const *buffers, Place place) {
    if (link.kind > LinkKind::min) return nullptr;
    return static_cast<const T *>(buffers[link.buffer]) + place.image * link.image + place.row * link.row
            + place.column * link.column + place.channel * link.channel;
}

// Decodes links, of eight integers each.
inline void read_links(const int64_t *at, int64_t count, Link *links) {
    for (int64_t n = 0; n < count; ++n, at += 8) {
        Link &link = links[n];
        link.kind = static_cast<LinkKind>(at[0]);
        std::memcpy(&link.alpha, at + 1, sizeof link.alpha);
        std::memcpy(&link.beta, at + 2, sizeof link.beta);
        link.buffer = at[3];
        link.image = at[4];
        link.row = at[5];
        link.column = at[6];
        link.channel = at[7];
    }
}

} // namespace
