/* run_state.h - run.json: which steps were finished, with which arguments, and what they took. */
#ifndef TRAINER_RUN_STATE_H
#define TRAINER_RUN_STATE_H

#include "client/trainer/run.h"

/* Read what an earlier run left, and write who runs now. ERR_INPUT: it is there and cannot be read; ERR_SYS. */
int run_state_open(struct run *r, struct error *err);
/*
 * A step is now "running", "done", "failed", "interrupted" or "skipped". seconds: of this attempt; those of earlier ones with the
 * same arguments are added. On the disk when it returns 0.
 */
int run_state_set(struct run *r, json_t *step, const char *state, double seconds, struct error *err);
/* Keep what is known of something beside the steps. value is taken. On the disk when it returns 0. */
int run_state_note(struct run *r, const char *name, json_t *value, struct error *err);
/* Done or skipped with these arguments (wherever its services were), and what it left is still there and whole. */
bool run_state_is_finished(struct run *r, json_t *step);

#endif
