// Iteration over multi-dimensional index ranges, with the offsets of several strided operands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace mgx {

constexpr int64_t most_axes = 32;

// Reads a loop's integer arguments in order.
class ArgReader {
public:
    explicit ArgReader(const int64_t *at) : at_(at) {}
    int64_t next() { return *at_++; }
    const int64_t *next(int64_t count) { return (at_ += count) - count; }

private:
    const int64_t *at_;
};

// An iteration space with N operands.  Encoded as: rank (at least 1), extents, then each operand's strides in elements.
template <int N>
struct Box {
    int64_t rank;
    int64_t dims[most_axes];
    int64_t steps[N][most_axes];
    int64_t start[N] = {};

    explicit Box(ArgReader &reader) : rank(reader.next()) {
        std::copy_n(reader.next(rank), rank, dims);
        for (int n = 0; n < N; ++n)
            std::copy_n(reader.next(rank), rank, steps[n]);
    }

    int64_t length() const { return dims[rank - 1]; } // extent of the innermost axis
    int64_t step(int n) const { return steps[n][rank - 1]; }

    void cut(int64_t axis, int64_t begin, int64_t end) {
        for (int n = 0; n < N; ++n)
            start[n] += begin * steps[n][axis];
        dims[axis] = end - begin;
    }

    // Calls body(offsets, count) for each run along the last axis that covers the elements [begin, end) in row-major order.
    template <typename Body>
    void runs(int64_t begin, int64_t end, const Body &body) const {
        if (begin >= end) return;
        int64_t at[most_axes], offset[N];
        std::copy_n(start, N, offset);
        int64_t rest = begin;
        for (int64_t axis = rank; axis-- > 0;) {
            at[axis] = rest % dims[axis];
            rest /= dims[axis];
            for (int n = 0; n < N; ++n)
                offset[n] += at[axis] * steps[n][axis];
        }
        for (int64_t done = begin; done < end;) {
            const int64_t count = std::min(end - done, length() - at[rank - 1]);
            body(static_cast<const int64_t *>(offset), count);
            done += count;
            for (int n = 0; n < N; ++n)
                offset[n] -= at[rank - 1] * step(n);
            at[rank - 1] = 0;
            for (int64_t axis = rank - 1; axis-- > 0;) {
                for (int n = 0; n < N; ++n)
                    offset[n] += steps[n][axis];
                if (++at[axis] < dims[axis]) break;
                for (int n = 0; n < N; ++n)
                    offset[n] -= steps[n][axis] * dims[axis];
                at[axis] = 0;
            }
        }
    }

    int64_t elements() const {
        int64_t count = 1;
        for (int64_t axis = 0; axis < rank; ++axis)
            count *= dims[axis];
        return count;
    }

    // Calls body(offsets) for every line: all indices of the outer axes.
    template <typename Body>
    void lines(const Body &body) const {
        runs(0, elements(), [&](const int64_t *offset, int64_t) { body(offset); });
    }

    // Calls body(offsets) for each of the elements [begin, end).
    template <typename Body>
    void points(int64_t begin, int64_t end, const Body &body) const {
        runs(begin, end, [&](const int64_t *offset, int64_t count) {
            int64_t now[N];
            std::copy_n(offset, N, now);
            for (int64_t i = 0; i < count; ++i) {
                body(static_cast<const int64_t *>(now));
                for (int n = 0; n < N; ++n)
                    now[n] += step(n);
            }
        });
    }
};

// Copies operand 0 of a box to operand 1.
template <typename T>
void copy_box(const Box<2> &box, const T *from, T *to) {
    const int64_t count = box.length(), in = box.step(0), out = box.step(1);
    const auto line = [&](const T *source, T *target) {
        if (in == 1 && out == 1)
            std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
        else
            for (int64_t i = 0; i < count; ++i)
                target[i * out] = source[i * in];
    };
    if (box.rank == 1) return line(from + box.start[0], to + box.start[1]);
    box.lines([&](const int64_t *offset) { line(from + offset[0], to + offset[1]); });
}

} // namespace mgx
