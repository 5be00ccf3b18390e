#include "interpreter.h"

#include "loops.h"

namespace mgx {

extern "C" {
void mgx_interpreter_avx2(void *const *, const int64_t *, int64_t, int64_t, void *, const LoopFunction *);
void mgx_interpreter_avx512(void *const *, const int64_t *, int64_t, int64_t, void *, const LoopFunction *);
}

void *interpreter_address(const std::string &name) {
    if (name == "mgx_interpreter_avx2") return reinterpret_cast<void *>(mgx_interpreter_avx2);
    if (name == "mgx_interpreter_avx512") return reinterpret_cast<void *>(mgx_interpreter_avx512);
    return nullptr;
}

} // namespace mgx
