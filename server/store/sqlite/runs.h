/* runs.h - sums by run, step and task (schema.c): written with each verdict that says its run, and read. */
#ifndef SQLITE_RUNS_H
#define SQLITE_RUNS_H

#include <sqlite3.h>

#include "common/error.h"
#include "server/store/labels.h"
#include "server/store/sqlite/reading.h"
#include "server/store/store.h"
#include "server/store/summary.h"

struct runs_writer {
    sqlite3_stmt *add_sum, *add_step;
};

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. The writer's thread, as all of these. */
int runs_writer_init(struct runs_writer *w, sqlite3 *db, struct error *err);
void runs_writer_release(struct runs_writer *w);

/* What a verdict adds; all borrowed. labels says a run. */
struct run_verdict {
    const struct labels *labels;
    const char *scope, *task_id;
    const struct summary *is;
    double reward; /* NAN: none */
    int64_t finished_ms;
};
int runs_add(struct runs_writer *w, const struct run_verdict *v, struct error *err);

/* As the writer's two. */
int runs_reader_init(struct sqlite_reader *r, struct error *err);
void runs_reader_release(struct sqlite_reader *r);

/* store.h, without the prefix. */
int runs_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
                  store_run_cb *row_cb, void *arg, struct error *err);
int runs_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
                 struct error *err);
int runs_each_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                   store_run_step_cb *row_cb, void *arg, struct error *err);
int runs_each_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                   int limit, store_run_step_cb *row_cb, void *arg, struct error *err);

#endif
