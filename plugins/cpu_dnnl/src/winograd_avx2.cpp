// Winograd convolutions for AVX2.
#define MGX_LANES 8
#define MGX_ROWS 6
#define MGX_WINOGRAD winograd_avx2
#include "winograd_loop.h"
