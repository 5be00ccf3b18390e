#include "byte_pairs.h"

#include <algorithm>
#include <cstring>

#include <immintrin.h>

namespace mgx {

namespace {

constexpr int tallest = 6;
constexpr int64_t many = 64; // taps whose addresses are on the stack

#define MGX_UNROLLED _Pragma("GCC unroll 16")

// Keeps the compiler from making an address of its own for each row, for which there are too few registers.
template <class T> inline void opaque(T &pointer) { asm("" : "+r"(pointer)); }

// sum += the products of two pairs, in the order of the text, for which there are enough registers.
[[gnu::always_inline]] inline void add_pairs(__m256i &sum, __m256i a, __m256i b) {
    __m256i products;
    asm("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
    asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
}

inline __m256i load(const void *from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
inline void store(void *to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i *>(to), x); }

template <int H, int V>
void run(const int16_t *rows, int64_t step, const int16_t *panel, int64_t depth, int32_t *sums, int64_t sums_step, bool add) {
    constexpr int bases = (H + 2) / 3; // each row is at a base, or one or two steps from it
    const int64_t apart = 2 * step;
    const char *left[bases];
    MGX_UNROLLED
    for (int b = 0; b < bases; ++b)
        left[b] = reinterpret_cast<const char *>(rows) + 3 * b * apart;
    __m256i made[H][V];
    MGX_UNROLLED
    for (int r = 0; r < H; ++r)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            made[r][v] = add ? load(sums + r * sums_step + 8 * v) : _mm256_setzero_si256();
    for (int64_t i = 0; i < depth; i += 4) {
        MGX_UNROLLED
        for (int u = 0; u < 2; ++u) {
            __m256i some[V];
            MGX_UNROLLED
            for (int v = 0; v < V; ++v)
                some[v] = load(panel + 32 * u + 16 * v);
            MGX_UNROLLED
            for (int r = 0; r < H; ++r) {
                int32_t pair;
                std::memcpy(&pair, left[r / 3] + r % 3 * apart + 4 * u, 4);
                const __m256i all = _mm256_set1_epi32(pair);
                MGX_UNROLLED
                for (int v = 0; v < V; ++v)
                    add_pairs(made[r][v], some[v], all);
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
            store(sums + r * sums_step + 8 * v, made[r][v]);
}

using Run = void (*)(const int16_t *, int64_t, const int16_t *, int64_t, int32_t *, int64_t, bool);

void pair_tile(const int16_t *left, int64_t left_step, const int16_t *panel, int64_t depth, int32_t *sums, int64_t sums_step,
        int64_t rows, int64_t vectors, int64_t add) {
    static constexpr Run runs[tallest][2] = {{run<1, 1>, run<1, 2>}, {run<2, 1>, run<2, 2>}, {run<3, 1>, run<3, 2>},
            {run<4, 1>, run<4, 2>}, {run<5, 1>, run<5, 2>}, {run<6, 1>, run<6, 2>}};
    runs[rows - 1][vectors - 1](left, left_step, panel, depth, sums, sums_step, add != 0);
}

// bytes as numbers ----------------------------------------------------------------------------------------------------

template <bool is_signed> inline __m256i widened(const uint8_t *from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

int number(const uint8_t *zero, bool is_signed) { return is_signed ? int(int8_t(*zero)) : int(*zero); }

// `count` bytes less a zero point.
template <bool is_signed> inline void put(const uint8_t *from, int64_t count, int16_t *to, __m256i zero) {
    if (count >= 16) {
        for (int64_t i = 0; i + 16 < count; i += 16)
            store(to + i, _mm256_sub_epi16(widened<is_signed>(from + i), zero));
        store(to + count - 16, _mm256_sub_epi16(widened<is_signed>(from + count - 16), zero));
        return;
    }
    const __m128i point = _mm256_castsi256_si128(zero);
    if (count >= 8) { // the last eight may be some of the first again
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
void put_rows(const uint8_t *left, int64_t step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch, __m256i zero) {
    for (; count > 0; --count, left += step, rows += pitch) {
        put<is_signed>(left, depth, rows, zero);
        for (int64_t i = depth; i < pitch; ++i)
            rows[i] = 0;
    }
}

void pair_rows(const uint8_t *left, int64_t left_step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch,
        const uint8_t *zero, int64_t is_signed) {
    const __m256i point = _mm256_set1_epi16(int16_t(number(zero, is_signed != 0)));
    (is_signed ? put_rows<true> : put_rows<false>)(left, left_step, count, depth, rows, pitch, point);
}

// Where the window of a result begins.
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
void put_windows(const uint8_t *x, const Windows &w, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
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
                put<is_signed>(source, (to - from) * channels, out + from * channels, zero);
            } else {
                for (int64_t t = from; t < to; ++t, source += across)
                    put<is_signed>(source, channels, out + t * channels, zero);
            }
            clear(out + to * channels, (taps - to) * channels);
        }
        clear(out, rows + pitch - out);
    }
}

void pair_windows(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t line, int64_t lines, int16_t *rows,
        int64_t pitch, const uint8_t *zero) {
    const bool is_signed = windows->is_signed != 0;
    const __m256i point = _mm256_set1_epi16(int16_t(number(zero, is_signed)));
    (is_signed ? put_windows<true> : put_windows<false>)(x, *windows, first, count, line, lines, rows, pitch, point);
}

// channels by themselves ----------------------------------------------------------------------------------------------

// Sums of 16 channels over pairs of taps, of which each has an address.
template <bool is_signed>
inline void channels_16(const uint8_t *const *taps, int64_t pairs, int64_t at, const int16_t *weights, int64_t weights_step,
        const int32_t *totals, __m256i zero, int32_t *sums) {
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    const int16_t *w = weights + 2 * at;
    for (int64_t p = 0; p < pairs; ++p, w += weights_step) {
        const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i *>(taps[2 * p] + at));
        const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i *>(taps[2 * p + 1] + at));
        const __m128i first = _mm_unpacklo_epi8(a, b), second = _mm_unpackhi_epi8(a, b);
        const __m256i x = is_signed ? _mm256_cvtepi8_epi16(first) : _mm256_cvtepu8_epi16(first);
        const __m256i y = is_signed ? _mm256_cvtepi8_epi16(second) : _mm256_cvtepu8_epi16(second);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(x, load(w)));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(y, load(w + 16)));
    }
    store(sums + at, _mm256_sub_epi32(low, _mm256_mullo_epi32(load(totals + at), zero)));
    store(sums + at + 8, _mm256_sub_epi32(high, _mm256_mullo_epi32(load(totals + at + 8), zero)));
}

template <bool is_signed>
void sum_channels(const uint8_t *x, const Windows &w, int64_t first, int64_t count, const int16_t *weights, const int32_t *totals,
        int32_t *sums, int64_t pitch, const uint8_t *filler, __m256i zero, const uint8_t **taps) {
    const int64_t channels = w.channels, number = w.taps[0] * w.taps[1] * w.taps[2], pairs = (number + 1) / 2;
    Place place(w, first);
    for (; count > 0; --count, sums += pitch, place.next(w)) {
        const uint8_t *image = x + place.image * w.images;
        const int64_t left = place.origin(w, 2);
        const uint8_t **tap = taps;
        for (int64_t d = 0, z = place.origin(w, 0); d < w.taps[0]; ++d, z += w.dilation[0])
            for (int64_t h = 0, y = place.origin(w, 1); h < w.taps[1]; ++h, y += w.dilation[1]) {
                const bool inside = z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1];
                const uint8_t *source = image + z * w.step[0] + y * w.step[1] + left * w.across;
                int64_t at = left;
                for (int64_t t = 0; t < w.taps[2]; ++t, at += w.dilation[2], source += w.across * w.dilation[2])
                    *tap++ = inside && at >= 0 && at < w.in[2] ? source : filler;
            }
        if (number % 2) *tap = filler;
        for (int64_t c = 0; c + 16 < channels; c += 16)
            channels_16<is_signed>(taps, pairs, c, weights, 2 * channels, totals, zero, sums);
        channels_16<is_signed>(taps, pairs, channels - 16, weights, 2 * channels, totals, zero, sums);
    }
}

// channels: at least 16; filler: as many bytes of the zero point and addresses of all taps lie behind each other in `sums`' end.
void pair_channels(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, const int16_t *weights,
        const int32_t *totals, int32_t *sums, int64_t pitch, const uint8_t *zero) {
    const Windows &w = *windows;
    const bool is_signed = w.is_signed != 0;
    auto filler = reinterpret_cast<uint8_t *>(sums + count * pitch);
    std::memset(filler, *zero, size_t(w.channels));
    const uint8_t *near[many];
    const uint8_t **taps = near;
    if (w.taps[0] * w.taps[1] * w.taps[2] >= many) taps = reinterpret_cast<const uint8_t **>(filler + (w.channels + 63) / 64 * 64);
    const __m256i point = _mm256_set1_epi32(number(zero, is_signed));
    (is_signed ? sum_channels<true> : sum_channels<false>)(x, w, first, count, weights, totals, sums, pitch, filler, point, taps);
}

// windows of 3 x 3 by minimal filtering ----------------------------------------------------------------------------------

struct Four {
    __m256i at[4];
};

// What the inputs along one axis of a tile become.
inline Four spread(__m256i a, __m256i b, __m256i c, __m256i d) {
    return {{_mm256_sub_epi16(a, c), _mm256_add_epi16(b, c), _mm256_sub_epi16(c, b), _mm256_sub_epi16(b, d)}};
}

template <bool is_signed>
inline void points_16(const uint8_t *const *pixels, int64_t c, __m256i zero, int16_t *points, int64_t apart) {
    Four lines[4];
    MGX_UNROLLED
    for (int l = 0; l < 4; ++l) {
        __m256i in[4];
        MGX_UNROLLED
        for (int i = 0; i < 4; ++i)
            in[i] = _mm256_sub_epi16(widened<is_signed>(pixels[4 * l + i] + c), zero);
        lines[l] = spread(in[0], in[1], in[2], in[3]);
    }
    MGX_UNROLLED
    for (int i = 0; i < 4; ++i) {
        const Four made = spread(lines[0].at[i], lines[1].at[i], lines[2].at[i], lines[3].at[i]);
        MGX_UNROLLED
        for (int l = 0; l < 4; ++l)
            store(points + (4 * l + i) * apart + c, made.at[l]);
    }
}

template <bool is_signed>
void put_points(const uint8_t *x, const Windows &w, const Tiles &tiles, int16_t *points, int64_t pitch, const uint8_t *filler,
        __m256i zero) {
    const int64_t apart = tiles.lines * tiles.across * pitch;
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
                    clear(points + p * apart + w.channels, pitch - w.channels);
            for (int64_t c = 0; c + 16 < w.channels; c += 16)
                points_16<is_signed>(pixels, c, zero, points, apart);
            points_16<is_signed>(pixels, w.channels - 16, zero, points, apart);
        }
}

void pair_points(const uint8_t *x, const Windows *windows, const Tiles *tiles, int16_t *points, int64_t pitch, uint8_t *filler,
        const uint8_t *zero) {
    const bool is_signed = windows->is_signed != 0;
    std::memset(filler, *zero, size_t(windows->channels));
    const __m256i point = _mm256_set1_epi16(int16_t(number(zero, is_signed)));
    (is_signed ? put_points<true> : put_points<false>)(x, *windows, *tiles, points, pitch, filler, point);
}

inline __m256i first_of(__m256i a, __m256i b, __m256i c) { return _mm256_add_epi32(_mm256_add_epi32(a, b), c); }
inline __m256i second_of(__m256i b, __m256i c, __m256i d) { return _mm256_sub_epi32(_mm256_sub_epi32(b, c), d); }

void pair_filters(const int16_t *points, int64_t pitch, const int16_t *panel, const Tiles *given, int32_t *products, int32_t *sums,
        int64_t vectors) {
    const int64_t tiles = given->lines * given->across, parts = (tiles + tallest - 1) / tallest;
    const int64_t low = tiles / parts, over = tiles % parts; // rows of parts differ by one at most
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
    const int64_t apart = tiles * 16, line = 2 * given->across * 16;
    for (int64_t t = 0; t < tiles; ++t) {
        int32_t *to = sums + t / given->across * 2 * line + t % given->across * 32;
        for (int64_t v = 0; v < 8 * vectors; v += 8) {
            const int32_t *from = products + t * 16 + v;
            __m256i above[4], below[4];
            MGX_UNROLLED
            for (int i = 0; i < 4; ++i) {
                const __m256i a = load(from + i * apart), b = load(from + (4 + i) * apart);
                const __m256i c = load(from + (8 + i) * apart), d = load(from + (12 + i) * apart);
                above[i] = first_of(a, b, c);
                below[i] = second_of(b, c, d);
            }
            store(to + v, _mm256_srai_epi32(first_of(above[0], above[1], above[2]), 2));
            store(to + 16 + v, _mm256_srai_epi32(second_of(above[1], above[2], above[3]), 2));
            store(to + line + v, _mm256_srai_epi32(first_of(below[0], below[1], below[2]), 2));
            store(to + line + 16 + v, _mm256_srai_epi32(second_of(below[1], below[2], below[3]), 2));
        }
    }
}

} // namespace

void *byte_pair_function(const std::string &name) {
    if (name == "mgx_pair_tile_1") return reinterpret_cast<void *>(&pair_tile);
    if (name == "mgx_pair_rows_1") return reinterpret_cast<void *>(&pair_rows);
    if (name == "mgx_pair_windows_1") return reinterpret_cast<void *>(&pair_windows);
    if (name == "mgx_pair_channels_1") return reinterpret_cast<void *>(&pair_channels);
    if (name == "mgx_pair_points_1") return reinterpret_cast<void *>(&pair_points);
    if (name == "mgx_pair_filters_1") return reinterpret_cast<void *>(&pair_filters);
    return nullptr;
}

} // namespace mgx
