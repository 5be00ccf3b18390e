// Python bindings of the hand-written loops: their addresses by name.
#pragma once

#include <pybind11/pybind11.h>

namespace mgx {

void bind_named_loops(pybind11::module_ &module);

} // namespace mgx
