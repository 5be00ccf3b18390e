// Recurrent layers for AVX2.
#define MGX_LANES 8
#define MGX_NAME avx2
#include "recurrent_loop.h"
