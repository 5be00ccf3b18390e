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
    if (count >= 8) { // the two vectors may overlap
        for (const int64_t i : {int64_t(0), count - 8}) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from + i));
            const __m128i wide = is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes);
            _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i), _mm_sub_epi16(wide, point));
        }
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
    void next(const Windows &w) {
        for (int a = 2; a >= 0; --a) {
            if (++at[a] < w.out[a]) return;
            at[a] = 0;
        }
        ++image;
    }
    int64_t origin(const Windows &w, int axis) const { return at[axis] * w.stride[axis] - w.begin[axis]; }
};

template <bool is_signed>
void widen_windows(const uint8_t *x, const Windows &w, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, __m256i zero) {
    const int64_t channels = w.channels, taps = w.taps[2], across = w.across * w.dilation[2], run = taps * channels;
    const bool dense = across == channels;
    Place place(w, first);
    for (; count > 0; --count, rows += pitch, place.next(w)) {
        const uint8_t *image = x + place.image * w.images;
        const int64_t left = place.origin(w, 2), step = w.dilation[2];
        const int64_t from = left >= 0 ? 0 : std::min(taps, (-left + step - 1) / step);
        const int64_t to = left >= w.in[2] ? from : std::max(from, std::min(taps, (w.in[2] - left + step - 1) / step));
        int16_t *out = rows;
        for (int64_t l = line; l < line + lines; ++l, out += run) {
            const int64_t z = place.origin(w, 0) + l / w.taps[1] * w.dilation[0];
            const int64_t y = place.origin(w, 1) + l % w.taps[1] * w.dilation[1];
            if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1] || from == to) {
                clear(out, run);
                continue;
            }
            const uint8_t *source = image + z * w.step[0] + y * w.step[1] + (left + from * step) * w.across;
            clear(out, from * channels);
            if (dense) {
                widen<is_signed>(source, (to - from) * channels, out + from * channels, zero);
            } else {
                for (int64_t t = from; t < to; ++t, source += across)
                    widen<is_signed>(source, channels, out + t * channels, zero);
            }
            clear(out + to * channels, (taps - to) * channels);
        }
        clear(out, rows + pitch - out);
    }
}

void pair_windows(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, const uint8_t *zero) {
    const bool is_signed = windows->is_signed != 0;
    const __m256i point = _mm256_set1_epi16(int16_t(zero_point(zero, is_signed)));
    (is_signed ? widen_windows<true> : widen_windows<false>)(x, *windows, first, count, line, lines, rows, pitch, point);
}

// depthwise convolutions ----------------------------------------------------------------------------------------------

constexpr int max_results = 8;         // most results of one line accumulated in registers
constexpr int64_t max_pointers = 1024; // most tap addresses on the stack

// Loads 8 channels as int16 pairs: of two taps, or of one tap and its extension, whose weight is 0.
template <bool is_signed> inline __m256i load_pair(const uint8_t *a, const uint8_t *b) {
    const __m128i pairs = _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(a)),
            _mm_loadl_epi64(reinterpret_cast<const __m128i *>(b)));
    return is_signed ? _mm256_cvtepi8_epi16(pairs) : _mm256_cvtepu8_epi16(pairs);
}
template <bool is_signed> inline __m256i load_single(const uint8_t *a) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(a));
    return is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
}

// Pairing of taps: two lines of the window in one column or, for a window of one line, two columns.
struct Pairs {
    bool upright;
    int64_t lines, columns, all; // all: number of line pairs
    bool odd;                    // the last pair has only one line

    explicit Pairs(const Windows &w)
        : upright(w.taps[0] * w.taps[1] > 1), lines(upright ? w.taps[0] * w.taps[1] : w.taps[2]), columns(upright ? w.taps[2] : 1),
          all((lines + 1) / 2), odd(lines % 2 != 0) {}
};

// Tap addresses and weights of some results of one line.
struct Taps {
    const uint8_t *const *at; // addresses: [pair of lines, column or column of a result, 2]
    const Pairs &pairs;
    const int16_t *weights;
    int64_t step; // elements between the weights of consecutive pairs
};

template <int T> inline void store_all(const __m256i (&acc)[T], int32_t *sums, int64_t pitch) {
    MGX_UNROLLED
    for (int i = 0; i < T; ++i, sums += pitch) {
        opaque(sums);
        store(sums, acc[i]);
    }
}

// For windows in which the first tap of the next result is the second of this one: each pair is loaded once for K columns.
template <bool is_signed, int T, int K> void sum_overlapping(const Taps &taps, int64_t c, __m256i begin, int32_t *sums, int64_t pitch) {
    __m256i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    const uint8_t *const *at = taps.at;
    const int16_t *weights = taps.weights + 2 * c;
    for (int64_t l = 0; l < taps.pairs.all; ++l) {
        const bool single = taps.pairs.odd && l + 1 == taps.pairs.all;
        __m256i w[K];
        MGX_UNROLLED
        for (int t = 0; t < K; ++t, weights += taps.step)
            w[t] = load(weights);
        MGX_UNROLLED
        for (int i = 0; i < T + K - 1; ++i, at += 2) {
            const __m256i x = single ? load_single<is_signed>(at[0] + c) : load_pair<is_signed>(at[0] + c, at[1] + c);
            MGX_UNROLLED
            for (int t = 0; t < K; ++t)
                if (i >= t && i - t < T) acc[i - t] = _mm256_add_epi32(acc[i - t], _mm256_madd_epi16(x, w[t]));
        }
    }
    store_all(acc, sums, pitch);
}

template <bool is_signed, int T> void sum_separate(const Taps &taps, int64_t c, __m256i begin, int32_t *sums, int64_t pitch) {
    __m256i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    const uint8_t *const *at = taps.at;
    const int16_t *weights = taps.weights + 2 * c;
    for (int64_t l = 0; l < taps.pairs.all; ++l) {
        const bool single = taps.pairs.odd && l + 1 == taps.pairs.all;
        for (int64_t t = 0; t < taps.pairs.columns; ++t, at += 2 * T, weights += taps.step) {
            const __m256i w = load(weights);
            MGX_UNROLLED
            for (int i = 0; i < T; ++i) {
                const __m256i x = single ? load_single<is_signed>(at[2 * i] + c) : load_pair<is_signed>(at[2 * i] + c, at[2 * i + 1] + c);
                acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(x, w));
            }
        }
    }
    store_all(acc, sums, pitch);
}

using ChannelSum = void (*)(const Taps &, int64_t, __m256i, int32_t *, int64_t);
using ChannelSums = std::array<ChannelSum, max_results>; // by the number of results - 1

template <bool S, size_t... T> constexpr ChannelSums separate(std::index_sequence<T...>) { return {sum_separate<S, int(T) + 1>...}; }
template <bool S, int K, size_t... T> constexpr ChannelSums overlapping(std::index_sequence<T...>) {
    return {sum_overlapping<S, int(T) + 1, K>...};
}

// Returns the functions for windows of that many shared columns, 0 if results share none.
template <bool is_signed> const ChannelSums &sums_of(int64_t columns) {
    using Numbers = std::make_index_sequence<max_results>;
    static constexpr ChannelSums any = separate<is_signed>(Numbers()), three = overlapping<is_signed, 3>(Numbers());
    static constexpr ChannelSums five = overlapping<is_signed, 5>(Numbers()), seven = overlapping<is_signed, 7>(Numbers());
    return columns == 3 ? three : columns == 5 ? five : columns == 7 ? seven : any;
}

// Returns the address of an input line of a window, null outside the image.
const uint8_t *line_of(const uint8_t *image, const Windows &w, const Place &place, int64_t line) {
    const int64_t z = place.origin(w, 0) + line / w.taps[1] * w.dilation[0];
    const int64_t y = place.origin(w, 1) + line % w.taps[1] * w.dilation[1];
    return z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1] ? image + z * w.step[0] + y * w.step[1] : nullptr;
}

// Stores the tap addresses of `part` results of a line from `place` on; shared: each column once.
void store_tap_addresses(const uint8_t *x, const Windows &w, const Pairs &pairs, const Place &place, int64_t part, bool shared,
        const uint8_t *filler, const uint8_t **to) {
    const uint8_t *image = x + place.image * w.images;
    const int64_t left = place.origin(w, 2);
    const auto pixel = [&](const uint8_t *line, int64_t column) {
        return line && column >= 0 && column < w.in[2] ? line + column * w.across : filler;
    };
    const int64_t columns = shared ? part + pairs.columns - 1 : pairs.columns, results = shared ? 1 : part;
    for (int64_t l = 0; l < pairs.all; ++l) {
        const uint8_t *lines[2];
        int64_t begins[2];
        for (int64_t k = 0; k < 2; ++k) {
            const int64_t number = 2 * l + k;
            lines[k] = number < pairs.lines ? line_of(image, w, place, pairs.upright ? number : 0) : nullptr;
            begins[k] = left + (pairs.upright ? 0 : number * w.dilation[2]);
        }
        for (int64_t t = 0; t < columns; ++t)
            for (int64_t i = 0; i < results; ++i, to += 2) {
                const int64_t column = t * w.dilation[2] + i * w.stride[2];
                to[0] = pixel(lines[0], begins[0] + column);
                to[1] = pixel(lines[1], begins[1] + column);
            }
    }
}

template <bool is_signed>
void sum_channels(const uint8_t *x, const Windows &w, int64_t first, int64_t count, const int16_t *weights, const int32_t *totals,
        int32_t *sums, int64_t pitch, const uint8_t *filler, __m256i zero, const uint8_t **table) {
    const uint8_t *addresses[max_pointers];
    const Pairs pairs(w);
    const int64_t channels = w.channels, each = 2 * pairs.all * pairs.columns; // addresses per result
    const bool few = 2 * pairs.all * (max_results + pairs.columns) <= max_pointers;
    const bool shared = few && w.stride[2] == 1 && w.dilation[2] == 1 && (pairs.columns == 3 || pairs.columns == 5 || pairs.columns == 7);
    const int64_t max_part = shared ? (pairs.columns == 7 ? 6 : max_results) : std::clamp<int64_t>(max_pointers / each, 1, max_results);
    const uint8_t **at = each > max_pointers ? table : addresses;
    const ChannelSums &functions = sums_of<is_signed>(shared ? pairs.columns : 0);
    const Taps taps{at, pairs, weights, 2 * channels};
    while (count > 0) {
        Place place(w, first);
        const int64_t line = std::min(count, w.out[2] - place.at[2]), parts = (line + max_part - 1) / max_part;
        for (int64_t i = 0; i < parts; ++i) {
            const int64_t part = line / parts + (i < line % parts);
            store_tap_addresses(x, w, pairs, place, part, shared, filler, at);
            for (int64_t next = 0; next < channels; next += 8) {
                const int64_t c = std::min(next, channels - 8); // the last vector may overlap the one before
                const __m256i begin = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_mullo_epi32(load(totals + c), zero));
                functions[size_t(part - 1)](taps, c, begin, sums + c, pitch);
            }
            sums += part * pitch;
            place.at[2] += part;
        }
        first += line;
        count -= line;
    }
}

// Requires at least 16 channels.  `sums` ends with scratch memory: a line of zero points, then tap addresses.
void pair_channels(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, const int16_t *weights,
        const int32_t *totals, int32_t *sums, int64_t pitch, const uint8_t *zero) {
    const Windows &w = *windows;
    const bool is_signed = w.is_signed != 0;
    auto filler = reinterpret_cast<uint8_t *>(sums + count * pitch);
    std::memset(filler, *zero, size_t(w.channels));
    auto table = reinterpret_cast<const uint8_t **>(filler + (w.channels + 63) / 64 * 64);
    const __m256i point = _mm256_set1_epi32(zero_point(zero, is_signed));
    (is_signed ? sum_channels<true> : sum_channels<false>)(x, w, first, count, weights, totals, sums, pitch, filler, point, table);
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
    if (name == "mgx_pair_channels_2") return reinterpret_cast<void *>(&pair_channels);
    if (name == "mgx_pair_points_1") return reinterpret_cast<void *>(&pair_points);
    if (name == "mgx_pair_filters_1") return reinterpret_cast<void *>(&pair_filters);
    return nullptr;
}

} // namespace mgx
