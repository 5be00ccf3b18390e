// The bytecode interpreter for AVX-512.
#define MGX_LANES 16
#define MGX_INTERPRETER mgx_interpreter_avx512
#include "interpreter_loop.h"
