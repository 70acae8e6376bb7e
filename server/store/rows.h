/*
 * rows.h - rows between memory and the database: copying them, and reading
 * them from a statement. Pure but for the statement; any thread.
 */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include <sqlite3.h>

#include "server/store/store.h"

/* Deep copies: out owns its strings, also after a failure (release it). 0 or ERR_NOMEM. */
int task_row_copy(const struct task_row *row, struct task_row *out);
int group_row_copy(const struct group_row *row, struct group_row *out);

/* Bytes of text that a copy holds: what a queued write weighs. */
size_t submission_row_weight(const struct submission_row *row);

/* What a SELECT must name, in this order, for the functions below. */
#define TASK_COLUMNS "id, name, entry_point, level, dynamic_shapes, metadata, created_ms"
#define TASK_NCOLUMNS 7
#define SUBMISSION_COLUMNS                                                                          \
    "id, group_id, group_index, task_id, source_hash, state, priority, client, request, attempts, " \
    "created_ms, "                                                                                  \
    "finished_ms, stage, class, reward, verdict"
#define GROUP_COLUMNS "id, task_id, request, size, created_ms"
#define KEY_COLUMNS "request_hash, id, created_ms"

/*
 * Fill a row with views of the statement's current row: valid until it is
 * stepped or reset; do not release. 0 or ERR_NOMEM. A task's reference and
 * spec are left NULL.
 */
int task_row_view(sqlite3_stmt *stmt, struct task_row *out);
int submission_row_view(sqlite3_stmt *stmt, struct submission_row *out);
int group_row_view(sqlite3_stmt *stmt, struct group_row *out);

#endif
