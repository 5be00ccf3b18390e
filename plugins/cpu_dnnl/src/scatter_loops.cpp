// Scatter with a reduction: add, multiply, minimum, maximum.
#include "indices.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// Reductions.  Integers wrap: `signless` ones compute signed integers as unsigned.  NaN is propagated from either operand.
struct Plus {
    static constexpr bool signless = true;
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        else
            return a + b;
    }
};
struct Times {
    static constexpr bool signless = true;
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
        else
            return a * b;
    }
};
struct Lesser {
    static constexpr bool signless = false;
    template <typename T>
    static T of(T a, T b) {
        const T least = a < b ? a : b; // one instruction instead of an unpredictable branch
        return is_nan(a) ? a : least;
    }
};
struct Greater {
    static constexpr bool signless = false;
    template <typename T>
    static T of(T a, T b) {
        const T most = a > b ? a : b;
        return is_nan(a) ? a : most;
    }
};

// Buffers, arguments and work items as for `put`.  D: element type of out, U: of the updates.
template <typename How, typename D, typename U>
void combine(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Slices slices(args, buffers[1], begin, end);
    const Box<2> &slice = slices.slice;
    const int64_t items = slice.length(), in = slice.step(0), over = slice.step(1);
    const auto combined = [](const U *from, D *to) { *to = How::of(*to, static_cast<D>(widened(*from))); };
    // these are not inlined: shared by both index types
    const auto row = [=](const U *__restrict from, D *__restrict to, int64_t count) // out does not alias the operands
            __attribute__((noinline)) {
        for (int64_t j = 0; j < count; ++j)
            combined(from + j, to + j);
    };
    const auto all = [=, &slice](const U *from, D *to) __attribute__((noinline)) {
        slice.lines([=](const int64_t *line) {
            const U *source = from + line[0];
            D *target = to + line[1];
            if (in == 1 && over == 1)
                row(source, target, items);
            else
                for (int64_t j = 0; j < items; ++j)
                    combined(source + j * in, target + j * over);
        });
    };
    slices.each<false>(static_cast<const U *>(buffers[2]), static_cast<D *>(buffers[0]), combined, row, all);
}

template <typename How>
void add(NamedLoops &loops, const char *how) {
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        if constexpr (How::signless && std::is_integral_v<T>) {
            using Bits = std::make_unsigned_t<T>;
            add_loop(loops, how, name, &combine<How, Bits, Bits>);
        } else if constexpr (!std::is_same_v<T, Bool>)
            add_loop(loops, how, name, &combine<How, Wide<T>, T>);
    });
}

} // namespace

void add_scatter_loops(NamedLoops &loops) {
    add<Plus>(loops, "put_add");
    add<Times>(loops, "put_mul");
    add<Lesser>(loops, "put_min");
    add<Greater>(loops, "put_max");
    for (const char *how : {"put_add", "put_max"}) // bools are bytes 0 or 1
        add_loop(loops, how, "bool", &combine<Greater, uint8_t, uint8_t>);
    for (const char *how : {"put_mul", "put_min"})
        add_loop(loops, how, "bool", &combine<Lesser, uint8_t, uint8_t>);
}

} // namespace mgx
