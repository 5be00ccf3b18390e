// The LSTM loop for processors with AVX-512.
#define MGX_LANES 16
#define MGX_LSTM_LOOP lstm_loop_avx512
#include "lstm_loop.h"
