// TopK, ArgMax and ArgMin along an axis.
#include <algorithm>
#include <limits>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

// A key and its index.  Entries are ordered by key, then index, so that none are equal and the order is stable.
struct NarrowEntry {
    NarrowEntry() = default;
    NarrowEntry(uint32_t key, uint32_t index) : both(static_cast<uint64_t>(key) << 32 | index) {}
    uint64_t both;
    uint32_t index() const { return static_cast<uint32_t>(both); }
    template <typename Key> Key key() const { return static_cast<Key>(both >> 32); }
    bool operator<(const NarrowEntry &other) const { return both < other.both; }
};
struct WideEntry {
    WideEntry() = default;
    WideEntry(uint64_t key, uint32_t index) : first(key), at(index) {}
    uint64_t first;
    uint32_t at;
    uint32_t index() const { return at; }
    template <typename Key> Key key() const { return static_cast<Key>(first); }
    bool operator<(const WideEntry &other) const { return first != other.first ? first < other.first : at < other.at; }
};
template <typename Key>
using Entry = std::conditional_t<sizeof(Key) <= 4, NarrowEntry, WideEntry>;

// Partitions the entries so that the k least come first.  Like `sort` not inlined: shared by all element types with equal keys.
template <typename Entry>
[[gnu::noinline]] void partition(Entry *entries, int64_t k, int64_t count) {
    std::nth_element(entries, entries + k - 1, entries + count);
}

template <typename Entry>
[[gnu::noinline]] void sort(Entry *entries, int64_t k) {
    std::sort(entries, entries + k);
}

// A line of elements whose keys are read a block at a time, so that the functions below are compiled once for each type of keys.
template <typename Key>
struct Line {
    const void *elements;
    int64_t step;
    Key flip;                       // all bits for the largest
    void (*read)(const Line &line, int64_t first, int64_t count, Key *keys);
};

template <typename T, typename Key = decltype(ordered(T {}))>
void read_keys(const Line<Key> &line, int64_t first, int64_t count, Key *keys) {
    const int64_t step = line.step;
    const Key flip = line.flip;
    auto *x = static_cast<const T *>(line.elements) + first * step;
    if (step == 1)
        for (int64_t j = 0; j < count; ++j)
            keys[j] = static_cast<Key>(ordered(x[j]) ^ flip);
    else
        for (int64_t j = 0; j < count; ++j)
            keys[j] = static_cast<Key>(ordered(x[j * step]) ^ flip);
}

constexpr int64_t block = 256;      // keys that are read at once

// Returns a bound of the k least of n keys: the k-th of the least keys of `parts` >= k interleaved parts, which are found vectorized.
// Little more than k of random keys are within it if there are at least twice as many parts.  `parts` divides the block.
template <typename Key>
[[gnu::noinline]] Key bound_of_least(const Line<Key> &line, int64_t n, int64_t k, int64_t parts) {
    Key least[block], keys[block];
    line.read(line, 0, parts, least);
    for (int64_t at = parts; at + parts <= n;) {
        const int64_t count = std::min(block, n - at) / parts * parts;
        line.read(line, at, count, keys);
        for (int64_t first = 0; first < count; first += parts)
            for (int64_t j = 0; j < parts; ++j)
                least[j] = std::min(least[j], keys[first + j]);
        at += count;
    }
    std::nth_element(least, least + k - 1, least + parts);
    return least[k - 1];
}

// Writes the k least of n entries, sorted, to the start of `entries`, a buffer of `size` > k entries.  When the buffer is full it
// is cut to the k best, and the last of these then rejects most further elements.  In long lines, a bound rejects them from the start.
template <typename Key>
[[gnu::noinline]] void first_entries(const Line<Key> &line, int64_t n, int64_t k, Entry<Key> *entries, int64_t size) {
    constexpr int64_t lanes = 16;
    int64_t count = 0;
    bool full = false;
    Key limit = 0;
    for (int64_t parts = 64; parts <= block && !full; parts *= 2) {
        if (2 * k > parts || n < 8 * parts) continue;
        const Key bound = bound_of_least(line, n, k, parts);
        full = bound < std::numeric_limits<Key>::max();
        limit = static_cast<Key>(bound + 1);
    }
    auto take = [&](Key key, int64_t i) {
        if (full && key >= limit) return; // on ties the lowest index wins
        entries[count++] = Entry<Key> {key, static_cast<uint32_t>(i)};
        if (count < size) return;
        partition(entries, k, count);
        count = k;
        full = true;
        limit = entries[k - 1].template key<Key>();
    };
    for (int64_t at = 0; at < n; at += block) {
        Key keys[block];
        const int64_t read = std::min(block, n - at);
        line.read(line, at, read, keys);
        for (int64_t first = 0; first < read; first += lanes) {
            const int64_t end = std::min(first + lanes, read);
            if (full && end == first + lanes) {
                int any = 0;
                for (int64_t j = 0; j < lanes; ++j)
                    any |= keys[first + j] < limit;
                if (!any) continue;
            }
            for (int64_t j = first; j < end; ++j)
                take(keys[j], at + j);
        }
    }
    if (count > k) partition(entries, k, count);
    sort(entries, k);
}

// The same for small k, by insertion sort.
template <typename Key>
[[gnu::noinline]] void few_entries(const Line<Key> &line, int64_t n, int64_t k, Entry<Key> *entries) {
    constexpr int64_t lanes = 32;
    int64_t count = 0;
    Key limit = std::numeric_limits<Key>::max(); // keys above are not among the k least
    auto take = [&](Key key, int64_t i) {
        if (key > limit || (count == k && key == limit)) return; // on ties the lowest index wins
        const Entry<Key> entry {key, static_cast<uint32_t>(i)};
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && entry < entries[at - 1]; --at)
            entries[at] = entries[at - 1];
        entries[at] = entry;
        if (count == k) limit = entries[k - 1].template key<Key>();
    };
    if (n >= 8 * lanes) limit = bound_of_least(line, n, k, lanes);
    for (int64_t at = 0; at < n; at += block) {
        Key keys[block];
        const int64_t read = std::min(block, n - at);
        line.read(line, at, read, keys);
        for (int64_t first = 0; first < read; first += lanes) {
            const int64_t end = std::min(first + lanes, read);
            if (end == first + lanes) {
                const Key most = limit;
                int any = 0;
                for (int64_t j = 0; j < lanes; ++j)
                    any |= keys[first + j] <= most;
                if (!any) continue;
            }
            for (int64_t j = first; j < end; ++j)
                take(keys[j], at + j);
        }
    }
}

// True if c is less than the best so far, or greater unless `low`; comparisons with NaN are false.
template <bool low, typename W>
inline bool beats(W c, W best) {
    return low ? c < best : c > best;
}

// Returns the index of the first (or last) least or greatest element of a contiguous line: a vectorized reduction finds the value,
// a second pass its index.
template <bool low, typename T>
[[gnu::noinline]] int64_t best_in_line(const T *line, int64_t n, bool last) {
    using W = Wide<T>;
    constexpr int64_t lanes = 32;
    W best = widened(line[0]);
    bool nan = is_nan(best);
    if (n >= lanes) {
        W most[lanes];
        int any_nan[lanes] = {};
        for (int64_t j = 0; j < lanes; ++j)
            most[j] = best;
        int64_t i = 0;
        for (; i + lanes <= n; i += lanes)
            for (int64_t j = 0; j < lanes; ++j) {
                const W c = widened(line[i + j]);
                most[j] = beats<low>(c, most[j]) ? c : most[j];
                any_nan[j] |= is_nan(c);
            }
        for (; i < n; ++i) {
            const W c = widened(line[i]);
            most[0] = beats<low>(c, most[0]) ? c : most[0];
            any_nan[0] |= is_nan(c);
        }
        for (int64_t j = 0; j < lanes; ++j) {
            best = beats<low>(most[j], best) ? most[j] : best;
            nan = nan || any_nan[j];
        }
    } else {
        for (int64_t i = 1; i < n; ++i) {
            const W c = widened(line[i]);
            best = beats<low>(c, best) ? c : best;
            nan = nan || is_nan(c);
        }
    }
    auto is_best = [&](int64_t i) {
        const W c = widened(line[i]);
        return nan ? is_nan(c) : c == best;
    };
    auto any_in = [&](int64_t first) {
        int any = 0;
        for (int64_t j = 0; j < lanes; ++j) {
            const W c = widened(line[first + j]);
            any |= (c == best) | is_nan(c);
        }
        return any != 0;
    };
    int64_t i = last ? n - 1 : 0;
    if (last)
        while (i >= lanes && !any_in(i + 1 - lanes))
            i -= lanes;
    else
        while (i + lanes <= n && !any_in(i))
            i += lanes;
    while (!is_best(i))
        i += last ? -1 : 1;
    return i;
}

// TopK.  Buffers: x, values, indices.  Arguments: n, k, 1 for the largest, capacity of the scratch memory in entries, strides
// along the axis in x, values and indices; box of the other axes (x, values, indices).  Work items: lines along the axis.
template <typename T>
void topk(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using Key = decltype(ordered(T {}));
    constexpr int64_t few = 16;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *indices = static_cast<int64_t *>(buffers[2]);
    ArgReader reader(args);
    const int64_t n = reader.next(), k = reader.next(), largest = reader.next(), size = reader.next();
    const int64_t *along = reader.next(3);
    const Box<3> box(reader);
    auto *entries = static_cast<Entry<Key> *>(scratch);
    box.points(begin, end, [&](const int64_t *offset) {
        const T *line = x + offset[0];
        const int64_t step = along[0];
        if (k == 1 && step == 1 && (largest || !std::is_floating_point_v<Wide<T>>)) {
            const int64_t index = largest ? best_in_line<false>(line, n, false) : best_in_line<true>(line, n, false);
            values[offset[1]] = line[index];
            indices[offset[2]] = index;
            return;
        }
        const Line<Key> keys {line, step, largest ? static_cast<Key>(~Key {0}) : Key {0}, read_keys<T>};
        if (k <= few)
            few_entries(keys, n, k, entries);
        else
            first_entries(keys, n, k, entries, size);
        for (int64_t i = 0; i < k; ++i) {
            const int64_t index = entries[i].index();
            values[offset[1] + i * along[1]] = line[index * step];
            indices[offset[2] + i * along[2]] = index;
        }
    });
}

// ArgMax, ArgMin.  Buffers: x, indices.  Arguments: n, stride along the axis in x; box of the other axes (x, indices).  Work
// items: lines along the axis.  low: of the least elements; last: the last of equal ones.
template <bool low, typename T>
void find_positions(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, bool last) {
    using W = Wide<T>;
    constexpr int64_t most = 64;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *indices = static_cast<int64_t *>(buffers[1]);
    ArgReader reader(args);
    const int64_t n = reader.next(), along = reader.next();
    const Box<2> box(reader);
    constexpr int64_t few = 8; // shorter lines are not worth the vectorized search
    if (along == 1 && n > few) {
        box.points(begin, end,
                [&](const int64_t *offset) { indices[offset[1]] = best_in_line<low>(x + offset[0], n, last); });
        return;
    }
    const int64_t across = box.step(0);
    const int64_t from = last ? n - 1 : 0, advance = last ? -1 : 1; // of equal elements the first in this direction is found
    box.runs(begin, end, [&](const int64_t *offset, int64_t total) {
        for (int64_t first = 0; first < total; first += most) { // several adjacent lines at a time
            const int64_t count = std::min(most, total - first);
            const T *row = x + offset[0] + first * across + from * along;
            W best[most];
            int32_t where[most];
            for (int64_t j = 0; j < count; ++j) {
                best[j] = widened(row[j * across]);
                where[j] = static_cast<int32_t>(from);
            }
            for (int64_t i = from + advance; 0 <= i && i < n; i += advance) {
                row += advance * along;
                auto compare = [&](int64_t step) {
                    for (int64_t j = 0; j < count; ++j) {
                        const W c = widened(row[j * step]);
                        bool better = beats<low>(c, best[j]);
                        if constexpr (std::is_floating_point_v<W>) better = better | ((c != c) & (best[j] == best[j])); // NaN is best
                        best[j] = better ? c : best[j];
                        where[j] = better ? static_cast<int32_t>(i) : where[j];
                    }
                };
                across == 1 ? compare(1) : compare(across);
            }
            for (int64_t j = 0; j < count; ++j)
                indices[offset[1] + (first + j) * box.step(1)] = where[j];
        }
    });
}

template <typename T, bool low, bool last>
void position(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    find_positions<low, T>(buffers, args, begin, end, last);
}

} // namespace

void add_selection_loops(NamedLoops &loops) {
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        add_loop(loops, "topk", name, &topk<T>);
        add_loop(loops, "argmax", name, &position<T, false, false>);
        add_loop(loops, "argmax_last", name, &position<T, false, true>);
        add_loop(loops, "argmin", name, &position<T, true, false>);
        add_loop(loops, "argmin_last", name, &position<T, true, true>);
    });
}

} // namespace mgx
