/* alone.h - who of several nodes removes what is old. The writer's thread. */
#ifndef PGSQL_ALONE_H
#define PGSQL_ALONE_H

#include "server/store/pgsql/pgsql.h"

/* Whether this node is the only one that removes what is old, until its transaction ends. 0, or as pg_ask(). */
int pg_is_alone(struct store_backend *b, bool *is_alone, struct error *err);

#endif
