/* ended.h - the end of a submission: one event, and the list of those that it concerns. Loop thread only. */
#ifndef SUBMISSION_ENDED_H
#define SUBMISSION_ENDED_H

#include <stdbool.h>

struct submission;

/* Its verdict is durable; or it is another's or gone, and what is known of it here goes. s is freed. */
void submission_ended(struct submission *s, bool is_durable);

#endif
