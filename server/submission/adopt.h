/* adopt.h - a submission that the store has, and that this daemon does not know yet, becomes its own. Loop thread only. */
#ifndef SUBMISSION_ADOPT_H
#define SUBMISSION_ADOPT_H

#include <stdbool.h>

struct funnel;
struct submission;
struct submission_row;

/*
 * It is in the registry and in its group, who waits for it waits for it here, and it is queued nowhere yet. is_claimed: row
 * has the number under which this node has it. NULL: no memory.
 */
struct submission *adopt(struct funnel *f, const struct submission_row *row, bool is_claimed);
/* Whoever judged it went down each time: it is not tried for ever. It is queued nowhere; false: no memory. */
bool adopt_give_up(struct submission *s);

#endif
