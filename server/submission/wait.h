/* wait.h - those who wait for an end, and those who follow what happens. Loop thread only. */
#ifndef SUBMISSION_WAIT_H
#define SUBMISSION_WAIT_H

#include "server/submission/funnel.h"

/* Ends each wait of the list, and calls back. */
void waits_notify(struct funnel_wait **head);
void funnel_tell(struct funnel *f, const struct funnel_event *event);

#endif
