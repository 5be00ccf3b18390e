// Region pooling: RoiAlign, MaxRoiPool, and the gather of deformable convolutions.
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
    double start, cell; // start of the region; length of a cell
    int64_t count, size; // points per cell; extent of the image

    // Calls body(index, weight) for both neighbors of the points of cell c.  Points outside the image have weight 0; of these
    // only some next to the image are visited, since a region may be vast.
    template <typename Body>
    void neighbors(int64_t c, const Body &body) const {
        const double step = cell / static_cast<double>(count), base = start + static_cast<double>(c) * cell;
        int64_t low_side = 0, high_side = count;
        if (step > 0) {
            const auto most = static_cast<double>(count);
            low_side = static_cast<int64_t>(std::min(std::max(std::floor((-1 - base) / step) - 2, 0.0), most - 1));
            const double stop = std::ceil((static_cast<double>(size) - base) / step) + 2;
            high_side = static_cast<int64_t>(std::min(std::max(stop, static_cast<double>(low_side) + 1), most));
        }
        for (int64_t p = low_side; p < high_side; ++p) {
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

// The pixels along one axis that each cell averages, and their weights.
template <typename W>
struct AxisWeights {
    std::vector<int64_t> first, count, at;
    std::vector<W> weights;
    int64_t low = 0, high = -1; // range of pixels used by any cell

    AxisWeights(const Points &points, int64_t cells) : first(cells), count(cells), at(cells) {
        std::vector<double> sums;
        for (int64_t c = 0; c < cells; ++c) {
            int64_t begin = points.size, end = -1;
            points.neighbors(c, [&](int64_t i, double) {
                begin = std::min(begin, i);
                end = std::max(end, i);
            });
            sums.assign(static_cast<size_t>(end - begin + 1), 0.0);
            points.neighbors(c, [&](int64_t i, double weight) {
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

// The pixels around the points of each cell of a region, with their weights; shared by all channels.
template <typename W>
struct CellTaps {
    std::vector<int64_t> offsets;
    std::vector<W> weights;
    std::vector<size_t> starts {0}; // of each cell among the pixels

    CellTaps(const Points &vertical, const Points &horizontal, int64_t height, int64_t width, int64_t down, int64_t across) {
        for (int64_t i = 0; i < height; ++i)
            for (int64_t j = 0; j < width; ++j) {
                vertical.neighbors(i, [&](int64_t y, double u) {
                    horizontal.neighbors(j, [&](int64_t z, double v) {
                        offsets.push_back(y * down + z * across);
                        weights.push_back(static_cast<W>(u * v));
                    });
                });
                starts.push_back(offsets.size());
            }
    }

    // Returns the maximum of the weighted pixels of a cell; NaN if any of them is NaN.
    template <typename T>
    W best(const T *plane, int64_t cell) const {
        const size_t first = starts[static_cast<size_t>(cell)];
        const int64_t *offset = offsets.data() + first;
        const W *weight = weights.data() + first;
        const auto each = static_cast<int64_t>(starts[static_cast<size_t>(cell) + 1] - first);
        constexpr int64_t lanes = 4;
        W most[lanes];
        std::fill_n(most, lanes, -std::numeric_limits<W>::infinity());
        bool any_nan = false;
        for (int64_t k = 0; k < each; k += lanes) // `each` is a multiple of `lanes`
            for (int64_t l = 0; l < lanes; ++l) {
                const W value = widened(plane[offset[k + l]]) * weight[k + l];
                any_nan |= is_nan(value);
                most[l] = value > most[l] ? value : most[l];
            }
        if (any_nan) return std::numeric_limits<W>::quiet_NaN();
        return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
    }
};

// RoiAlign.  Buffers: x [n, c, h, w], rois, batch indices, out.  Arguments: mode (0 average, 1 max), 1 for half-pixel
// coordinates, output height and width, sampling ratio (0: adaptive), bits of the scale (double); dims and strides of x; 2
// strides of rois, the stride of the batch indices, 4 strides of out.  Work items: regions.
template <typename T>
void roialign(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *rois = static_cast<const T *>(buffers[1]);
    auto *images = static_cast<const int64_t *>(buffers[2]);
    auto *out = static_cast<T *>(buffers[3]);
    ArgReader reader(args);
    const int64_t largest = reader.next(), aligned = reader.next(), height = reader.next(), width = reader.next();
    const int64_t ratio = reader.next();
    const auto scale = same_bits<double>(reader.next());
    const int64_t *dims = reader.next(4), *in = reader.next(4), *box = reader.next(2);
    const int64_t image_step = reader.next(), *over = reader.next(4);
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
        if (!std::isfinite(down) || !std::isfinite(across)) return mgx_loop_failed(4, r);
        auto cell = [&](int64_t c, int64_t i, int64_t j) -> T & {
            return out[r * over[0] + c * over[1] + i * over[2] + j * over[3]];
        };
        if (!ratio && (down <= 0 || across <= 0)) { // without sampling points the result is 0
            for (int64_t c = 0; c < dims[1]; ++c)
                for (int64_t i = 0; i < height; ++i)
                    for (int64_t j = 0; j < width; ++j)
                        store(cell(c, i, j), W(0));
            continue;
        }
        auto points = [&](double start, double length, int64_t cells, int64_t size) {
            const double step = length / static_cast<double>(cells), many = std::min(std::max(std::ceil(step), 1.0), 0x1p53);
            return Points {start, step, ratio ? ratio : static_cast<int64_t>(many), size};
        };
        const Points vertical = points(corner[1], down, height, dims[2]), horizontal = points(corner[0], across, width, dims[3]);
        if (largest) {
            const CellTaps<W> cell_taps(vertical, horizontal, height, width, in[2], in[3]);
            for (int64_t c = 0; c < dims[1]; ++c) {
                const T *plane = x + image * in[0] + c * in[1];
                for (int64_t i = 0; i < height; ++i)
                    for (int64_t j = 0; j < width; ++j)
                        store(cell(c, i, j), cell_taps.best(plane, i * width + j));
            }
            continue;
        }
        const AxisWeights<W> left(vertical, height), right(horizontal, width);
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

// The pixels [low, high) of each of `count` cells that divide a region from pixel `first` to pixel `last`, inclusive.
struct CellRanges {
    std::vector<int64_t> low, high;

    CellRanges(double first, double last, int64_t count, int64_t size) : low(count), high(count) {
        const double step = std::max(last - first + 1, 1.0) / static_cast<double>(count), most = static_cast<double>(size);
        for (int64_t c = 0; c < count; ++c) {
            const auto at = static_cast<double>(c);
            low[c] = static_cast<int64_t>(std::min(std::max(std::floor(at * step) + first, 0.0), most));
            high[c] = static_cast<int64_t>(std::min(std::max(std::ceil((at + 1) * step) + first, 0.0), most));
        }
    }
};

// MaxRoiPool.  Buffers: x [n, c, h, w], rois, out.  Arguments: output height and width, bits of the scale (double); dims and
// strides of x; 2 strides of rois, 4 of out.  A cell without pixels is 0; NaN is propagated.  Work items: regions.
template <typename T>
void max_roi_pool(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *rois = static_cast<const T *>(buffers[1]);
    auto *out = static_cast<T *>(buffers[2]);
    ArgReader reader(args);
    const int64_t height = reader.next(), width = reader.next();
    const auto scale = same_bits<double>(reader.next());
    const int64_t *dims = reader.next(4), *in = reader.next(4), *box = reader.next(2), *over = reader.next(4);
    for (int64_t r = begin; r < end; ++r) {
        const T *roi = rois + r * box[0];
        const double batch = static_cast<double>(widened(roi[0]));
        if (!(batch > -1 && batch < static_cast<double>(dims[0])))
            return mgx_loop_failed(1, std::isfinite(batch) ? static_cast<int64_t>(batch) : -1);
        double corner[4];
        for (int64_t i = 0; i < 4; ++i) {
            const double at = static_cast<double>(widened(roi[(i + 1) * box[1]])) * scale;
            if (!std::isfinite(at)) return mgx_loop_failed(4, r);
            corner[i] = std::copysign(std::floor(std::fabs(at) + 0.5), at);
        }
        const CellRanges rows(corner[1], corner[3], height, dims[2]), columns(corner[0], corner[2], width, dims[3]);
        for (int64_t c = 0; c < dims[1]; ++c) {
            const T *plane = x + static_cast<int64_t>(batch) * in[0] + c * in[1];
            for (int64_t i = 0; i < height; ++i)
                for (int64_t j = 0; j < width; ++j) {
                    const bool none = rows.low[i] >= rows.high[i] || columns.low[j] >= columns.high[j];
                    W best = none ? W(0) : -std::numeric_limits<W>::infinity();
                    bool any_nan = false;
                    for (int64_t y = rows.low[i]; y < rows.high[i]; ++y)
                        for (int64_t z = columns.low[j]; z < columns.high[j]; ++z) {
                            const W value = widened(plane[y * in[2] + z * in[3]]);
                            any_nan |= is_nan(value);
                            best = value > best ? value : best;
                        }
                    if (any_nan) best = std::numeric_limits<W>::quiet_NaN();
                    store(out[r * over[0] + c * over[1] + i * over[2] + j * over[3]], best);
                }
        }
    }
}

// im2col of a deformable convolution.  Buffers: x (channels-last), offsets, mask (any buffer if there is none), dense columns [n,
// out_h, out_w, taps, c].  Arguments: channels, height and width of x, its strides along n, h and w; out_h, out_w; offset groups;
// taps, strides, dilations and leading pads, each along h and w; 4 strides of offsets; 1 if there is a mask, its 4 strides.
// Scratch memory: zeros for the channels of a group.  Work items: output pixels.
void deformed(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const float *>(buffers[0]);
    auto *offsets = static_cast<const float *>(buffers[1]);
    auto *mask = static_cast<const float *>(buffers[2]);
    ArgReader reader(args);
    const int64_t channels = reader.next(), *size = reader.next(2), *in = reader.next(3), *over = reader.next(2);
    const int64_t groups = reader.next(), *taps = reader.next(2), *stride = reader.next(2), *dilation = reader.next(2);
    const int64_t *before = reader.next(2), *offset_step = reader.next(4), masked = reader.next(), *mask_step = reader.next(4);
    const int64_t each = channels / groups, points = taps[0] * taps[1];
    auto *zeros = static_cast<float *>(scratch);
    std::fill_n(zeros, each, 0.0f);
    float *to = static_cast<float *>(buffers[3]) + begin * points * channels;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t column = item % over[1], row = item / over[1] % over[0], image = item / over[1] / over[0];
        const float *offset = offsets + image * offset_step[0] + row * offset_step[2] + column * offset_step[3];
        const float *factor = mask + image * mask_step[0] + row * mask_step[2] + column * mask_step[3];
        for (int64_t tap = 0; tap < points; ++tap)
            for (int64_t g = 0; g < groups; ++g, to += each) {
                const int64_t point = g * points + tap;
                const float *move = offset + 2 * point * offset_step[1];
                float at[2] = {move[0] + static_cast<float>(row * stride[0] - before[0] + tap / taps[1] * dilation[0]),
                        move[offset_step[1]] + static_cast<float>(column * stride[1] - before[1] + tap % taps[1] * dilation[1])};
                int64_t low[2];
                float part[2];
                for (int a = 0; a < 2; ++a) {
                    at[a] = at[a] > -2.0f ? std::min(at[a], static_cast<float>(size[a] + 1)) : -2.0f; // NaN is outside the image
                    const float whole = std::floor(at[a]);
                    low[a] = static_cast<int64_t>(whole);
                    part[a] = at[a] - whole;
                }
                const float weight = masked ? factor[point * mask_step[1]] : 1.0f;
                const float *corner[4];
                float share[4];
                for (int64_t k = 0; k < 4; ++k) {
                    const int64_t y = low[0] + k / 2, z = low[1] + k % 2;
                    const bool inside = y >= 0 && y < size[0] && z >= 0 && z < size[1];
                    corner[k] = inside ? x + image * in[0] + y * in[1] + z * in[2] + g * each : zeros;
                    share[k] = (k / 2 ? part[0] : 1 - part[0]) * (k % 2 ? part[1] : 1 - part[1]);
                }
                float *__restrict__ sum = to;
                for (int64_t c = 0; c < each; ++c)
                    sum[c] = ((corner[0][c] * share[0] + corner[1][c] * share[1]) +
                                     (corner[2][c] * share[2] + corner[3][c] * share[3])) *
                            weight;
            }
    }
}

} // namespace

void add_region_loops(NamedLoops &loops) {
    loops["deformed"] = &deformed;
    each(Floating {}, floating_names, [&](auto element, const char *name) {
        add_loop(loops, "roialign", name, &roialign<decltype(element)>);
        add_loop(loops, "max_roi_pool", name, &max_roi_pool<decltype(element)>);
    });
}

} // namespace mgx
