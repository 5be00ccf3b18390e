// Loops that pick, place, search and order elements, one function for each element type, called like compiled loops:
// void f(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include <pybind11/pybind11.h>

#include "errors.h"
#include "frame.h"
#include "element_loops.h"

namespace py = pybind11;

namespace mgx {

namespace {

using Loop = void (*)(void *const *, const int64_t *, int64_t, int64_t, void *);

float half_to_float(uint16_t bits) {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    uint32_t wide;
    if (exponent == 31)
        wide = sign | 0x7f800000 | fraction << 13;
    else if (exponent)
        wide = sign | (exponent + 112) << 23 | fraction << 13;
    else {
        float small = static_cast<float>(fraction) * 5.9604644775390625e-8f; // 2^-24
        return sign ? -small : small;
    }
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

struct Half {
    uint16_t bits;
    operator float() const { return half_to_float(bits); }
};

struct Brain {
    uint16_t bits;
    operator float() const {
        uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
};

template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <typename T>
bool is_nan(T x) {
    return x != x;
}

// A position of an axis of n elements, negative ones counted from the end; false if it lies outside.
bool inside(int64_t &at, int64_t n) {
    if (at < -n || at >= n) return false;
    if (at < 0) at += n;
    return true;
}

// Positions in row-major order with the offset of some strided memory.
class Odometer {
public:
    Odometer(int64_t rank, const int64_t *dims, const int64_t *strides) : rank_(rank), dims_(dims), strides_(strides) {}
    void start(int64_t number) {
        offset = 0;
        for (int64_t a = rank_ - 1; a >= 0; --a) {
            at[a] = number % dims_[a];
            number /= dims_[a];
            offset += at[a] * strides_[a];
        }
    }
    void next() {
        for (int64_t a = rank_ - 1; a >= 0; --a) {
            offset += strides_[a];
            if (++at[a] < dims_[a]) return;
            offset -= at[a] * strides_[a];
            at[a] = 0;
        }
    }
    int64_t at[32] = {};
    int64_t offset = 0;

private:
    int64_t rank_;
    const int64_t *dims_, *strides_;
};

// picking and placing ----------------------------------------------------------------------------------------------------

// out[b, i] = data[b, indices[b, i, 0], .., indices[b, i, k - 1]], slices of some bytes.
// args: items a batch entry, k, slice bytes, bytes of a batch entry's data, then k extents and k steps in bytes.
template <typename I>
void gathernd(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *data = static_cast<const char *>(buffers[0]);
    auto *indices = static_cast<const I *>(buffers[1]);
    auto *out = static_cast<char *>(buffers[2]);
    int64_t items = args[0], k = args[1], slice = args[2], batch = args[3];
    const int64_t *extents = args + 4, *steps = extents + k;
    for (int64_t n = begin; n < end; ++n) {
        int64_t from = n / items * batch;
        for (int64_t j = 0; j < k; ++j) {
            int64_t at = indices[n * k + j];
            if (!inside(at, extents[j])) return mgx_loop_failed(1, at);
            from += at * steps[j];
        }
        std::memcpy(out + n * slice, data + from, static_cast<size_t>(slice));
    }
}

// out[i] = data[i but for the axis, where it is indices[i]].
// args: rank, axis, extent of data's axis, its step, then the dims of indices, then data's steps (0 for the axis).
template <typename T, typename I>
void gather_elements(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *data = static_cast<const T *>(buffers[0]);
    auto *indices = static_cast<const I *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    int64_t rank = args[0], extent = args[2], step = args[3];
    Odometer place(rank, args + 4, args + 4 + rank);
    place.start(begin);
    for (int64_t n = begin; n < end; ++n, place.next()) {
        int64_t at = indices[n];
        if (!inside(at, extent)) return mgx_loop_failed(1, at);
        out[n] = data[place.offset + at * step];
    }
}

struct Replace {
    template <typename T>
    static T of(T, T b) {
        return b;
    }
};
struct Add {
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        else
            return a + b;
    }
};
struct Mul {
    template <typename T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
        else
            return a * b;
    }
};
struct Min {
    template <typename T>
    static T of(T a, T b) {
        return is_nan(a) || a < b ? a : b;
    }
};
struct Max {
    template <typename T>
    static T of(T a, T b) {
        return is_nan(a) || a > b ? a : b;
    }
};

// Elements of updates into out, which holds the data.  args: elements, axis extent, its step, whether to skip positions
// outside, rank, dims of updates, out's steps (0 for the axis).  One item: collisions are taken in order.
template <typename T, typename Combine, typename I>
void scatter(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *indices = static_cast<const I *>(buffers[0]);
    auto *updates = static_cast<const T *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    int64_t count = args[0], extent = args[1], step = args[2], skip = args[3], rank = args[4];
    Odometer place(rank, args + 5, args + 5 + rank);
    place.start(0);
    for (int64_t n = 0; n < count; ++n, place.next()) {
        int64_t at = indices[n];
        if (!inside(at, extent)) {
            if (skip) continue;
            return mgx_loop_failed(1, at);
        }
        T &to = out[place.offset + at * step];
        to = Combine::of(to, updates[n]);
    }
}

// Slices of updates into out, which holds the data.  args: slices, k, elements of a slice, k extents, k steps.
template <typename T, typename Combine, typename I>
void scatternd(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *indices = static_cast<const I *>(buffers[0]);
    auto *updates = static_cast<const T *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    int64_t count = args[0], k = args[1], slice = args[2];
    const int64_t *extents = args + 3, *steps = extents + k;
    for (int64_t n = 0; n < count; ++n) {
        int64_t to = 0;
        for (int64_t j = 0; j < k; ++j) {
            int64_t at = indices[n * k + j];
            if (!inside(at, extents[j])) return mgx_loop_failed(1, at);
            to += at * steps[j];
        }
        for (int64_t s = 0; s < slice; ++s)
            out[to + s] = Combine::of(out[to + s], updates[n * slice + s]);
    }
}

// searching and ordering along an axis: items are lines of n elements, `inner` apart ---------------------------------------

template <typename T>
struct Ranked {
    Wide<T> key;
    int64_t at;
};

// Before in order: greater (or lesser) first, NaN as the greatest, of equals the lower index.
template <typename T, bool largest>
bool before(const Ranked<T> &a, const Ranked<T> &b) {
    if constexpr (!std::is_integral_v<T>) {
        bool p = is_nan(a.key), q = is_nan(b.key);
        if (p != q) return largest ? p : q;
        if (p) return a.at < b.at;
    }
    if (a.key != b.key) return largest ? a.key > b.key : a.key < b.key;
    return a.at < b.at;
}

// args: n, k, inner.  Buffers: x, values, int64 indices; scratch: n ranked elements.
template <typename T, bool largest>
void topk(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *indices = static_cast<int64_t *>(buffers[2]);
    int64_t n = args[0], k = args[1], inner = args[2];
    auto *line = static_cast<Ranked<T> *>(scratch);
    for (int64_t row = begin; row < end; ++row) {
        int64_t from = row / inner * n * inner + row % inner, to = row / inner * k * inner + row % inner;
        for (int64_t i = 0; i < n; ++i)
            line[i] = {static_cast<Wide<T>>(x[from + i * inner]), i};
        if (k < n) std::nth_element(line, line + k, line + n, before<T, largest>);
        std::sort(line, line + k, before<T, largest>);
        for (int64_t i = 0; i < k; ++i) {
            values[to + i * inner] = x[from + line[i].at * inner];
            indices[to + i * inner] = line[i].at;
        }
    }
}

// args: n, inner, whether the last of equals is wanted.  NaN wins; of several NaN the first (or last).
template <typename T, bool largest>
void position(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<int64_t *>(buffers[1]);
    int64_t n = args[0], inner = args[1];
    bool last = args[2] != 0;
    for (int64_t row = begin; row < end; ++row) {
        const T *line = x + row / inner * n * inner + row % inner;
        Wide<T> best = line[0];
        int64_t at = 0;
        for (int64_t i = 1; i < n; ++i) {
            Wide<T> y = line[i * inner];
            bool wins = largest ? y > best : y < best;
            if constexpr (!std::is_integral_v<T>) {
                if (is_nan(best))
                    wins = last && is_nan(y);
                else
                    wins = wins || is_nan(y) || (last && y == best);
            } else
                wins = wins || (last && y == best);
            if (wins) best = y, at = i;
        }
        out[row] = at;
    }
}

// args: n, inner, exclusive, reverse.  float32 is summed in float64, integers wrap around.
template <typename T, typename Combine>
void running(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    int64_t n = args[0], inner = args[1];
    bool exclusive = args[2] != 0, reverse = args[3] != 0;
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    for (int64_t row = begin; row < end; ++row) {
        int64_t first = row / inner * n * inner + row % inner;
        Sum total = std::is_same_v<Combine, Mul> ? 1 : 0;
        for (int64_t i = 0; i < n; ++i) {
            int64_t at = first + (reverse ? n - 1 - i : i) * inner;
            if (exclusive) out[at] = static_cast<T>(total);
            total = Combine::of(total, static_cast<Sum>(x[at]));
            if (!exclusive) out[at] = static_cast<T>(total);
        }
    }
}

// results whose extent depends on the data: memory for the most there can be, and how many there are --------------------

// args: elements, rank, dims.  Buffers: x, int64 positions [rank, elements], int64 count.
template <typename T>
void nonzero(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *positions = static_cast<int64_t *>(buffers[1]);
    int64_t elements = args[0], rank = args[1], found = 0;
    const int64_t steps[32] = {};
    Odometer place(rank, args + 2, steps);
    if (elements) place.start(0);
    for (int64_t i = 0; i < elements; ++i, place.next()) {
        if (static_cast<Wide<T>>(x[i]) == 0) continue;
        for (int64_t a = 0; a < rank; ++a)
            positions[a * elements + found] = place.at[a];
        ++found;
    }
    *static_cast<int64_t *>(buffers[2]) = found;
}

template <typename T>
struct Box {
    T low[2], high[2], area;
};

// One batch entry and class an item.  args: boxes, classes, most that fit, whether boxes are centres, whether there is a
// score threshold.  Buffers: boxes, scores, int64 most, overlap, least score, int64 kept [items, most that fit], int64
// counts [items]; scratch: boxes and ranked scores.
template <typename T>
void best_boxes(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    int64_t n = args[0], classes = args[1], room = args[2];
    bool centres = args[3] != 0, thresholded = args[4] != 0;
    int64_t most = std::min(*static_cast<const int64_t *>(buffers[2]), room);
    T overlap = *static_cast<const T *>(buffers[3]);
    T least = *static_cast<const T *>(buffers[4]);
    if (!(overlap >= 0 && overlap <= 1)) return mgx_loop_failed(3, 0);
    auto *corners = static_cast<Box<T> *>(scratch);
    auto *order = reinterpret_cast<Ranked<T> *>(corners + n);
    for (int64_t item = begin; item < end; ++item) {
        auto *boxes = static_cast<const T *>(buffers[0]) + item / classes * n * 4;
        auto *scores = static_cast<const T *>(buffers[1]) + item * n;
        auto *kept = static_cast<int64_t *>(buffers[5]) + item * room;
        int64_t left = 0, count = 0;
        for (int64_t i = 0; i < n && most > 0; ++i)
            if (!thresholded || scores[i] > least) order[left++] = {scores[i], i};
        std::sort(order, order + left, [](const Ranked<T> &a, const Ranked<T> &b) {
            bool p = is_nan(a.key), q = is_nan(b.key); // last
            if (p != q) return q;
            return a.key != b.key && !p ? a.key > b.key : a.at < b.at;
        });
        for (int64_t r = 0; r < left && count < most; ++r) {
            const T *given = boxes + order[r].at * 4;
            Box<T> box;
            for (int a = 0; a < 2; ++a) {
                box.low[a] = centres ? given[a] - given[a + 2] / 2 : std::min(given[a], given[a + 2]);
                box.high[a] = centres ? given[a] + given[a + 2] / 2 : std::max(given[a], given[a + 2]);
            }
            box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
            bool covered = false;
            for (int64_t k = 0; k < count && !covered; ++k) {
                const Box<T> &other = corners[k];
                T high = std::min(other.high[0], box.high[0]) - std::max(other.low[0], box.low[0]);
                T wide = std::min(other.high[1], box.high[1]) - std::max(other.low[1], box.low[1]);
                T shared = std::max(high, T {0}) * std::max(wide, T {0});
                T whole = other.area + box.area - shared;
                covered = other.area > 0 && box.area > 0 && whole > 0 && shared / whole > overlap;
            }
            if (covered) continue;
            corners[count] = box;
            kept[count++] = order[r].at;
        }
        static_cast<int64_t *>(buffers[6])[item] = count;
    }
}

// args: items, classes, room of an item.  Buffers: kept, counts, int64 found [.., 3], int64 total.
void join_boxes(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *kept = static_cast<const int64_t *>(buffers[0]), *counts = static_cast<const int64_t *>(buffers[1]);
    auto *out = static_cast<int64_t *>(buffers[2]);
    int64_t total = 0;
    for (int64_t item = 0; item < args[0]; ++item)
        for (int64_t i = 0; i < counts[item]; ++i, ++total) {
            out[3 * total] = item / args[1];
            out[3 * total + 1] = item % args[1];
            out[3 * total + 2] = kept[item * args[2] + i];
        }
    *static_cast<int64_t *>(buffers[3]) = total;
}

// names ------------------------------------------------------------------------------------------------------------------

using Table = std::map<std::string, Loop>;

template <typename T>
void searches(Table &table, const std::string &type) {
    table["topk_largest_" + type] = topk<T, true>;
    table["topk_smallest_" + type] = topk<T, false>;
    table["argmax_" + type] = position<T, true>;
    table["argmin_" + type] = position<T, false>;
    table["nonzero_" + type] = nonzero<T>;
}

template <typename T, typename Combine>
void placing(Table &table, const std::string &kind, const std::string &type) {
    table["scatter_" + kind + "_" + type + "_int32"] = scatter<T, Combine, int32_t>;
    table["scatter_" + kind + "_" + type + "_int64"] = scatter<T, Combine, int64_t>;
    table["scatternd_" + kind + "_" + type + "_int32"] = scatternd<T, Combine, int32_t>;
    table["scatternd_" + kind + "_" + type + "_int64"] = scatternd<T, Combine, int64_t>;
}

template <typename T>
void numbers(Table &table, const std::string &type) {
    searches<T>(table, type);
    table["sum_" + type] = running<T, Add>;
    table["prod_" + type] = running<T, Mul>;
    placing<T, Add>(table, "add", type);
    placing<T, Mul>(table, "mul", type);
    placing<T, Min>(table, "min", type);
    placing<T, Max>(table, "max", type);
}

template <typename T>
void moves(Table &table, const std::string &bits) {
    placing<T, Replace>(table, "none", bits);
    table["gather_elements_" + bits + "_int32"] = gather_elements<T, int32_t>;
    table["gather_elements_" + bits + "_int64"] = gather_elements<T, int64_t>;
}

const Table &table() {
    static const auto *made = [] {
        auto *t = new Table();
        numbers<float>(*t, "float32");
        numbers<double>(*t, "float64");
        numbers<int8_t>(*t, "int8");
        numbers<uint8_t>(*t, "uint8");
        numbers<int16_t>(*t, "int16");
        numbers<uint16_t>(*t, "uint16");
        numbers<int32_t>(*t, "int32");
        numbers<uint32_t>(*t, "uint32");
        numbers<int64_t>(*t, "int64");
        numbers<uint64_t>(*t, "uint64");
        searches<Half>(*t, "float16");
        searches<Brain>(*t, "bfloat16");
        searches<uint8_t>(*t, "bool");
        moves<uint8_t>(*t, "8");
        moves<uint16_t>(*t, "16");
        moves<uint32_t>(*t, "32");
        moves<uint64_t>(*t, "64");
        (*t)["gathernd_int32"] = gathernd<int32_t>;
        (*t)["gathernd_int64"] = gathernd<int64_t>;
        (*t)["best_boxes_float32"] = best_boxes<float>;
        (*t)["best_boxes_float64"] = best_boxes<double>;
        (*t)["join_boxes"] = join_boxes;
        return t;
    }();
    return *made;
}

} // namespace

void bind_element_loops(py::module_ &module) {
    module.def("index_loops", [] {
        py::dict found;
        for (auto &[name, loop] : table())
            found[py::str(name)] = reinterpret_cast<size_t>(loop);
        return found;
    });
    module.def("index_loop", [](const std::string &name) {
        auto found = table().find(name);
        if (found == table().end()) throw Failure(Fault::unsupported, "there is no loop " + name);
        return reinterpret_cast<size_t>(found->second);
    });
}

} // namespace mgx
