/* runs.h - sums by run, step and task (schema/): written with each verdict that says its run. */
#ifndef SQLITE_RUNS_H
#define SQLITE_RUNS_H

#include "server/store/labels.h"
#include "server/store/sqlite/sqlite.h"
#include "server/store/summary.h"

/* What a verdict adds; all borrowed. labels says a run. */
struct run_verdict {
    const struct labels *labels;
    const char *scope, *task_id;
    const struct summary *is;
    double reward; /* NAN: none */
    int64_t finished_ms;
};
/* 0, ERR_STORE or ERR_NOMEM. The writer's thread. */
int runs_add(struct sqlite *s, const struct run_verdict *v, struct error *err);

#endif
