/* names.h - what clients call tasks: operations of backend.h. The writer's thread alone. */
#ifndef PGSQL_NAMES_H
#define PGSQL_NAMES_H

#include "server/store/backend.h"

int pg_name_task(struct store_backend *b, const char *client, const char *name, const char *id,
                 int64_t now_ms, struct error *err);
int pg_rename_task(struct store_backend *b, const char *client, const char *name, const char *id,
                   int64_t now_ms, struct error *err);
int pg_remove_task(struct store_backend *b, const char *client, const char *id, struct error *err);

#endif
