/*
 * scrub.h - what a kernel leaves on the chip: shared memory and most registers of every multiprocessor are overwritten
 * with zeros, so that the next kernel of another candidate finds nothing in what it does not initialise.
 */
#ifndef HARNESS_SCRUB_H
#define HARNESS_SCRUB_H

#include "server/harness/native/harness.h"

/* In the current context of a process that drives one GPU; waits for the whole context. 0 or < 0. */
HARNESS_API int harness_scrub(void);

#endif
