/* changes.h - writes that are made alike whichever database it is: part of backend.h's transactions. The writer's thread alone. */
#ifndef STORE_CHANGES_H
#define STORE_CHANGES_H

#include "server/store/backend.h"

/* As in store.h. */
int change_add_task(struct store_backend *b, const struct task_row *row, struct error *err);
int change_name_task(struct store_backend *b, const char *client, const char *name, const char *id,
                     int64_t now_ms, struct error *err);
int change_rename_task(struct store_backend *b, const char *client, const char *name, const char *id,
                       int64_t now_ms, struct error *err);
int change_remove_task(struct store_backend *b, const char *client, const char *id, struct error *err);
int change_add_submissions(struct store_backend *b, const struct store_intake *w, struct error *err);
int change_release(struct store_backend *b, struct store_order *o, struct error *err);
int change_set_attempts(struct store_backend *b, struct store_order *o, struct error *err);
int change_finish(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
                  struct error *err);
/* Why a change of a submission met no row: ERR_CONFLICT, ERR_NOTFOUND, or as a write. */
int change_explain_miss(struct store_backend *b, const char *id, struct error *err);
int change_add_calibration(struct store_backend *b, const struct calibration_row *row, struct error *err);
int change_put_canary(struct store_backend *b, const struct canary_row *w, struct error *err);

#endif
