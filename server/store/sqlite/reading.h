/* reading.h - a connection that reads, as the files that read through it share it. Of one thread at a time. */
#ifndef SQLITE_READING_H
#define SQLITE_READING_H

#include <sqlite3.h>

#include "server/store/backend.h"

#define SUMS_NQUERIES 11
#define RUNS_NQUERIES 4

struct sqlite_reader {
    struct store_reader base;
    sqlite3 *db;
    sqlite3_stmt *sums[SUMS_NQUERIES]; /* sums_reader.c */
    sqlite3_stmt *runs[RUNS_NQUERIES]; /* runs.c */
};

#endif
