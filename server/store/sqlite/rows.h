/* rows.h - rows as views of a statement. Its thread. */
#ifndef SQLITE_ROWS_H
#define SQLITE_ROWS_H

#include <sqlite3.h>

#include "server/store/store.h"

/* What a SELECT must name, in this order, for the functions below. */
#define TASK_COLUMNS "id, name, entry_point, level, dynamic_shapes, metadata, created_ms"
#define TASK_NCOLUMNS 7
#define SUBMISSION_COLUMNS                                                                          \
    "id, group_id, group_index, task_id, source_hash, state, priority, client, request, attempts, " \
    "created_ms, "                                                                                  \
    "finished_ms, stage, class, reward, verdict, claim, state = 0 AND node IS NOT NULL"
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
