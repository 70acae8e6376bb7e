/* changes.h - what each write does in PostgreSQL: the operations of backend.h. The writer's thread alone. */
#ifndef PGSQL_CHANGES_H
#define PGSQL_CHANGES_H

#include "server/store/backend.h"

extern const struct sql_changes pg_dialect;
int pg_change_each(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values,
                   size_t nvalues, sql_row_cb *row_cb, void *arg, int64_t *changed, struct error *err);
int pg_drop_task(struct store_backend *b, const char *id, struct error *err);
int pg_add_job(struct store_backend *b, const struct submission_row *row, const char *together,
               const struct labels *labels, struct error *err);

#endif
