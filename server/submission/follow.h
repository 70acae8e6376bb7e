/* follow.h - whoever follows what happens to submissions is told: funnel_follow(). Loop thread only. */
#ifndef SUBMISSION_FOLLOW_H
#define SUBMISSION_FOLLOW_H

#include "server/submission/funnel.h"

void funnel_tell(struct funnel *f, const struct funnel_event *event);

#endif
