/*
 * seen.h - the store's data on submissions that are to be shown or ended. They are read on a thread of the store and
 * used on the loop, where memory may have newer data by then.
 */
#ifndef SUBMISSION_SEEN_H
#define SUBMISSION_SEEN_H

#include <stdbool.h>
#include <stddef.h>

#include "server/store/store.h"

struct seen {
    struct group_row group;      /* owned; of a group alone */
    struct submission_row *rows; /* owned */
    size_t n, room;
    char *task_name; /* owned, of the rows' task; NULL: it is not known, or no row needs it */
};

/* One submission; its task's name if it has no verdict to take it from. 0 or err's code; release it in either case. */
int seen_read(struct store_reader *r, const char *id, struct seen *out, struct error *err);
/* A group and its submissions, or those of them that have not ended. */
int seen_read_group(struct store_reader *r, const char *id, bool is_whole, struct seen *out,
                    struct error *err);
/* A copy of one more row, and nothing else. 0 or ERR_NOMEM. */
int seen_add(struct seen *out, const struct submission_row *row);
void seen_release(struct seen *seen);

/* Not ended, by its row. */
bool row_is_unfinished(const struct submission_row *row);

#endif
