// Signature of compiled loops, and the registry of this module's loops by name ("topk_float32").  Sources of loops include
// neither Python nor oneDNN.
//
// Their comments list the buffers, the integer arguments in order, and the unit of the work items [begin, end).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mgx {

// A loop: buffers, integer arguments, the range of work items to execute, scratch memory of the calling thread.
using LoopFunction = void (*)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch);

// Reports an error from a loop; the run fails after the step.  Codes: 1 index out of bounds, 2 division by zero, 3 value out of
// range, 4 non-finite region, 5 singular matrix, others an internal error of the kernel.
extern "C" void mgx_loop_failed(int64_t code, int64_t value);

using NamedLoops = std::map<std::string, LoopFunction>;

// Registers a loop as "<kind>_<name>".
void add_loop(NamedLoops &loops, const char *kind, const char *name, LoopFunction loop);

void add_index_loops(NamedLoops &loops);
void add_scatter_loops(NamedLoops &loops);
void add_selection_loops(NamedLoops &loops);
void add_scan_loops(NamedLoops &loops);
void add_sequence_loops(NamedLoops &loops);
void add_window_loops(NamedLoops &loops);
void add_sampling_loops(NamedLoops &loops);
void add_region_loops(NamedLoops &loops);
void add_resize_loops(NamedLoops &loops);
void add_row_loops(NamedLoops &loops);
void add_slice_loops(NamedLoops &loops);
void add_tree_loops(NamedLoops &loops);
void add_matrix_loops(NamedLoops &loops);
void add_coupling_loops(NamedLoops &loops);
void add_open_loops(NamedLoops &loops);
void add_byte_loops(NamedLoops &loops);
void add_byte_loops_vbmi(NamedLoops &loops);
void add_coded_bytes(NamedLoops &loops);
void add_coded_loops_avx2(NamedLoops &loops);
void add_coded_loops_avx512(NamedLoops &loops);
void add_coded_loops_amx(NamedLoops &loops);
void add_coded_loops_vnni(NamedLoops &loops);
void add_coded_panels(NamedLoops &loops);
void add_coded_rows_avx2(NamedLoops &loops);
void add_products_avx2(NamedLoops &loops);
void add_products_avx512(NamedLoops &loops);
void add_columns_avx2(NamedLoops &loops);
void add_columns_avx512(NamedLoops &loops);
void add_chains_avx2(NamedLoops &loops);
void add_chains_avx512(NamedLoops &loops);
void add_moves_avx2(NamedLoops &loops);
void add_moves_avx512(NamedLoops &loops);
void add_copy_loops(NamedLoops &loops);
void add_line_loops(NamedLoops &loops);
void add_grouped_convolutions_avx2(NamedLoops &loops);
void add_grouped_convolutions_avx512(NamedLoops &loops);
void add_depthwise_convolutions(NamedLoops &loops);

} // namespace mgx
