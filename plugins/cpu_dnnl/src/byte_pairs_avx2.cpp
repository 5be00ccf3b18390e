#include "byte_pairs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <immintrin.h>

namespace mgx {

namespace {

constexpr int max_rows = 6;

#define MGX_UNROLLED _Pragma("GCC unroll 16")

// Hides a pointer's value from the compiler, which otherwise keeps an address per row and runs out of registers.
template <class T> inline void opaque(T &pointer) { asm("" : "+r"(pointer)); }

// sum += pair sums of a * b.  Inline assembly keeps the source order, in which the registers suffice.
[[gnu::always_inline]] inline void add_pairs(__m256i &sum, __m256i a, __m256i b) {
    __m256i products;
    asm("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
    asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
}

inline __m256i load(const void *from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
inline void store(void *to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i *>(to), x); }

template <int H, int V>
void run(const int16_t *rows, int64_t step, const int16_t *panel, int64_t depth, int32_t *sums, int64_t sums_step, bool add) {
    constexpr int bases = (H + 2) / 3; // each row is zero, one or two strides from a base: x86 addressing modes scale by 1 and 2
    const int64_t stride = 2 * step;
    const char *left[bases];
    MGX_UNROLLED
    for (int b = 0; b < bases; ++b)
        left[b] = reinterpret_cast<const char *>(rows) + 3 * b * stride;
    __m256i acc[H][V];
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            acc[r][v] = add ? load(sums + r * sums_step + 8 * v) : _mm256_setzero_si256();
    for (int64_t i = 0; i < depth; i += 4) {
        MGX_UNROLLED
        for (int u = 0; u < 2; ++u) {
            __m256i columns[V];
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                columns[v] = load(panel + 32 * u + 16 * v);
            MGX_UNROLLED
            for (int r = 0; r < H; ++r) {
                int32_t pair;
                std::memcpy(&pair, left[r / 3] + r % 3 * stride + 4 * u, 4);
                const __m256i all = _mm256_set1_epi32(pair);
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    add_pairs(acc[r][v], columns[v], all);
            }
        }
        MGX_UNROLLED
        for (int b = 0; b < bases; ++b) {
            left[b] += 8;
            opaque(left[b]);
        }
        panel += 64;
        opaque(panel);
    }
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            store(sums + r * sums_step + 8 * v, acc[r][v]);
}

using Run = void (*)(const int16_t *, int64_t, const int16_t *, int64_t, int32_t *, int64_t, bool);

void pair_tile(const int16_t *left, int64_t left_step, const int16_t *panel, int64_t depth, int32_t *sums, int64_t sums_step,
        int64_t rows, int64_t vectors, int64_t add) {
    static constexpr Run runs[max_rows][2] = {{run<1, 1>, run<1, 2>}, {run<2, 1>, run<2, 2>}, {run<3, 1>, run<3, 2>},
            {run<4, 1>, run<4, 2>}, {run<5, 1>, run<5, 2>}, {run<6, 1>, run<6, 2>}};
    runs[rows - 1][vectors - 1](left, left_step, panel, depth, sums, sums_step, add != 0);
}

// widening ------------------------------------------------------------------------------------------------------------

template <bool is_signed> inline __m256i widened(const uint8_t *from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

int zero_point(const uint8_t *zero, bool is_signed) { return is_signed ? int(int8_t(*zero)) : int(*zero); }

// Widens `count` bytes minus a zero point.
template <bool is_signed> inline void widen(const uint8_t *from, int64_t count, int16_t *to, __m256i zero) {
    if (count >= 16) {
        for (int64_t i = 0; i + 16 < count; i += 16)
            store(to + i, _mm256_sub_epi16(widened<is_signed>(from + i), zero));
        store(to + count - 16, _mm256_sub_epi16(widened<is_signed>(from + count - 16), zero));
        return;
    }
    const __m128i point = _mm256_castsi256_si128(zero);
    if (count >= 8) {
        const auto eight = [&](int64_t i) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from + i));
            const __m128i wide = is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes);
            _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i), _mm_sub_epi16(wide, point));
        };
        eight(0);
        if (count > 8) eight(count - 8); // the two vectors may overlap
        return;
    }
    const int plain = int16_t(_mm_extract_epi16(point, 0));
    for (int64_t i = 0; i < count; ++i)
        to[i] = int16_t((is_signed ? int(int8_t(from[i])) : int(from[i])) - plain);
}

inline void clear(int16_t *to, int64_t count) {
    if (count > 0) std::memset(to, 0, size_t(count) * 2);
}

template <bool is_signed>
void widen_rows(const uint8_t *left, int64_t step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch, __m256i zero) {
    for (; count > 0; --count, left += step, rows += pitch) {
        widen<is_signed>(left, depth, rows, zero);
        for (int64_t i = depth; i < pitch; ++i)
            rows[i] = 0;
    }
}

void pair_rows(const uint8_t *left, int64_t left_step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch,
        const uint8_t *zero, int64_t is_signed) {
    const __m256i point = _mm256_set1_epi16(int16_t(zero_point(zero, is_signed != 0)));
    (is_signed ? widen_rows<true> : widen_rows<false>)(left, left_step, count, depth, rows, pitch, point);
}

// Position of a result, and the origin of its window.
struct Place {
    int64_t image, at[3];

    Place(const Windows &w, int64_t result) {
        for (int a = 2; a >= 0; --a) {
            at[a] = result % w.out[a];
            result /= w.out[a];
        }
        image = result;
    }
    int64_t origin(const Windows &w, int axis) const { return at[axis] * w.stride[axis] - w.begin[axis]; }
};

// Returns the address of an input line of a window, null outside the image.
const uint8_t *line_of(const uint8_t *image, const Windows &w, const Place &place, int64_t line) {
    const int64_t z = place.origin(w, 0) + line / w.taps[1] * w.dilation[0];
    const int64_t y = place.origin(w, 1) + line % w.taps[1] * w.dilation[1];
    return z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1] ? image + z * w.step[0] + y * w.step[1] : nullptr;
}

constexpr int64_t max_copied = 32, max_copied_lines = 8; // elements and lines of windows that are copied

// The columns of a window line that are inside an image: taps [from, to).
struct Columns {
    int64_t from, to;

    Columns(const Windows &w, int64_t left)
        : from(left >= 0 ? 0 : std::min(w.taps[2], (-left + w.dilation[2] - 1) / w.dilation[2])),
          to(left >= w.in[2] ? from : std::max(from, std::min(w.taps[2], (w.in[2] - left + w.dilation[2] - 1) / w.dilation[2]))) {}
};

// Widens a line of the windows of `count` adjacent results; line: that of the image, `left`: the first window's column.
template <bool is_signed>
void widen_lines(const Windows &w, const uint8_t *line, int64_t left, int64_t count, int16_t *rows, int64_t pitch, __m256i zero) {
    const int64_t channels = w.channels, taps = w.taps[2], across = w.across * w.dilation[2], run = taps * channels;
    const int64_t room = w.in[2] - 1 - (taps - 1) * w.dilation[2] - left; // of windows inside the image
    const int64_t begin = left >= 0 ? 0 : std::min(count, (-left + w.stride[2] - 1) / w.stride[2]);
    const int64_t end = room < 0 ? begin : std::max(begin, std::min(count, room / w.stride[2] + 1));
    const auto some = [&](int64_t i, int64_t from, int64_t to) {
        const uint8_t *source = line + (left + i * w.stride[2] + from * w.dilation[2]) * w.across;
        for (int64_t t = from; t < to; ++t, source += across)
            widen<is_signed>(source, channels, rows + i * pitch + t * channels, zero);
    };
    const auto one = [&](int64_t i) {
        const Columns inside(w, left + i * w.stride[2]);
        clear(rows + i * pitch, inside.from * channels);
        some(i, inside.from, inside.to);
        clear(rows + i * pitch + inside.to * channels, (taps - inside.to) * channels);
    };
    for (int64_t i = 0; i < begin; ++i)
        one(i);
    if (across == channels) {
        const uint8_t *source = line + (left + begin * w.stride[2]) * w.across;
        const int64_t step = w.stride[2] * w.across;
        for (int64_t i = begin; i < end; ++i, source += step)
            widen<is_signed>(source, run, rows + i * pitch, zero);
    } else {
        for (int64_t i = begin; i < end; ++i)
            some(i, 0, taps);
    }
    for (int64_t i = end; i < count; ++i)
        one(i);
}

// As widen_windows for adjacent results, if the lines of their windows are short and contiguous: each line of the image is widened
// once and copied in whole vectors, which overwrite the beginning of the next row.
template <bool is_signed>
void copy_windows(const uint8_t *image, const Windows &w, const Place &place, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, __m256i zero) {
    constexpr int64_t space = 2048;
    int16_t widened[space + max_copied];
    const int64_t channels = w.channels, run = w.taps[2] * channels, step = w.stride[2] * channels;
    const int64_t part = std::max<int64_t>((space / lines - run) / step + 1, 1);
    for (int64_t first = 0; first < count; first += part, rows += part * pitch) {
        const int64_t results = std::min(part, count - first), size = (results - 1) * step + run;
        const int64_t left = place.origin(w, 2) + first * w.stride[2];
        const int64_t from = std::clamp<int64_t>(-left * channels, 0, size);
        const int64_t to = std::clamp<int64_t>((w.in[2] - left) * channels, from, size);
        for (int64_t l = 0; l < lines; ++l) {
            const uint8_t *source = line_of(image, w, place, line + l);
            int16_t *out = widened + l * size;
            clear(out, source ? from : size);
            if (!source) continue;
            if (to > from) widen<is_signed>(source + left * w.across + from, to - from, out + from, zero);
            clear(out + to, size - to);
        }
        for (int64_t i = 0; i < results; ++i) {
            const int16_t *source = widened + i * step;
            int16_t *out = rows + i * pitch;
            for (int64_t l = 0; l < lines; ++l, source += size, out += run) {
                store(out, load(source));
                if (run > 16) store(out + 16, load(source + 16));
            }
        }
    }
}

template <bool is_signed>
void widen_windows(const uint8_t *x, const Windows &w, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, __m256i zero) {
    const int64_t run = w.taps[2] * w.channels;
    const int64_t reach = (lines - 1) * run + (run > 16 ? 32 : 16); // of the copies of a row
    const bool dense = w.across == w.channels && w.dilation[2] == 1;
    const bool copied = dense && run <= max_copied && lines <= max_copied_lines && reach <= 2 * pitch;
    while (count > 0) {
        const Place place(w, first);
        const uint8_t *image = x + place.image * w.images;
        const int64_t results = std::min(count, w.out[2] - place.at[2]);
        const int64_t copies = copied ? results - (results == count) : 0; // those of the last row would write past it
        if (copies > 0) copy_windows<is_signed>(image, w, place, copies, line, lines, rows, pitch, zero);
        int16_t *to = rows + copies * pitch;
        for (int64_t l = line; l < line + lines; ++l, to += run) {
            const uint8_t *source = line_of(image, w, place, l);
            if (source) {
                widen_lines<is_signed>(w, source, place.origin(w, 2) + copies * w.stride[2], results - copies, to, pitch, zero);
            } else {
                for (int64_t i = 0; i < results - copies; ++i)
                    clear(to + i * pitch, run);
            }
        }
        for (int64_t i = copies; i < results; ++i)
            for (int64_t p = lines * run; p < pitch; ++p)
                rows[i * pitch + p] = 0;
        rows += results * pitch;
        first += results;
        count -= results;
    }
}

void pair_windows(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, const uint8_t *zero) {
    const bool is_signed = windows->is_signed != 0;
    const __m256i point = _mm256_set1_epi16(int16_t(zero_point(zero, is_signed)));
    (is_signed ? widen_windows<true> : widen_windows<false>)(x, *windows, first, count, line, lines, rows, pitch, point);
}

// depthwise convolutions ----------------------------------------------------------------------------------------------

constexpr int64_t lanes = 8;   // channels per vector
constexpr int max_results = 8; // most results of a line accumulated in registers

// Loads 8 channels; `channels` fewer are followed by zeros, and nothing past them is read.
inline __m128i load_channels(const uint8_t *from, int64_t channels) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, from, size_t(std::min(channels, lanes)));
    return _mm_cvtsi64_si128(int64_t(bytes));
}
inline __m128i load_lanes(const uint8_t *from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)); }

template <bool is_signed> inline __m256i interleaved(__m128i a, __m128i b) {
    const __m128i pairs = _mm_unpacklo_epi8(a, b);
    return is_signed ? _mm256_cvtepi8_epi16(pairs) : _mm256_cvtepu8_epi16(pairs);
}

// Returns the first channel of a vector; the last one may overlap the one before.
inline int64_t vector_at(int64_t channel, int64_t channels) { return std::max<int64_t>(std::min(channel, channels - lanes), 0); }

// Pairing of taps: two lines of the window in one column or, for a window of one line, two columns.
struct Pairing {
    bool upright;
    int64_t lines;    // of the window
    int64_t taps;     // pairs of a group of lines
    int64_t apart;    // columns from one pair to the next
    int64_t groups;   // groups of the weights
    bool overlapping; // lines of results share groups

    explicit Pairing(const Windows &w)
        : upright(w.taps[0] * w.taps[1] > 1), lines(w.taps[0] * w.taps[1]), taps(upright ? w.taps[2] : (w.taps[2] + 1) / 2),
          apart(upright ? w.dilation[2] : 2 * w.dilation[2]), groups(upright ? lines / 2 + 1 : 1),
          overlapping(upright && w.taps[0] == 1 && w.dilation[1] == 1) {}

    // Returns the columns of pairs that adjacent results read.
    int64_t columns(const Windows &w, int64_t results) const { return (results - 1) * w.stride[2] + (taps - 1) * apart + 1; }
};

// A line of an image from the first column that a window reads; outside the image, zero points.
struct ImageLine {
    const uint8_t *from;
    int64_t step, begin, end; // begin, end: columns inside the image
    bool inside;

    const uint8_t *at(int64_t column, int64_t c) const { return inside ? from + column * step + c : from; }
};

// Interleaves the inputs of windows to pairs: [channels / 8, groups of lines, columns, 8, 2].
template <bool is_signed> struct PairPacker {
    const Windows &w;
    const Pairing &pairing;
    const uint8_t *image;
    int64_t channels;
    uint8_t filler[lanes]; // zero points

    PairPacker(const Windows &windows, const Pairing &pairs, const uint8_t *from, int64_t count, uint8_t zero)
        : w(windows), pairing(pairs), image(from), channels(count) {
        std::memset(filler, zero, sizeof filler);
    }

    // Returns line `number` of the windows with an origin (z, y, x).
    ImageLine line(const int64_t origin[3], int64_t number, int64_t columns) const {
        const int64_t plane = w.taps[0] > 1 ? number / w.taps[1] : 0; // of a single plane, lines continue past the window
        const int64_t z = origin[0] + plane * w.dilation[0], y = origin[1] + (number - plane * w.taps[1]) * w.dilation[1];
        if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1]) return {filler, 0, 0, columns, false};
        return {image + z * w.step[0] + y * w.step[1] + origin[2] * w.across, w.across, std::max<int64_t>(-origin[2], 0),
                w.in[2] - origin[2], true};
    }

    // Returns the end of the columns of which 8 bytes can be read.
    int64_t readable(const ImageLine &line) const {
        if (channels >= lanes || !line.inside) return line.end;
        return line.step ? line.end - (lanes - channels + line.step - 1) / line.step : line.begin;
    }

    __m128i pixel(const ImageLine &line, int64_t column, int64_t c) const {
        const bool inside = line.inside && column >= line.begin && column < line.end;
        return inside && channels < lanes ? load_channels(line.at(column, c), channels)
                                          : load_lanes(inside ? line.at(column, c) : filler);
    }

    static void one(const uint8_t *a, const uint8_t *b, int16_t *to) { store(to, interleaved<is_signed>(load_lanes(a), load_lanes(b))); }

    static void many(const uint8_t *a, int64_t a_step, const uint8_t *b, int64_t b_step, int64_t count, int16_t *to) {
        for (; count >= 4; count -= 4, a += 4 * a_step, b += 4 * b_step, to += 64) {
            one(a, b, to);
            one(a + a_step, b + b_step, to + 16);
            one(a + 2 * a_step, b + 2 * b_step, to + 32);
            one(a + 3 * a_step, b + 3 * b_step, to + 48);
        }
        for (; count > 0; --count, a += a_step, b += b_step, to += 16)
            one(a, b, to);
    }

    // step: elements from the pairs of 8 channels to those of the next.
    void group(const ImageLine &a, const ImageLine &b, int64_t columns, int16_t *to, int64_t step) const {
        const int64_t begin = std::min(std::max(a.begin, b.begin), columns);
        const int64_t end = std::max(std::min({readable(a), readable(b), columns}), begin);
        for (int64_t next = 0; next < channels; next += lanes, to += step) {
            const int64_t c = vector_at(next, channels);
            const auto apart = [&](int64_t i) { store(to + 16 * i, interleaved<is_signed>(pixel(a, i, c), pixel(b, i, c))); };
            for (int64_t i = 0; i < begin; ++i)
                apart(i);
            many(a.at(begin, c), a.step, b.at(begin, c), b.step, end - begin, to + 16 * begin);
            for (int64_t i = end; i < columns; ++i)
                apart(i);
        }
    }

    void groups(const int64_t origin[3], int64_t count, int64_t columns, int16_t *to) const {
        const int64_t step = 16 * count * columns; // elements of the groups of 8 channels
        int64_t at[3] = {origin[0], origin[1], origin[2]};
        for (int64_t g = 0; g < count; ++g, to += 16 * columns) {
            if (pairing.upright) {
                group(line(at, 2 * g, columns), line(at, 2 * g + 1, columns), columns, to, step);
                continue;
            }
            const ImageLine first = line(at, 0, columns);
            const int64_t gap = first.inside ? w.dilation[2] : 0;
            const ImageLine second {first.from + gap * first.step, first.step, std::max<int64_t>(first.begin - gap, 0),
                    first.end - gap, first.inside};
            group(first, second, columns, to, step);
            at[1] += w.stride[1];
        }
    }
};

// Interleaved inputs of a line of results, and the weights of their 8 channels.
struct PairLine {
    int64_t groups, taps;
    int64_t apart, group, stride; // bytes between taps, groups and results
    int64_t weights;              // elements between the weights of consecutive pairs
};

template <int T> inline void store_all(const __m256i (&acc)[T], int32_t *sums, int64_t pitch) {
    MGX_UNROLLED
    for (int i = 0; i < T; ++i, sums += pitch) {
        opaque(sums);
        store(sums, acc[i]);
    }
}

template <int T>
void sum_any(const PairLine &line, const char *pairs, const int16_t *weights, __m256i begin, int32_t *sums, int64_t pitch) {
    __m256i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    for (int64_t g = 0; g < line.groups; ++g, pairs += line.group) {
        const char *tap = pairs;
        for (int64_t t = 0; t < line.taps; ++t, tap += line.apart, weights += line.weights) {
            const __m256i w = load(weights);
            const char *from = tap;
            MGX_UNROLLED
            for (int i = 0; i < T; ++i, from += line.stride)
                acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(w, load(from)));
        }
    }
    store_all(acc, sums, pitch);
}

// For K taps in adjacent columns and a stride of S columns: pairs are loaded once for all results that they are part of.
template <int K, int S, int T>
void sum_adjacent(const PairLine &line, const char *pairs, const int16_t *weights, __m256i begin, int32_t *sums, int64_t pitch) {
    __m256i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    for (int64_t g = 0; g < line.groups; ++g, pairs += line.group) {
        __m256i w[K];
        MGX_UNROLLED
        for (int t = 0; t < K; ++t, weights += line.weights)
            w[t] = load(weights);
        MGX_UNROLLED
        for (int column = 0; column < (T - 1) * S + K; ++column) {
            const __m256i x = load(pairs + 32 * column);
            MGX_UNROLLED
            for (int t = column % S; t < K; t += S)
                if (column >= t && column - t < T * S) add_pairs(acc[(column - t) / S], x, w[t]);
        }
    }
    store_all(acc, sums, pitch);
}

using PairSum = void (*)(const PairLine &, const char *, const int16_t *, __m256i, int32_t *, int64_t);
using PairSums = std::array<PairSum, max_results>; // by the number of results - 1

template <size_t... T> constexpr PairSums any_sums(std::index_sequence<T...>) { return {sum_any<int(T) + 1>...}; }
template <int K, int S, size_t... T> constexpr PairSums adjacent_sums(std::index_sequence<T...>) {
    return {sum_adjacent<K, S, int(T) + 1>...};
}

// Returns the functions for some taps, `apart` columns from each other.
const PairSums &sums_of(int64_t taps, int64_t apart, int64_t stride) {
    using Numbers = std::make_index_sequence<max_results>;
    static constexpr PairSums any = any_sums(Numbers()), adjacent[3][2] = {
            {adjacent_sums<3, 1>(Numbers()), adjacent_sums<3, 2>(Numbers())},
            {adjacent_sums<5, 1>(Numbers()), adjacent_sums<5, 2>(Numbers())},
            {adjacent_sums<7, 1>(Numbers()), adjacent_sums<7, 2>(Numbers())}};
    const bool known = apart == 1 && stride <= 2 && (taps == 3 || taps == 5 || taps == 7);
    return known ? adjacent[taps / 2 - 1][stride - 1] : any;
}

// Sums of some lines of results, `results` each, from the interleaved inputs of `wide` of them.
void sum_lines(const Windows &w, const Pairing &pairing, int64_t lines, int64_t results, int64_t wide, int64_t groups, int64_t channels,
        const int16_t *pairs, const int16_t *weights, const int32_t *totals, __m256i point, int32_t *sums) {
    const PairSums &functions = sums_of(pairing.taps, pairing.apart, w.stride[2]);
    const int64_t all = (w.channels + lanes - 1) / lanes * lanes; // channels of the weights
    const int64_t columns = pairing.columns(w, wide);
    const int16_t *const odd = weights + 2 * pairing.groups * pairing.taps * all; // of windows that begin with the second line of a pair
    const int64_t parts = (wide + max_results - 1) / max_results, low = wide / parts, over = wide % parts;
    PairLine line {0, pairing.taps, 32 * pairing.apart, 32 * columns, 32 * w.stride[2], 2 * all};
    for (int64_t next = 0; next < channels; next += lanes, pairs += 16 * groups * columns) {
        const int64_t c = vector_at(next, channels);
        const __m256i begin = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_mullo_epi32(load(totals + c), point));
        for (int64_t l = 0; l < lines; ++l) {
            const int64_t skipped = pairing.upright ? l * w.stride[1] : 2 * l;
            line.groups = pairing.upright ? (pairing.lines + 1 + skipped % 2) / 2 : 1;
            const char *from = reinterpret_cast<const char *>(pairs) + skipped / 2 * line.group;
            const int16_t *right = (skipped % 2 ? odd : weights) + 2 * c;
            int32_t *to = sums + l * results * channels + c;
            for (int64_t i = 0; i < parts; ++i) {
                const int64_t part = low + (i < over);
                functions[size_t(part - 1)](line, from, right, begin, to, channels);
                from += part * line.stride;
                to += part * channels;
            }
        }
    }
}

template <bool is_signed>
void sum_channels(const uint8_t *x, const Windows &w, int64_t first, int64_t count, int64_t channels, int64_t tile,
        const int16_t *weights, const int32_t *totals, int32_t *sums, int16_t *space, const uint8_t *zero) {
    const Pairing pairing(w);
    const __m256i point = _mm256_set1_epi32(zero_point(zero, is_signed));
    while (count > 0) {
        const Place place(w, first);
        const int64_t results = std::min(count, w.out[2] - place.at[2]);
        const bool apart = channels < lanes && results > tile; // stores past a line would overwrite the next one, which is not last
        const bool whole = results == w.out[2] && (pairing.overlapping || !pairing.upright) && !apart;
        const int64_t lines = whole ? std::min(count / results, w.out[1] - place.at[1]) : 1;
        const int64_t groups = pairing.upright ? ((lines - 1) * w.stride[1] + pairing.lines + 1) / 2 : lines;
        const PairPacker<is_signed> packer(w, pairing, x + place.image * w.images, channels, *zero);
        int64_t origin[3] = {place.origin(w, 0), place.origin(w, 1), place.origin(w, 2)};
        const int64_t tiles = (results + tile - 1) / tile, low = results / tiles, over = results % tiles;
        int32_t *to = sums;
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t wide = low + (t < over);
            packer.groups(origin, groups, pairing.columns(w, wide), space);
            sum_lines(w, pairing, lines, results, wide, groups, channels, space, weights, totals, point, to);
            origin[2] += wide * w.stride[2];
            to += wide * channels;
        }
        sums += lines * results * channels;
        first += lines * results;
        count -= lines * results;
    }
}

void pair_channels(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t channels, int64_t tile,
        const int16_t *weights, const int32_t *totals, int32_t *sums, int16_t *space, const uint8_t *zero) {
    const Windows &w = *windows;
    (w.is_signed ? sum_channels<true> : sum_channels<false>)(x, w, first, count, channels, tile, weights, totals, sums, space, zero);
}

// Winograd convolutions of 3 x 3 filters ---------------------------------------------------------------------------------

struct Four {
    __m256i at[4];
};

// Winograd's input transform along one axis of a tile.
inline Four transform_axis(__m256i a, __m256i b, __m256i c, __m256i d) {
    return {{_mm256_sub_epi16(a, c), _mm256_add_epi16(b, c), _mm256_sub_epi16(c, b), _mm256_sub_epi16(b, d)}};
}

template <bool is_signed>
inline void transform_16(const uint8_t *const *pixels, int64_t c, __m256i zero, int16_t *points, int64_t stride) {
    Four lines[4];
    MGX_UNROLLED
    for (int l = 0; l < 4; ++l) {
        __m256i in[4];
        MGX_UNROLLED
        for (int i = 0; i < 4; ++i)
            in[i] = _mm256_sub_epi16(widened<is_signed>(pixels[4 * l + i] + c), zero);
        lines[l] = transform_axis(in[0], in[1], in[2], in[3]);
    }
    MGX_UNROLLED
    for (int i = 0; i < 4; ++i) {
        const Four column = transform_axis(lines[0].at[i], lines[1].at[i], lines[2].at[i], lines[3].at[i]);
        MGX_UNROLLED
        for (int l = 0; l < 4; ++l)
            store(points + (4 * l + i) * stride + c, column.at[l]);
    }
}

template <bool is_signed>
void transform_tiles(const uint8_t *x, const Windows &w, const Tiles &tiles, int16_t *points, int64_t pitch, const uint8_t *filler,
        __m256i zero) {
    const int64_t stride = tiles.lines * tiles.across * pitch;
    const uint8_t *image = x + tiles.image * w.images;
    for (int64_t l = 0; l < tiles.lines; ++l)
        for (int64_t t = 0; t < tiles.across; ++t, points += pitch) {
            const int64_t y = 2 * (tiles.y + l) - w.begin[1], left = 2 * (tiles.x + t) - w.begin[2];
            const uint8_t *pixels[16];
            for (int64_t i = 0; i < 4; ++i)
                for (int64_t j = 0; j < 4; ++j) {
                    const bool inside = y + i >= 0 && y + i < w.in[1] && left + j >= 0 && left + j < w.in[2];
                    pixels[4 * i + j] = inside ? image + (y + i) * w.step[1] + (left + j) * w.across : filler;
                }
            if (pitch > w.channels)
                for (int64_t p = 0; p < 16; ++p)
                    clear(points + p * stride + w.channels, pitch - w.channels);
            for (int64_t c = 0; c + 16 < w.channels; c += 16)
                transform_16<is_signed>(pixels, c, zero, points, stride);
            transform_16<is_signed>(pixels, w.channels - 16, zero, points, stride);
        }
}

void pair_points(const uint8_t *x, const Windows *windows, const Tiles *tiles, int16_t *points, int64_t pitch, uint8_t *filler,
        const uint8_t *zero) {
    const bool is_signed = windows->is_signed != 0;
    std::memset(filler, *zero, size_t(windows->channels));
    const __m256i point = _mm256_set1_epi16(int16_t(zero_point(zero, is_signed)));
    (is_signed ? transform_tiles<true> : transform_tiles<false>)(x, *windows, *tiles, points, pitch, filler, point);
}

inline __m256i output_first(__m256i a, __m256i b, __m256i c) { return _mm256_add_epi32(_mm256_add_epi32(a, b), c); }
inline __m256i output_second(__m256i b, __m256i c, __m256i d) { return _mm256_sub_epi32(_mm256_sub_epi32(b, c), d); }

void pair_filters(const int16_t *points, int64_t pitch, const int16_t *panel, const Tiles *block, int32_t *products, int32_t *sums,
        int64_t vectors) {
    const int64_t tiles = block->lines * block->across, parts = (tiles + max_rows - 1) / max_rows;
    const int64_t low = tiles / parts, over = tiles % parts; // parts of almost equal height
    for (int64_t p = 0; p < 16; ++p) {
        const int16_t *left = points + p * tiles * pitch, *right = panel + p * pitch * 16;
        int32_t *out = products + p * tiles * 16;
        for (int64_t i = 0; i < parts; ++i) {
            const int64_t rows = low + (i < over);
            pair_tile(left, pitch, right, pitch, out, 16, rows, vectors, 0);
            left += rows * pitch;
            out += rows * 16;
        }
    }
    const int64_t stride = tiles * 16, line = 2 * block->across * 16;
    for (int64_t t = 0; t < tiles; ++t) {
        int32_t *to = sums + t / block->across * 2 * line + t % block->across * 32;
        for (int64_t v = 0; v < 8 * vectors; v += 8) {
            const int32_t *from = products + t * 16 + v;
            __m256i above[4], below[4];
            MGX_UNROLLED
            for (int i = 0; i < 4; ++i) {
                const __m256i a = load(from + i * stride), b = load(from + (4 + i) * stride);
                const __m256i c = load(from + (8 + i) * stride), d = load(from + (12 + i) * stride);
                above[i] = output_first(a, b, c);
                below[i] = output_second(b, c, d);
            }
            store(to + v, _mm256_srai_epi32(output_first(above[0], above[1], above[2]), 2));
            store(to + 16 + v, _mm256_srai_epi32(output_second(above[1], above[2], above[3]), 2));
            store(to + line + v, _mm256_srai_epi32(output_first(below[0], below[1], below[2]), 2));
            store(to + line + 16 + v, _mm256_srai_epi32(output_second(below[1], below[2], below[3]), 2));
        }
    }
}

} // namespace

void *byte_pair_function(const std::string &name) {
    if (name == "mgx_pair_tile_1") return reinterpret_cast<void *>(&pair_tile);
    if (name == "mgx_pair_rows_1") return reinterpret_cast<void *>(&pair_rows);
    if (name == "mgx_pair_windows_1") return reinterpret_cast<void *>(&pair_windows);
    if (name == "mgx_pair_channels_3") return reinterpret_cast<void *>(&pair_channels);
    if (name == "mgx_pair_points_1") return reinterpret_cast<void *>(&pair_points);
    if (name == "mgx_pair_filters_1") return reinterpret_cast<void *>(&pair_filters);
    return nullptr;
}

} // namespace mgx
