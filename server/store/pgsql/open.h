/* open.h - the store in a PostgreSQL database, which several machines share (backend.h). */
#ifndef PGSQL_OPEN_H
#define PGSQL_OPEN_H

#include "server/store/backend.h"

/* Whether a daemon's store setting is a URL of this back end's. Any thread. */
bool pgsql_is_url(const char *where);

/*
 * Open the store there, or make it in a database that has none; migrates an older schema and joins as a node.
 * 0, ERR_INPUT (the URL), ERR_STORE, ERR_UNAVAILABLE or ERR_NOMEM. Given: its own close().
 */
int pgsql_open(const char *where, const struct store_options *options, struct store_backend **out,
               struct error *err);

/* As store_check() and store_migrate(). */
int pgsql_check(const char *where, const struct store_options *options, struct store_found *out,
                struct error *err);
int pgsql_migrate(const char *where, const struct store_options *options, bool only_look,
                  struct store_schema *out, struct error *err);

#endif
