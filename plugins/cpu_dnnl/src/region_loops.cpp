// Regions of images read between their elements.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

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

void add_region_loops(NamedLoops &loops) {
    each(Floating {}, floating_names,
            [&](auto element, const char *name) { loops[std::string("roialign_") + name] = &roialign<decltype(element)>; });
}

} // namespace mgx
