/* runs.h - sums by run, step and task (schema/): written with each verdict that says its run. */
#ifndef PGSQL_RUNS_H
#define PGSQL_RUNS_H

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

#endif
