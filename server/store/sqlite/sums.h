/*
 * sums.h - what is kept of each verdict beside the verdict: sums by time, by
 * message and by task (schema.c), so that questions about many submissions
 * read few rows. Written in the transaction that writes the verdict.
 */
#ifndef SQLITE_SUMS_H
#define SQLITE_SUMS_H

#include <sqlite3.h>

#include "common/error.h"
#include "server/store/sqlite/runs.h"
#include "server/store/store.h"

#define SUMS_NCHANGES 9

struct sums {
    sqlite3_stmt *changes[SUMS_NCHANGES];
    struct runs_writer runs;
    int64_t pruned_s; /* when what is too old was last removed */
};

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. The writer's thread, as all of these. */
int sums_init(struct sums *s, sqlite3 *db, struct error *err);
void sums_release(struct sums *s);

/*
 * Count a submission that ended. Of row: id, reward, verdict, finished_ms; the store knows the rest. A verdict without
 * a class is counted nowhere. 0, ERR_STORE or ERR_NOMEM.
 */
int sums_add(struct sums *s, const struct submission_row *row, struct error *err);

#endif
