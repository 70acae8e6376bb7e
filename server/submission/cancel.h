/* cancel.h - ends what is left of a group. Loop thread only. */
#ifndef SUBMISSION_CANCEL_H
#define SUBMISSION_CANCEL_H

#include "server/submission/submission.h"

struct funnel;

/*
 * Cancels the unfinished submissions of the group once the store has returned its members, on a later turn; in a
 * decided group not those that are correct and wait to be timed or are timed.
 */
void group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why);

/* The node that owns it finds the request in the store, and calls cancel_ordered(). 0, ERR_UNAVAILABLE or ERR_NOMEM. */
int cancel_elsewhere(struct funnel *f, const char *id, enum cancel_reason why, struct error *err);

/* A reason as the store keeps it (store_cancel()), and what was found there: the submission, if it is here, is cancelled. */
#define CANCEL_ORDER(why) ((int)(why) + 1)
void cancel_ordered(struct funnel *f, const char *id, int order);

#endif
