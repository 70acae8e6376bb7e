/* sweep.h - taking out what is no longer to be kept, a batch at a time, between the other writes. The writer's thread. */
#ifndef PGSQL_SWEEP_H
#define PGSQL_SWEEP_H

#include "server/store/pgsql/pgsql.h"

/* The operation of backend.h. While another node sweeps there is nothing to do. */
int pg_sweep(struct store_backend *b, struct store_sweep *step, struct error *err);

/* Whether this node is the only one that removes what is old, until its transaction ends. 0, or as pg_ask(). */
int pg_sweep_alone(struct pgsql *p, bool *is_alone, struct error *err);

#endif
