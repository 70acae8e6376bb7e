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
int change_add_calibration(struct store_backend *b, const struct calibration_row *row, struct error *err);
int change_put_canary(struct store_backend *b, const struct canary_row *w, struct error *err);

#endif
