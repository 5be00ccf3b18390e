// Positions along axes, as indices give them.
#pragma once

#include "box.h"
#include "frame.h"

namespace mgx {

// What indices mean: for each of k components the extent of its axis, the stride there and the stride between components.
// numbers: whether indices are int64; what to do outside: 0 fail, 1 skip, 2 fail for negative ones too; k; then the components.
class Places {
public:
    Places(Numbers &numbers, const void *indices)
        : indices_(indices), wide_(numbers.next()), outside_(numbers.next()), count_(numbers.next()),
          components_(numbers.next(3 * count_)) {}

    bool single() const { return count_ == 1; }

    // The offset of the place that the tuple at `at` names; false where it is outside.
    bool find(int64_t at, int64_t &offset) const {
        offset = 0;
        for (int64_t c = 0; c < count_; ++c) {
            const int64_t *axis = components_ + 3 * c;
            int64_t index = read(at + c * axis[2]);
            if (index < (outside_ == 2 ? 0 : -axis[0]) || index >= axis[0]) {
                if (outside_ != 1) fail(index);
                return false;
            }
            offset += (index < 0 ? index + axis[0] : index) * axis[1];
        }
        return true;
    }

private:
    int64_t read(int64_t at) const {
        return wide_ ? static_cast<const int64_t *>(indices_)[at] : static_cast<const int32_t *>(indices_)[at];
    }
    static void fail(int64_t index) { mgx_loop_failed(1, index); }

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

} // namespace mgx
