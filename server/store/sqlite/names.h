/*
 * names.h - what clients call tasks: each client has names of its own, and a name of a client is one task's. Part of a
 * write; the writer's thread alone.
 */
#ifndef SQLITE_NAMES_H
#define SQLITE_NAMES_H

#include <stdint.h>

#include <sqlite3.h>

#include "common/error.h"

#define NAMES_NCHANGES 12

/* All zero at first. */
struct names {
    sqlite3 *db;
    sqlite3_stmt *changes[NAMES_NCHANGES];
};

int names_init(struct names *n, sqlite3 *db, struct error *err);
void names_release(struct names *n);

/* The client's name for the task from now on: 0, also where it was before, or ERR_CONFLICT: it is another task's. */
int names_claim(struct names *n, const char *client, const char *name, const char *task_id, int64_t now_ms,
                struct error *err);
/*
 * In place of all that the client called the task; NULL: whoever has the name that is shown, and else the operator.
 * 0, ERR_NOTFOUND: no such task, ERR_INPUT: the client has no name for it, ERR_CONFLICT: the name is another task's.
 */
int names_rename(struct names *n, const char *client, const char *name, const char *task_id, int64_t now_ms,
                 struct error *err);
/*
 * Forget what the client (NULL: anybody) calls the task, and where nobody has a name for it any more the task and all
 * that is counted of it. 0, ERR_NOTFOUND, ERR_INPUT as above, or ERR_CONFLICT: submissions of it are not finished.
 */
int names_remove(struct names *n, const char *client, const char *task_id, struct error *err);

#endif
