// Time steps of sequences copied according to a number per sequence, its length or write position; caches; rows of loop outputs; int4.
#include <algorithm>
#include <cstring>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

enum Move : int64_t { reverse, keep, to_start, to_end, last };

int64_t number_at(const void *values, int64_t at, bool wide) {
    return wide ? static_cast<const int64_t *>(values)[at] : static_cast<const int32_t *>(values)[at];
}

// Returns the source step of output step t for a sequence of `length` valid out of `steps` steps; negative: the output is 0.
int64_t source_of(int64_t move, int64_t t, int64_t length, int64_t steps) {
    switch (move) {
        case reverse: return t < length ? length - 1 - t : t;
        case keep: return t < length ? t : -1;
        case to_start: return t < length ? t + steps - length : -1;
        case to_end: return t - (steps - length);
        default: return length - 1;
    }
}

// Buffers: x, lengths, out.  Arguments: move, steps of x, stride of steps in x, 1 if lengths are int64; box of output steps (x
// without its time axis, lengths, out, index along time); box of the elements of a step (x, out).  Work items: output steps.
template <typename T>
void by_length(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[2]);
    ArgReader reader(args);
    const int64_t move = reader.next(), steps = reader.next(), along = reader.next(), wide = reader.next();
    const Box<4> places(reader);
    const Box<2> step(reader);
    places.points(begin, end, [&](const int64_t *offset) {
        const int64_t length = number_at(buffers[1], offset[1], wide);
        if (length < 0 || length > steps) return mgx_loop_failed(1, length);
        const int64_t source = source_of(move, offset[3], length, steps);
        T *to = out + offset[2];
        if (source >= 0) return copy_box(step, x + offset[0] + source * along, to);
        step.lines([&](const int64_t *line) {
            for (int64_t i = 0; i < step.length(); ++i)
                to[line[1] + i * step.step(1)] = T {};
        });
    });
}

// Buffers: out, starts, updates.  Arguments: steps of out, stride of steps in out, 1 to wrap around at the end (ring buffer), 1 if
// starts are int64; box of the update steps (out without its time axis, starts, updates, index along time); box of the elements of
// a step (updates, out).  Work items: update steps.
template <typename T>
void put_steps(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *out = static_cast<T *>(buffers[0]);
    auto *updates = static_cast<const T *>(buffers[2]);
    ArgReader reader(args);
    const int64_t steps = reader.next(), along = reader.next(), circular = reader.next(), wide = reader.next();
    const Box<4> places(reader);
    const Box<2> step(reader);
    places.points(begin, end, [&](const int64_t *offset) {
        int64_t target = number_at(buffers[1], offset[1], wide) + offset[3];
        if (circular) target = (target % steps + steps) % steps;
        if (target < 0 || target >= steps) return mgx_loop_failed(1, target);
        copy_box(step, updates + offset[2], out + offset[0] + target * along);
    });
}

// Copies rows between tensors in which they are `near` and `far` elements apart.  row: the elements of a row in both.
template <typename T>
void copy_rows(const Box<2> &row, const T *from, int64_t near, T *to, int64_t far, int64_t count) {
    if (row.rank == 1 && row.step(0) == 1 && row.step(1) == 1 && near == row.length() && far == near) {
        std::memcpy(to, from, static_cast<size_t>(count * near) * sizeof(T));
        return;
    }
    for (int64_t t = 0; t < count; ++t)
        copy_box(row, from + t * near, to + t * far);
}

// Appends rows to caches.  Buffers: rows, number of each cache's rows less one, past, out.  Arguments: new rows, past rows, rows of
// out, stride of rows in each of the three, 1 if numbers are int64; box of caches (rows, numbers, past, out); boxes of the elements
// of a row (rows, out; past, out).  Work items: caches.
template <typename T>
void append_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *rows = static_cast<const T *>(buffers[0]);
    auto *past = static_cast<const T *>(buffers[2]);
    auto *out = static_cast<T *>(buffers[3]);
    ArgReader reader(args);
    const int64_t fresh = reader.next(), known = reader.next(), room = reader.next();
    const int64_t near = reader.next(), before = reader.next(), far = reader.next(), wide = reader.next();
    const Box<4> caches(reader);
    const Box<2> added(reader), kept(reader);
    caches.points(begin, end, [&](const int64_t *offset) {
        const int64_t last = std::max<int64_t>(number_at(buffers[1], offset[1], wide), -1); // the difference below cannot overflow
        if (last >= room) return mgx_loop_failed(1, last);
        const int64_t start = std::max<int64_t>(last + 1 - fresh, 0), stop = std::min(start + fresh, room);
        const T *old = past + offset[2];
        T *to = out + offset[3];
        const int64_t held = std::min(known, room), first = std::min(start, held);
        copy_rows(kept, old, before, to, far, first);
        copy_rows(added, rows + offset[0], near, to + start * far, far, stop - start);
        if (stop < held) copy_rows(kept, old + stop * before, before, to + stop * far, far, held - stop);
        for (int64_t t = first; t < room; ++t) {
            if (t < held || (t >= start && t < stop)) continue;
            kept.lines([&](const int64_t *line) {
                for (int64_t i = 0; i < kept.length(); ++i)
                    to[t * far + line[1] + i * kept.step(1)] = T {};
            });
        }
    });
}

// Copies a row to rows[first + counter * growth].  Buffers: rows, counter, row.  Arguments: bytes per row, first, growth.
void put_row(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    const int64_t at = args[1] + args[2] * *static_cast<const int64_t *>(buffers[1]);
    std::memcpy(static_cast<char *>(buffers[0]) + at * args[0], buffers[2], static_cast<size_t>(args[0]));
}

// Buffers: bytes, out.  Arguments: distance in out of the two elements of a byte, 1 if they are signed; box of bytes (bytes, out).
void unpack_int4(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *bytes = static_cast<const uint8_t *>(buffers[0]);
    auto *out = static_cast<uint8_t *>(buffers[1]);
    ArgReader reader(args);
    const int64_t later = reader.next(), sign = reader.next() ? 8 : 0;
    const Box<2> box(reader);
    box.points(begin, end, [&](const int64_t *offset) {
        const int64_t both = bytes[offset[0]];
        out[offset[1]] = static_cast<uint8_t>(((both & 15) ^ sign) - sign);
        out[offset[1] + later] = static_cast<uint8_t>(((both >> 4) ^ sign) - sign);
    });
}

// Buffers: x, bytes.  Arguments: distance in x of the two elements of a byte; box of bytes (x, bytes).
void pack_int4(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const uint8_t *>(buffers[0]);
    auto *bytes = static_cast<uint8_t *>(buffers[1]);
    ArgReader reader(args);
    const int64_t later = reader.next();
    const Box<2> box(reader);
    box.points(begin, end, [&](const int64_t *offset) {
        bytes[offset[1]] = static_cast<uint8_t>((x[offset[0]] & 15) | x[offset[0] + later] << 4);
    });
}

} // namespace

void add_sequence_loops(NamedLoops &loops) {
    each(Sizes {}, size_names, [&](auto element, const char *name) {
        using T = decltype(element);
        add_loop(loops, "by_length", name, &by_length<T>);
        add_loop(loops, "put_steps", name, &put_steps<T>);
        add_loop(loops, "append_rows", name, &append_rows<T>);
    });
    loops["put_row"] = &put_row;
    loops["unpack_int4"] = &unpack_int4;
    loops["pack_int4"] = &pack_int4;
}

} // namespace mgx
