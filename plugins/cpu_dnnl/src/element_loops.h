// Loops over indices and order, found by name.
#pragma once

#include <pybind11/pybind11.h>

namespace mgx {

void bind_element_loops(pybind11::module_ &module);

} // namespace mgx
