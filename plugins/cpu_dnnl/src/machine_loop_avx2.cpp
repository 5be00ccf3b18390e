// The machine for loops that nobody compiled, for processors with AVX2.
#define MGX_LANES 8
#define MGX_MACHINE mgx_loop_machine_avx2
#include "machine_loop.h"
