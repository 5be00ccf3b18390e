// Strided copies, row by row.  Included once per instruction set, with MGX_ISA and MGX_ADD_MOVES, and with MGX_MASKS if partial
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
    RowCursor(const Moves &moves, const T *source, T *target, int64_t row)
        : moves_(moves), last_(moves.axis + 3 * (moves.axes - 1)), source(source), target(target) {
        for (int64_t a = moves.axes - 1; a >= 0; --a) {
            const int64_t *axis = moves.axis + 3 * a;
            index_[a] = row % axis[0];
            row /= axis[0];
            step(axis, index_[a]);
        }
    }

    Rows rows(int64_t max_rows) const { return {std::min(max_rows, last_[0] - index_[moves_.axes - 1]), moves_.length, last_[1], last_[2]}; }

    void advance(int64_t number) {
        step(last_, number);
        index_[moves_.axes - 1] += number;
        for (int64_t a = moves_.axes - 1; a > 0 && index_[a] == moves_.axis[3 * a]; --a) {
            step(moves_.axis + 3 * a, -index_[a]);
            index_[a] = 0;
            step(moves_.axis + 3 * (a - 1), 1);
            ++index_[a - 1];
        }
    }

private:
    static constexpr int64_t max_axes = 31;
    const Moves &moves_;
    const int64_t *last_;
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
    RowCursor<T> cursor(m, static_cast<const T *>(buffers[0]), static_cast<T *>(buffers[1]), begin / parts);
    for (int64_t item = begin; item < end;) {
        Rows rows = cursor.rows(end - item);
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

} // namespace

void MGX_ADD_MOVES(NamedLoops &loops) {
    add_loop(loops, "move_rows_" MGX_ISA, "1", &move_rows<uint8_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "2", &move_rows<uint16_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "4", &move_rows<uint32_t>);
    add_loop(loops, "move_rows_" MGX_ISA, "8", &move_rows<uint64_t>);
}

} // namespace mgx
