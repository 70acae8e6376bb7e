/* sums.h - what is kept of each verdict beside the verdict (schema/), in the transaction that writes it. */
#ifndef PGSQL_SUMS_H
#define PGSQL_SUMS_H

#include "server/store/labels.h"
#include "server/store/pgsql/pgsql.h"

/*
 * Count a submission of the task, client (or NULL) and labels that ended. Of row: id, reward, verdict, finished_ms. A verdict
 * without a class is counted nowhere. 0, or as pg_ask(). The writer's thread.
 */
int pg_sums_add(struct pgsql *p, const struct submission_row *row, const char *task_id, const char *client,
                const struct labels *labels, struct error *err);

#endif
