// The bytecode interpreter for AVX2.
#define MGX_LANES 8
#define MGX_INTERPRETER mgx_interpreter_avx2
#include "interpreter_loop.h"
