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

/* The store's record of an adopted submission's group. */
struct adopted_group {
    json_t *request; /* owned; NULL: it is not known */
    int64_t age_ms;
    int n_correct; /* of its submissions, where it stops early */
};
/* Any thread. False: the database is away. Otherwise a group that cannot be read is treated as missing, and logged. */
bool adopt_read_group(struct store_reader *r, const char *id, struct adopted_group *out);

/*
 * Adds it to the registry and to its group, with the waits for it; it is not queued yet. group: of one that is not known
 * here yet; NULL: the group is left without its rules. is_claimed: row has the number under which this node has claimed
 * it. NULL: no memory.
 */
struct submission *adopt(struct funnel *f, const struct submission_row *row,
                         const struct adopted_group *group, bool is_claimed);
/*
 * Its judging ended each of the s->claim.attempts daemons that tried, so it is not tried again: it ends once it is
 * loaded. It is not queued; false: no memory.
 */
bool adopt_give_up(struct submission *s);

#endif
