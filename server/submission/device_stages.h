/* device_stages.h - the stages on a device worker: `tiny`, `full`, `timing`. Loop thread only. */
#ifndef SUBMISSION_DEVICE_STAGES_H
#define SUBMISSION_DEVICE_STAGES_H

#include "server/submission/stage_end.h"

struct device_worker;

/* Loads the candidate on a device worker, which is idle: STAGE_OPENED follows. */
struct stage_end device_stages_open(struct submission *s, struct device_worker *l, stage_ended_cb *ended);
/* The stage that it is in. */
struct stage_end device_stages_run(struct submission *s);
/*
 * The last step: the device worker, which it has, does what else the policy asks for, and releases it.
 * STAGE_CLOSED follows.
 */
void device_stages_finish(struct submission *s);
/* The candidate is loaded again, in a fresh process: STAGE_OPENED follows. */
struct stage_end device_stages_reopen(struct submission *s);

#endif
