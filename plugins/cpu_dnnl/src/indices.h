// Positions along axes, as indices give them.
#pragma once

#include "box.h"
#include "loops.h"

namespace mgx {

// Index tuples: for each of k components the extent of its axis, the stride there and the stride between components.
// numbers: whether indices are int64; what to do outside: 0 fail, 1 skip, 2 fail for negative ones too; k; then the components.
class Places {
public:
    Places(Numbers &numbers, const void *indices)
        : indices_(indices), wide_(numbers.next()), outside_(numbers.next()), count_(numbers.next()),
          components_(numbers.next(3 * count_)) {}

    // body(i, offset) for the places that `count` tuples from `at` on name, but for those outside
    template <typename Body>
    void each(int64_t at, int64_t step, int64_t count, const Body &body) const {
        if (wide_)
            walk(static_cast<const int64_t *>(indices_) + at, step, count, body);
        else
            walk(static_cast<const int32_t *>(indices_) + at, step, count, body);
    }

    // Whether each place is one index, and one outside is a fault: all elements that `pairs` takes from or puts along an axis.
    bool single() const { return count_ == 1 && outside_ != 1; }

    // body(source, target) for each of `count` indices from `at` on: both move by a step from place to place, and the one with
    // places, which is the source if `taken`, by the indices.
    template <bool taken, typename From, typename To, typename Body>
    void pairs(int64_t at, int64_t step, int64_t count, const From *from, int64_t in, To *to, int64_t out, const Body &body) const {
        const int64_t extent = components_[0], stride = components_[1], back = outside_ == 2 ? 0 : extent;
        if (wide_)
            paired<taken>(
                    static_cast<const int64_t *>(indices_) + at, step, count, from, in, to, out, extent, stride, back, body);
        else
            paired<taken>(
                    static_cast<const int32_t *>(indices_) + at, step, count, from, in, to, out, extent, stride, back, body);
    }

private:
    // In a function of its own, so that all its numbers stay in registers.
    template <bool taken, typename Index, typename From, typename To, typename Body>
    [[gnu::noinline]] static void paired(const Index *tuple, int64_t step, int64_t count, const From *from, int64_t in, To *to,
            int64_t out, int64_t extent, int64_t stride, int64_t back, const Body body) {
        for (int64_t i = 0; i < count; ++i, tuple += step, from += in, to += out) {
            const int64_t index = *tuple, place = index < 0 ? index + back : index;
            if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(extent)) return mgx_loop_failed(1, index);
            body(from + (taken ? place * stride : 0), to + (taken ? 0 : place * stride));
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

// The boxes of indices and of what lies at each place, cut where threads share them: axes of both are counted through; none
// is cut if `axis` is negative.
template <int Outer, int Inner>
void cut(Box<Outer> &outer, Box<Inner> &inner, int64_t axis, int64_t begin, int64_t end) {
    if (axis >= outer.rank)
        inner.cut(axis - outer.rank, begin, end);
    else if (axis >= 0)
        outer.cut(axis, begin, end);
}

// Slices of one operand at places that indices give, and those of another one in the order of the indices.
// Numbers: axis to cut; places; box of places (of the operands in the order of the buffers); box of a slice (source, target).
struct Slices {
    Numbers numbers;
    int64_t axis;
    Places places;
    Box<3> outer;
    Box<2> slice;

    Slices(const int64_t *args, const void *indices, int64_t begin, int64_t end)
        : numbers(args), axis(numbers.next()), places(numbers, indices), outer(numbers), slice(numbers) {
        cut(outer, slice, axis, begin, end);
    }

    // The operand with places is the first and the source if `taken`, else the target.
    // row(source, target, count) for slices that lie in one piece in both; one(source, target) where these are single elements;
    // else all(source, target), at the slices' first elements.
    template <bool taken, typename From, typename To, typename One, typename Row, typename All>
    void each(const From *sources, To *targets, const One &one, const Row &row, const All &all) const {
        constexpr int in = taken ? 0 : 2, out = 2 - in;
        const int64_t step = outer.step(in), over = outer.step(out);
        const int64_t count = slice.elements();
        const bool solid = slice.rank == 1 && slice.step(0) == 1 && slice.step(1) == 1;
        outer.lines([&](const int64_t *offset) {
            const From *from = sources + offset[in];
            To *to = targets + offset[out];
            const auto walk = [&](const auto &body) {
                places.each(offset[1], outer.step(1), outer.length(), [&](int64_t i, int64_t place) {
                    body(from + i * step + (taken ? place : 0), to + i * over + (taken ? 0 : place));
                });
            };
            if (count != 1 && !solid) return walk(all);
            from += slice.start[0];
            to += slice.start[1];
            if (count == 1 && places.single())
                places.template pairs<taken>(offset[1], outer.step(1), outer.length(), from, step, to, over, one);
            else if (count == 1)
                walk(one);
            else
                walk([&](const From *source, To *target) { row(source, target, count); });
        });
    }
};

} // namespace mgx
