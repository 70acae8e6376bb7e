/* conclude.h - the last of a submission: its verdict, or its way back into the queue. Loop thread only. */
#ifndef SUBMISSION_CONCLUDE_H
#define SUBMISSION_CONCLUDE_H

#include <stdbool.h>

#include <jansson.h>

#include "server/submission/state.h"

struct submission;
struct submission_row;

/* Its verdict is clear and its processes are gone: write it, then notify the waiting clients. */
void submission_conclude(struct submission *s, enum event event);
/*
 * The same in three steps, for many that waited: submission_move(), then this in any thread while no other thread uses
 * s, which has the results of attempt_read_row(), then submission_concluded().
 */
void submission_fill_cancelled(struct submission *s); /* frees what the attempt no longer needs */
void submission_concluded(struct submission *s);
/*
 * The same with the verdict that another got: verdict is the document as it is for this one. s has what
 * attempt_read_row() gave it. 0 or ERR_NOMEM, and nothing has changed then.
 */
int submission_conclude_as(struct submission *s, const struct submission_row *from, json_t *verdict);
/* Back to the queue's head. gives_back: the attempt was cut short by us and does not count. */
void submission_return(struct submission *s, bool gives_back);
/* Of one that is queued, and was claimed all the same: it waits in the store for any node. */
void submission_release(struct submission *s);

/* Ready, and not among those that its group times: ends it. */
void submission_end_untimed(struct submission *s);

#endif
