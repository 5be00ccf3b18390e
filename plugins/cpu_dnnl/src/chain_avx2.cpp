// Encoded pointwise chains for AVX2.
#define MGX_LANES 8
#define MGX_ISA "avx2"
#define MGX_ADD_CHAINS add_chains_avx2
#include "chain_loop.h"
