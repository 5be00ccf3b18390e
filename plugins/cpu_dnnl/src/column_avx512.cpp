// Column sums for AVX-512.
#define MGX_LANES 16
#define MGX_ISA "avx512"
#define MGX_ADD_COLUMNS add_columns_avx512
#include "column_loop.h"
