/* rows.h - copies of rows. Pure; any thread. */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include "server/store/store.h"

/* Deep copies: out owns its strings, also after a failure (release it). 0 or ERR_NOMEM. */
int task_row_copy(const struct task_row *row, struct task_row *out);
int group_row_copy(const struct group_row *row, struct group_row *out);

/* Bytes of text that a copy holds: what a queued write weighs. */
size_t submission_row_weight(const struct submission_row *row);

#endif
