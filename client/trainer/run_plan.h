/* run_plan.h - what a configuration amounts to: the steps in their order, each with its arguments, inputs and outputs. */
#ifndef TRAINER_RUN_PLAN_H
#define TRAINER_RUN_PLAN_H

#include "client/trainer/run.h"

/* Add to r->steps those of r->stage. Looks at r's configuration, services and max_samples; touches no file. */
void run_plan(struct run *r);

#endif
