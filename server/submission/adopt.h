/* adopt.h - a submission that the store has, and that this daemon does not know yet, becomes its own. Loop thread only. */
#ifndef SUBMISSION_ADOPT_H
#define SUBMISSION_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct funnel;
struct store_reader;
struct submission;
struct submission_row;

/* What the store has of the group of one that is taken up. */
struct adopted_group {
    json_t *request; /* owned; NULL: it is not known */
    int64_t age_ms;
    int n_correct; /* of its submissions, where it stops early */
};
/* Any thread. What cannot be read is as if there were none; the log says so. */
void adopt_read_group(struct store_reader *r, const char *id, struct adopted_group *out);

/*
 * It is in the registry and in its group, who waits for it waits for it here, and it is queued nowhere yet. group may be
 * NULL, and is looked at where it is not known here. is_claimed: row has the number under which this node has it. NULL: no
 * memory.
 */
struct submission *adopt(struct funnel *f, const struct submission_row *row,
                         const struct adopted_group *group, bool is_claimed);
/*
 * Whoever judged it went down each time, s->claim.attempts of them: it is not tried for ever, and ends once it is loaded.
 * It is queued nowhere; false: no memory.
 */
bool adopt_give_up(struct submission *s);

#endif
