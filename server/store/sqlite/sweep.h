/*
 * sweep.h - taking out what is no longer to be kept, a batch at a time: in the
 * writer's transactions, between the other writes.
 */
#ifndef SQLITE_SWEEP_H
#define SQLITE_SWEEP_H

#include <sqlite3.h>

#include "common/error.h"
#include "server/store/store.h"

#define SWEEP_NCHANGES 14

struct sweep {
    sqlite3 *db;
    sqlite3_stmt *changes[SWEEP_NCHANGES];
};

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. The writer's thread, as all of these. */
int sweep_init(struct sweep *s, sqlite3 *db, struct error *err);
void sweep_release(struct sweep *s);

/* One batch of store_sweep(). 0, ERR_STORE or ERR_NOMEM. */
int sweep_step(struct sweep *s, struct store_sweep *step, struct error *err);

#endif
