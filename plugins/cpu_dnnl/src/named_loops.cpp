#include "named_loops.h"

#include <pybind11/stl.h>

#include "errors.h"
#include "loops.h"

namespace mgx {

namespace {

const NamedLoops &table() {
    static const NamedLoops made = [] {
        NamedLoops loops;
        add_index_loops(loops);
        add_scatter_loops(loops);
        add_selection_loops(loops);
        add_scan_loops(loops);
        add_sequence_loops(loops);
        add_window_loops(loops);
        add_sampling_loops(loops);
        add_region_loops(loops);
        add_resize_loops(loops);
        add_row_loops(loops);
        add_slice_loops(loops);
        add_tree_loops(loops);
        add_matrix_loops(loops);
        add_coupling_loops(loops);
        add_open_loops(loops);
        add_byte_loops(loops);
        add_byte_loops_vbmi(loops);
        add_coded_bytes(loops);
        add_coded_loops_avx2(loops);
        add_coded_loops_avx512(loops);
        add_coded_loops_amx(loops);
        add_coded_loops_vnni(loops);
        add_coded_panels(loops);
        add_coded_rows_avx2(loops);
        add_products_avx2(loops);
        add_products_avx512(loops);
        add_columns_avx2(loops);
        add_columns_avx512(loops);
        add_chains_avx2(loops);
        add_chains_avx512(loops);
        add_moves_avx2(loops);
        add_moves_avx512(loops);
        add_copy_loops(loops);
        add_line_loops(loops);
        add_grouped_convolutions_avx2(loops);
        add_grouped_convolutions_avx512(loops);
        add_depthwise_convolutions(loops);
        return loops;
    }();
    return made;
}

} // namespace

void add_loop(NamedLoops &loops, const char *kind, const char *name, LoopFunction loop) {
    loops[std::string(kind) + "_" + name] = loop;
}

void bind_named_loops(pybind11::module_ &module) {
    module.def("native_loops", [] {
        std::map<std::string, size_t> addresses;
        for (auto &[name, loop] : table())
            addresses[name] = reinterpret_cast<size_t>(loop);
        return addresses;
    });
    module.def("native_loop",
            [](const std::string &name) {
                auto found = table().find(name);
                if (found == table().end()) throw Failure(Fault::unsupported, "there is no loop " + name);
                return reinterpret_cast<size_t>(found->second);
            },
            pybind11::arg("name"));
}

} // namespace mgx
