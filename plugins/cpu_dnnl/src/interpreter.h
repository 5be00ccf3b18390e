// The bytecode interpreter for loops that are not compiled yet (`interpreter_loop.h`), called with a table of opcode handlers.
#pragma once

#include <string>

namespace mgx {

// Returns the address of the interpreter of a symbol name; null for other names.
void *interpreter_address(const std::string &name);

} // namespace mgx
