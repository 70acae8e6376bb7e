/* schema.h - the tables in the schema "verifierd" of a PostgreSQL database, their version, and how they become present ones. */
#ifndef PGSQL_SCHEMA_H
#define PGSQL_SCHEMA_H

#include <stddef.h>

#include "server/store/pgsql/link.h"

/*
 * A step from one version to the next. Others go on meanwhile, with the version before, so it only adds. It may have been
 * stopped halfway, and each part of it is then done again.
 */
struct pg_step {
    const char *sql;            /* statements of one transaction, which locks tables for a moment only */
    const char *const *indices; /* NULL, or up to a NULL: the text after CREATE INDEX CONCURRENTLY */
};

/* The first version that was released. */
#define PG_SCHEMA_FIRST 12

/* Row i takes a database from version i to version i + 1. Row PG_SCHEMA_FIRST - 1 makes the tables; before it are none. */
const struct pg_step *pg_schema_steps(size_t *n);

/*
 * Bring the database to version n by the missing steps, under a lock that blocks other daemons meanwhile. A newer
 * version is accepted if it allows that (meta.oldest). 0, ERR_STORE (of a newer program, older than PG_SCHEMA_FIRST, not
 * a store, a failing step) or ERR_UNAVAILABLE (also: a table was locked for too long).
 */
int pg_schema_migrate(struct pg_link *l, const struct pg_step *steps, size_t n, struct error *err);

/* Check what that would do, without changes. version: 0 if there are no tables. The same errors. */
int pg_schema_look(struct pg_link *l, size_t n, int64_t *version, struct error *err);

#endif
