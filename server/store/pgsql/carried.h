/* carried.h - what a node that only compiles hands on: an operation of backend.h. The writer's thread. */
#ifndef PGSQL_CARRIED_H
#define PGSQL_CARRIED_H

#include "server/store/pgsql/pgsql.h"

int pg_hand_on(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
               struct error *err);

#endif
