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
    const bool lone = slice.elements() == 1;
    const int64_t in = outer.step(2), over = outer.step(0);
    const int64_t items = slice.length(), item_in = slice.step(0), item_over = slice.step(1);
    auto combined = [](D &to, U from) { to = How::of(to, static_cast<D>(widened(from))); };
    outer.lines([&](const int64_t *offset) {
        const U *from = updates + offset[2];
        D *to = out + offset[0];
        if (lone) {
            from += slice.start[0];
            to += slice.start[1];
            places.each(offset[1], outer.step(1), outer.length(),
                    [&](int64_t i, int64_t place) { combined(to[place + i * over], from[i * in]); });
            return;
        }
        places.each(offset[1], outer.step(1), outer.length(), [&](int64_t i, int64_t place) {
            slice.lines([&](const int64_t *line) {
                const U *source = from + i * in + line[0];
                D *target = to + place + i * over + line[1];
                if (item_in == 1 && item_over == 1)
                    for (int64_t j = 0; j < items; ++j)
                        combined(target[j], source[j]);
                else
                    for (int64_t j = 0; j < items; ++j)
                        combined(target[j * item_over], source[j * item_in]);
            });
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
