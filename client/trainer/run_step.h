/* run_step.h - one step of a run, from its inputs to its outputs. */
#ifndef TRAINER_RUN_STEP_H
#define TRAINER_RUN_STEP_H

#include "client/trainer/run.h"

/*
 * Check its inputs, have the endpoint serve what it asks, run it, check its outputs; run.json and training.log say how it went.
 * An enum trainer_exit: TRAINER_RESUME where it was interrupted, TRAINER_CONFIG where an input is missing, TRAINER_FAILED where an
 * output is, else what the command ended with.
 */
int run_step(struct run *r, json_t *step);

/*
 * Would its command take these arguments? Names of policies, rewards, stages and curricula are the command's to know. Its status;
 * what is wrong stands on stderr.
 */
int run_step_check(const struct run *r, json_t *step);

#endif
