/* rows.h - rows as views of an answer: valid until it is cleared; do not release. Its thread. */
#ifndef PGSQL_ROWS_H
#define PGSQL_ROWS_H

#include "server/store/pgsql/link.h"
#include "server/store/store.h"

/* What a SELECT must name, in this order, for the functions below. */
#define PG_TASK_COLUMNS "id, name, entry_point, level, dynamic_shapes, metadata, created_ms"
#define PG_TASK_NCOLUMNS 7
#define PG_SUBMISSION_COLUMNS                                                                                \
    "s.id, s.group_id, s.group_index, s.task_id, s.source_hash, coalesce(j.state, s.state), s.priority, "    \
    "s.client, s.request, coalesce(j.attempts, s.attempts), s.created_ms, s.finished_ms, s.stage, s.class, " \
    "s.reward, s.verdict, coalesce(j.claim, s.claim), j.state = 0 AND j.node IS NOT NULL"
#define PG_SUBMISSIONS "submission s LEFT JOIN job j ON j.id = s.id"
#define PG_GROUP_COLUMNS "id, task_id, request, size, created_ms, now_ms() - coalesce(made_ms, created_ms)"

/* A task's reference and spec are left NULL. */
struct task_row pg_task_view(const PGresult *rows, int row);
struct submission_row pg_submission_view(const PGresult *rows, int row);
struct group_row pg_group_view(const PGresult *rows, int row);

#endif
