// The machine for loops that nobody compiled (`machine_loop.h`): compiled loops call it with a table of operations.
#pragma once

#include <string>

namespace mgx {

// The machine of a name that compiled loops use; null for another name.
void *loop_machine(const std::string &name);

} // namespace mgx
