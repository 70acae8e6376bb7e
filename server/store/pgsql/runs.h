/* runs.h - sums by run, step and task (schema.c): written with each verdict that says its run, and read. */
#ifndef PGSQL_RUNS_H
#define PGSQL_RUNS_H

#include "server/store/backend.h"
#include "server/store/labels.h"
#include "server/store/pgsql/pgsql.h"
#include "server/store/summary.h"

/* What a verdict adds; all borrowed. labels says a run. */
struct pg_run_verdict {
    const struct labels *labels;
    const char *client, *task_id; /* client NULL: none */
    const struct summary *is;
    double reward; /* NAN: none */
    int64_t finished_ms;
};
/* 0, or as pg_ask(). The writer's thread. */
int pg_runs_add(struct pgsql *p, const struct pg_run_verdict *v, struct error *err);

/* Operations of backend.h; what they read is in store.h. */
int pg_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
                store_run_cb *row_cb, void *arg, struct error *err);
int pg_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
               struct error *err);
int pg_each_run_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     store_run_step_cb *row_cb, void *arg, struct error *err);
int pg_each_run_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     int limit, store_run_step_cb *row_cb, void *arg, struct error *err);

#endif
