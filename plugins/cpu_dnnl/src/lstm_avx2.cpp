// The LSTM loop for processors with AVX2.
#define MGX_LANES 8
#define MGX_LSTM_LOOP lstm_loop_avx2
#include "lstm_loop.h"
