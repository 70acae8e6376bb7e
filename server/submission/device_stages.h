/* device_stages.h - the stages on a lane: `tiny`, `full`, `timing`. Loop thread only. */
#ifndef SUBMISSION_DEVICE_STAGES_H
#define SUBMISSION_DEVICE_STAGES_H

#include "server/submission/stage_end.h"

struct lane;

/* Loads the candidate on a lane, which is idle: STAGE_OPENED follows. */
struct stage_end device_stages_open(struct submission *s, struct lane *l, stage_ended_cb *ended);
/* The stage that it is in. */
struct stage_end device_stages_run(struct submission *s);
/* The candidate is loaded again, in a fresh process: STAGE_OPENED follows. */
struct stage_end device_stages_reopen(struct submission *s);

#endif
