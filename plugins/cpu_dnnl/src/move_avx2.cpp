// Strided copies for AVX2.
#define MGX_ISA "avx2"
#define MGX_ADD_MOVES add_moves_avx2
#include "move_loop.h"
