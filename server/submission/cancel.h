/* cancel.h - ends what is left of a group. Loop thread only. */
#ifndef SUBMISSION_CANCEL_H
#define SUBMISSION_CANCEL_H

#include "common/error.h"
#include "server/submission/submission.h"

struct funnel;

/*
 * Cancels what is not finished; where the group is decided, but for those that are right and wait to be timed or are
 * timed. 0, ERR_CONFLICT, or an error of the store.
 */
int group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why, struct error *err);

#endif
