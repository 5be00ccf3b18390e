// Strided copies, row by row, and transposing ones, tile by tile.  Included once per instruction set, with MGX_ISA and MGX_ADD_MOVES, and with MGX_MASKS if partial
// vectors are loaded and stored with masks.
#include <algorithm>
#include <cstring>

#include <immintrin.h>

#include "loops.h"

namespace mgx {

namespace {

// The loop's arguments, encoded by `jit/native_moves.py`; strides are in elements.
struct Moves {
    int64_t axes, length, part, in, over; // in, over: strides along a row of source and target
    const int64_t *axis; // extent, source stride and target stride of each outer axis, of which there is at least one

    explicit Moves(const int64_t *args)
        : axes(args[0]), length(args[1]), part(args[2]), in(args[3]), over(args[4]), axis(args + 5) {}
};

// Consecutive short rows: their number, their length, and the row strides of source and target.
struct Rows {
    int64_t number, length, in, over;
};

// Calls `one(to, from)` for each row; size: bytes of an element.
template <typename One> inline void each_row(const Rows &rows, char *to, const char *from, int64_t size, const One &one) {
    for (int64_t r = 0; r < rows.number; ++r)
        one(to + r * rows.over * size, from + r * rows.in * size);
}

// Copies a row as its first and its last sizeof(T) bytes, which may overlap.
template <typename T> struct Ends {
    int64_t last;

    void operator()(char *to, const char *from) const {
        T a, b;
        std::memcpy(&a, from, sizeof(T));
        std::memcpy(&b, from + last, sizeof(T));
        std::memcpy(to, &a, sizeof(T));
        std::memcpy(to + last, &b, sizeof(T));
    }
};

template <typename T> inline void copy_ends(const Rows &rows, char *to, const char *from, int64_t size, int64_t bytes) {
    each_row(rows, to, from, size, Ends<T> {bytes - int64_t(sizeof(T))});
}

inline void copy_contiguous(const Rows &rows, char *to, const char *from, int64_t size) {
    const int64_t bytes = rows.length * size;
#ifdef MGX_MASKS
    if (bytes <= 64) {
        const __mmask64 mask = ~__mmask64 {0} >> (64 - bytes);
        each_row(rows, to, from, size, [mask](char *to, const char *from) __attribute__((always_inline)) {
            _mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
        });
    } else if (bytes <= 128)
        copy_ends<__m512i>(rows, to, from, size, bytes);
#else
    if (bytes <= 4)
        bytes == 4 ? copy_ends<uint32_t>(rows, to, from, size, bytes)
            : bytes > 1 ? copy_ends<uint16_t>(rows, to, from, size, bytes) : copy_ends<uint8_t>(rows, to, from, size, bytes);
    else if (bytes < 8)
        copy_ends<uint32_t>(rows, to, from, size, bytes);
    else if (bytes < 16)
        copy_ends<uint64_t>(rows, to, from, size, bytes);
    else if (bytes <= 32)
        copy_ends<__m128i>(rows, to, from, size, bytes);
    else if (bytes <= 64)
        copy_ends<__m256i>(rows, to, from, size, bytes);
#endif
    else
        each_row(rows, to, from, size, [bytes](char *to, const char *from) { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

template <typename T> void copy_strided(T *to, const T *from, int64_t count, int64_t in, int64_t over) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const T a = from[0], b = from[in], c = from[2 * in], d = from[3 * in];
        to[0] = a;
        to[over] = b;
        to[2 * over] = c;
        to[3 * over] = d;
        from += 4 * in;
        to += 4 * over;
    }
    for (; i < count; ++i, from += in, to += over)
        *to = *from;
}

template <typename T> void repeat(T *to, const T x, int64_t count, int64_t over) {
    constexpr int64_t lanes = sizeof(__m256i) / sizeof(T);
    if (over == 1 && count >= lanes) {
        T block[lanes];
        for (T &one : block)
            one = x;
        __m256i vector;
        std::memcpy(&vector, block, sizeof vector);
        for (int64_t i = 0; i < count - lanes; i += lanes)
            std::memcpy(to + i, &vector, sizeof vector);
        std::memcpy(to + count - lanes, &vector, sizeof vector); // the last two may overlap
    } else
        for (int64_t i = 0; i < count; ++i)
            to[i * over] = x;
}

template <typename T> inline void copy(const Rows &rows, T *to, const T *from, int64_t in, int64_t over) {
    if (in == 1 && over == 1)
        copy_contiguous(rows, reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), sizeof(T));
    else if (in == 0)
        for (int64_t r = 0; r < rows.number; ++r)
            repeat(to + r * rows.over, from[r * rows.in], rows.length, over);
    else
        for (int64_t r = 0; r < rows.number; ++r)
            copy_strided(to + r * rows.over, from + r * rows.in, rows.length, in, over);
}

// Addresses of the current row in source and target, and of those that follow along the last axis.
template <typename T> class RowCursor {
public:
    // axis: extent, source stride and target stride of each of the axes
    RowCursor(int64_t axes, const int64_t *axis, const T *source, T *target, int64_t row)
        : axes_(axes), axis_(axis), last_(axis + 3 * (axes - 1)), source(source), target(target) {
        for (int64_t a = axes - 1; a >= 0; --a) {
            axis = axis_ + 3 * a;
            index_[a] = row % axis[0];
            row /= axis[0];
            step(axis, index_[a]);
        }
    }

    Rows rows(int64_t max_rows, int64_t length) const {
        return {std::min(max_rows, last_[0] - index_[axes_ - 1]), length, last_[1], last_[2]};
    }

    void advance(int64_t number) {
        step(last_, number);
        index_[axes_ - 1] += number;
        for (int64_t a = axes_ - 1; a > 0 && index_[a] == axis_[3 * a]; --a) {
            step(axis_ + 3 * a, -index_[a]);
            index_[a] = 0;
            step(axis_ + 3 * (a - 1), 1);
            ++index_[a - 1];
        }
    }

private:
    static constexpr int64_t max_axes = 31;
    const int64_t axes_;
    const int64_t *axis_, *last_;
    int64_t index_[max_axes] = {};

    void step(const int64_t *axis, int64_t number) {
        source += number * axis[1];
        target += number * axis[2];
    }

public:
    const T *source;
    T *target;
};

// Work items: parts of rows, in row-major order of the outer axes, parts innermost.
template <typename T> void move_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Moves m(args);
    const int64_t parts = (m.length + m.part - 1) / m.part;
    RowCursor<T> cursor(m.axes, m.axis, static_cast<const T *>(buffers[0]), static_cast<T *>(buffers[1]), begin / parts);
    for (int64_t item = begin; item < end;) {
        Rows rows = cursor.rows(end - item, m.length);
        int64_t from = 0;
        if (parts > 1) {
            from = item % parts * m.part;
            rows = {1, std::min(m.part, m.length - from), 0, 0};
        }
        copy(rows, cursor.target + from * m.over, cursor.source + from * m.in, m.in, m.over);
        item += rows.number;
        if (item % parts == 0) cursor.advance(rows.number);
    }
}

// Arguments of a transposing copy, encoded by `jit/native_moves.py`: the source is contiguous along an axis of `across` elements,
// the target along one of `along`; in: source stride along the latter, over: target stride along the former.
struct Transposition {
    int64_t axes, across, along, in, over;
    const int64_t *axis; // as in `Moves`

    explicit Transposition(const int64_t *args)
        : axes(args[0]), across(args[1]), along(args[2]), in(args[3]), over(args[4]), axis(args + 5) {}
};

#ifdef MGX_MASKS

// Transposes up to 16 x 16 elements: `columns` source vectors to `rows` target vectors.
inline void transpose_tile(float *to, const float *from, int64_t rows, int64_t columns, int64_t in, int64_t over) {
    const __mmask16 read = static_cast<__mmask16>((1u << rows) - 1), written = static_cast<__mmask16>((1u << columns) - 1);
    __m512 a[16], b[16];
    for (int64_t c = 0; c < 16; ++c)
        a[c] = _mm512_maskz_loadu_ps(read, from + std::min(c, columns - 1) * in);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int i = 0; i < 8; ++i) {
        const int at = i / 4 * 8 + i % 4;
        b[at] = _mm512_shuffle_f32x4(a[at], a[at + 4], 0x88);
        b[at + 4] = _mm512_shuffle_f32x4(a[at], a[at + 4], 0xdd);
    }
    for (int i = 0; i < 8; ++i) {
        a[i] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88);
        a[i + 8] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd);
    }
    for (int64_t r = 0; r < 16; ++r)
        if (r < rows) _mm512_mask_storeu_ps(to + r * over, written, a[r]);
}

constexpr int64_t tile = 16;

#else

inline void transpose_elements(float *to, const float *from, int64_t rows, int64_t columns, int64_t in, int64_t over) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            to[r * over + c] = from[c * in + r];
}

inline void transpose_full(float *to, const float *from, int64_t in, int64_t over) {
    __m256 a[8], b[8];
    for (int c = 0; c < 8; ++c)
        a[c] = _mm256_loadu_ps(from + c * in);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
            a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(to + i * over, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * over, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

inline void transpose_tile(float *to, const float *from, int64_t rows, int64_t columns, int64_t in, int64_t over) {
    if (rows == 8 && columns == 8)
        transpose_full(to, from, in, over);
    else
        transpose_elements(to, from, rows, columns, in, over);
}

constexpr int64_t tile = 8;

#endif

// Elements of 4 bytes.  Work items: `tile` target rows, in row-major order of the outer axes.
void transpose_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const Transposition m(args);
    const int64_t parts = (m.across + tile - 1) / tile;
    RowCursor<float> cursor(m.axes, m.axis, static_cast<const float *>(buffers[0]), static_cast<float *>(buffers[1]), begin / parts);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item % parts * tile, rows = std::min(tile, m.across - row);
        for (int64_t column = 0; column < m.along; column += tile)
            transpose_tile(cursor.target + row * m.over + column, cursor.source + column * m.in + row, rows,
                    std::min(tile, m.along - column), m.in, m.over);
        if (row + rows == m.across) cursor.advance(1);
    }
}

} // namespace

void MGX_ADD_MOVES(NamedLoops &loops) {
    add_loop(loops, "move_rows_" MGX_ISA, "1", &move_rows<uint8_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "2", &move_rows<uint16_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "4", &move_rows<uint32_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "8", &move_rows<uint64_t>);
    add_loop(loops, "transpose_rows_" MGX_ISA, "4", &transpose_rows);
}

} // namespace mgx
