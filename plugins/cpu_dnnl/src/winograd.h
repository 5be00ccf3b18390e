#pragma once

#include <pybind11/pybind11.h>

namespace mgx {

void bind_winograd(pybind11::module_ &module);

} // namespace mgx
