/* sweep.h - removes old rows in batches between the other writes. The writer's thread. */
#ifndef STORE_SWEEP_H
#define STORE_SWEEP_H

#include "server/store/backend.h"

/* One batch of store_sweep_step(). While another node sweeps there is nothing to do. 0, or as a write. */
int sweep_step(struct store_backend *b, struct store_sweep *step, struct error *err);
/*
 * Remove stored bytes that no row names any more. set: a list of their hashes in JSON; NULL: none. *n counts. A caller
 * other than the sweep locks them first, if nodes share a database. 0, or as a write.
 */
int sweep_blobs(struct store_backend *b, const char *set, int64_t *n, struct error *err);

#endif
