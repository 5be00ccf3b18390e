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
    bool operator<(const NarrowEntry &other) const { return both < other.both; }
};
struct WideEntry {
    WideEntry() = default;
    WideEntry(uint64_t key, uint32_t index) : key(key), at(index) {}
    uint64_t key;
    uint32_t at;
    uint32_t index() const { return at; }
    bool operator<(const WideEntry &other) const { return key != other.key ? key < other.key : at < other.at; }
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

// Returns a bound of the k least of n keys: the k-th of the least keys of `lanes` >= k interleaved parts, which are found vectorized.
// Little more than k of random keys are within it if there are at least twice as many parts.
template <int64_t lanes, typename Key, typename KeyAt>
Key bound_of_least(int64_t n, int64_t k, const KeyAt &key_at) {
    Key least[lanes];
    for (int64_t j = 0; j < lanes; ++j)
        least[j] = key_at(j);
    for (int64_t at = lanes; at + lanes <= n; at += lanes)
        for (int64_t j = 0; j < lanes; ++j)
            least[j] = std::min(least[j], key_at(at + j));
    std::nth_element(least, least + k - 1, least + lanes);
    return least[k - 1];
}

// Writes the k least of n entries, sorted, to the start of `entries`, a buffer of `size` > k entries.  When the buffer is full it
// is cut to the k best, and the last of these then rejects most further elements.  In long lines, a bound rejects them from the start.
template <typename Key, typename KeyAt>
void first_entries(int64_t n, int64_t k, Entry<Key> *entries, int64_t size, const KeyAt &key_at) {
    constexpr int64_t block = 16;
    int64_t count = 0;
    bool full = false;
    Key limit = 0;
    auto start = [&](auto lanes) {
        constexpr int64_t parts = decltype(lanes)::value;
        if (full || 2 * k > parts || n < 8 * parts) return;
        const Key bound = bound_of_least<parts, Key>(n, k, key_at);
        full = bound < std::numeric_limits<Key>::max();
        limit = static_cast<Key>(bound + 1);
    };
    start(std::integral_constant<int64_t, 64> {});
    start(std::integral_constant<int64_t, 128> {});
    start(std::integral_constant<int64_t, 256> {});
    auto take = [&](Key key, int64_t i) {
        if (full && key >= limit) return; // on ties the lowest index wins
        entries[count++] = Entry<Key> {key, static_cast<uint32_t>(i)};
        if (count < size) return;
        partition(entries, k, count);
        count = k;
        full = true;
        limit = key_at(entries[k - 1].index());
    };
    int64_t i = 0;
    for (; i + block <= n; i += block) {
        Key keys[block];
        for (int64_t j = 0; j < block; ++j)
            keys[j] = key_at(i + j);
        if (full) {
            int any = 0;
            for (int64_t j = 0; j < block; ++j)
                any |= keys[j] < limit;
            if (!any) continue;
        }
        for (int64_t j = 0; j < block; ++j)
            take(keys[j], i + j);
    }
    for (; i < n; ++i)
        take(key_at(i), i);
    if (count > k) partition(entries, k, count);
    sort(entries, k);
}

// The same for small k, by insertion sort.
template <typename Key, typename KeyAt>
void few_entries(int64_t n, int64_t k, Entry<Key> *entries, const KeyAt &key_at) {
    constexpr int64_t lanes = 32;
    int64_t count = 0;
    Key limit = std::numeric_limits<Key>::max(); // keys above are not among the k least
    auto take = [&](int64_t i) {
        const Key key = key_at(i);
        if (key > limit || (count == k && key == limit)) return; // on ties the lowest index wins
        const Entry<Key> entry {key, static_cast<uint32_t>(i)};
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && entry < entries[at - 1]; --at)
            entries[at] = entries[at - 1];
        entries[at] = entry;
        if (count == k) limit = key_at(entries[k - 1].index());
    };
    int64_t i = 0;
    if (n >= 8 * lanes) {
        limit = bound_of_least<lanes, Key>(n, k, key_at);
        for (; i + lanes <= n; i += lanes) {
            const Key most = limit;
            int any = 0;
            for (int64_t j = 0; j < lanes; ++j)
                any |= key_at(i + j) <= most;
            if (!any) continue;
            for (int64_t j = 0; j < lanes; ++j)
                take(i + j);
        }
    }
    for (; i < n; ++i)
        take(i);
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
        const Key flip = largest ? static_cast<Key>(~Key {0}) : Key {0};
        auto find = [&](const auto &key_at) {
            if (k <= few)
                few_entries<Key>(n, k, entries, key_at);
            else
                first_entries<Key>(n, k, entries, size, key_at);
        };
        if (step == 1)
            find([=](int64_t i) { return static_cast<Key>(ordered(line[i]) ^ flip); });
        else
            find([=](int64_t i) { return static_cast<Key>(ordered(line[i * step]) ^ flip); });
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
