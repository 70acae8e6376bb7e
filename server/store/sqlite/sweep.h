/*
 * sweep.h - taking out what is no longer to be kept, a batch at a time: in the
 * writer's transactions, between the other writes.
 */
#ifndef SQLITE_SWEEP_H
#define SQLITE_SWEEP_H

#include "server/store/backend.h"

/* One batch of store_sweep(). 0, ERR_STORE or ERR_NOMEM. */
int sweep_step(struct store_backend *b, struct store_sweep *step, struct error *err);

#endif
