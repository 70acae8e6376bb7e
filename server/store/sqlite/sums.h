/*
 * sums.h - what is kept of each verdict beside the verdict: sums by time, by
 * message and by task (schema/), so that questions about many submissions
 * read few rows. Written in the transaction that writes the verdict.
 */
#ifndef SQLITE_SUMS_H
#define SQLITE_SUMS_H

#include "server/store/sqlite/sqlite.h"

/*
 * Count a submission that ended. Of row: id, reward, verdict, finished_ms; the store knows the rest. A verdict without
 * a class is counted nowhere. 0, ERR_STORE or ERR_NOMEM. The writer's thread.
 */
int sums_add(struct sqlite *s, const struct submission_row *row, struct error *err);

#endif
