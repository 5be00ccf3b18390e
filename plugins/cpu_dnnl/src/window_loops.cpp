// Max pooling, with and without indices, depthwise convolution, and col2im.  NaN is propagated, as in numpy.  oneDNN's max pooling ignores NaN and
// starts from the lowest finite number instead of minus infinity.
#include <utility>

#include "box.h"
#include "loops.h"
#include "scalars.h"

namespace mgx {

namespace {

struct Axis {
    int64_t extent, taps, stride, dilation, before; // extent of the image, window size, .., leading padding
    int64_t step, index_stride; // stride in x, and in the indices that are returned
};

// Computes the maxima of 8 windows, `apart` from each other, and their taps: the first of equal elements, the first NaN.
inline void eight_maxima(
        const float *x, const int64_t *steps, int64_t taps, const __m256i &apart, float *values, int32_t *found) {
    __m256 best = _mm256_i32gather_ps(x + steps[0], apart, 4);
    __m256i place = _mm256_setzero_si256();
    for (int64_t t = 1; t < taps; ++t) {
        const __m256 c = _mm256_i32gather_ps(x + steps[t], apart, 4);
        const __m256 better = _mm256_and_ps(_mm256_cmp_ps(c, best, _CMP_NLE_UQ), _mm256_cmp_ps(best, best, _CMP_ORD_Q));
        best = _mm256_blendv_ps(best, c, better);
        place = _mm256_blendv_epi8(place, _mm256_set1_epi32(static_cast<int>(t)), _mm256_castps_si256(better));
    }
    _mm256_storeu_ps(values, best);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(found), place);
}

// Buffers: x; maxima and indices, both row-major.  Arguments: elements of an image; number of spatial axes; an Axis for each;
// windows along each; box of the images (x).  Padding is left out; a window of padding alone has the lowest value and the index
// before the image's.  Scratch memory: two int64 per tap.  Work items: windows.
template <typename T>
void maxima(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *values = static_cast<T *>(buffers[1]);
    auto *indices = static_cast<int64_t *>(buffers[2]);
    ArgReader reader(args);
    const int64_t size = reader.next(), rank = reader.next();
    auto *axes = reinterpret_cast<const Axis *>(reader.next(7 * rank));
    const int64_t *counts = reader.next(rank);
    const Box<1> images(reader);
    int64_t windows = 1, taps = 1;
    for (int64_t a = 0; a < rank; ++a) {
        windows *= counts[a];
        taps *= axes[a].taps;
    }
    auto *steps = static_cast<int64_t *>(scratch), *index_steps = steps + taps; // offsets of the taps, in x and in the indices
    for (int64_t t = 0; t < taps; ++t) {
        int64_t rest = t;
        steps[t] = index_steps[t] = 0;
        for (int64_t a = rank; a-- > 0; rest /= axes[a].taps) {
            const int64_t far = rest % axes[a].taps * axes[a].dilation;
            steps[t] += far * axes[a].step;
            index_steps[t] += far * axes[a].index_stride;
        }
    }
    auto is_inside = [&](int64_t t, const int64_t *first) {
        bool inside = true;
        for (int64_t a = rank; a-- > 0; t /= axes[a].taps) {
            const int64_t i = first[a] + t % axes[a].taps * axes[a].dilation;
            inside = inside && i >= 0 && i < axes[a].extent;
        }
        return inside;
    };
    const Axis &last = axes[rank - 1];
    const int64_t step = last.stride * last.step, index_step = last.stride * last.index_stride;
    const bool near = step < (1 << 24); // 8 windows are within the reach of 32-bit offsets
    const __m256i apart = _mm256_mullo_epi32(
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(near ? step : 0)));
    const T *at = x;
    for (int64_t n = begin, image = -1; n < end;) { // a part of a row of windows at a time
        if (n / windows != image) {
            image = n / windows;
            images.points(image, image + 1, [&](const int64_t *offset) { at = x + offset[0]; });
        }
        int64_t rest = n % windows, first[most_axes], origin = 0, origin_index = image * size;
        const int64_t left = std::min(end - n, counts[rank - 1] - rest % counts[rank - 1]);
        bool rows_inside = true; // along all axes but the last
        for (int64_t a = rank; a-- > 0; rest /= counts[a]) {
            first[a] = rest % counts[a] * axes[a].stride - axes[a].before;
            if (a + 1 < rank)
                rows_inside = rows_inside && first[a] >= 0 && first[a] + (axes[a].taps - 1) * axes[a].dilation < axes[a].extent;
            origin += first[a] * axes[a].step;
            origin_index += first[a] * axes[a].index_stride;
        }
        for (const int64_t until = n + left; n < until; ++n) {
            const bool whole = rows_inside && first[rank - 1] >= 0
                    && first[rank - 1] + (last.taps - 1) * last.dilation < last.extent;
            if constexpr (std::is_same_v<T, float>)
                if (whole && near && until - n >= 8
                        && first[rank - 1] + 7 * last.stride + (last.taps - 1) * last.dilation < last.extent) {
                    int32_t found[8];
                    eight_maxima(at + origin, steps, taps, apart, values + n, found);
                    for (int64_t k = 0; k < 8; ++k)
                        indices[n + k] = origin_index + index_steps[found[k]] + k * index_step;
                    first[rank - 1] += 8 * last.stride;
                    origin += 8 * step;
                    origin_index += 8 * index_step;
                    n += 7;
                    continue;
                }
            W best {};
            int64_t best_index = 0;
            if (whole) {
                best = widened(at[origin + steps[0]]);
                int64_t found = 0;
                for (int64_t t = 1; t < taps; ++t) { // without branches, which would often be mispredicted
                    const W c = widened(at[origin + steps[t]]);
                    const bool better = !(c <= best) & !is_nan(best);
                    best = better ? c : best;
                    found = better ? t : found;
                }
                best_index = origin_index + index_steps[found];
            } else {
                best = lowest<W>();
                best_index = image * size - 1;
                bool any = false;
                for (int64_t t = 0; t < taps; ++t) {
                    if (!is_inside(t, first)) continue;
                    const W c = widened(at[origin + steps[t]]);
                    if (any && (is_nan(best) || !(is_nan(c) || c > best))) continue;
                    any = true;
                    best = c;
                    best_index = origin_index + index_steps[t];
                }
            }
            store(values[n], best);
            indices[n] = best_index;
            first[rank - 1] += last.stride;
            origin += step;
            origin_index += index_step;
        }
    }
}

// Writes a line of an image from its elements by phase: those at phase, phase + stride, .. are adjacent, `width` of them.
template <int64_t known, typename T, typename W>
void interleaved(const W *__restrict__ phases, T *__restrict__ to, int64_t extent, int64_t width, int64_t stride) {
    const int64_t step = known ? known : stride, whole = extent / step;
    for (int64_t i = 0; i < whole; ++i)
        for (int64_t phase = 0; phase < step; ++phase)
            store(to[i * step + phase], phases[phase * width + i]);
    for (int64_t i = whole * step; i < extent; ++i)
        store(to[i], phases[(i - whole * step) * width + whole]);
}

template <typename W, typename T>
inline void add_line(W *__restrict__ to, const T *__restrict__ from, int64_t count) {
    for (int64_t j = 0; j < count; ++j)
        to[j] = static_cast<W>(to[j] + widened(from[j]));
}

// Lines are often shorter than two vectors: the rest of one takes at most three additions.
inline void add_line(float *__restrict__ to, const float *__restrict__ from, int64_t count) {
    for (; count >= 8; count -= 8, to += 8, from += 8)
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_loadu_ps(from)));
    if (count >= 4) {
        _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), _mm_loadu_ps(from)));
        count -= 4, to += 4, from += 4;
    }
    if (count >= 2) {
        const __m128 sum = _mm_add_ps(_mm_castsi128_ps(_mm_loadu_si64(to)), _mm_castsi128_ps(_mm_loadu_si64(from)));
        _mm_storeu_si64(to, _mm_castps_si128(sum));
        count -= 2, to += 2, from += 2;
    }
    if (count > 0) *to += *from;
}

// col2im.  Buffers: windows [planes, taps, positions]; images [planes, pixels], both row-major.  Arguments: number of spatial
// axes; extent, taps, stride, dilation and leading padding of each; positions along each.  Scratch memory: a plane of sums, unless
// the last stride is 1 and the type is summed as it is.  Work items: planes.  The sums of a line are stored by phase within the
// last stride, so that adjacent windows add to adjacent sums.
template <typename T>
void folded(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    using W = Wide<T>;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    ArgReader reader(args);
    const int64_t rank = reader.next(), *axes = reader.next(5 * rank), *counts = reader.next(rank), row = counts[rank - 1];
    int64_t rows = 1, taps = 1, planes = 1;
    for (int64_t a = 0; a < rank; ++a) {
        rows *= a + 1 < rank ? axes[5 * a] : 1;
        taps *= axes[5 * a + 1];
        planes *= a + 2 < rank ? counts[a] : 1;
    }
    const int64_t *last = axes + 5 * (rank - 1), extent = last[0], stride = last[2];
    const int64_t width = (extent + stride - 1) / stride, length = width * stride; // of a line of sums
    const int64_t one_line[5] = {1, 1, 1, 1, 0};
    const int64_t *down = rank > 1 ? axes + 5 * (rank - 2) : one_line, lines = rank > 1 ? counts[rank - 2] : 1; // of a plane
    // The positions along an axis at which a tap is inside the image.
    const auto inside_of = [](const int64_t *axis, int64_t start, int64_t count) {
        const int64_t room = axis[0] - start, step = axis[2];
        const int64_t low = start < 0 ? std::min(count, (-start + step - 1) / step) : 0;
        return std::pair {low, room > 0 ? std::min(count, (room + step - 1) / step) : 0};
    };
    for (int64_t plane = begin; plane < end; ++plane) {
        T *image = out + plane * rows * extent;
        W *sums = static_cast<W *>(scratch);
        if constexpr (std::is_same_v<T, W>)
            if (stride == 1) sums = image;
        std::fill_n(sums, rows * length, W(0));
        const T *from = x + plane * taps * planes * lines * row;
        for (int64_t tap = 0; tap < taps; ++tap) {
            int64_t shift[most_axes], rest = tap;
            for (int64_t a = rank; a-- > 0; rest /= axes[5 * a + 1])
                shift[a] = rest % axes[5 * a + 1] * axes[5 * a + 3] - axes[5 * a + 4];
            const int64_t start = shift[rank - 1], above = rank > 1 ? shift[rank - 2] : 0;
            const auto [low, high] = inside_of(last, start, row);
            const auto [top, bottom] = inside_of(down, above, lines);
            const int64_t phase = (start % stride + stride) % stride, first = phase * width + (start - phase) / stride;
            for (int64_t p = 0; p < planes; ++p, from += lines * row) {
                int64_t offset = first, step = length * down[0];
                bool inside = true;
                rest = p;
                for (int64_t a = rank - 2; a-- > 0; rest /= counts[a]) {
                    const int64_t i = rest % counts[a] * axes[5 * a + 2] + shift[a];
                    inside = inside && i >= 0 && i < axes[5 * a];
                    offset += i * step;
                    step *= axes[5 * a];
                }
                for (int64_t line = top; inside && line < bottom; ++line)
                    add_line(sums + offset + (line * down[2] + above) * length + low, from + line * row + low, high - low);
            }
        }
        if (sums != static_cast<W *>(scratch)) continue;
        const auto write = stride == 1   ? &interleaved<1, T, W>
                           : stride == 2 ? &interleaved<2, T, W>
                           : stride == 3 ? &interleaved<3, T, W>
                           : stride == 4 ? &interleaved<4, T, W>
                                         : &interleaved<0, T, W>;
        for (int64_t line = 0; line < rows; ++line)
            write(sums + line * length, image + line * extent, extent, width, stride);
    }
}

// A number of lanes, at most eight, and the mask for partial loads and stores.
struct Lanes {
    __m256i part;
    int64_t count;
    explicit Lanes(int64_t n) : count(n) {
        part = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
};
inline __m256 widened(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
inline __m128i narrowed(__m256 x) { // exact: a maximum is one of the elements
    const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08));
}
inline int64_t some(const BFloat *from, int64_t count) { // up to four, assembled in a register to avoid a store-forwarding stall
    uint64_t bits = 0;
    if (count == 4)
        std::memcpy(&bits, from, 8);
    else
        for (int64_t n = 0; n < count; ++n)
            bits |= uint64_t {from[n].bits} << (16 * n);
    return static_cast<int64_t>(bits);
}
template <bool whole>
inline __m256 eight(const float *from, const Lanes &lanes) {
    return whole ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, lanes.part);
}
template <bool whole>
inline __m256 eight(const BFloat *from, const Lanes &lanes) {
    if constexpr (whole) return widened(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    const int64_t n = lanes.count;
    return n < 4 ? widened(_mm_set_epi64x(0, some(from, n))) : widened(_mm_set_epi64x(some(from + 4, n - 4), some(from, 4)));
}
template <bool whole>
inline void keep(float *to, __m256 x, const Lanes &lanes) {
    if constexpr (whole)
        _mm256_storeu_ps(to, x);
    else
        _mm256_maskstore_ps(to, lanes.part, x);
}
template <bool whole>
inline void keep(BFloat *to, __m256 x, const Lanes &lanes) {
    BFloat some[8];
    _mm_storeu_si128(reinterpret_cast<__m128i *>(whole ? to : some), narrowed(x));
    if (!whole) std::copy_n(some, lanes.count, to);
}

// Computes the maxima of 8 V channels over the offsets `steps` from `x`.  vmaxps returns its second operand if one is NaN, so NaN
// is tracked separately; one unordered comparison checks two elements.
template <int V, bool whole, typename T>
inline void maxima_of_channels(const T *x, const int64_t *steps, int64_t count, T *out, const Lanes &lanes) {
    __m256 best[V], missing[V];
    for (int k = 0; k < V; ++k) {
        best[k] = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
        missing[k] = _mm256_setzero_ps();
    }
    int64_t t = 0;
    for (; t + 2 <= count; t += 2)
        for (int k = 0; k < V; ++k) {
            const __m256 v = eight<whole>(x + steps[t] + 8 * k, lanes), w = eight<whole>(x + steps[t + 1] + 8 * k, lanes);
            best[k] = _mm256_max_ps(best[k], _mm256_max_ps(v, w));
            missing[k] = _mm256_or_ps(missing[k], _mm256_cmp_ps(v, w, _CMP_UNORD_Q));
        }
    for (; t < count; ++t)
        for (int k = 0; k < V; ++k) {
            const __m256 v = eight<whole>(x + steps[t] + 8 * k, lanes);
            best[k] = _mm256_max_ps(best[k], v);
            missing[k] = _mm256_or_ps(missing[k], _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        }
    for (int k = 0; k < V; ++k)
        keep<whole>(out + 8 * k, _mm256_or_ps(best[k], missing[k]), lanes); // a lane of all ones is NaN
}

template <typename T>
inline void maxima_of_window(const T *x, const int64_t *steps, int64_t count, T *out, int64_t channels) {
    const Lanes rest(channels % 8);
    int64_t c = 0;
    for (; c + 32 <= channels; c += 32)
        maxima_of_channels<4, true>(x + c, steps, count, out + c, rest);
    for (; c + 8 <= channels; c += 8)
        maxima_of_channels<1, true>(x + c, steps, count, out + c, rest);
    if (c < channels) maxima_of_channels<1, false>(x + c, steps, count, out + c, rest);
}

template <typename T> inline __m256i most(__m256i a, __m256i b) {
    return std::is_signed_v<T> ? _mm256_max_epi8(a, b) : _mm256_max_epu8(a, b);
}
template <typename T> inline __m128i most(__m128i a, __m128i b) {
    return std::is_signed_v<T> ? _mm_max_epi8(a, b) : _mm_max_epu8(a, b);
}

// Computes the maxima of bytes for 32 channels at a time, then 16 or 8; the last vector may overlap the previous one.
template <typename T>
inline void maxima_of_bytes(const T *x, const int64_t *steps, int64_t count, T *out, int64_t channels) {
    constexpr T least = std::numeric_limits<T>::lowest();
    int64_t c = 0;
    for (; c + 32 <= channels; c += 32) {
        __m256i best = _mm256_set1_epi8(static_cast<char>(least));
        for (int64_t t = 0; t < count; ++t)
            best = most<T>(best, _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + c + steps[t])));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + c), best);
    }
    while (c < channels && channels >= 8) {
        const int64_t wide = channels >= 16 && channels - c > 8 ? 16 : 8, at = std::min(c, channels - wide);
        __m128i best = _mm_set1_epi8(static_cast<char>(least));
        for (int64_t t = 0; t < count; ++t) {
            auto *from = reinterpret_cast<const __m128i *>(x + at + steps[t]);
            best = most<T>(best, wide == 16 ? _mm_loadu_si128(from) : _mm_loadl_epi64(from));
        }
        auto *to = reinterpret_cast<__m128i *>(out + at);
        wide == 16 ? _mm_storeu_si128(to, best) : _mm_storel_epi64(to, best);
        c = at + wide;
    }
    for (; c < channels; ++c) {
        T best = least;
        for (int64_t t = 0; t < count; ++t)
            best = std::max(best, x[c + steps[t]]);
        out[c] = best;
    }
}

// Position of a window along one axis: its first element, and the taps [low, high) within the image.
struct Reach {
    int64_t first, low, high;
    Reach(const int64_t *axis, int64_t window) : first(window * axis[2] - axis[4]) {
        const int64_t dilation = axis[3], room = axis[0] - first;
        low = first < 0 ? std::min(axis[1], (-first + dilation - 1) / dilation) : 0;
        high = std::max(low, std::min(axis[1], room > 0 ? (room + dilation - 1) / dilation : 0));
    }
};

// Extends `count` offsets in `steps` by the taps of all axes but the last, for the windows of row `row` (in row-major order of
// these axes).  Sets `count` to the number of offsets and returns the index of the image, or of the image's channel, that
// contains the row.  places: if not null, the offsets of the same taps within the window, which are extended likewise.
inline int64_t outer_taps(
        const int64_t *axes, const int64_t *counts, int64_t rank, int64_t row, int64_t *steps, int64_t &count,
        int64_t *places = nullptr) {
    int64_t inner = axes[6 * (rank - 1) + 1]; // taps of the axes after this one
    for (int64_t a = rank - 1; a-- > 0; row /= counts[a]) {
        const int64_t *axis = axes + 6 * a;
        const Reach reach(axis, row % counts[a]);
        for (int64_t j = reach.high - reach.low; j-- > 0;) // in descending order, because j = 0 overwrites the source
            for (int64_t t = 0; t < count; ++t)
                steps[j * count + t] = steps[t] + (reach.first + (reach.low + j) * axis[3]) * axis[5];
        if (places)
            for (int64_t j = reach.high - reach.low; j-- > 0;)
                for (int64_t t = 0; t < count; ++t)
                    places[j * count + t] = places[t] + (reach.low + j) * inner;
        inner *= axis[1];
        count *= reach.high - reach.low;
    }
    return row;
}

// Channels-last max pooling.  Buffers: x; dense maxima.  Arguments: channels; number of spatial axes; extent, taps, stride,
// dilation, leading padding and stride in x of each; windows along each; stride of images in x.  Padding is ignored; a window
// that is all padding yields minus infinity, or the lowest byte.  Scratch memory: an int64 per tap.  Work items: rows of windows
// along the last axis.
template <typename T>
void maxima_channels_last(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    ArgReader reader(args);
    const int64_t channels = reader.next(), rank = reader.next();
    const int64_t *axes = reader.next(6 * rank), *counts = reader.next(rank);
    const int64_t image = reader.next();
    const int64_t *last = axes + 6 * (rank - 1), width = counts[rank - 1];
    auto *steps = static_cast<int64_t *>(scratch);
    for (int64_t row = begin; row < end; ++row) {
        T *to = out + row * width * channels;
        int64_t from = -1, until = -1; // taps of the last axis whose offsets are in `steps`
        int64_t taps = 0;
        for (int64_t n = 0; n < width; ++n, to += channels) {
            const Reach along(last, n);
            if (along.low != from || along.high != until) {
                from = along.low, until = along.high;
                taps = until - from;
                for (int64_t j = 0; j < taps; ++j)
                    steps[j] = (from + j) * last[3] * last[5];
                const int64_t rest = outer_taps(axes, counts, rank, row, steps, taps);
                for (int64_t t = 0; t < taps; ++t)
                    steps[t] += rest * image;
            }
            if constexpr (sizeof(T) == 1)
                maxima_of_bytes(x + along.first * last[5], steps, taps, to, channels);
            else
                maxima_of_window(x + along.first * last[5], steps, taps, to, channels);
        }
    }
}

// Channels-last average pooling.  Buffers, arguments and work items as for `maxima_channels_last`; the arguments begin with the
// divisor, 0 for the number of elements of each window within the image.
void means_channels_last(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const float *>(buffers[0]);
    auto *out = static_cast<float *>(buffers[1]);
    ArgReader reader(args);
    const int64_t divisor = reader.next(), channels = reader.next(), rank = reader.next();
    const int64_t *axes = reader.next(6 * rank), *counts = reader.next(rank);
    const int64_t image = reader.next();
    const int64_t *last = axes + 6 * (rank - 1), width = counts[rank - 1];
    auto *steps = static_cast<int64_t *>(scratch);
    for (int64_t row = begin; row < end; ++row) {
        float *__restrict__ to = out + row * width * channels;
        int64_t lines = 1;
        steps[0] = 0;
        const int64_t first = outer_taps(axes, counts, rank, row, steps, lines) * image;
        for (int64_t n = 0; n < width; ++n, to += channels) {
            const Reach along(last, n);
            const float *from = x + first + along.first * last[5];
            std::fill_n(to, channels, 0.0f);
            for (int64_t line = 0; line < lines; ++line)
                for (int64_t j = along.low; j < along.high; ++j) {
                    const float *term = from + steps[line] + j * last[3] * last[5];
                    for (int64_t c = 0; c < channels; ++c)
                        to[c] += term[c];
                }
            // windows without elements within the image have the mean 0
            const auto count = static_cast<float>(std::max<int64_t>(divisor ? divisor : lines * (along.high - along.low), 1));
            for (int64_t c = 0; c < channels; ++c)
                to[c] /= count;
        }
    }
}

// Sums the products of 8 V channels with weights over the taps [low, high) of `lines` lines, for P windows `next` elements apart.
// steps, places: offsets of the lines in x and, in taps, in the window; step: distance of taps in x.
template <int V, int P, bool whole>
inline void sums_of_channels(
        const float *x, const float *w, const int64_t *steps, const int64_t *places, int64_t lines, int64_t low, int64_t high,
        int64_t step, int64_t channels, int64_t next, float *out, const Lanes &lanes) {
    __m256 sums[P][V];
    for (auto &window : sums)
        for (auto &sum : window)
            sum = _mm256_setzero_ps();
    for (int64_t line = 0; line < lines; ++line) {
        const float *from = x + steps[line] + low * step, *by = w + (places[line] + low) * channels;
        for (int64_t j = low; j < high; ++j, from += step, by += channels)
            for (int k = 0; k < V; ++k) {
                const __m256 weights = eight<whole>(by + 8 * k, lanes);
                for (int p = 0; p < P; ++p)
                    sums[p][k] = _mm256_fmadd_ps(eight<whole>(from + p * next + 8 * k, lanes), weights, sums[p][k]);
            }
    }
    for (int p = 0; p < P; ++p)
        for (int k = 0; k < V; ++k)
            keep<whole>(out + p * channels + 8 * k, sums[p][k], lanes);
}

template <int P>
inline void sums_of_windows(
        const float *x, const float *w, const int64_t *steps, const int64_t *places, int64_t lines, int64_t low, int64_t high,
        int64_t step, int64_t channels, int64_t next, float *out) {
    const Lanes rest(channels % 8);
    int64_t c = 0;
    auto sum = [&](auto vectors, auto whole) {
        constexpr int V = decltype(vectors)::value;
        sums_of_channels<V, P, whole>(x + c, w + c, steps, places, lines, low, high, step, channels, next, out + c, rest);
        c += 8 * V;
    };
    while (c + 32 <= channels)
        sum(std::integral_constant<int, 4> {}, std::true_type {});
    while (c + 8 <= channels)
        sum(std::integral_constant<int, 1> {}, std::true_type {});
    if (c < channels) sum(std::integral_constant<int, 1> {}, std::false_type {});
}

// Channels-last depthwise convolution.  Buffers: x; weights [taps, channels]; dense sums.  Arguments and work items as for
// `maxima_channels_last`; padding counts as zero.  Scratch memory: two int64 per tap of all axes but the last.
void sums_channels_last(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const float *>(buffers[0]);
    auto *w = static_cast<const float *>(buffers[1]);
    auto *out = static_cast<float *>(buffers[2]);
    ArgReader reader(args);
    const int64_t channels = reader.next(), rank = reader.next();
    const int64_t *axes = reader.next(6 * rank), *counts = reader.next(rank);
    const int64_t image = reader.next();
    const int64_t *last = axes + 6 * (rank - 1), width = counts[rank - 1], step = last[3] * last[5], next = last[2] * last[5];
    int64_t most = 1;
    for (int64_t a = 0; a + 1 < rank; ++a)
        most *= axes[6 * a + 1];
    auto *steps = static_cast<int64_t *>(scratch), *places = steps + most;
    for (int64_t row = begin; row < end; ++row) {
        float *to = out + row * width * channels;
        int64_t lines = 1;
        steps[0] = places[0] = 0;
        const float *from = x + outer_taps(axes, counts, rank, row, steps, lines, places) * image;
        for (int64_t n = 0; n < width;) {
            const Reach along(last, n);
            const float *at = from + along.first * last[5];
            bool both = n + 1 < width;
            if (both) {
                const Reach other(last, n + 1);
                both = other.low == along.low && other.high == along.high;
            }
            const auto sum = both ? &sums_of_windows<2> : &sums_of_windows<1>;
            sum(at, w, steps, places, lines, along.low, along.high, step, channels, next, to);
            n += 1 + both;
            to += (1 + both) * channels;
        }
    }
}

// Returns the maxima of the vectors at(0), .., at(count - 1), NaN if one of the elements is (see `maxima_of_channels`).
template <typename At>
inline __m256 maxima_at(int64_t count, const At &at) {
    __m256 best = _mm256_set1_ps(-std::numeric_limits<float>::infinity()), missing = _mm256_setzero_ps();
    int64_t t = 0;
    for (; t + 2 <= count; t += 2) {
        const __m256 v = at(t), w = at(t + 1);
        best = _mm256_max_ps(best, _mm256_max_ps(v, w));
        missing = _mm256_or_ps(missing, _mm256_cmp_ps(v, w, _CMP_UNORD_Q));
    }
    if (t < count) {
        const __m256 v = at(t);
        best = _mm256_max_ps(best, v);
        missing = _mm256_or_ps(missing, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    }
    return _mm256_or_ps(best, missing);
}

// Loads eight elements `step` apart.  For step 2, reads 16 consecutive elements.
inline __m256 eight_apart(const float *from, int64_t step, __m256i steps) {
    if (step == 1) return _mm256_loadu_ps(from);
    if (step != 2) return _mm256_i32gather_ps(from, steps, 4);
    const __m256 both = _mm256_shuffle_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), _MM_SHUFFLE(2, 0, 2, 0));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(both), _MM_SHUFFLE(3, 1, 2, 0)));
}

// Computes the elementwise maxima of the lines at the offsets `steps` from `x`, `extent` elements each.
inline void maxima_of_lines(const float *x, const int64_t *steps, int64_t count, int64_t extent, float *to) {
    const Lanes rest(extent % 8);
    auto eight_of = [&](int64_t i, auto whole) {
        keep<whole>(to + i, maxima_at(count, [&](int64_t t) { return eight<whole>(x + steps[t] + i, rest); }), rest);
    };
    int64_t i = 0;
    for (; i + 8 <= extent; i += 8)
        eight_of(i, std::true_type {});
    if (i < extent) eight_of(i, std::false_type {});
}

// Channels-first max pooling.  Buffers: x, whose last axis has stride 1; maxima, row-major.  Arguments: channels, strides of
// images and of channels in x; number of spatial axes and their numbers (as for `maxima_channels_last`); windows along each.
// Padding is ignored; a window that is all padding yields minus infinity.  Scratch memory: an int64 per tap, then a padded line
// of x and 32 elements.  Work items: rows of windows along the last axis.
void maxima_of_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto *x = static_cast<const float *>(buffers[0]);
    auto *out = static_cast<float *>(buffers[1]);
    ArgReader reader(args);
    const int64_t channels = reader.next(), image = reader.next(), plane = reader.next(), rank = reader.next();
    const int64_t *axes = reader.next(6 * rank), *counts = reader.next(rank), *last = axes + 6 * (rank - 1);
    const int64_t extent = last[0], taps = last[1], stride = last[2], dilation = last[3], before = last[4];
    const int64_t width = counts[rank - 1];
    int64_t lines = 1;
    for (int64_t a = 0; a + 1 < rank; ++a)
        lines *= axes[6 * a + 1];
    auto *steps = static_cast<int64_t *>(scratch);
    auto *line = reinterpret_cast<float *>(steps + lines);
    const int64_t reach = std::max(before + extent, (width - 1) * stride + (taps - 1) * dilation + 1);
    std::fill_n(line, reach, -std::numeric_limits<float>::infinity());
    const __m256i apart = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(stride)));
    const Lanes rest(width % 8);
    for (int64_t row = begin; row < end; ++row) {
        int64_t count = 1;
        steps[0] = 0;
        const int64_t channel = outer_taps(axes, counts, rank, row, steps, count);
        const float *from = x + channel / channels * image + channel % channels * plane;
        float *to = out + row * width;
        if (taps == 1 && stride == 1 && before == 0 && width <= extent) {
            maxima_of_lines(from, steps, count, width, to);
            continue;
        }
        maxima_of_lines(from, steps, count, extent, line + before);
        for (int64_t i = 0; i < width; i += 8) {
            const float *at = line + i * stride;
            const int64_t some = std::min<int64_t>(8, width - i);
            const __m256 best = maxima_at(taps, [&](int64_t t) {
                if (stride <= 2 || some == 8) return eight_apart(at + t * dilation, stride, apart);
                alignas(32) float few[8] = {}; // a full vector load would read past the scratch memory
                for (int64_t k = 0; k < some; ++k)
                    few[k] = at[t * dilation + k * stride];
                return _mm256_load_ps(few);
            });
            i + 8 <= width ? keep<true>(to + i, best, rest) : keep<false>(to + i, best, rest);
        }
    }
}

} // namespace

void add_window_loops(NamedLoops &loops) {
    loops["average_pool_float32"] = &means_channels_last;
    loops["sum_windows_float32"] = &sums_channels_last;
    loops["max_pool_rows"] = &maxima_of_rows;
    loops["max_pool_float32"] = &maxima_channels_last<float>;
    loops["max_pool_bfloat16"] = &maxima_channels_last<BFloat>;
    loops["max_pool_int8"] = &maxima_channels_last<int8_t>;
    loops["max_pool_uint8"] = &maxima_channels_last<uint8_t>;
    each(Numeric {}, numeric_names, [&](auto element, const char *name) {
        using T = decltype(element);
        if constexpr (!std::is_same_v<T, Bool>) {
            add_loop(loops, "max_pool_indices", name, &maxima<T>);
            add_loop(loops, "folded", name, &folded<T>);
        }
    });
}

} // namespace mgx
