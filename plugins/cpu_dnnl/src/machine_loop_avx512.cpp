// The machine for loops that nobody compiled, for processors with AVX-512.
#define MGX_LANES 16
#define MGX_MACHINE mgx_loop_machine_avx512
#include "machine_loop.h"
