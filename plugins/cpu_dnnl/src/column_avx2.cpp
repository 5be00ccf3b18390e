// Column sums for AVX2.
#define MGX_LANES 8
#define MGX_ISA "avx2"
#define MGX_ADD_COLUMNS add_columns_avx2
#include "column_loop.h"
