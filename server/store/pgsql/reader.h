/* reader.h - the reads of store.h from PostgreSQL. */
#ifndef PGSQL_READER_H
#define PGSQL_READER_H

#include "server/store/pgsql/pgsql.h"

/* A reader with a connection of its own. Given: its own free(). 0, ERR_UNAVAILABLE or ERR_NOMEM. */
int pg_reader_new(struct pgsql *p, struct store_reader **out, struct error *err);

#endif
