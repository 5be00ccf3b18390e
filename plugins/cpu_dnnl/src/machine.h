// Python bindings of processor features and measured peak rates.
#pragma once

#include <pybind11/pybind11.h>

#include "errors.h"

namespace mgx {

void bind_machine(pybind11::module_ &module);

} // namespace mgx
