// Products of block-quantized weights for AVX2.
#define MGX_LANES 8
#define MGX_ISA "avx2"
#define MGX_ADD_LOOPS add_coded_loops_avx2
#include "coded_product_loop.h"
