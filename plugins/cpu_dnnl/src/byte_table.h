// Byte lookup tables.  Included by sources that are compiled once per instruction set, whose `Table` holds 256 bytes and has
// row(from, to, length), which writes the entry of each byte.
#pragma once

#include "loops.h"

namespace mgx {

namespace {

// Buffers: x, table (256 bytes, indexed by the bits of x), out.  Arguments: bytes per row, or 0 for a single row of any length;
// row strides of x and out.  Work items: rows, or bytes.
template <class Table> void map_bytes(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *) {
    auto *x = static_cast<const uint8_t *>(buffers[0]);
    auto *out = static_cast<uint8_t *>(buffers[2]);
    const Table table(static_cast<const uint8_t *>(buffers[1]));
    if (args[0] == 0)
        table.row(x + begin, out + begin, end - begin);
    else
        for (int64_t row = begin; row < end; ++row)
            table.row(x + row * args[1], out + row * args[2], args[0]);
}

} // namespace

} // namespace mgx
