// Loops that the module brings, found by name: "topk_float32".  Their signature is that of compiled loops.
#pragma once

#include <map>
#include <string>

#include <pybind11/pybind11.h>

#include "run_state.h"

namespace mgx {

using NamedLoops = std::map<std::string, LoopFunction>;

void add_index_loops(NamedLoops &loops);
void add_scatter_loops(NamedLoops &loops);
void add_selection_loops(NamedLoops &loops);
void add_scan_loops(NamedLoops &loops);
void add_sequence_loops(NamedLoops &loops);
void add_window_loops(NamedLoops &loops);
void add_sampling_loops(NamedLoops &loops);
void add_open_loops(NamedLoops &loops);

void bind_named_loops(pybind11::module_ &module);

} // namespace mgx
