// Determinants and inverses of small matrices, in double precision, by elimination with partial pivoting; triangular systems.
#include <algorithm>
#include <cmath>

#include "loops.h"

namespace mgx {

namespace {

// Brings the first n columns of n rows of `width` elements into upper triangular form, and applies the same steps to the other
// columns; computes the determinant of the first n columns.  Returns false if they are singular: one of them has no pivot.
bool eliminate(double *rows, int64_t n, int64_t width, double &determinant) {
    determinant = 1;
    for (int64_t k = 0; k < n; ++k) {
        int64_t most = k;
        for (int64_t i = k + 1; i < n; ++i)
            if (std::fabs(rows[i * width + k]) > std::fabs(rows[most * width + k])) most = i;
        double *pivot = rows + k * width, *other = rows + most * width;
        if (most != k) {
            std::swap_ranges(pivot + k, pivot + width, other + k);
            determinant = -determinant;
        }
        determinant *= pivot[k];
        if (pivot[k] == 0) return false;
        for (int64_t i = k + 1; i < n; ++i) {
            double *row = rows + i * width;
            const double factor = row[k] / pivot[k];
            for (int64_t j = k + 1; j < width; ++j)
                row[j] -= factor * pivot[j];
        }
    }
    return true;
}

// Buffers: x [m, n, n], row-major; determinants [m].  Argument: n.  Scratch memory: a matrix of doubles.  Work items: matrices.
template <typename T>
void determinants(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const int64_t n = args[0];
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    auto *rows = static_cast<double *>(scratch);
    for (int64_t m = begin; m < end; ++m) {
        std::copy_n(x + m * n * n, n * n, rows);
        double determinant;
        eliminate(rows, n, n, determinant);
        out[m] = static_cast<T>(determinant);
    }
}

// Buffers: x and inverses [m, n, n], row-major.  Argument: n.  Scratch memory: two matrices of doubles.  Work items: matrices.
template <typename T>
void inverses(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const int64_t n = args[0], width = 2 * n;
    auto *x = static_cast<const T *>(buffers[0]);
    auto *out = static_cast<T *>(buffers[1]);
    auto *rows = static_cast<double *>(scratch); // of x, next to those of the identity matrix
    for (int64_t m = begin; m < end; ++m) {
        std::fill_n(rows, n * width, 0.0);
        for (int64_t i = 0; i < n; ++i) {
            std::copy_n(x + (m * n + i) * n, n, rows + i * width);
            rows[i * width + n + i] = 1;
        }
        double determinant;
        if (!eliminate(rows, n, width, determinant)) return mgx_loop_failed(5, m);
        for (int64_t i = n; i-- > 0;) {
            double *solved = rows + i * width + n;
            for (int64_t k = i + 1; k < n; ++k) {
                const double factor = rows[i * width + k], *other = rows + k * width + n;
                for (int64_t j = 0; j < n; ++j)
                    solved[j] -= factor * other[j];
            }
            for (int64_t j = 0; j < n; ++j) {
                solved[j] /= rows[i * width + i];
                out[(m * n + i) * n + j] = static_cast<T>(solved[j]);
            }
        }
    }
}

// Subtracts from a row the sum of known rows, each times its factor.
template <typename T>
void subtract_rows(T *__restrict row, const T *known, const T *factors, int64_t count, int64_t columns) {
    int64_t k = 0;
    for (; k + 4 <= count; k += 4) { // four at a time: the row is loaded and stored once for them
        const T *__restrict x = known + k * columns;
        const T f0 = factors[k], f1 = factors[k + 1], f2 = factors[k + 2], f3 = factors[k + 3];
        for (int64_t j = 0; j < columns; ++j)
            row[j] -= (f0 * x[j] + f1 * x[columns + j]) + (f2 * x[2 * columns + j] + f3 * x[3 * columns + j]);
    }
    for (; k < count; ++k) {
        const T *__restrict x = known + k * columns;
        for (int64_t j = 0; j < columns; ++j)
            row[j] -= factors[k] * x[j];
    }
}

// Buffers: a [m, n, n], right sides and solutions [m, n, columns], row-major.  Arguments: n, columns, whether the triangle is the
// upper one, whether its diagonal is taken as ones.  Work items: matrices.
template <typename T>
void solve_triangular(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    const int64_t n = args[0], columns = args[1];
    const bool upper = args[2], unit = args[3];
    auto *a = static_cast<const T *>(buffers[0]) + begin * n * n;
    auto *b = static_cast<const T *>(buffers[1]) + begin * n * columns;
    auto *out = static_cast<T *>(buffers[2]) + begin * n * columns;
    for (int64_t m = begin; m < end; ++m, a += n * n, b += n * columns, out += n * columns) {
        for (int64_t step = 0; step < n; ++step) {
            const int64_t i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0;
            T *row = out + i * columns;
            std::copy_n(b + i * columns, columns, row);
            subtract_rows(row, out + first * columns, a + i * n + first, step, columns);
            const T pivot = a[i * n + i];
            for (int64_t j = 0; !unit && j < columns; ++j)
                row[j] /= pivot;
        }
    }
}

} // namespace

void add_matrix_loops(NamedLoops &loops) {
    loops["determinant_float32"] = &determinants<float>;
    loops["determinant_float64"] = &determinants<double>;
    loops["inverse_float32"] = &inverses<float>;
    loops["inverse_float64"] = &inverses<double>;
    loops["solve_triangular_float32"] = &solve_triangular<float>;
    loops["solve_triangular_float64"] = &solve_triangular<double>;
}

} // namespace mgx
