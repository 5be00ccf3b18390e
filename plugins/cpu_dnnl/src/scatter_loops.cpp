// Updates combined with what lies at places that indices give.
#include "indices.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// integers wrap; a NaN on either side wins
struct Plus {
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        else
            return a + b;
    }
};
struct Times {
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
        else
            return a * b;
    }
};
struct Lesser {
    template <typename T>
    static T of(T a, T b) {
        return (a < b) | is_nan(a) ? a : b; // without a branch, which is taken by chance
    }
};
struct Greater {
    template <typename T>
    static T of(T a, T b) {
        return (a > b) | is_nan(a) ? a : b;
    }
};

// As `put`, with D the type of out and U that of the updates.
template <typename How, typename D, typename U>
void combine(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Slices slices(args, buffers[1], begin, end);
    const Box<2> &slice = slices.slice;
    const int64_t items = slice.length(), in = slice.step(0), over = slice.step(1);
    const auto combined = [](const U *from, D *to) { *to = How::of(*to, static_cast<D>(widened(*from))); };
    const auto row = [=](const U *__restrict from, D *__restrict to, int64_t count) { // out is none of the operands
        for (int64_t j = 0; j < count; ++j)
            combined(from + j, to + j);
    };
    slices.each<false>(static_cast<const U *>(buffers[2]), static_cast<D *>(buffers[0]), combined, row, [=, &slice](const U *from, D *to) {
        slice.lines([=](const int64_t *line) {
            const U *source = from + line[0];
            D *target = to + line[1];
            if (in == 1 && over == 1)
                for (int64_t j = 0; j < items; ++j)
                    combined(source + j, target + j);
            else
                for (int64_t j = 0; j < items; ++j)
                    combined(source + j * in, target + j * over);
        });
    });
}

template <typename How>
void add(NamedLoops &loops, const std::string &how) {
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        if constexpr (!std::is_same_v<T, Bool>) loops["put_" + how + "_" + name] = &combine<How, Wide<T>, T>;
    });
}

} // namespace

void add_scatter_loops(NamedLoops &loops) {
    add<Plus>(loops, "add");
    add<Times>(loops, "mul");
    add<Lesser>(loops, "min");
    add<Greater>(loops, "max");
    for (const char *how : {"add", "max"}) // of bools, which are 0 or 1
        loops[std::string("put_") + how + "_bool"] = &combine<Greater, uint8_t, uint8_t>;
    for (const char *how : {"mul", "min"})
        loops[std::string("put_") + how + "_bool"] = &combine<Lesser, uint8_t, uint8_t>;
}

} // namespace mgx
