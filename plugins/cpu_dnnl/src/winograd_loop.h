// Winograd convolutions on channels-last tensors for vectors of MGX_LANES floats.
//
// A block of tiles passes through three stages while its data stays in the cache: the input transform, which evaluates tiles at
// the interpolation points [point][tile][channel]; a matrix product per point; the output transform with the epilogue.
#include <algorithm>

#include "link_loop.h"
#include "register_tiles.h"
#include "winograd_job.h"
#include "winograd_transform.h"

namespace {

using namespace mgx;

constexpr int64_t panel = 2 * lanes; // output channels per micro-kernel
constexpr int most_rows = MGX_ROWS; // tiles per micro-kernel, limited by the registers for accumulators

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline int64_t tiles_of(const Job &job) { return job.images * job.tile_rows * job.tile_columns; }
inline int64_t blocks_of(const Job &job) { return (tiles_of(job) + job.block - 1) / job.block; }

// Distance between points, in floats; an extra cache line keeps the points from mapping to the same cache sets.
inline int64_t values_step(const Job &job) { return up(job.block * up(job.channels, lanes), line) + line; }
inline int64_t products_step(const Job &job) { return up(job.block * job.span, line) + line; }

typedef double Doubles __attribute__((vector_size(MGX_LANES * 4)));
typedef float HalfFloats __attribute__((vector_size(MGX_LANES * 2)));
constexpr int64_t half_lanes = lanes / 2; // output channels whose filters are transformed together, in double

struct Tile {
    int64_t image, row, column;
};

// With a dilation (`gap`), the tiles along an axis take turns: tiles 0 .. gap - 1 begin at the outputs 0 .. gap - 1, the next ones
// after those.  Returns the position of a tile's first output; with `advance` inputs in place of outputs, that of its first input.
inline int64_t begin_of(int64_t tile, int64_t gap, int64_t advance) { return tile % gap + tile / gap * advance * gap; }

inline Tile tile_at(const Job &job, int64_t n) {
    const int64_t column = n % job.tile_columns, rest = n / job.tile_columns;
    return {rest / job.tile_rows, rest % job.tile_rows, column};
}

inline Tile tile_after(const Job &job, Tile tile) {
    if (++tile.column == job.tile_columns) {
        tile.column = 0;
        if (++tile.row == job.tile_rows) {
            tile.row = 0;
            ++tile.image;
        }
    }
    return tile;
}

// Calls f(address, n) for COUNT addresses, `step` apart.  Each base register serves three of them, with a scaled index.
template <int COUNT, typename T, typename F>
MGX_INLINE void along(T *at, int64_t step, const F &f) {
#pragma GCC unroll 12
    for (int n = 0; n < COUNT; ++n) {
        if (n % 3 == 0 && n > 0) {
            at += 3 * step;
            opaque(at);
        }
        f(at + n % 3 * step, n);
    }
}

// F(M, R) along one axis: M outputs of R taps from `reach` inputs, with products at n points; tiles are `advance` inputs apart.
template <int M, int R>
struct Axis {
    static constexpr int m = M, r = R, n = M + R - 1, reach = n, advance = M;
    template <typename V>
    static MGX_INLINE void inputs(const V *from, int step, V *to) { to_points<n>(from, step, to, 1); }
    template <typename V>
    static MGX_INLINE void taps(const V *from, int step, V *to) { taps_to_points<R, n>(from, step, to, 1); }
    template <typename V>
    static MGX_INLINE void outputs(const V *from, int step, V *to) { from_points<M, n>(from, step, to, 1); }
};

// Three taps with stride 2.  The outer two taps form F(M, 2) on the even inputs (M + 1 points); the middle tap applies to the odd
// inputs, whose M products are added directly.
template <int M>
struct Halving {
    static constexpr int m = M, r = 3, n = 2 * M + 1, reach = n, advance = 2 * M;
    template <typename V>
    static MGX_INLINE void inputs(const V *from, int step, V *to) {
        to_points<M + 1>(from, 2 * step, to, 1);
#pragma GCC unroll 8
        for (int k = 0; k < M; ++k)
            to[M + 1 + k] = from[(2 * k + 1) * step];
    }
    template <typename V>
    static MGX_INLINE void taps(const V *from, int step, V *to) {
        taps_to_points<2, M + 1>(from, 2 * step, to, 1);
        for (int k = 0; k < M; ++k)
            to[M + 1 + k] = from[step];
    }
    template <typename V>
    static MGX_INLINE void outputs(const V *from, int step, V *to) {
        from_points<M, M + 1>(from, step, to, 1);
#pragma GCC unroll 8
        for (int k = 0; k < M; ++k)
            to[k] += from[(M + 1 + k) * step];
    }
};

// One tap with stride 2: the other axis of lines with stride 2.
struct Skipping {
    static constexpr int m = 1, r = 1, n = 1, reach = 1, advance = 2;
    template <typename V>
    static MGX_INLINE void inputs(const V *from, int, V *to) { to[0] = from[0]; }
    template <typename V>
    static MGX_INLINE void taps(const V *from, int, V *to) { to[0] = from[0]; }
    template <typename V>
    static MGX_INLINE void outputs(const V *from, int, V *to) { to[0] = from[0]; }
};

// Input transform of one vector of channels of a tile.  read(i, to) loads the inputs of row i; rows are read in order.
template <typename H, typename W, typename Read>
MGX_INLINE void transform_vector(float *to, int64_t step, const Read &read) {
    Floats half[H::reach * W::n];
#pragma GCC unroll 12
    for (int i = 0; i < H::reach; ++i) {
        Floats inputs[W::reach];
        read(i, inputs);
        W::inputs(inputs, 1, half + i * W::n);
    }
#pragma GCC unroll 12
    for (int j = 0; j < W::n; ++j) {
        Floats values[H::n];
        H::inputs(half + j, W::n, values);
        along<H::n>(to, W::n * step, [&](float *at, int i) { store(at, values[i]); });
        to += step;
        opaque(to);
    }
}

// Offsets of N inputs along an axis from `first` on, `gap` apart; -1 outside the image.
template <int N>
struct Places {
    int64_t at[N];
    Places(int64_t first, int64_t gap, int64_t extent, int64_t stride) {
        for (int n = 0; n < N; ++n, first += gap)
            at[n] = first >= 0 && first < extent ? first * stride : -1;
    }
};

// Transforms a vector of channels of a tile whose inputs are `row` and `column` apart.
template <typename H, typename W, typename T>
[[gnu::noinline]] void transform_inside(const T *from, int64_t row, int64_t column, float *to, int64_t step) {
    transform_vector<H, W>(to, step, [&](int, Floats *inputs) {
        along<W::reach>(from, column, [&](const T *at, int j) { inputs[j] = load(at); });
        from += row;
        opaque(from);
    });
}

// Transforms all channels of a tile.  Not inlined: shared by the loops for one stage and for all.
template <typename H, typename W, typename T>
[[gnu::noinline]] void transform_tile(const Job &job, const T *x, Tile tile, float *to) {
    static const T nothing[lanes] = {};
    const int64_t down_gap = job.gap_down, across_gap = job.gap_across;
    const int64_t top = begin_of(tile.row, down_gap, H::advance) - job.pad_top;
    const int64_t left = begin_of(tile.column, across_gap, W::advance) - job.pad_left;
    const int64_t step = values_step(job), row = job.x_row, column = job.x_column, last = job.channels - lanes;
    const T *image = x + tile.image * job.x_image;
    const bool inside = top >= 0 && left >= 0 && top + (H::reach - 1) * down_gap < job.height
            && left + (W::reach - 1) * across_gap < job.width;
    // the last vector may contain channels of the one before it, too
    if (inside && last >= 0) {
        for (int64_t c = 0; c < job.channels; c += lanes) {
            const int64_t at = least(c, last);
            transform_inside<H, W>(image + at + top * row + left * column, row * down_gap, column * across_gap, to + at, step);
        }
        return;
    }
    // inputs outside the image are read from a block of zeros
    const Places<H::reach> down(top, down_gap, job.height, row);
    const Places<W::reach> across(left, across_gap, job.width, column);
    if (last >= 0) {
        for (int64_t c = 0; c < job.channels; c += lanes) {
            const T *first = image + least(c, last);
            transform_vector<H, W>(to + least(c, last), step, [&](int i, Floats *inputs) {
                const T *from = first + down.at[i];
#pragma GCC unroll 12
                for (int j = 0; j < W::reach; ++j)
                    inputs[j] = load((down.at[i] | across.at[j]) < 0 ? nothing : from + across.at[j]);
            });
        }
        return;
    }
    // channels that do not fill a vector are copied
    T copy[H::reach * W::reach * lanes] = {};
    for (int i = 0; i < H::reach; ++i)
        for (int j = 0; j < W::reach; ++j)
            if ((down.at[i] | across.at[j]) >= 0)
                std::copy_n(image + down.at[i] + across.at[j], job.channels, copy + (i * W::reach + j) * lanes);
    transform_inside<H, W>(copy, W::reach * lanes, lanes, to, step);
}

// m[row][0..WIDE*lanes] = sum over k of a[row][k] * b[k][..].  For each k prefetches `step` floats from `next`, one or two cache
// lines.
template <int ROWS, int WIDE>
void multiply(const float *a, int64_t a_step, const float *b, int64_t depth, const float *next, int64_t step, float *m,
        int64_t m_step) {
    Floats sum[ROWS][WIDE] = {};
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; ++k) {
        Floats factor[WIDE];
#pragma GCC unroll 2
        for (int w = 0; w < WIDE; ++w)
            factor[w] = load(b + k * panel + w * lanes);
        __builtin_prefetch(next + k * step, 0, 2);
        __builtin_prefetch(next + k * step + step - line, 0, 2);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
            for (int w = 0; w < WIDE; ++w)
                sum[r][w] += a[r * a_step + k] * factor[w];
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
        for (int w = 0; w < WIDE; ++w)
            store(m + r * m_step + w * lanes, sum[r][w]);
}

using Product = void (*)(const float *, int64_t, const float *, int64_t, const float *, int64_t, float *, int64_t);

template <int WIDE>
Product product_of(int64_t rows) {
    static constexpr Product made[] = {nullptr, multiply<1, WIDE>, multiply<2, WIDE>, multiply<3, WIDE>, multiply<4, WIDE>,
            multiply<5, WIDE>, multiply<6, WIDE>,
#if MGX_ROWS > 6
            multiply<7, WIDE>, multiply<8, WIDE>, multiply<9, WIDE>, multiply<10, WIDE>, multiply<11, WIDE>,
            multiply<12, WIDE>, multiply<13, WIDE>, multiply<14, WIDE>,
#endif
    };
    return made[rows];
}

// Computes the products of `tiles` tiles with the output channels [begin, end) at all points.
void multiply_block(const Job &job, int points, const float *values, const float *weights, int64_t tiles, int64_t begin,
        int64_t end, float *products) {
    const int64_t width = up(job.channels, lanes), panels = up(job.out_channels, panel) / panel, size = job.channels * panel;
    const int64_t groups = (tiles + most_rows - 1) / most_rows, fetching = least(groups, panel / line), step = panel / fetching;
    for (int p = 0; p < points; ++p) {
        const float *a = values + p * values_step(job);
        for (int64_t o = begin; o < end; o += panel) {
            const float *b = weights + (p * panels + o / panel) * size;
            // prefetch the next panel's weights, a part per group of tiles: during one group memory could not keep up
            const float *next = o + panel < end ? b + size : p + 1 < points ? weights + ((p + 1) * panels + begin / panel) * size : b;
            float *m = products + p * products_step(job) + (o - begin);
            const bool wide = end - o > lanes;
            for (int64_t g = 0; g < groups; ++g) {
                const int64_t first = tiles * g / groups, rows = tiles * (g + 1) / groups - first;
                auto product = wide ? product_of<2>(rows) : product_of<1>(rows);
                const float *fetched = g < fetching ? next + g * step * job.channels : b;
                product(a + first * width, width, b, job.channels, fetched, step, m + first * job.span, job.span);
            }
        }
    }
}

// Output transform of one vector of channels of a tile.
template <typename H, typename W>
MGX_INLINE void outputs_of(const float *products, int64_t step, Floats *out) {
    Floats half[H::m * W::n];
#pragma GCC unroll 12
    for (int j = 0; j < W::n; ++j) {
        Floats column[H::n];
        along<H::n>(products, W::n * step, [&](const float *at, int i) { column[i] = load(at); });
        H::outputs(column, 1, half + j * H::m);
        products += step;
        opaque(products);
    }
#pragma GCC unroll 12
    for (int i = 0; i < H::m; ++i)
        W::outputs(half + i, H::m, out + i * W::m);
}

// Calls f(address, n) for the outputs of a tile.
template <typename H, typename W, typename T, typename F>
MGX_INLINE void over(T *at, int64_t row, int64_t column, const F &f) {
#pragma GCC unroll 12
    for (int i = 0; i < H::m; ++i) {
        along<W::m>(at, column, [&](T *there, int j) { f(there, i * W::m + j); });
        at += row;
        opaque(at);
    }
}

struct Arguments {
    Job job;
    Link links[most_links];
    Link spaced[most_links]; // the same with the steps between outputs of a tile
};

[[gnu::noinline]] Arguments arguments_from(const int64_t *args) {
    Arguments found;
    std::memcpy(&found.job, args, sizeof found.job);
    read_links(args + sizeof found.job / sizeof *args, found.job.links, found.links);
    for (int64_t n = 0; n < found.job.links; ++n) {
        found.spaced[n] = found.links[n];
        found.spaced[n].row *= found.job.gap_down;
        found.spaced[n].column *= found.job.gap_across;
    }
    return found;
}

// Computes and stores the output channels [begin, end) of a tile, with the epilogue.  `first`: first channel of the group; T: type
// of results and operands.
template <typename H, typename W, typename T>
[[gnu::noinline]] void finish_tile(const Arguments &given, void *const *buffers, Tile tile, int64_t first, int64_t begin, int64_t end,
        const float *products) {
    constexpr int size = H::m * W::m;
    const Job &job = given.job;
    const int64_t top = begin_of(tile.row, job.gap_down, H::m), left = begin_of(tile.column, job.gap_across, W::m);
    const int64_t step = products_step(job), row = job.y_row * job.gap_down, column = job.y_column * job.gap_across;
    T *to = static_cast<T *>(buffers[2]) + tile.image * job.y_image + top * job.y_row + left * job.y_column + first;
    const auto valid = [](int64_t outputs, int64_t gap) { return (outputs + gap - 1) / gap; }; // none if outputs <= 0
    Part part {least(H::m, valid(job.out_height - top, job.gap_down)), least(W::m, valid(job.out_width - left, job.gap_across)), lanes};
    const bool whole = part.rows == H::m && part.columns == W::m;
    for (int64_t o = begin; o < end; o += lanes) {
        Floats out[size];
        outputs_of<H, W>(products + (o - begin), step, out);
        part.count = least(lanes, end - o);
        const bool full = whole && part.count == lanes;
        int64_t done = 0;
        // the most common epilogues (residual addition, ReLU) are applied in registers
        for (; full && done < job.links; ++done) {
            const Link &link = given.spaced[done];
            if (link.kind == LinkKind::add && link.channel == 1) {
                const T *from = operand_of<T>(given.links[done], buffers, {tile.image, top, left, first + o});
                over<H, W>(from, link.row, link.column, [&](const T *at, int n) { out[n] += load(at); });
            } else if (link.kind == LinkKind::relu && link.alpha == 0.0f) {
#pragma GCC unroll 16
                for (int n = 0; n < size; ++n)
                    out[n] = larger(all(0.0f), out[n]);
            } else {
                break;
            }
        }
        if (full && done == job.links) {
            over<H, W>(to + o, row, column, [&](T *at, int n) { store(at, out[n]); });
            continue;
        }
        Floats rest[size];
#pragma GCC unroll 16
        for (int n = 0; n < size; ++n)
            rest[n] = out[n];
        for (; done < job.links; ++done) {
            const Link &link = given.spaced[done];
            const T *from = operand_of<T>(given.links[done], buffers, {tile.image, top, left, first + o});
            apply(link, Results {rest, W::m, size}, from, part);
        }
        for (int n = 0; n < size; ++n) {
            if (n / W::m >= part.rows || n % W::m >= part.columns) continue;
            T *at = to + n / W::m * row + n % W::m * column + o;
            if (part.count == lanes)
                store(at, rest[n]);
            else
                store_some(at, rest[n], part.count);
        }
    }
}

inline void store_half(float *to, HalfFloats v) { std::memcpy(to, &v, sizeof v); }

template <typename H, typename W>
struct Filters {
    static constexpr int points = H::n * W::n;

    // Transforms the filters of one input channel and `width` output channels; points are stored `step` floats apart.
    static void pack_vector(const float *from, const int64_t *strides, int64_t width, float *to, int64_t step) {
        constexpr int taps = H::r * W::r;
        Doubles filter[taps] = {}, half[H::n * W::r], made[points];
        for (int64_t lane = 0; lane < width; ++lane)
            for (int t = 0; t < taps; ++t)
                filter[t][lane] = from[lane * strides[0] + t / W::r * strides[2] + t % W::r * strides[3]];
#pragma GCC unroll 8
        for (int j = 0; j < W::r; ++j)
            H::taps(filter + j, W::r, half + j * H::n);
#pragma GCC unroll 12
        for (int i = 0; i < H::n; ++i)
            W::taps(half + i, H::n, made + i * W::n);
        for (int p = 0; p < points; ++p)
            store_half(to + p * step, __builtin_convertvector(made[p], HalfFloats));
    }

    // Packs a few channels at a time in a local buffer: in `to` the points are far apart, often in the same cache sets.
    static void pack(const float *from, const int64_t *strides, float *to, int64_t o, int64_t c, int64_t begin,
            int64_t end) {
        constexpr int64_t some = 8, step = some * panel;
        const int64_t panels = up(o, panel) / panel;
        float near[points * step];
        for (int64_t n = begin; n < end; ++n)
            for (int64_t first = 0; first < c; first += some) {
                const int64_t count = least(some, c - first);
                for (int64_t k = 0; k < count; ++k)
                    for (int64_t part = 0; part < panel; part += half_lanes) {
                        const int64_t channel = n * panel + part, width = least(half_lanes, o - channel);
                        pack_vector(from + channel * strides[0] + (first + k) * strides[1], strides, width,
                                near + k * panel + part, step);
                    }
                for (int p = 0; p < points; ++p)
                    std::memcpy(to + ((p * panels + n) * c + first) * panel, near + p * step,
                            static_cast<size_t>(count * panel) * sizeof(float));
            }
    }
};

// T: type of inputs, results and operands of the links: float, or uint16_t for bfloat16.
template <typename H, typename W, typename T>
struct Loops {
    static constexpr int points = H::n * W::n;

    // Buffers: x, values at the points [group, block, point, tile, channel].
    static void transform(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
        const Arguments given = arguments_from(args);
        const Job &job = given.job;
        const int64_t width = up(job.channels, lanes), tiles = tiles_of(job), blocks = blocks_of(job);
        for (int64_t n = begin; n < end; ++n) {
            const int64_t group = n / tiles, number = n % tiles;
            transform_tile<H, W>(job, static_cast<const T *>(buffers[0]) + group * job.channels, tile_at(job, number),
                    static_cast<float *>(buffers[1]) + (group * blocks + number / job.block) * points * values_step(job)
                            + number % job.block * width);
        }
    }

    // Computes some output channels of a block of tiles.  Not inlined: shared by the loops for one stage and for all.
    [[gnu::noinline]] static void span(const Arguments &given, void *const *buffers, const float *values, int64_t group,
            int64_t block, int64_t begin, float *products) {
        const Job &job = given.job;
        const int64_t end = least(begin + job.span, job.out_channels), weights = points * job.channels * up(job.out_channels, panel);
        const int64_t tiles = least(job.block, tiles_of(job) - block * job.block);
        multiply_block(job, points, values, static_cast<const float *>(buffers[1]) + group * weights, tiles, begin, end, products);
        Tile tile = tile_at(job, block * job.block);
        for (int64_t n = 0; n < tiles; ++n, tile = tile_after(job, tile))
            finish_tile<H, W, T>(given, buffers, tile, group * job.out_channels, begin, end, products + n * job.span);
    }

    // Buffers: values, packed weights, y, operands of the links.
    static void multiply(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
        const Arguments given = arguments_from(args);
        const Job &job = given.job;
        const int64_t blocks = blocks_of(job), spans = (job.out_channels + job.span - 1) / job.span;
        for (int64_t n = begin; n < end; ++n) {
            const int64_t block = n % blocks, group = n / blocks / spans;
            span(given, buffers, static_cast<const float *>(buffers[0]) + (group * blocks + block) * points * values_step(job), group,
                    block, n / blocks % spans * job.span, static_cast<float *>(scratch));
        }
    }

    // Buffers: x, packed weights, y, operands of the links.
    static void both(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
        const Arguments given = arguments_from(args);
        const Job &job = given.job;
        auto *values = static_cast<float *>(scratch), *products = values + points * values_step(job);
        const int64_t blocks = blocks_of(job);
        for (int64_t item = begin; item < end; ++item) {
            const int64_t group = item / blocks, block = item % blocks;
            const int64_t first = block * job.block, last = least(first + job.block, tiles_of(job));
            Tile tile = tile_at(job, first);
            for (int64_t n = first; n < last; ++n, tile = tile_after(job, tile))
                transform_tile<H, W>(job, static_cast<const T *>(buffers[0]) + group * job.channels, tile,
                        values + (n - first) * up(job.channels, lanes));
            for (int64_t o = 0; o < job.out_channels; o += job.span)
                span(given, buffers, values, group, block, o, products);
        }
    }

    // Packs weights during a run.  Buffers: weights, packed weights; arguments: strides, outputs and channels of a group, elements
    // between groups; work items: (groups, panels).
    static void filters(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
        const int64_t o = args[4], c = args[5], panels = up(o, panel) / panel;
        for (int64_t n = begin; n < end; ++n) {
            const int64_t group = n / panels, part = n % panels;
            Filters<H, W>::pack(static_cast<const float *>(buffers[0]) + group * args[6], args,
                    static_cast<float *>(buffers[1]) + group * points * c * up(o, panel), o, c, part, part + 1);
        }
    }

    static WinogradLoops all() { return {&transform, &multiply, &both, &filters, &Filters<H, W>::pack}; }
};

} // namespace

namespace mgx {

namespace {

template <typename T>
WinogradLoops loops_of(WinogradKind kind) {
    auto is = [&](int m_h, int r_h, int m_w, int r_w, int stride = 1) {
        return kind.m_h == m_h && kind.r_h == r_h && kind.m_w == m_w && kind.r_w == r_w && kind.stride == stride;
    };
    if (is(2, 3, 2, 3)) return Loops<Axis<2, 3>, Axis<2, 3>, T>::all();
    if (is(4, 3, 4, 3)) return Loops<Axis<4, 3>, Axis<4, 3>, T>::all();
    if (is(3, 3, 3, 3, 2)) return Loops<Halving<3>, Halving<3>, T>::all();
    if (is(2, 5, 2, 5)) return Loops<Axis<2, 5>, Axis<2, 5>, T>::all();
    if (is(1, 1, 4, 3)) return Loops<Axis<1, 1>, Axis<4, 3>, T>::all();
    if (is(4, 3, 1, 1)) return Loops<Axis<4, 3>, Axis<1, 1>, T>::all();
    if (is(1, 1, 5, 3, 2)) return Loops<Skipping, Halving<5>, T>::all();
    if (is(5, 3, 1, 1, 2)) return Loops<Halving<5>, Skipping, T>::all();
    if (is(1, 1, 4, 5)) return Loops<Axis<1, 1>, Axis<4, 5>, T>::all();
    if (is(4, 5, 1, 1)) return Loops<Axis<4, 5>, Axis<1, 1>, T>::all();
    if (is(1, 1, 4, 7)) return Loops<Axis<1, 1>, Axis<4, 7>, T>::all();
    if (is(4, 7, 1, 1)) return Loops<Axis<4, 7>, Axis<1, 1>, T>::all();
    return {};
}

} // namespace

WinogradLoops MGX_WINOGRAD(WinogradKind kind) {
#if MGX_LANES == 16
    if (kind.bfloat16) return loops_of<uint16_t>(kind);
#endif
    return kind.bfloat16 ? WinogradLoops {} : loops_of<float>(kind);
}

} // namespace mgx
