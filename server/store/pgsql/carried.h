/* carried.h - what a node that only compiles hands on: operations of backend.h. The writer's thread, or the reader's. */
#ifndef PGSQL_CARRIED_H
#define PGSQL_CARRIED_H

#include "server/store/pgsql/pgsql.h"

int pg_hand_on(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
               struct error *err);
int pg_is_ahead(struct store_reader *r, bool *out, struct error *err);

#endif
