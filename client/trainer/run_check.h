/* run_check.h - what can be found out before hours are spent: files, and for `trainer run --check` memory and shapes. */
#ifndef TRAINER_RUN_CHECK_H
#define TRAINER_RUN_CHECK_H

#include "client/trainer/run.h"

/* Is every input there that no step of the plan leaves? Finished steps need none. TRAINER_CONFIG after a line for each. */
int run_check_inputs(struct run *r);
/*
 * What would end the run hours from now: an input that is missing and that no step of the plan leaves, an argument that a step's
 * command refuses, and what run_machine.h looks at. TRAINER_CONFIG after a line for each.
 */
int run_check_ahead(struct run *r);
/* The same, then memory and shapes, by the Python that trains; nothing is run. An enum trainer_exit: TRAINER_CONFIG says what does not fit. */
int run_check(struct run *r);

#endif
