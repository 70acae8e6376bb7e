/* run_check.h - trainer run --check: files, memory and shapes, and nothing is run. */
#ifndef TRAINER_RUN_CHECK_H
#define TRAINER_RUN_CHECK_H

#include "client/trainer/run.h"

/* An enum trainer_exit: TRAINER_CONFIG with a line for each file that is missing, or for what does not fit. */
int run_check(struct run *r);

#endif
