// Products of block-quantized weights for AVX-512.
#define MGX_LANES 16
#define MGX_ISA "avx512"
#define MGX_ADD_LOOPS add_coded_loops_avx512
#include "coded_product_loop.h"
