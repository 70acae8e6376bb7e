/* run_machine.h - what a configuration asks of this machine besides files: programs, GPUs, and rounds in which a curriculum can move. */
#ifndef TRAINER_RUN_MACHINE_H
#define TRAINER_RUN_MACHINE_H

#include "client/trainer/run.h"

/*
 * Where a step is to be done that wants them: the endpoint's program and the variables that its command uses; bitsandbytes, for base_bits = 8; GPUs that two of verifierd,
 * endpoint and training have. TRAINER_CONFIG after a line for each fault. What is not wrong, and may be meant, is only said.
 */
int run_machine_check(struct run *r);

/* How many GPUs a list of their numbers names. */
int run_devices_number(const char *text);

#endif
