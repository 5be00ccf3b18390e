// Strided copies for AVX-512.
#define MGX_MASKS
#define MGX_ISA "avx512"
#define MGX_ADD_MOVES add_moves_avx512
#include "move_loop.h"
