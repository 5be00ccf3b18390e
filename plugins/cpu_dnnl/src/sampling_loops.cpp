// Images read between their elements: at the places of a grid, and in regions.
#include <cmath>
#include <vector>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

enum Mode : int64_t { linear, nearest, cubic };
enum Padding : int64_t { zeros, border, reflection };

// Neighbours of a place along one axis.
template <typename P>
struct Neighbours {
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
P keys_cubic(P distance) { // R. Keys, 1981, equation 4, with a = -0.75
    const P a = P(-0.75), d = std::fabs(distance);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : P(0);
}

struct Sampling {
    int64_t mode, padding, align;

    int64_t taps() const { return mode == nearest ? 1 : mode == linear ? 2 : 4; }

    template <typename P>
    Neighbours<P> around(P at, int64_t size) const {
        const P low = align ? P(0) : P(-0.5), high = align ? P(size - 1) : P(size) - P(0.5);
        at = align ? (at + 1) / 2 * P(size - 1) : ((at + 1) * P(size) - 1) / 2;
        const P most = P(1 << 30);
        at = std::isfinite(at) ? std::min(std::max(at, -most), most) : P(-2);
        if (mode == nearest) at = std::nearbyint(at);
        if (padding != zeros && mode != cubic && (at < low || at > high))
            at = padding == border ? std::min(std::max(at, P(0)), P(size - 1)) : mirrored(at, low, high);
        Neighbours<P> found;
        const P floor = mode == nearest ? std::nearbyint(at) : std::floor(at), part = at - floor;
        const int64_t first = static_cast<int64_t>(floor) - (mode == cubic ? 1 : 0);
        for (int64_t t = 0; t < taps(); ++t) {
            found.weight[t] = mode == nearest ? P(1) : mode == linear ? (t ? part : 1 - part) : keys_cubic(part - P(t - 1));
            found.index[t] = placed(first + t, size);
        }
        return found;
    }

    // The element that stands for an index; -1 for none.
    int64_t placed(int64_t index, int64_t size) const {
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

// Sums of taps of a place for all channels, which lie side by side.
template <typename T, typename W>
void mixed(const T *x, const Tap<W> *taps, int64_t used, T *out, int64_t channels) {
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

// Buffers: x, grid, out.  Numbers: mode, padding, whether corners are aligned; channels with their strides in x and out; spatial
// axes, stride of coordinates in the grid, then extents and strides in x of the axes; box of places (x by images alone, grid,
// out).  Scratch memory: the taps of `block` places.  Work: places.
template <typename T, typename G>
void grid_sample(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using W = Wide<T>;
    using P = Wide<G>;
    constexpr int64_t block = 16, most = 64; // places at once, taps of each
    auto *x = static_cast<const T *>(buffers[0]);
    auto *grid = static_cast<const G *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    Numbers numbers(args);
    const int64_t mode = numbers.next(), padding = numbers.next(), align = numbers.next();
    const Sampling sampling {mode, padding, align};
    const int64_t channels = numbers.next(), in = numbers.next(), over = numbers.next();
    const int64_t rank = numbers.next(), coordinate = numbers.next();
    const int64_t *sizes = numbers.next(rank), *steps = numbers.next(rank);
    const Box<3> box(numbers);
    auto *taps = static_cast<Tap<W> *>(scratch);
    box.runs(begin, end, [&](const int64_t *offset, int64_t total) {
        for (int64_t first = 0; first < total; first += block) {
            const int64_t count = std::min(block, total - first);
            int64_t used[block];
            for (int64_t p = 0; p < count; ++p) {
                const G *at = grid + offset[1] + (first + p) * box.step(1);
                P factors[2][most];
                int64_t many = 1, places[2][most];
                factors[0][0] = 1;
                places[0][0] = offset[0] + (first + p) * box.step(0);
                for (int64_t a = 0; a < rank; ++a) { // every combination of the axes' neighbours
                    const auto found = sampling.around<P>(widened(at[(rank - 1 - a) * coordinate]), sizes[a]);
                    const P *factor = factors[a % 2];
                    const int64_t *place = places[a % 2];
                    P *wider = factors[(a + 1) % 2];
                    int64_t next = 0, *further = places[(a + 1) % 2];
                    for (int64_t m = 0; m < many; ++m)
                        for (int64_t t = 0; t < sampling.taps(); ++t) {
                            if (found.index[t] < 0) continue;
                            wider[next] = factor[m] * found.weight[t];
                            further[next++] = place[m] + found.index[t] * steps[a];
                        }
                    many = next;
                }
                used[p] = many;
                for (int64_t m = 0; m < many; ++m)
                    taps[p * most + m] = {places[rank % 2][m], static_cast<W>(factors[rank % 2][m])};
            }
            auto element = [&](int64_t p, int64_t c) {
                const Tap<W> *tap = taps + p * most;
                const T *from = x + c * in;
                W sum = 0;
                if (used[p] == 4) // the most common by far
                    sum = widened(from[tap[0].offset]) * tap[0].weight + widened(from[tap[1].offset]) * tap[1].weight
                            + widened(from[tap[2].offset]) * tap[2].weight + widened(from[tap[3].offset]) * tap[3].weight;
                else
                    for (int64_t m = 0; m < used[p]; ++m)
                        sum += widened(from[tap[m].offset]) * tap[m].weight;
                store(out[offset[2] + (first + p) * box.step(2) + c * over], sum);
            };
            if (in == 1 && over == 1)
                for (int64_t p = 0; p < count; ++p)
                    mixed(x, taps + p * most, used[p], out + offset[2] + (first + p) * box.step(2), channels);
            else
                for (int64_t c = 0; c < channels; ++c)
                    for (int64_t p = 0; p < count; ++p)
                        element(p, c);
        }
    });
}

// The sampling points of one axis of a region.
struct Points {
    double start, cell; // of the region; length of a cell
    int64_t count, size; // in a cell; of the image

    // body(index, weight) for both neighbours of the points of a cell; outside of the image a point weighs nothing
    template <typename Body>
    void neighbours(int64_t c, const Body &body) const {
        for (int64_t p = 0; p < count; ++p) {
            double at = start + (static_cast<double>(c) + (static_cast<double>(p) + 0.5) / static_cast<double>(count)) * cell;
            const bool inside = at >= -1 && at <= static_cast<double>(size);
            at = std::min(std::max(at, 0.0), static_cast<double>(size - 1));
            const auto low = static_cast<int64_t>(at);
            const double part = at - static_cast<double>(low);
            body(low, inside ? 1 - part : 0.0);
            body(std::min(low + 1, size - 1), inside ? part : 0.0);
        }
    }
};

// For each cell of an axis the pixels that it is the mean of, and their weights.
template <typename W>
struct Bands {
    std::vector<int64_t> first, count, at;
    std::vector<W> weights;
    int64_t low = 0, high = -1; // pixels in use

    Bands(const Points &points, int64_t cells) : first(cells), count(cells), at(cells) {
        std::vector<double> sums;
        for (int64_t c = 0; c < cells; ++c) {
            int64_t begin = points.size, end = -1;
            points.neighbours(c, [&](int64_t i, double) {
                begin = std::min(begin, i);
                end = std::max(end, i);
            });
            sums.assign(static_cast<size_t>(end - begin + 1), 0.0);
            points.neighbours(c, [&](int64_t i, double weight) {
                sums[static_cast<size_t>(i - begin)] += weight / static_cast<double>(points.count);
            });
            first[c] = begin;
            count[c] = end - begin + 1;
            at[c] = static_cast<int64_t>(weights.size());
            weights.insert(weights.end(), sums.begin(), sums.end());
            low = c ? std::min(low, begin) : begin;
            high = std::max(high, end);
        }
    }
};

// Buffers: x, rois, images, out.  Numbers: mode (0 mean, 1 largest), whether pixels' centres are halves, cells down and across,
// points a cell and axis (0: about one a pixel), bits of the scale; images, channels, rows and columns of x, its four strides;
// two strides of rois, the stride of images, four strides of out.  Work: regions.
template <typename T>
void roialign(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *rois = static_cast<const T *>(buffers[1]);
    auto *images = static_cast<const int64_t *>(buffers[2]);
    auto *out = static_cast<T *>(buffers[3]);
    Numbers numbers(args);
    const int64_t largest = numbers.next(), aligned = numbers.next(), height = numbers.next(), width = numbers.next();
    const int64_t ratio = numbers.next();
    const auto scale = same_bits<double>(numbers.next());
    const int64_t *dims = numbers.next(4), *in = numbers.next(4), *box = numbers.next(2);
    const int64_t image_step = numbers.next(), *over = numbers.next(4);
    std::vector<W> rows;
    for (int64_t r = begin; r < end; ++r) {
        const int64_t image = images[r * image_step];
        if (image < 0 || image >= dims[0]) return mgx_loop_failed(1, image);
        double corner[4];
        for (int64_t i = 0; i < 4; ++i) {
            corner[i] = static_cast<double>(widened(rois[r * box[0] + i * box[1]])) * scale - (aligned ? 0.5 : 0.0);
            if (!std::isfinite(corner[i])) return mgx_loop_failed(4, r);
        }
        double down = corner[3] - corner[1], across = corner[2] - corner[0];
        if (!aligned) {
            down = std::max(down, 1.0);
            across = std::max(across, 1.0);
        }
        auto cell = [&](int64_t c, int64_t i, int64_t j) -> T & {
            return out[r * over[0] + c * over[1] + i * over[2] + j * over[3]];
        };
        if (!ratio && (down <= 0 || across <= 0)) { // no points at all
            for (int64_t c = 0; c < dims[1]; ++c)
                for (int64_t i = 0; i < height; ++i)
                    for (int64_t j = 0; j < width; ++j)
                        store(cell(c, i, j), W(0));
            continue;
        }
        auto points = [&](double start, double length, int64_t cells, int64_t size) {
            const double step = length / static_cast<double>(cells);
            return Points {start, step, ratio ? ratio : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(step))), size};
        };
        const Points vertical = points(corner[1], down, height, dims[2]), horizontal = points(corner[0], across, width, dims[3]);
        if (largest) {
            for (int64_t c = 0; c < dims[1]; ++c) {
                const T *plane = x + image * in[0] + c * in[1];
                for (int64_t i = 0; i < height; ++i)
                    for (int64_t j = 0; j < width; ++j) {
                        W best = -std::numeric_limits<W>::infinity();
                        vertical.neighbours(i, [&](int64_t y, double u) {
                            horizontal.neighbours(j, [&](int64_t z, double v) {
                                const W value = widened(plane[y * in[2] + z * in[3]]) * static_cast<W>(u * v);
                                if (value > best || is_nan(value)) best = is_nan(best) ? best : value;
                            });
                        });
                        store(cell(c, i, j), best);
                    }
            }
            continue;
        }
        const Bands<W> left(vertical, height), right(horizontal, width);
        rows.resize(static_cast<size_t>((left.high - left.low + 1) * width));
        for (int64_t c = 0; c < dims[1]; ++c) {
            const T *plane = x + image * in[0] + c * in[1];
            for (int64_t y = left.low; y <= left.high; ++y)
                for (int64_t j = 0; j < width; ++j) {
                    const T *from = plane + y * in[2] + right.first[j] * in[3];
                    const W *weight = right.weights.data() + right.at[j];
                    W sum = 0;
                    for (int64_t i = 0; i < right.count[j]; ++i)
                        sum += widened(from[i * in[3]]) * weight[i];
                    rows[static_cast<size_t>((y - left.low) * width + j)] = sum;
                }
            for (int64_t i = 0; i < height; ++i)
                for (int64_t j = 0; j < width; ++j) {
                    const W *from = rows.data() + (left.first[i] - left.low) * width + j;
                    const W *weight = left.weights.data() + left.at[i];
                    W sum = 0;
                    for (int64_t y = 0; y < left.count[i]; ++y)
                        sum += from[y * width] * weight[y];
                    store(cell(c, i, j), sum);
                }
        }
    }
}

} // namespace

void add_sampling_loops(NamedLoops &loops) {
    each(Floating {}, floating_names, [&](auto element, const char *name) {
        using T = decltype(element);
        loops[std::string("roialign_") + name] = &roialign<T>;
        each(Floating {}, floating_names, [&](auto place, const char *grid) {
            loops[std::string("grid_sample_") + name + "_" + grid] = &grid_sample<T, decltype(place)>;
        });
    });
}

} // namespace mgx
