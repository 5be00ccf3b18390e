// Recurrent layers for AVX-512.
#define MGX_LANES 16
#define MGX_NAME avx512
#include "recurrent_loop.h"
