// Class probabilities from those of pairs of classes.
#include <algorithm>
#include <cmath>

#include "box.h"
#include "loops.h"

namespace mgx {

namespace {

// Buffers: pairwise probabilities, class probabilities; both row-major.  Arguments: number of classes, maximum of sweeps.
// Work items: rows.  Scratch: the matrix and the gradient of the quadratic form, and a row of probabilities.
template <typename T>
void pairwise_coupling(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    constexpr double least = 1e-7, near = 0.005; // as in the definition (mgx_core/ops/coupling.py)
    ArgReader reader(args);
    const int64_t classes = reader.next(), sweeps = reader.next(), pairs = classes * (classes - 1) / 2;
    auto *q = static_cast<double *>(scratch);
    double *gradient = q + classes * classes, *p = gradient + classes;
    for (int64_t row = begin; row < end; ++row) {
        const T *wins = static_cast<const T *>(buffers[0]) + row * pairs;
        std::fill_n(q, classes * classes, 0.0);
        for (int64_t i = 0; i < classes; ++i)
            for (int64_t j = i + 1; j < classes; ++j) {
                const double given = *wins++;
                const double win = given < least ? least : given > 1 - least ? 1 - least : given, loss = 1 - win;
                q[i * classes + i] += loss * loss;
                q[j * classes + j] += win * win;
                q[i * classes + j] = q[j * classes + i] = -win * loss;
            }
        std::fill_n(p, classes, 1.0 / classes);
        for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
            double value = 0, farthest = 0;
            for (int64_t i = 0; i < classes; ++i) {
                gradient[i] = 0;
                for (int64_t j = 0; j < classes; ++j)
                    gradient[i] += q[i * classes + j] * p[j];
                value += p[i] * gradient[i];
            }
            for (int64_t i = 0; i < classes; ++i)
                farthest = std::max(farthest, std::abs(gradient[i] - value));
            if (!(farthest >= near / classes) || std::isnan(value)) break; // `max` ignores NaN
            for (int64_t t = 0; t < classes; ++t) {
                const double own = q[t * classes + t], step = (value - gradient[t]) / own, total = 1 + step;
                value = (value + step * (step * own + 2 * gradient[t])) / (total * total);
                p[t] += step;
                for (int64_t j = 0; j < classes; ++j) {
                    gradient[j] = (gradient[j] + step * q[t * classes + j]) / total;
                    p[j] /= total;
                }
            }
        }
        std::transform(p, p + classes, static_cast<T *>(buffers[1]) + row * classes, [](double x) { return static_cast<T>(x); });
    }
}

} // namespace

void add_coupling_loops(NamedLoops &loops) {
    loops["pairwise_coupling_float32"] = &pairwise_coupling<float>;
    loops["pairwise_coupling_float64"] = &pairwise_coupling<double>;
}

} // namespace mgx
