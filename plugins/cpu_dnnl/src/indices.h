// Iteration over the positions that index tensors select.
#pragma once

#include "box.h"
#include "loops.h"

namespace mgx {

// Index tuples.  Encoded as: 1 if indices are int64; policy for out-of-bounds indices (0: fail, 1: skip, 2: fail, for negative
// indices too); number of components; then per component the extent and stride of its axis and the stride between components.
class IndexTuples {
public:
    IndexTuples(ArgReader &reader, const void *indices)
        : indices_(indices), wide_(reader.next()), outside_(reader.next()), count_(reader.next()),
          components_(reader.next(3 * count_)) {}

    // Calls body(i, offset) for each of `count` tuples from `at` on that is in bounds.
    template <typename Body>
    void each(int64_t at, int64_t step, int64_t count, const Body &body) const {
        if (wide_)
            walk(static_cast<const int64_t *>(indices_) + at, step, count, body);
        else
            walk(static_cast<const int32_t *>(indices_) + at, step, count, body);
    }

    // True if tuples have one component and out-of-bounds indices fail, as `pairs` requires.
    bool single() const { return count_ == 1 && outside_ != 1; }

    // Calls body(source, target) for each of `count` indices from `at` on: both advance by their strides, and the indexed one
    // (the source if `indexed_source`, else the target) is offset by the index.
    template <bool indexed_source, typename From, typename To, typename Body>
    void pairs(int64_t at, int64_t step, int64_t count, const From *from, int64_t in, To *to, int64_t out, const Body &body) const {
        const int64_t extent = components_[0], stride = components_[1], back = outside_ == 2 ? 0 : extent;
        if (wide_)
            paired<indexed_source>(
                    static_cast<const int64_t *>(indices_) + at, step, count, from, in, to, out, extent, stride, back, body);
        else
            paired<indexed_source>(
                    static_cast<const int32_t *>(indices_) + at, step, count, from, in, to, out, extent, stride, back, body);
    }

private:
    // Not inlined, so that all its variables stay in registers.
    template <bool indexed_source, typename Index, typename From, typename To, typename Body>
    [[gnu::noinline]] static void paired(const Index *tuple, int64_t step, int64_t count, const From *from, int64_t in, To *to,
            int64_t out, int64_t extent, int64_t stride, int64_t back, const Body body) {
        for (int64_t i = 0; i < count; ++i, tuple += step, from += in, to += out) {
            const int64_t index = *tuple, place = index < 0 ? index + back : index;
            if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(extent)) return mgx_loop_failed(1, index);
            body(from + (indexed_source ? place * stride : 0), to + (indexed_source ? 0 : place * stride));
        }
    }

    template <typename Index, typename Body>
    void walk(const Index *tuple, int64_t step, int64_t count, const Body &body) const {
        const bool negative = outside_ != 2;
        auto place = [&](int64_t index, const int64_t *axis, int64_t &offset) {
            const int64_t extent = axis[0];
            if (index < (negative ? -extent : 0) || index >= extent) {
                if (outside_ != 1) mgx_loop_failed(1, index);
                return false;
            }
            offset += (index < 0 ? index + extent : index) * axis[1];
            return true;
        };
        for (int64_t i = 0; i < count; ++i, tuple += step) {
            int64_t offset = 0;
            bool inside = place(tuple[0], components_, offset);
            for (int64_t c = 1; c < count_ && inside; ++c)
                inside = place(tuple[c * components_[2]], components_ + 3 * c, offset);
            if (inside) body(i, offset);
        }
    }

    const void *indices_;
    int64_t wide_, outside_, count_;
    const int64_t *components_;
};

// Restricts one axis of two nested boxes to [begin, end), for work shared among threads.  Axes of `inner` are numbered after
// those of `outer`; a negative axis restricts none.
template <int Outer, int Inner>
void cut(Box<Outer> &outer, Box<Inner> &inner, int64_t axis, int64_t begin, int64_t end) {
    if (axis >= outer.rank)
        inner.cut(axis - outer.rank, begin, end);
    else if (axis >= 0)
        outer.cut(axis, begin, end);
}

// Pairs of slices: of an indexed operand, and of an operand in the order of the indices.
// Arguments: axis to split; index tuples (`IndexTuples`); box of indices (operands in the order of the buffers); box of a slice
// (source, target).
struct Slices {
    ArgReader reader;
    int64_t axis;
    IndexTuples tuples;
    Box<3> outer;
    Box<2> slice;

    Slices(const int64_t *args, const void *indices, int64_t begin, int64_t end)
        : reader(args), axis(reader.next()), tuples(reader, indices), outer(reader), slice(reader) {
        cut(outer, slice, axis, begin, end);
    }

    // Calls a function for each pair of slices: one(source, target) for single elements; row(source, target, count) for slices
    // that are contiguous in both; otherwise all(source, target), with the slices' first elements.  The indexed operand is the
    // source (operand 0) if `indexed_source`, else the target.
    template <bool indexed_source, typename From, typename To, typename One, typename Row, typename All>
    void each(const From *sources, To *targets, const One &one, const Row &row, const All &all) const {
        constexpr int in = indexed_source ? 0 : 2, out = 2 - in;
        const int64_t step = outer.step(in), over = outer.step(out);
        const int64_t count = slice.elements();
        const bool solid = slice.rank == 1 && slice.step(0) == 1 && slice.step(1) == 1;
        outer.lines([&](const int64_t *offset) {
            const From *from = sources + offset[in];
            To *to = targets + offset[out];
            const auto walk = [&](const auto &body) {
                tuples.each(offset[1], outer.step(1), outer.length(), [&](int64_t i, int64_t place) {
                    body(from + i * step + (indexed_source ? place : 0), to + i * over + (indexed_source ? 0 : place));
                });
            };
            if (count != 1 && !solid) return walk(all);
            from += slice.start[0];
            to += slice.start[1];
            if (count == 1 && tuples.single())
                tuples.template pairs<indexed_source>(offset[1], outer.step(1), outer.length(), from, step, to, over, one);
            else if (count == 1)
                walk(one);
            else
                walk([&](const From *source, To *target) { row(source, target, count); });
        });
    }
};

} // namespace mgx
