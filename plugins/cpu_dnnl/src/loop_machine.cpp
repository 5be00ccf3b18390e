#include "loop_machine.h"

#include "loops.h"

namespace mgx {

extern "C" {
void mgx_loop_machine_avx2(void *const *, const int64_t *, int64_t, int64_t, void *, const LoopFunction *);
void mgx_loop_machine_avx512(void *const *, const int64_t *, int64_t, int64_t, void *, const LoopFunction *);
}

void *loop_machine(const std::string &name) {
    if (name == "mgx_loop_machine_avx2") return reinterpret_cast<void *>(mgx_loop_machine_avx2);
    if (name == "mgx_loop_machine_avx512") return reinterpret_cast<void *>(mgx_loop_machine_avx512);
    return nullptr;
}

} // namespace mgx
