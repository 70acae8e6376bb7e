/* ended.h - the end of a submission: one event, and the list of those that it concerns. Loop thread only. */
#ifndef SUBMISSION_ENDED_H
#define SUBMISSION_ENDED_H

#include <stdbool.h>

struct submission;

/* Its verdict is durable; or another node's, or the row is gone, and its state here is dropped. s is freed. */
void submission_ended(struct submission *s, bool is_durable);

#endif
