// Updates combined with what lies at places that indices give.
#include "named_loops.h"
#include "places.h"
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
        return a < b || is_nan(a) ? a : b;
    }
};
struct Greater {
    template <typename T>
    static T of(T a, T b) {
        return a > b || is_nan(a) ? a : b;
    }
};

// As `put`, with D the type of out and U that of the updates.
template <typename How, typename D, typename U>
void combine(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *out = static_cast<D *>(buffers[0]);
    auto *updates = static_cast<const U *>(buffers[2]);
    Numbers numbers(args);
    const int64_t axis = numbers.next();
    const Places places(numbers, buffers[1]);
    Box<3> outer(numbers);
    Box<2> slice(numbers);
    cut(outer, slice, axis, begin, end);
    const int64_t count = outer.length(), items = slice.length(), in = slice.step(0), over = slice.step(1);
    outer.lines([&](const int64_t *offset) {
        for (int64_t i = 0; i < count; ++i) {
            int64_t place;
            if (!places.find(offset[1] + i * outer.step(1), place)) continue;
            D *to = out + place + offset[0] + i * outer.step(0);
            const U *from = updates + offset[2] + i * outer.step(2);
            slice.lines([&](const int64_t *line) {
                const U *source = from + line[0];
                D *target = to + line[1];
                if (in == 1 && over == 1)
                    for (int64_t j = 0; j < items; ++j)
                        target[j] = How::of(target[j], static_cast<D>(widened(source[j])));
                else
                    for (int64_t j = 0; j < items; ++j)
                        target[j * over] = How::of(target[j * over], static_cast<D>(widened(source[j * in])));
            });
        }
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
