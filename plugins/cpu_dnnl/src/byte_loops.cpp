// Bytes by a table, one at a time.
#include "loops.h"

namespace mgx {

namespace {

// Buffers: x, table (256 bytes by the bits of x), out.  Numbers: bytes a row, or 0 for one row of any length; steps of the rows
// of x and out.  Work: rows, or bytes.
void map_bytes(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const uint8_t *>(buffers[0]);
    auto *table = static_cast<const uint8_t *>(buffers[1]);
    auto *out = static_cast<uint8_t *>(buffers[2]);
    const bool one = args[0] == 0;
    const int64_t length = one ? end - begin : args[0];
    for (int64_t row = begin; row < (one ? begin + 1 : end); ++row) {
        const uint8_t *from = x + row * (one ? 1 : args[1]);
        uint8_t *to = out + row * (one ? 1 : args[2]);
        for (int64_t n = 0; n < length; ++n)
            to[n] = table[from[n]];
    }
}

} // namespace

void add_byte_loops(NamedLoops &loops) { loops["map_bytes"] = &map_bytes; }

} // namespace mgx
