// Products of one row and a matrix, which are bound by reading the matrix.
#include <algorithm>

#include "box.h"
#include "loops.h"

namespace mgx {

namespace {

// Buffers: row [k], matrix [k, n], out [n].  Arguments: k, n, columns per work item; strides of the row and of the matrix's rows.
// Work items: ranges of columns.
void row_product(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    constexpr int64_t some = 4; // rows of the matrix per pass over the sums
    auto *row = static_cast<const float *>(buffers[0]);
    auto *matrix = static_cast<const float *>(buffers[1]);
    ArgReader reader(args);
    const int64_t k = reader.next(), n = reader.next(), width = reader.next(), step = reader.next(), pitch = reader.next();
    const int64_t first = begin * width, count = std::min(end * width, n) - first;
    auto *__restrict__ out = static_cast<float *>(buffers[2]) + first;
    std::fill_n(out, count, 0.0f);
    int64_t i = 0;
    for (; i + some <= k; i += some) {
        const float *from = matrix + i * pitch + first;
        const float a = row[i * step], b = row[(i + 1) * step], c = row[(i + 2) * step], d = row[(i + 3) * step];
        for (int64_t j = 0; j < count; ++j)
            out[j] += (a * from[j] + b * from[pitch + j]) + (c * from[2 * pitch + j] + d * from[3 * pitch + j]);
    }
    for (; i < k; ++i)
        for (int64_t j = 0; j < count; ++j)
            out[j] += row[i * step] * matrix[i * pitch + first + j];
}

} // namespace

void add_row_loops(NamedLoops &loops) { loops["row_product"] = &row_product; }

} // namespace mgx
