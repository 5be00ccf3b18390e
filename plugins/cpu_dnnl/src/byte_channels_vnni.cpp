#include "byte_channels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <immintrin.h>

namespace mgx {

namespace {

constexpr int64_t lanes = 16;
constexpr int max_results = 14;  // most results accumulated in registers
constexpr int64_t slack = 256; // bytes that may be written past the end

#define MGX_UNROLLED _Pragma("GCC unroll 32")

inline __m512i load(const void *from) { return _mm512_loadu_si512(from); }

// Interleaves four byte streams: to[4 i + k] = from[k][i].
struct Interleaver {
    uint8_t sign; // XORed into signed bytes, which makes them unsigned and 128 larger
    __m512i order, flip;

    explicit Interleaver(bool is_signed)
        : sign(is_signed ? 128 : 0), order(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0)),
          flip(_mm512_set1_epi8(static_cast<char>(sign))) {}

    __m512i row(const uint8_t *from, __mmask64 mask) const {
        const __m512i bytes = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, from), flip);
        return _mm512_permutexvar_epi32(order, bytes); // compensates for the unpacks, which work within 128-bit lanes
    }

    void interleave(const uint8_t *const from[4], int64_t bytes, uint8_t *to) const {
        for (int64_t i = 0; i < bytes; i += 64, to += slack) {
            const __mmask64 mask = bytes - i >= 64 ? ~0ull : ~0ull >> (64 - (bytes - i));
            const __m512i a = row(from[0] + i, mask), b = row(from[1] + i, mask);
            const __m512i c = row(from[2] + i, mask), d = row(from[3] + i, mask);
            const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
            const __m512i above = _mm512_unpackhi_epi8(a, b), below = _mm512_unpackhi_epi8(c, d);
            _mm512_storeu_si512(to, _mm512_unpacklo_epi16(ab, cd));
            _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi16(ab, cd));
            _mm512_storeu_si512(to + 128, _mm512_unpacklo_epi16(above, below));
            _mm512_storeu_si512(to + 192, _mm512_unpackhi_epi16(above, below));
        }
    }
};

// Results of one line, whose fours are in scratch memory.
struct Line {
    const uint8_t *fours;
    int64_t group, tap, result; // strides in bytes: from one group, four of taps, and result to the next
    const Fours &shape;
    int64_t channels, weights; // weights: stride in bytes between the weights of consecutive fours
};

// Hides a pointer's value from the compiler, which otherwise keeps an address per result and runs out of registers.
template <class P> inline void opaque(P &pointer) { asm("" : "+r"(pointer)); }

template <int T> void store(int32_t *sums, int64_t step, const __m512i (&acc)[T]) {
    char *to = reinterpret_cast<char *>(sums);
    MGX_UNROLLED
    for (int i = 0; i < T; ++i, to += step) {
        opaque(to);
        _mm512_storeu_si512(to, acc[i]);
    }
}

template <int T>
void sum(const Line &line, const uint8_t *fours, const int8_t *weights, __m512i begin, int32_t *sums) {
    constexpr int bases = (T + 2) / 3; // each result is zero, one or two strides from a base: x86 addressing modes scale by 1 and 2
    const int64_t stride = line.result;
    __m512i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    for (int64_t pass = 0; pass < line.shape.passes; ++pass)
        for (int64_t g = 0; g < line.shape.groups; ++g) {
            const uint8_t *from[bases];
            MGX_UNROLLED
            for (int b = 0; b < bases; ++b)
                from[b] = fours + g * line.group + 3 * b * stride;
            for (int64_t t = 0; t < line.shape.taps; ++t, weights += line.weights) {
                const __m512i w = load(weights);
                MGX_UNROLLED
                for (int i = 0; i < T; ++i)
                    acc[i] = _mm512_dpbusd_epi32(acc[i], load(from[i / 3] + i % 3 * stride), w);
                MGX_UNROLLED
                for (int b = 0; b < bases; ++b) {
                    from[b] += line.tap;
                    opaque(from[b]);
                }
            }
        }
    store(sums, 4 * line.channels, acc);
}

// As `sum`, if the first tap of the next result is the second of this one: each four is loaded once for K taps.
template <int T, int K>
void sum_overlapping(const Line &line, const uint8_t *fours, const int8_t *weights, __m512i begin, int32_t *sums) {
    __m512i acc[T];
    MGX_UNROLLED
    for (int i = 0; i < T; ++i)
        acc[i] = begin;
    for (int64_t pass = 0; pass < line.shape.passes; ++pass)
        for (int64_t g = 0; g < line.shape.groups; ++g) {
            __m512i w[K];
            MGX_UNROLLED
            for (int t = 0; t < K; ++t, weights += line.weights)
                w[t] = load(weights);
            const uint8_t *from = fours + g * line.group;
            MGX_UNROLLED
            for (int i = 0; i < T + K - 1; ++i, from += line.tap) {
                opaque(from);
                const __m512i four = load(from);
                MGX_UNROLLED
                for (int t = 0; t < K; ++t)
                    if (i >= t && i - t < T) acc[i - t] = _mm512_dpbusd_epi32(acc[i - t], four, w[t]);
            }
        }
    store(sums, 4 * line.channels, acc);
}

using Sum = void (*)(const Line &, const uint8_t *, const int8_t *, __m512i, int32_t *);
using Sums = std::array<Sum, max_results>; // by the number of results - 1

template <size_t... T> constexpr Sums general(std::index_sequence<T...>) { return {sum<int(T) + 1>...}; }
template <int K, size_t... T> constexpr Sums overlapping(std::index_sequence<T...>) { return {sum_overlapping<int(T) + 1, K>...}; }

const Sums &sums_of(const Line &line) {
    using Numbers = std::make_index_sequence<max_results>;
    static constexpr Sums any = general(Numbers()), three = overlapping<3>(Numbers()), five = overlapping<5>(Numbers());
    static constexpr Sums seven = overlapping<7>(Numbers());
    const int64_t taps = line.tap == line.result ? line.shape.taps : 0;
    return taps == 3 ? three : taps == 5 ? five : taps == 7 ? seven : any;
}

void sum_line(const Line &line, int64_t count, const int8_t *weights, const int32_t *totals, int32_t zero, int32_t *sums) {
    const Sums &functions = sums_of(line);
    const int64_t parts = (count + max_results - 1) / max_results, low = count / parts, over = count % parts;
    const __m512i point = _mm512_set1_epi32(zero);
    for (int64_t at = 0; at < line.channels; at += lanes) {
        const int64_t c = std::min(at, line.channels - lanes);
        const __m512i begin = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_mullo_epi32(load(totals + c), point));
        const uint8_t *fours = line.fours + 4 * c;
        int32_t *to = sums + c;
        for (int64_t i = 0; i < parts; ++i) {
            const int64_t rows = low + (i < over);
            functions[size_t(rows - 1)](line, fours, weights + 4 * c, begin, to);
            fours += rows * line.result;
            to += rows * line.channels;
        }
    }
}

// Locates the input lines that a line of results reads: the lines of its windows and some past them, null outside the image.
struct Reader {
    const uint8_t *x;
    const Windows &w;
    int64_t image, depth, height, left; // origin of the first result's window

    const uint8_t *line(int64_t number) const {
        const int64_t plane = w.taps[0] > 1 ? number / w.taps[1] : 0; // of a single plane, lines continue past the window
        const int64_t z = depth + plane * w.dilation[0], y = height + (number - plane * w.taps[1]) * w.dilation[1];
        if (z < 0 || z >= w.in[0] || y < 0 || y >= w.in[1]) return nullptr;
        return x + image * w.images + z * w.step[0] + y * w.step[1];
    }
};

// Interleaves the inputs of a line of results to fours.
struct LinePacker {
    const Windows &w;
    const Fours &fours;
    Interleaver interleaver;
    uint8_t point;       // zero point
    int64_t c, columns;  // channels; columns of fours in the line
    uint8_t *filler;     // a line of zero points
    uint8_t *padded;     // buffer for a line padded with zero points

    void fill(uint8_t *to, int64_t count) const { std::memset(to, point, static_cast<size_t>(std::max<int64_t>(count, 0))); }

    // Copies columns of an image line to `padded`, with zero points outside the image.
    void copy(const uint8_t *line, int64_t left, int64_t count) const {
        const int64_t from = std::clamp<int64_t>(-left, 0, count), to = std::clamp<int64_t>(w.in[2] - left, from, count);
        if (!line || from == to) return fill(padded, count * c);
        fill(padded, from * c);
        const uint8_t *source = line + (left + from) * w.across;
        if (w.across == c)
            std::memcpy(padded + from * c, source, static_cast<size_t>((to - from) * c));
        else
            for (int64_t i = from; i < to; ++i, source += w.across)
                std::memcpy(padded + i * c, source, static_cast<size_t>(c));
        fill(padded + to * c, (count - to) * c);
    }

    void across(const Reader &reader, uint8_t *to) const {
        const int64_t gap = w.dilation[2] * c, bytes = columns * c;
        for (int64_t g = 0; g < fours.groups; ++g, to += 4 * bytes) {
            copy(reader.line(g), reader.left, columns + 3 * w.dilation[2]);
            const uint8_t *const from[4] = {padded, padded + gap, padded + 2 * gap, padded + 3 * gap};
            interleaver.interleave(from, bytes, to);
        }
    }

    void upright(const Reader &reader, uint8_t *to) const {
        const int64_t left = reader.left;
        const int64_t from = std::clamp<int64_t>(-left, 0, columns), end = std::clamp<int64_t>(w.in[2] - left, from, columns);
        const bool dense = w.across == c;
        const int64_t run = dense ? (end - from) * c : c; // contiguous bytes
        const int byte = point ^ interleaver.sign;
        for (int64_t g = 0; g < fours.groups; ++g, to += 4 * columns * c) {
            const uint8_t *lines[4];
            int64_t steps[4];
            for (int64_t k = 0; k < 4; ++k) {
                lines[k] = reader.line(4 * g + k);
                steps[k] = lines[k] ? w.across : 0;
                lines[k] = lines[k] ? lines[k] + (left + from) * w.across : filler;
            }
            std::memset(to, byte, static_cast<size_t>(4 * from * c));
            for (int64_t i = from; i < end; i += dense ? end - from : 1) {
                interleaver.interleave(lines, run, to + 4 * i * c);
                for (int64_t k = 0; k < 4; ++k)
                    lines[k] += steps[k];
            }
            std::memset(to + 4 * end * c, byte, static_cast<size_t>(4 * (columns - end) * c));
        }
    }
};

void channel_fours(const uint8_t *x, const Windows *windows, const Fours *shape, int64_t first, int64_t count, int64_t c,
        const int8_t *weights, const int32_t *totals, int32_t *sums, uint8_t *space, const uint8_t *zero) {
    const Windows &w = *windows;
    const Fours &fours = *shape;
    const int64_t step = fours.upright ? w.dilation[2] : 4 * w.dilation[2];
    const Interleaver interleaver(w.is_signed != 0);
    const int32_t point = *zero ^ interleaver.sign;
    const int64_t size = 4 * fours.passes * fours.groups * fours.taps * w.channels; // bytes of the weights of a line
    int64_t filled = 0;
    while (count > 0) {
        int64_t at = first, place[3];
        for (int a = 2; a >= 0; --a) {
            place[a] = at % w.out[a];
            at /= w.out[a];
        }
        const int64_t results = std::min(count, w.out[2] - place[2]);
        const int64_t lines = results < w.out[2] ? 1 : std::min({fours.shared, count / results, w.out[1] - place[1]});
        const int64_t columns = (results - 1) * w.stride[2] + (fours.taps - 1) * step + 1;
        uint8_t *padding = space + 4 * fours.groups * columns * c + slack;
        const LinePacker packer{w, fours, interleaver, *zero, c, columns, padding, padding};
        const Reader reader{x, w, at, place[0] * w.stride[0] - w.begin[0], place[1] * w.stride[1] - w.begin[1],
                place[2] * w.stride[2] - w.begin[2]};
        if (fours.upright) {
            if (filled != columns) packer.fill(padding, columns * c);
            filled = columns;
            packer.upright(reader, space);
        } else {
            packer.across(reader, space);
        }
        const Line line{space, 4 * columns * c, 4 * step * c, 4 * w.stride[2] * c, fours, c, 4 * w.channels};
        for (int64_t l = 0; l < lines; ++l, sums += results * c)
            sum_line(line, results, weights + l * size, totals, point, sums);
        first += lines * results;
        count -= lines * results;
    }
}

} // namespace

void *byte_channel_function(const std::string &name) {
    if (name == "mgx_channel_fours_1") return reinterpret_cast<void *>(&channel_fours);
    return nullptr;
}

} // namespace mgx
