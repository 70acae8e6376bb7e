/* others.h - submissions of other nodes that this daemon accepted or a client here asks about. Loop thread only. */
#ifndef SUBMISSION_OTHERS_H
#define SUBMISSION_OTHERS_H

#include "server/submission/elsewhere.h"

struct funnel;
struct submission;

/*
 * Another node has s, or has ended it: s is removed here and freed, and its waits and its group are notified of its end
 * from the store. s waits for nothing here and holds nothing; its attempt may be NULL.
 */
void others_take(struct submission *s);
/* Receives the store's news of a followed submission; arg: the funnel. */
elsewhere_cb others_seen_cb;

#endif
