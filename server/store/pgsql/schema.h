/* schema.h - the tables in the schema "verifierd" of a PostgreSQL database, their version, and how they become present ones. */
#ifndef PGSQL_SCHEMA_H
#define PGSQL_SCHEMA_H

#include <stddef.h>

#include "server/store/pgsql/link.h"

/* Row i takes a database from version i to version i + 1; row 0 makes the tables. */
const char *const *pg_schema_steps(size_t *n);

/*
 * Bring the database to version n by the steps it lacks, each in a transaction of its own and under a lock that keeps
 * other daemons out meanwhile. 0, ERR_STORE (of a newer program, not a store, a failing step) or ERR_UNAVAILABLE.
 */
int pg_schema_migrate(struct pg_link *l, const char *const *steps, size_t n, struct error *err);

/* What it would find, and nothing is changed. is_there: there are tables. The same errors. */
int pg_schema_look(struct pg_link *l, size_t n, bool *is_there, struct error *err);

#endif
