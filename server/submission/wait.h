/* wait.h - requests that wait for an end. Loop thread only. */
#ifndef SUBMISSION_WAIT_H
#define SUBMISSION_WAIT_H

#include "server/submission/funnel.h"

/* Ends each wait of the list, and calls back. */
void waits_notify(struct funnel_wait **head);
/* They wait in the other list from now on. */
void waits_move(struct funnel_wait **from, struct funnel_wait **to);

#endif
