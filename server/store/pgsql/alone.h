/* alone.h - who of several nodes removes what is old. The writer's thread. */
#ifndef PGSQL_ALONE_H
#define PGSQL_ALONE_H

#include "server/store/pgsql/pgsql.h"

/* Each is a number of the database's locks; a version before has one for both. */
enum pg_duty { PG_SWEEPS = 2004247141, PG_PRUNES = 2004247142 };

/* Whether this node is the only one with this duty, until its transaction ends. 0, or as pg_ask(). */
int pg_alone(struct pgsql *p, enum pg_duty duty, bool *is_alone, struct error *err);
int pg_is_alone(struct store_backend *b, bool *is_alone, struct error *err); /* to sweep */

#endif
