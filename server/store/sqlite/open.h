/* open.h - the store in one SQLite file: the back end of a single machine (backend.h). */
#ifndef SQLITE_OPEN_H
#define SQLITE_OPEN_H

#include "server/store/backend.h"

/*
 * Open or create path; migrates an older schema; refuses a newer one, a file that is not a store, and one that another
 * daemon has open. 0, ERR_INPUT, ERR_SYS, ERR_STORE or ERR_NOMEM. Given: its own close().
 */
int sqlite_open(const char *path, struct store_backend **out, struct error *err);

/* As store_migrate(). */
int sqlite_migrate(const char *path, bool only_look, struct store_schema *out, struct error *err);

#endif
