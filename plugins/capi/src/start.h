#ifndef MGX_C_START_H
#define MGX_C_START_H

/* Starts Python on the first call, or finds it running.  Returns 0, with a message for mgx_last_error, if it cannot serve. */
int mgx_started(void);

#endif
