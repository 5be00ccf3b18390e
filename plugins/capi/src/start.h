#ifndef MGX_C_START_H
#define MGX_C_START_H

/* Initializes Python and the package mgx_c on the first call.  Returns 1 on success; 0 on failure, with a message for mgx_last_error. */
int mgx_started(void);

#endif
