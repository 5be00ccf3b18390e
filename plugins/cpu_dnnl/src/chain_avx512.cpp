// Encoded pointwise chains for AVX-512.
#define MGX_LANES 16
#define MGX_ISA "avx512"
#define MGX_ADD_CHAINS add_chains_avx512
#include "chain_loop.h"
