// Winograd convolutions for AVX-512.
#define MGX_LANES 16
#define MGX_ROWS 14
#define MGX_WINOGRAD winograd_avx512
#include "winograd_loop.h"
