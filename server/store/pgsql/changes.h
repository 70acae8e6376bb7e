/* changes.h - what each write does in PostgreSQL: the operations of backend.h. The writer's thread alone. */
#ifndef PGSQL_CHANGES_H
#define PGSQL_CHANGES_H

#include "server/store/backend.h"

int pg_add_task(struct store_backend *b, const struct task_row *row, struct error *err);
int pg_add_submissions(struct store_backend *b, const struct store_intake *intake, struct error *err);
int pg_finish(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
              struct error *err);
int pg_add_calibration(struct store_backend *b, const struct calibration_row *row, struct error *err);
int pg_put_canary(struct store_backend *b, const struct canary_row *row, struct error *err);

#endif
