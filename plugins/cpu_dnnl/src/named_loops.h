// Addresses of the module's own loops by name, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace mgx {

void bind_named_loops(pybind11::module_ &module);

} // namespace mgx
