/* run_estimate.h - trainer run --estimate: what the steps will take and cost, by the speeds that the configuration names. */
#ifndef TRAINER_RUN_ESTIMATE_H
#define TRAINER_RUN_ESTIMATE_H

#include "client/trainer/run.h"

/* Hours of one GPU that a step takes: tokens by the speeds of the section "estimate", verdicts by theirs. */
double run_hours(const struct run *r, json_t *step);
/* The table on stdout: a line for each step and their sum. */
int run_estimate(const struct run *r);

#endif
