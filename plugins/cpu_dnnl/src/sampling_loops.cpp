// GridSample: interpolates images at the coordinates of a grid.
#include <cmath>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

enum Mode : int64_t { linear, nearest, cubic };
enum Padding : int64_t { zeros, border, reflection };

// Neighbors of a coordinate along one axis; index -1: none.
template <typename P>
struct Neighbors {
    int64_t index[4];
    P weight[4];
};

template <typename P>
P mirrored(P at, P low, P high) {
    const P span = high - low;
    if (span <= 0) return low;
    P phase = std::fmod(at - low, 2 * span);
    if (phase < 0) phase += 2 * span;
    return low + (phase > span ? 2 * span - phase : phase);
}

template <typename P>
P keys_cubic(P distance) { // R. Keys, "Cubic convolution interpolation", 1981, with a = -0.75
    const P a = P(-0.75), d = std::fabs(distance);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : P(0);
}

struct Sampling {
    int64_t mode, padding, align;

    int64_t taps() const { return mode == nearest ? 1 : mode == linear ? 2 : 4; }

    template <typename P>
    Neighbors<P> around(P at, int64_t size) const {
        const P low = align ? P(0) : P(-0.5), high = align ? P(size - 1) : P(size) - P(0.5);
        at = align ? (at + 1) / 2 * P(size - 1) : ((at + 1) * P(size) - 1) / 2;
        const P most = P(1 << 30);
        at = std::isfinite(at) ? std::min(std::max(at, -most), most) : P(-2);
        if (mode == nearest) at = std::nearbyint(at);
        if (padding != zeros && mode != cubic && (at < low || at > high))
            at = padding == border ? std::min(std::max(at, P(0)), P(size - 1)) : mirrored(at, low, high);
        Neighbors<P> found;
        const P floor = mode == nearest ? std::nearbyint(at) : std::floor(at), part = at - floor;
        const int64_t first = static_cast<int64_t>(floor) - (mode == cubic ? 1 : 0);
        for (int64_t t = 0; t < taps(); ++t) {
            found.weight[t] = mode == nearest ? P(1) : mode == linear ? (t ? part : 1 - part) : keys_cubic(part - P(t - 1));
            found.index[t] = padded_index(first + t, size);
        }
        return found;
    }

    // Applies the padding mode to an index; returns -1 for zero padding.
    int64_t padded_index(int64_t index, int64_t size) const {
        if (index >= 0 && index < size) return index;
        if (padding == zeros) return -1;
        if (padding == reflection) {
            const double low = align ? 0.0 : -0.5, high = align ? static_cast<double>(size) - 1 : static_cast<double>(size) - 0.5;
            index = static_cast<int64_t>(std::nearbyint(mirrored(static_cast<double>(index), low, high)));
        }
        return std::min(std::max(index, int64_t {0}), size - 1);
    }
};

template <typename W>
struct Tap {
    int64_t offset;
    W weight;
};

// Batch of coordinates along one axis for nearest or linear interpolation without reflection: first neighbor and its distance.
template <typename P>
struct Pairs {
    static constexpr int64_t most = 64; // coordinates per batch
    int32_t first[most]; // AVX2 has no conversion to int64
    P part[most];

    void find(const Sampling &sampling, const P *at, int64_t count, int64_t size) {
        const P grown = sampling.align ? P(size - 1) : P(size), shift = sampling.align ? P(0) : P(1), far = P(1 << 30);
        const P last = P(size - 1), low = sampling.align ? P(0) : P(-0.5), high = last - low;
        for (int64_t p = 0; p < count; ++p) { // branch-free, so that the compiler vectorizes it
            P where = ((at[p] + 1) * grown - shift) / 2;
            where = where - where == 0 ? std::min(std::max(where, -far), far) : P(-2);
            if (sampling.mode == nearest) where = std::nearbyint(where);
            if (sampling.padding == border) where = (where < low) | (where > high) ? std::min(std::max(where, P(0)), last) : where;
            const P floor = std::floor(where);
            part[p] = where - floor;
            first[p] = static_cast<int32_t>(floor);
        }
    }
};

// Computes the taps of `count` points in 2-D, one (nearest) or four (bilinear) `corners` each.  The images of the points start at
// `origin` and are `apart` elements apart.
template <int64_t corners, typename W, typename P>
void taps_of_points(const Sampling &sampling, const P (&at)[2][Pairs<P>::most], int64_t count, const int64_t *sizes,
        const int64_t *steps, int64_t origin, int64_t apart, Tap<W> *taps, int64_t most, int64_t *used) {
    Pairs<P> axes[2];
    for (int a = 0; a < 2; ++a)
        axes[a].find(sampling, at[a], count, sizes[a]);
    W weights[4][Pairs<P>::most];
    for (int64_t p = 0; p < count; ++p) {
        const P down = axes[0].part[p], across = axes[1].part[p];
        weights[0][p] = static_cast<W>((1 - down) * (1 - across));
        weights[1][p] = static_cast<W>((1 - down) * across);
        weights[2][p] = static_cast<W>(down * (1 - across));
        weights[3][p] = static_cast<W>(down * across);
    }
    // whether no neighbor is outside, by one comparison per axis
    const uint32_t whole[2] = {static_cast<uint32_t>(sizes[0] - (corners > 1)), static_cast<uint32_t>(sizes[1] - (corners > 1))};
    const int64_t further[4] = {0, steps[1], steps[0], steps[0] + steps[1]};
    for (int64_t p = 0; p < count; ++p) {
        Tap<W> *tap = taps + p * most;
        const int32_t above = axes[0].first[p], before = axes[1].first[p];
        if (static_cast<uint32_t>(above) < whole[0] && static_cast<uint32_t>(before) < whole[1]) {
            const int64_t offset = origin + p * apart + above * steps[0] + before * steps[1];
            for (int64_t t = 0; t < corners; ++t)
                tap[t] = {offset + further[t], weights[t][p]};
            used[p] = corners;
            continue;
        }
        int64_t many = 0;
        for (int64_t t = 0; t < corners; ++t) {
            int64_t down = above + t / 2, across = before + t % 2;
            if (sampling.padding == border) {
                down = std::min(std::max(down, int64_t {0}), sizes[0] - 1);
                across = std::min(std::max(across, int64_t {0}), sizes[1] - 1);
            }
            const bool inside = (down >= 0) & (down < sizes[0]) & (across >= 0) & (across < sizes[1]);
            tap[many] = {origin + p * apart + down * steps[0] + across * steps[1], weights[t][p]};
            many += inside; // a tap outside is overwritten by the next
        }
        used[p] = many;
    }
}

constexpr int64_t most_taps = 64; // per point: four neighbors along three axes

// Computes the taps of one point, the Cartesian product of its neighbors along the axes, and returns their number.
template <typename P, typename G, typename W>
int64_t taps_of_point(const Sampling &sampling, const G *at, int64_t coordinate, int64_t rank, const int64_t *sizes, const int64_t *steps,
        int64_t origin, Tap<W> *taps) {
    P factors[2][most_taps];
    int64_t many = 1, offsets[2][most_taps];
    factors[0][0] = 1;
    offsets[0][0] = origin;
    for (int64_t a = 0; a < rank; ++a) {
        const auto found = sampling.around<P>(widened(at[(rank - 1 - a) * coordinate]), sizes[a]);
        const P *factor = factors[a % 2];
        const int64_t *offset = offsets[a % 2];
        P *next_factor = factors[(a + 1) % 2];
        int64_t next = 0, *next_offset = offsets[(a + 1) % 2];
        for (int64_t m = 0; m < many; ++m)
            for (int64_t t = 0; t < sampling.taps(); ++t) {
                if (found.index[t] < 0) continue;
                next_factor[next] = factor[m] * found.weight[t];
                next_offset[next++] = offset[m] + found.index[t] * steps[a];
            }
        many = next;
    }
    for (int64_t m = 0; m < many; ++m)
        taps[m] = {offsets[rank % 2][m], static_cast<W>(factors[rank % 2][m])};
    return many;
}

// Computes the weighted sums of a point for all channels, which are contiguous.
template <typename T, typename W>
void weighted_sums(const T *x, const Tap<W> *taps, int64_t used, T *out, int64_t channels) {
    constexpr int64_t some = 8;
    typedef W Several __attribute__((vector_size(some * sizeof(W))));
    int64_t c = 0;
    for (; c + some <= channels; c += some) {
        Several sums {};
        for (int64_t m = 0; m < used; ++m) {
            Several values;
            for (int64_t i = 0; i < some; ++i)
                values[i] = widened(x[taps[m].offset + c + i]);
            sums += values * taps[m].weight;
        }
        if constexpr (std::is_same_v<T, W>)
            std::memcpy(out + c, &sums, sizeof sums);
        else
            for (int64_t i = 0; i < some; ++i)
                store(out[c + i], sums[i]);
    }
    for (; c < channels; ++c) {
        W sum = 0;
        for (int64_t m = 0; m < used; ++m)
            sum += widened(x[taps[m].offset + c]) * taps[m].weight;
        store(out[c], sum);
    }
}

// Buffers: x, grid, out.  Arguments: mode, padding, align_corners; channels and their strides in x and out; number of spatial
// axes, stride of coordinates in the grid, extents and strides of the axes in x; box of grid points (x, whose strides are 0
// except along the batch; grid; out).  Scratch memory: taps of `block` points.  Work items: grid points.
template <typename T, typename G>
void grid_sample(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using W = Wide<T>;
    using P = Wide<G>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *grid = static_cast<const G *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    ArgReader reader(args);
    const int64_t mode = reader.next(), padding = reader.next(), align = reader.next();
    const Sampling sampling {mode, padding, align};
    const int64_t channels = reader.next(), in = reader.next(), over = reader.next();
    const int64_t rank = reader.next(), coordinate = reader.next();
    const int64_t *sizes = reader.next(rank), *steps = reader.next(rank);
    const Box<3> box(reader);
    const bool pairs = mode != cubic && padding != reflection && rank == 2;
    const int64_t block = pairs ? Pairs<P>::most : 16, most = pairs ? 4 : most_taps; // points per block, taps per point
    auto *taps = static_cast<Tap<W> *>(scratch);
    box.runs(begin, end, [&](const int64_t *offset, int64_t total) {
        for (int64_t first = 0; first < total; first += block) {
            const int64_t count = std::min(block, total - first);
            int64_t used[Pairs<P>::most];
            const G *at = grid + offset[1] + first * box.step(1);
            const int64_t origin = offset[0] + first * box.step(0);
            if (pairs) {
                P where[2][Pairs<P>::most];
                for (int64_t a = 0; a < 2; ++a)
                    for (int64_t p = 0; p < count; ++p)
                        where[a][p] = widened(at[p * box.step(1) + (1 - a) * coordinate]);
                auto find = mode == nearest ? &taps_of_points<1, W, P> : &taps_of_points<4, W, P>;
                find(sampling, where, count, sizes, steps, origin, box.step(0), taps, most, used);
            } else {
                for (int64_t p = 0; p < count; ++p)
                    used[p] = taps_of_point<P>(sampling, at + p * box.step(1), coordinate, rank, sizes, steps, origin + p * box.step(0),
                            taps + p * most);
            }
            auto element = [&](int64_t p, int64_t c) {
                const Tap<W> *tap = taps + p * most;
                const T *from = x + c * in;
                W sum = 0;
                if (used[p] == 4) // fast path: bilinear, inside the image
                    sum = widened(from[tap[0].offset]) * tap[0].weight + widened(from[tap[1].offset]) * tap[1].weight
                            + widened(from[tap[2].offset]) * tap[2].weight + widened(from[tap[3].offset]) * tap[3].weight;
                else
                    for (int64_t m = 0; m < used[p]; ++m)
                        sum += widened(from[tap[m].offset]) * tap[m].weight;
                store(out[offset[2] + (first + p) * box.step(2) + c * over], sum);
            };
            if (in == 1 && over == 1)
                for (int64_t p = 0; p < count; ++p)
                    weighted_sums(x, taps + p * most, used[p], out + offset[2] + (first + p) * box.step(2), channels);
            else
                for (int64_t c = 0; c < channels; ++c)
                    for (int64_t p = 0; p < count; ++p)
                        element(p, c);
        }
    });
}

} // namespace

void add_sampling_loops(NamedLoops &loops) {
    each(Floating {}, floating_names, [&](auto element, const char *name) {
        using T = decltype(element);
        each(Floating {}, floating_names, [&](auto coordinate, const char *grid) {
            loops[std::string("grid_sample_") + name + "_" + grid] = &grid_sample<T, decltype(coordinate)>;
        });
    });
}

} // namespace mgx
