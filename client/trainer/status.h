/* status.h - where a run stands, from what is in its working directory. */
#ifndef TRAINER_STATUS_H
#define TRAINER_STATUS_H

#include <jansson.h>

/*
 * The newest checkpoint of each run that verifies, which is the one that its training goes on from: {run: {"path", "step", "steps",
 * "created"}}; given. One that does not verify is passed over, with a line on stderr.
 */
json_t *status_checkpoints(const char *workdir);

#endif
