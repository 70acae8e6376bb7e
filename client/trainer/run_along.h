/* run_along.h - what goes along with a run: `trainer sync` to a remote, and `trainer watch` for the cloud's notices. */
#ifndef TRAINER_RUN_ALONG_H
#define TRAINER_RUN_ALONG_H

#include "client/trainer/run.h"

struct run_along {
    pid_t sync, watch; /* 0: does not run */
};

/*
 * Start what is configured. The remote is written, read back and compared before anything else is done: another exit status than
 * TRAINER_OK says that it cannot be used, and nothing was begun.
 */
int run_along_start(struct run *r, struct run_along *along);
/* After the last step, or the interrupted one: end both, and copy a last time. */
void run_along_end(struct run *r, const struct run_along *along);

#endif
