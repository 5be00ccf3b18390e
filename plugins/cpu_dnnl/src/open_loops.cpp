// Ops with data-dependent output extents (NonZero, NonMaxSuppression, Compress, Unique): outputs have room for the upper bound, and
// the number of elements written is an output, too.
#include <algorithm>
#include <limits>
#include <numeric>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// NonZero.  Buffers: x, positions [rank, most], count.  Arguments: most, the upper bound of the count; box of x, in row-major
// order with one axis per axis of x.
template <typename T>
void nonzero(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *positions = static_cast<int64_t *>(buffers[1]);
    ArgReader reader(args);
    const int64_t most = reader.next();
    const Box<1> box(reader);
    int64_t found = 0, at[most_axes] = {};
    box.lines([&](const int64_t *offset) {
        const T *line = x + offset[0];
        for (int64_t i = 0; i < box.length(); ++i) {
            if (widened(line[i * box.step(0)]) == 0) continue;
            for (int64_t a = 0; a + 1 < box.rank; ++a)
                positions[a * most + found] = at[a];
            positions[(box.rank - 1) * most + found++] = i;
        }
        for (int64_t a = box.rank - 1; a-- > 0;) {
            if (++at[a] < box.dims[a]) break;
            at[a] = 0;
        }
    });
    *static_cast<int64_t *>(buffers[2]) = found;
}

template <typename T>
T lesser(T a, T b) {
    return a < b || a != a ? a : b;
}

template <typename T>
T greater(T a, T b) {
    return a > b || a != a ? a : b;
}

template <typename T>
struct Corners {
    T low[2], high[2], area;

    Corners(const T *box, bool center) {
        for (int i = 0; i < 2; ++i) {
            const T a = box[i], b = box[2 + i];
            low[i] = center ? a - b / 2 : lesser(a, b);
            high[i] = center ? a + b / 2 : greater(a, b);
        }
        area = (high[0] - low[0]) * (high[1] - low[1]);
    }
};

// Corners of the boxes selected so far, as structure of arrays, so that comparisons are vectorized.
template <typename T>
struct Chosen {
    T *low0, *low1, *high0, *high1, *area;
    int64_t count = 0;

    Chosen(T *room, int64_t most) : low0(room), low1(room + most), high0(low1 + most), high1(high0 + most), area(high1 + most) {}

    void add(const Corners<T> &box) {
        low0[count] = box.low[0], low1[count] = box.low[1];
        high0[count] = box.high[0], high1[count] = box.high[1];
        area[count++] = box.area;
    }

    // True if the IoU exceeds `most`.  A box with a NaN corner has a NaN area and overlaps nothing.
    bool overlap_at(int64_t i, const Corners<T> &box, T most) const {
        const T top = low0[i] > box.low[0] ? low0[i] : box.low[0], left = low1[i] > box.low[1] ? low1[i] : box.low[1];
        const T bottom = high0[i] < box.high[0] ? high0[i] : box.high[0];
        const T right = high1[i] < box.high[1] ? high1[i] : box.high[1];
        const T down = bottom - top > 0 ? bottom - top : T {0}, across = right - left > 0 ? right - left : T {0};
        const T shared = down * across, both = area[i] + box.area - shared;
        return (area[i] > 0) & (box.area > 0) & (both > 0) & (shared / both > most);
    }

    bool overlap(const Corners<T> &box, T most) const {
        constexpr int64_t block = 16;
        int64_t i = 0;
        for (; i + block <= count; i += block) {
            int any = 0;
            for (int64_t j = i; j < i + block; ++j)
                any |= overlap_at(j, box, most);
            if (any) return true;
        }
        for (; i < count; ++i)
            if (overlap_at(i, box, most)) return true;
        return false;
    }
};

// A box with its score.  The best candidate is the greatest; on equal scores, the one with the lowest index.
template <typename Key>
struct Candidate {
    Key key;
    int64_t box;
    bool operator<(const Candidate &other) const { return key != other.key ? key < other.key : box > other.box; }
};

// NonMaxSuppression, selection per batch entry and class.  Buffers: boxes [batch, n, 4], scores [batch, classes, n], maximum
// number of boxes, IoU threshold, score threshold, kept [items, room], counts [items].  Arguments: n, classes, room, 1 for boxes
// given by center and size, 1 if there is a score threshold.  Scratch memory: n corners and candidates.  Work items: (batch
// entry, class).
template <typename T>
void best_boxes(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using Key = decltype(ordered(T {}));
    ArgReader reader(args);
    const int64_t n = reader.next(), classes = reader.next(), room = reader.next();
    const bool center = reader.next(), limited = reader.next();
    const int64_t most = std::min(*static_cast<const int64_t *>(buffers[2]), room);
    const T overlap = *static_cast<const T *>(buffers[3]), least = *static_cast<const T *>(buffers[4]);
    if (!(overlap >= 0 && overlap <= 1)) return mgx_loop_failed(3, 0);
    const int64_t even = (n + 1) / 2 * 2; // keeps the candidates aligned
    auto *heap = reinterpret_cast<Candidate<Key> *>(static_cast<T *>(scratch) + 5 * even);
    for (int64_t item = begin; item < end; ++item) {
        auto *boxes = static_cast<const T *>(buffers[0]) + item / classes * n * 4;
        auto *scores = static_cast<const T *>(buffers[1]) + item * n;
        auto *kept = static_cast<int64_t *>(buffers[5]) + item * room;
        Chosen<T> chosen(static_cast<T *>(scratch), n);
        int64_t left = 0;
        for (int64_t i = 0; i < n && most > 0; ++i)
            if (!limited || scores[i] > least) heap[left++] = {is_nan(scores[i]) ? Key {0} : ordered(scores[i]), i};
        const bool few = left > 2 * most; // a heap is cheaper than sorting all if few are selected
        few ? std::make_heap(heap, heap + left) : std::sort(heap, heap + left);
        while (left && chosen.count < most) {
            if (few) std::pop_heap(heap, heap + left);
            const int64_t box = heap[--left].box;
            const Corners<T> own(boxes + box * 4, center);
            if (chosen.overlap(own, overlap)) continue;
            kept[chosen.count] = box;
            chosen.add(own);
        }
        static_cast<int64_t *>(buffers[6])[item] = chosen.count;
    }
}

// NonMaxSuppression, concatenation.  Buffers: kept [items, room], counts [items], out [.., 3] (batch, class, box), total.
// Arguments: items, classes, room.
void join_boxes(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *kept = static_cast<const int64_t *>(buffers[0]), *counts = static_cast<const int64_t *>(buffers[1]);
    auto *out = static_cast<int64_t *>(buffers[2]);
    ArgReader reader(args);
    const int64_t items = reader.next(), classes = reader.next(), room = reader.next();
    int64_t total = 0;
    for (int64_t item = 0; item < items; ++item)
        for (int64_t i = 0; i < counts[item]; ++i, ++total) {
            *out++ = item / classes;
            *out++ = item % classes;
            *out++ = kept[item * room + i];
        }
    *static_cast<int64_t *>(buffers[3]) = total;
}

// Compress.  Buffers: x, condition, out, count.  Arguments: entries of the condition; strides of slices in x and out, and of the
// condition; box of a slice (x, out).
template <typename T>
void compress(void *const *buffers, const int64_t *args, int64_t, int64_t, void *) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *condition = static_cast<const uint8_t *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    ArgReader reader(args);
    const int64_t entries = reader.next(), in = reader.next(), over = reader.next(), step = reader.next();
    const Box<2> slice(reader);
    const int64_t count = slice.elements();
    const bool solid = slice.rank == 1 && slice.step(0) == 1 && slice.step(1) == 1;
    int64_t found = 0;
    if (count == 1)
        for (int64_t i = 0; i < entries; ++i) { // branch-free: an element that is not selected is overwritten by the next
            out[found * over] = x[i * in];
            found += condition[i * step] != 0;
        }
    else if (solid)
        for (int64_t first = 0; first < entries;) {
            constexpr int64_t most = 256;
            int64_t kept[most], some = 0; // collected branch-free, since the branch would be unpredictable
            for (const int64_t last = std::min(entries, first + most); first < last; ++first) {
                kept[some] = first;
                some += condition[first * step] != 0;
            }
            for (int64_t i = 0; i < some; ++i)
                std::memcpy(out + found++ * over, x + kept[i] * in, static_cast<size_t>(count) * sizeof(T));
        }
    else
        for (int64_t i = 0; i < entries; ++i)
            if (condition[i * step]) copy_box(slice, x + i * in, out + found++ * over);
    *static_cast<int64_t *>(buffers[3]) = found;
}

// A slice of Unique: the key of its first element, and its index.  Compared as one number if both fit.
template <typename Key, bool packed = sizeof(Key) <= 4>
struct Slice {
    uint64_t bits;
    Slice() = default;
    Slice(Key key, int64_t index) : bits(static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(index)) {}
    Key key() const { return static_cast<Key>(bits >> 32); }
    int64_t index() const { return static_cast<int64_t>(bits & 0xffffffffu); }
    bool operator<(const Slice &other) const { return bits < other.bits; }
};

template <typename Key>
struct Slice<Key, false> {
    Key first;
    int64_t at;
    Slice() = default;
    Slice(Key key, int64_t index) : first(key), at(index) {}
    Key key() const { return first; }
    int64_t index() const { return at; }
    bool operator<(const Slice &other) const { return first != other.first ? first < other.first : at < other.at; }
};

// Sorts slices of one element by each byte in which their keys differ; `other` has room for as many.  Returns the sorted ones, in
// either memory.  Equal keys keep their order.
template <typename Key>
Slice<Key> *sorted_by_bytes(Slice<Key> *slices, Slice<Key> *other, int64_t n) {
    Key differing = 0;
    for (int64_t i = 1; i < n; ++i)
        differing |= slices[i].key() ^ slices[0].key();
    for (size_t shift = 0; shift < 8 * sizeof(Key); shift += 8) {
        if (!(differing >> shift & 255)) continue;
        int64_t ends[257] = {};
        for (int64_t i = 0; i < n; ++i)
            ++ends[(slices[i].key() >> shift & 255) + 1];
        for (int digit = 0; digit < 256; ++digit)
            ends[digit + 1] += ends[digit];
        for (int64_t i = 0; i < n; ++i)
            other[ends[slices[i].key() >> shift & 255]++] = slices[i];
        std::swap(slices, other);
    }
    return slices;
}

// Finds the distinct keys of elements in one pass with a hash table, if they are few.
template <typename Key>
class FewKeys {
public:
    static constexpr int64_t most = 256;

    // Writes where each distinct key occurs first and how often, in ascending order, and the place of each element among them.
    // Returns how many there are; -1 if more than `most`, for which sorting is faster.
    int64_t find(const Key *keys, int64_t n, int64_t *earliest, int64_t *sizes, int64_t *places) {
        int64_t found = 0;
        for (int64_t i = 0; i < n; ++i) {
            const Key key = keys[i];
            uint32_t slot = static_cast<uint32_t>((static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u) >> (64 - bits));
            while (slots_[slot] && keys_[slots_[slot] - 1] != key)
                slot = (slot + 1) % slots;
            if (!slots_[slot]) {
                if (found == most) return -1;
                keys_[found] = key;
                firsts_[found] = i;
                counts_[found++] = 0;
                slots_[slot] = static_cast<uint16_t>(found);
            }
            const int64_t at = slots_[slot] - 1;
            ++counts_[at];
            places[i] = at;
        }
        int64_t order[most], rank[most];
        std::iota(order, order + found, int64_t(0));
        std::sort(order, order + found, [&](int64_t a, int64_t b) { return keys_[a] < keys_[b]; });
        for (int64_t r = 0; r < found; ++r) {
            rank[order[r]] = r;
            earliest[r] = firsts_[order[r]];
            sizes[r] = counts_[order[r]];
        }
        for (int64_t i = 0; i < n; ++i)
            places[i] = rank[places[i]];
        return found;
    }

private:
    static constexpr uint32_t bits = 10, slots = 1 << bits; // of the table, four per key
    uint16_t slots_[slots] = {};                            // number of a key, from 1; 0 if there is none
    Key keys_[most];
    int64_t firsts_[most], counts_[most];
};

// Unique.  Buffers: x, values, first occurrences, places, counts, number of distinct slices.  Arguments: slices n < 2^31, elements
// of a slice, 1 to sort, 1 if every NaN differs; strides of slices in x and in the values; box of a slice (x, values).  Scratch
// memory: 2 n slices, 3 n integers, all keys.
template <typename T>
void unique(void *const *buffers, const int64_t *args, int64_t, int64_t, void *scratch) {
    using Key = decltype(ordered(T {}));
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *first = static_cast<int64_t *>(buffers[2]), *places = static_cast<int64_t *>(buffers[3]);
    auto *counts = static_cast<int64_t *>(buffers[4]);
    ArgReader reader(args);
    const int64_t n = reader.next(), length = reader.next();
    const bool sorted = reader.next(), apart = reader.next();
    const int64_t in = reader.next(), out = reader.next();
    const Box<2> box(reader);
    auto *slices = static_cast<Slice<Key> *>(scratch);
    auto *earliest = reinterpret_cast<int64_t *>(slices + 2 * n), *sizes = earliest + n, *number = sizes + n;
    auto *keys = reinterpret_cast<Key *>(number + n); // [n, length]
    if (length == 1)
        for (int64_t i = 0; i < n; ++i)
            keys[i] = ordered(x[i * in]);
    else
        for (int64_t i = 0; i < n; ++i) {
            Key *to = keys + i * length;
            box.lines([&](const int64_t *offset) {
                const T *line = x + i * in + offset[0];
                for (int64_t j = 0; j < box.length(); ++j)
                    *to++ = ordered(line[j * box.step(0)]);
            });
        }
    // for fewer slices, comparisons are cheaper than passes over the bytes
    const bool many = length == 1 && n >= 256;
    bool alike = true; // equal keys are equal elements
    if (many && apart)
        for (int64_t i = 0; i < n; ++i)
            alike &= widened(x[i * in]) == widened(x[i * in]);
    int64_t found = many && alike ? FewKeys<Key>().find(keys, n, earliest, sizes, places) : -1;
    if (found < 0) {
        for (int64_t i = 0; i < n; ++i)
            slices[i] = Slice<Key>(keys[i * length], i);
        if (many)
            slices = sorted_by_bytes(slices, slices + n, n);
        else if (length == 1)
            std::sort(slices, slices + n);
        else
            std::sort(slices, slices + n, [&](const Slice<Key> &a, const Slice<Key> &b) {
                if (a.key() != b.key()) return a.key() < b.key();
                const Key *p = keys + a.index() * length, *q = keys + b.index() * length;
                for (int64_t j = 1; j < length; ++j)
                    if (p[j] != q[j]) return p[j] < q[j];
                return a.index() < b.index();
            });
        found = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t at = slices[i].index();
            bool fresh = i == 0;
            if (!fresh) {
                const Key *own = keys + at * length;
                fresh = !std::equal(own, own + length, keys + slices[i - 1].index() * length);
                if (apart && !fresh) fresh = widened(x[at * in]) != widened(x[at * in]);
            }
            if (fresh) {
                earliest[found] = at;
                sizes[found++] = 0;
            }
            ++sizes[found - 1];
            places[at] = found - 1;
        }
    }
    int64_t next = 0;
    for (int64_t i = 0; i < (sorted ? found : n); ++i) // in order of first occurrence unless sorted
        if (sorted)
            number[i] = i;
        else if (earliest[places[i]] == i)
            number[places[i]] = next++;
    for (int64_t i = 0; i < n && !sorted; ++i)
        places[i] = number[places[i]];
    for (int64_t g = 0; g < found; ++g) {
        first[number[g]] = earliest[g];
        counts[number[g]] = sizes[g];
        copy_box(box, x + earliest[g] * in, values + number[g] * out);
    }
    *static_cast<int64_t *>(buffers[5]) = found;
}

} // namespace

void add_open_loops(NamedLoops &loops) {
    each(Numeric {}, numeric_names,
            [&](auto element, const char *name) { add_loop(loops, "nonzero", name, &nonzero<decltype(element)>); });
    each(Sizes {}, size_names,
            [&](auto element, const char *name) { add_loop(loops, "compress", name, &compress<decltype(element)>); });
    each(Numeric {}, numeric_names,
            [&](auto element, const char *name) { add_loop(loops, "unique", name, &unique<decltype(element)>); });
    loops["best_boxes_float32"] = &best_boxes<float>;
    loops["best_boxes_float64"] = &best_boxes<double>;
    loops["join_boxes"] = &join_boxes;
}

} // namespace mgx
