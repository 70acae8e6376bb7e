/* run_state.h - run.json: which steps were finished, with which arguments, from what, and what they took. */
#ifndef TRAINER_RUN_STATE_H
#define TRAINER_RUN_STATE_H

#include "client/trainer/run.h"

enum { RUN_ADAPTER_SIZE = 64 };

/* Read what an earlier run left, and write who runs now. ERR_INPUT: it is there and cannot be read; ERR_SYS. */
int run_state_open(struct run *r, struct error *err);
/*
 * A step is now "running", "done", "failed", "interrupted" or "skipped". seconds: of this attempt; those of earlier ones with the
 * same arguments are added. On the disk when it returns 0.
 */
int run_state_set(struct run *r, json_t *step, const char *state, double seconds, struct error *err);
/* Keep what is known of something beside the steps. value is taken. On the disk when it returns 0. */
int run_state_note(struct run *r, const char *name, json_t *value, struct error *err);
/*
 * Done or skipped with these arguments (wherever its services were) and from what is there now; and what it left is still there and
 * whole. An input that is gone meanwhile is no other one.
 */
bool run_state_is_finished(struct run *r, json_t *step);
/* Was it begun before, with other arguments or from other inputs? What that left may be in the way. */
bool run_state_is_other(const struct run *r, json_t *step);
/* The round that a step belongs to; 0: none. */
int run_round_of(json_t *step);
/*
 * The adapter before a round of the plan (0: after the last), below the working directory: that of the newest round that learned
 * something, else sft_final.
 */
void run_state_adapter(const struct run *r, int round, char path[RUN_ADAPTER_SIZE]);

#endif
