// Depthwise convolutions and grouped ones with four or eight channels per group, channels last, for AVX-512.
//
// A work item is some rows of results of some vectors of channels.  A tile of columns of one or two rows is accumulated in
// registers; a row of inputs is multiplied by the weights of one window row, or of two if windows of both result rows contain it,
// so that each input is loaded once for all results that it contributes to.  Windows of three rows are limited by the bandwidth
// of the L2 cache.
//
// With groups, a vector holds four groups or two.  Shuffles broadcast each input to the results of its group, four inputs of a
// group at a time.
#define MGX_LANES 16
#include <algorithm>
#include <array>
#include <type_traits>

#include "link_loop.h"
#include "loops.h"
#include "register_tiles.h"

namespace mgx {

namespace {

// The loop's arguments, in this order, encoded by `plans/depthwise_convolution.py`; the epilogue's links follow.  Buffers:
// images, weights [vector, tap down, four inputs of a group, tap across, one of the four, 16], result, operands of the links.
struct DepthwiseJob {
    int64_t channels, per, block;   // channels of the images and of a group; vectors of channels of a work item
    int64_t height, width, x_image, x_row, x_column;
    int64_t out_height, out_width, y_image, y_row, y_column;
    int64_t down, across, step_down, step_across, gap_down, top, left; // window extents, strides, dilation; leading padding
    int64_t rows, parts;            // rows of results per item; items per block of channels of an image
    int64_t bias;                   // buffer of initial values, one per channel; 0: none
    int64_t added, added_image, added_row, added_column; // buffer of an image of initial values; 0: none
    int64_t low, high;              // bounds that sums are clamped to, bits of floats
    int64_t links;
};

constexpr int max_columns = 14;            // columns of a tile of one row
constexpr int few_columns = 6;             // rows that exceed the largest tile are divided into wider ones
constexpr int registers = 32;

// Columns of a tile of R rows: registers hold its accumulators, R rows of K weights and one input.
template <int K, int R> constexpr int columns_of_tile = R == 1 ? max_columns : (registers - 1 - R * K) / R;

// The input columns of a row of windows, padding included: offset of each, and the mask of its valid lanes, for full vectors of
// channels and for the last one.
struct Columns {
    int64_t *at;
    __mmask16 *whole, *last;
};

// T: type of images, initial values and results: float, or uint16_t for bfloat16.
template <class T> struct Tile {
    const T *x;
    const float *weights;
    const T *bias, *added;
    int64_t added_row, added_column;
    int64_t x_row, x_column;        // strides between window rows and between columns
    int64_t begin, end, down;       // window rows inside the image; rows of a window
    float *y;                       // results, or sums before an epilogue or before they are narrowed
    int64_t y_row, y_column;        // its strides
    bool distant;                   // y are results, which are not in the L1 cache
    const int64_t *at;              // offsets of the tile's input columns, used unless all are inside the image
    const __mmask16 *counted;       // their valid lanes
    __mmask16 lanes;                // valid lanes of the initial values
    __mmask16 stored;               // lanes that are stored
    float low, high;
};

// Loads input column q of a row at x; `at`: its address if all columns are inside the image, which is advanced.
template <bool inside, class T> [[gnu::always_inline]] inline Floats input(const Tile<T> &tile, const T *x, const T *&at, int q) {
    if (!inside) return load_lanes(x + tile.at[q], tile.counted[q]);
    const Floats one = load(at);
    at += tile.x_column;
    opaque(at);
    return one;
}

// Returns the first tap whose product with input column q belongs to one of P results, S input columns apart; each S-th tap after
// it is another, up to q.
template <int S, int P> constexpr int first_tap(int q) { return q < S * P ? q % S : q - S * (P - 1); }

// Multiplies a row of inputs by the weights of result rows `first` to `last` and adds the products to their sums.
template <int K, int S, int R, int P, bool inside, int first, int last, class T>
[[gnu::always_inline]] inline void add_row(const Tile<T> &tile, const T *x, const float *weights, Floats (&sums)[R][P]) {
    Floats w[R][K];
    MGX_UNROLLED
    for (int r = first; r <= last; ++r)
        MGX_UNROLLED
        for (int j = 0; j < K; ++j)
            w[r][j] = load(weights + (j - r * K) * lanes);
    const T *at = x;
    MGX_UNROLLED
    for (int q = 0; q < S * (P - 1) + K; ++q) {
        const Floats one = input<inside>(tile, x, at, q);
        MGX_UNROLLED
        for (int j = first_tap<S, P>(q); j < K && j <= q; j += S)
            MGX_UNROLLED
            for (int r = first; r <= last; ++r)
                add_product(sums[r][(q - j) / S], one, w[r][j]);
    }
}

constexpr int four = 4;             // input channels of a group per shuffle: a 128-bit lane

// Selects, in each 128-bit lane, the B-th four channels of the lane's group of G channels.
template <int G, int B> [[gnu::always_inline]] inline __m512 group_inputs(__m512 channels) {
    if constexpr (G == four) return channels;
    return _mm512_shuffle_f32x4(channels, channels, B == 0 ? 0xa0 : 0xf5);
}

// Broadcasts channel u of each 128-bit lane within the lane; the instruction needs an immediate.
[[gnu::always_inline]] inline Floats broadcast_in_lanes(__m512 group_inputs, int u) {
    switch (u) {
        case 0: return (Floats)_mm512_permute_ps(group_inputs, 0x00);
        case 1: return (Floats)_mm512_permute_ps(group_inputs, 0x55);
        case 2: return (Floats)_mm512_permute_ps(group_inputs, 0xaa);
        default: return (Floats)_mm512_permute_ps(group_inputs, 0xff);
    }
}

// Multiplies a row of inputs by a row of weights, for the B-th four inputs of each group.
template <int K, int S, int P, bool inside, int G, int B, class T>
[[gnu::always_inline]] inline void add_row_of_groups(const Tile<T> &tile, const T *x, const float *weights, Floats (&sums)[1][P]) {
    Floats w[K][four];
    MGX_UNROLLED
    for (int j = 0; j < K; ++j)
        MGX_UNROLLED
        for (int u = 0; u < four; ++u)
            w[j][u] = load(weights + ((B * K + j) * four + u) * lanes);
    const T *at = x;
    MGX_UNROLLED
    for (int q = 0; q < S * (P - 1) + K; ++q) {
        const __m512 inputs = group_inputs<G, B>((__m512)input<inside>(tile, x, at, q));
        MGX_UNROLLED
        for (int u = 0; u < four; ++u) {
            const Floats one = broadcast_in_lanes(inputs, u);
            MGX_UNROLLED
            for (int j = first_tap<S, P>(q); j < K && j <= q; j += S)
                add_product(sums[0][(q - j) / S], one, w[j][u]);
        }
    }
}

// Adds the image of initial values to the sums.
template <bool inside, int R, int P, class T> [[gnu::always_inline]] inline void add_image(const Tile<T> &tile, Floats (&sums)[R][P]) {
    MGX_UNROLLED
    for (int r = 0; r < R; ++r) {
        const T *from = tile.added + r * tile.added_row;
        MGX_UNROLLED
        for (int p = 0; p < P; ++p) {
            sums[r][p] += inside ? load(from) : load_lanes(from, tile.lanes);
            from += tile.added_column;
            opaque(from);
        }
    }
}

// Computes R rows of P columns, with windows K wide, stride S and groups of G channels; inside: all input columns are inside the
// image, and all lanes are valid.
template <class T, int K, int S, int R, int G, int P, bool inside> void sum_tile(const Tile<T> &parameters) {
    const Tile<T> tile = parameters;
    Floats sums[R][P];
    const Floats begin = tile.bias ? load_lanes(tile.bias, tile.lanes) : Floats {};
    MGX_UNROLLED
    for (int r = 0; r < R; ++r)
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            sums[r][p] = begin;
    if (tile.distant) // otherwise stores stall on misses
        for (int r = 0; r < R; ++r) {
            const float *y = tile.y + r * tile.y_row;
            for (int p = 0; p < P; ++p, y += tile.y_column)
                __builtin_prefetch(y, 1, 3);
        }
    if (tile.added) add_image<inside>(tile, sums);
    const T *x = tile.x;
    const float *weights = tile.weights;
    int64_t rows = tile.end - tile.begin;
    auto advance = [&] { x += tile.x_row, weights += K * G * lanes, --rows; };
    if constexpr (R == 2) {
        if (tile.begin == 0 && rows > 0) {
            add_row<K, S, R, P, inside, 0, 0>(tile, x, weights, sums);
            advance();
        }
        for (const int64_t alone = tile.end > tile.down; rows > alone; advance())
            add_row<K, S, R, P, inside, 0, 1>(tile, x, weights, sums);
        if (rows > 0) add_row<K, S, R, P, inside, 1, 1>(tile, x, weights, sums);
    } else {
        for (; rows > 0; advance()) {
            if constexpr (G == 1) add_row<K, S, R, P, inside, 0, 0>(tile, x, weights, sums);
            if constexpr (G >= four) add_row_of_groups<K, S, P, inside, G, 0>(tile, x, weights, sums);
            if constexpr (G > four) add_row_of_groups<K, S, P, inside, G, 1>(tile, x, weights, sums);
        }
    }
    const Floats low = all(tile.low), high = all(tile.high);
    MGX_UNROLLED
    for (int r = 0; r < R; ++r) {
        float *y = tile.y + r * tile.y_row;
        MGX_UNROLLED
        for (int p = 0; p < P; ++p) {
            const Floats sum = smaller(high, larger(low, sums[r][p]));
            if constexpr (inside)
                store(y, sum);
            else
                store_lanes(y, sum, tile.stored);
            y += tile.y_column;
            opaque(y);
        }
    }
}

template <class T> using SumTile = void (*)(const Tile<T> &);

// Functions for tiles of 1 to `max_columns` columns, each with and without padding in its inputs.  Tiles of few columns are
// most of a narrow image, which has padding; the others are computed as if they had.
template <class T> struct Tiles {
    int64_t max_columns;
    const SumTile<T> *tiles;
};

template <class T, int K, int S, int R, int G, int... P>
constexpr std::array<SumTile<T>, sizeof...(P)> table_of(std::integer_sequence<int, P...>) {
    return {sum_tile<T, K, S, R, G, P / 2 + 1, (P % 2 && P / 2 + 1 > few_columns)>...};
}

template <class T, int K, int S, int R, int G = 1> Tiles<T> tiles_of() {
    constexpr int columns = columns_of_tile<K, R>;
    static constexpr auto table = table_of<T, K, S, R, G>(std::make_integer_sequence<int, 2 * columns> {});
    return {columns, table.data()};
}

// Functions for windows K wide of single channels.  Those of bfloat16 with stride 2 are left to oneDNN, which is faster.
template <class T, int K> Tiles<T> tiles_of_width(int64_t step) {
    if constexpr (std::is_same_v<T, float>)
        if (step == 2) return tiles_of<T, K, 2, 1>();
    return tiles_of<T, K, 1, 1>();
}

// `plans/depthwise_convolution.py` leaves windows of bfloat16 that are 3 wide, and groups of 8, to oneDNN, too.
template <class T> Tiles<T> tiles(const DepthwiseJob &job) {
    const int64_t across = job.across, step = job.step_across;
    if (job.per == four) return step == 1 ? tiles_of<T, 3, 1, 1, four>() : tiles_of<T, 3, 2, 1, four>();
    if constexpr (std::is_same_v<T, float>) {
        if (job.per == 2 * four) return step == 1 ? tiles_of<T, 3, 1, 1, 2 * four>() : tiles_of<T, 3, 2, 1, 2 * four>();
        if (across == 3) return tiles_of_width<T, 3>(step);
    }
    if (across == 5) return tiles_of_width<T, 5>(step);
    if (across == 7) return tiles_of_width<T, 7>(step);
    if (across == 9) return tiles_of_width<T, 9>(step);
    return tiles_of_width<T, 11>(step);
}

// Returns functions for two rows of results, which load most inputs once for both; none for wider windows,
// which are compute-bound.
template <class T> Tiles<T> tiles_of_two(const DepthwiseJob &job) {
    if (job.per != 1 || job.step_across != 1 || job.step_down != 1 || job.gap_down != 1 || job.across > 5) return {0, nullptr};
    if constexpr (std::is_same_v<T, float>)
        if (job.across == 3) return tiles_of<T, 3, 1, 2>();
    return tiles_of<T, 5, 1, 2>();
}

struct Context {
    DepthwiseJob job;
    Link links[most_links];
    void *const *buffers;
    Columns columns;
    Floats *sums;                   // of a tile, before the epilogue
};

// Applies the epilogue's links, if any, to sums in memory and stores the results.
template <class T> void apply_epilogue(const Context &context, Floats *sums, T *y, int64_t count, Place place) {
    const DepthwiseJob &job = context.job;
    const int64_t valid = std::min(lanes, job.channels - place.channel);
    for (int64_t n = 0; n < job.links; ++n) {
        const Link &link = context.links[n];
        const int size = static_cast<int>(count);
        apply(link, Results {sums, size, size}, operand_of<T>(link, context.buffers, place), {1, count, valid});
    }
    for (int64_t p = 0; p < count; ++p, y += job.y_column)
        if (valid == lanes)
            store(y, sums[p]);
        else
            store_some(y, sums[p], valid);
}

float as_float(int64_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

Columns columns_of(const DepthwiseJob &job, void *scratch) {
    const int64_t count = (job.out_width - 1) * job.step_across + job.across, left = job.channels % lanes;
    Columns columns;
    columns.at = static_cast<int64_t *>(scratch);
    columns.whole = reinterpret_cast<__mmask16 *>(columns.at + count);
    columns.last = columns.whole + count;
    for (int64_t q = 0; q < count; ++q) {
        const int64_t column = q - job.left;
        const bool within = column >= 0 && column < job.width;
        columns.at[q] = within ? column * job.x_column : 0;
        columns.whole[q] = within ? 0xffff : 0;
        columns.last[q] = static_cast<__mmask16>(left ? columns.whole[q] & ((1u << left) - 1) : columns.whole[q]);
    }
    return columns;
}

// Computes `count` columns of one or two rows of results for all vectors of an item; `tile` holds the common parameters.
template <class T>
void columns_of_rows(const Context &context, Tile<T> tile, const SumTile<T> *functions, int64_t rows, int64_t count, Place place,
        int64_t vectors) {
    const DepthwiseJob &job = context.job;
    const int64_t from = place.column * job.step_across, size = job.down * job.across * job.per * lanes;
    const bool inside = count > few_columns && from >= job.left
            && from - job.left + (count - 1) * job.step_across + job.across <= job.width;
    const T *line = tile.x;
    const auto *weights = static_cast<const float *>(context.buffers[1]) + tile.begin * job.across * job.per * lanes;
    const auto *bias = job.bias ? static_cast<const T *>(context.buffers[job.bias]) : nullptr;
    const auto *added = job.added ? static_cast<const T *>(context.buffers[job.added]) + place.image * job.added_image
                    + place.row * job.added_row + place.column * job.added_column
                                  : nullptr;
    T *result = static_cast<T *>(context.buffers[2]) + place.image * job.y_image + place.row * job.y_row + place.column * job.y_column;
    tile.at = context.columns.at + from;
    for (int64_t v = 0; v < vectors; ++v, place.channel += lanes) {
        const int64_t left = job.channels - place.channel;
        const bool whole = left >= lanes;
        tile.lanes = static_cast<__mmask16>(whole ? 0xffff : (1u << left) - 1);
        tile.counted = (whole ? context.columns.whole : context.columns.last) + from;
        tile.x = line + place.channel + (inside && whole ? (from - job.left) * job.x_column : 0);
        tile.weights = weights + place.channel / lanes * size;
        tile.bias = bias ? bias + place.channel : nullptr;
        tile.added = added ? added + place.channel : nullptr;
        tile.y = reinterpret_cast<float *>(context.sums);
        if constexpr (std::is_same_v<T, float>)
            if (tile.distant) tile.y = result + place.channel;
        tile.stored = tile.distant ? tile.lanes : 0xffff;
        functions[inside && whole](tile);
        if (tile.distant) continue;
        for (int64_t r = 0; r < rows; ++r)
            apply_epilogue(context, context.sums + r * max_columns, result + r * job.y_row + place.channel, count,
                    {place.image, place.row + r, place.column, place.channel});
    }
}

// Computes all results of a work item.
template <class T> void rows_of_vectors(const Context &context, Place place, int64_t vectors, int64_t end) {
    const DepthwiseJob &job = context.job;
    const T *images = static_cast<const T *>(context.buffers[0]) + place.image * job.x_image;
    const Tiles<T> one = tiles<T>(job), two = tiles_of_two<T>(job);
    Tile<T> tile {};
    tile.low = as_float(job.low);
    tile.high = as_float(job.high);
    tile.x_column = job.x_column;
    tile.x_row = job.gap_down * job.x_row;
    tile.distant = std::is_same_v<T, float> && !job.links;
    tile.y_row = tile.distant ? job.y_row : max_columns * lanes;
    tile.y_column = tile.distant ? job.y_column : lanes;
    tile.down = job.down;
    tile.added_row = job.added_row;
    tile.added_column = job.added_column;
    for (int64_t rows = 1; place.row < end; place.row += rows) {
        rows = two.max_columns && place.row + 1 < end ? 2 : 1;
        const Tiles<T> &tables = rows == 2 ? two : one;
        const int64_t first = place.row * job.step_down - job.top; // input row of the first window row
        tile.begin = first < 0 ? (-first + job.gap_down - 1) / job.gap_down : 0;
        tile.end = first >= job.height ? 0 : std::min(job.down + rows - 1, (job.height - first + job.gap_down - 1) / job.gap_down);
        tile.x = images + (first + tile.begin * job.gap_down) * job.x_row;
        const int64_t parts = (job.out_width + tables.max_columns - 1) / tables.max_columns;
        const int64_t low = job.out_width / parts, over = job.out_width % parts;
        place.column = 0;
        for (int64_t t = 0; t < parts; ++t) {
            const int64_t count = low + (t < over);
            columns_of_rows(context, tile, tables.tiles + 2 * (count - 1), rows, count, place, vectors);
            place.column += count;
        }
    }
}

template <class T> void depthwise_convolution(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    Context context;
    Floats sums[2 * max_columns];
    context.buffers = buffers;
    context.sums = sums;
    const DepthwiseJob &job = context.job;
    std::memcpy(&context.job, args, sizeof context.job);
    read_links(args + sizeof context.job / sizeof *args, job.links, context.links);
    context.columns = columns_of(job, scratch);
    const int64_t vectors = (job.channels + lanes - 1) / lanes, blocks = (vectors + job.block - 1) / job.block;
    for (int64_t i = begin; i < end; ++i) {
        const int64_t vector = i / job.parts % blocks * job.block, row = i % job.parts * job.rows;
        rows_of_vectors<T>(context, {i / job.parts / blocks, row, 0, vector * lanes}, std::min(job.block, vectors - vector),
                std::min(row + job.rows, job.out_height));
    }
}

} // namespace

void add_depthwise_convolutions(NamedLoops &loops) {
    loops["depthwise_convolution_avx512_float32"] = depthwise_convolution<float>;
    loops["depthwise_convolution_avx512_bfloat16"] = depthwise_convolution<uint16_t>;
}

} // namespace mgx
