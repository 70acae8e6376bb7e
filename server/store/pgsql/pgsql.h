/* pgsql.h - what the files of this back end share: its connection that writes. */
#ifndef PGSQL_PGSQL_H
#define PGSQL_PGSQL_H

#include <stdatomic.h>

#include "server/store/backend.h"
#include "server/store/pgsql/link.h"

/* The back end: its connection that writes, and what its statements need. The writer's thread, but for what never changes. */
struct pgsql {
    struct store_backend base;
    char *where; /* the URL, with what it may say of a password */
    char *shown; /* the database's name in log lines */
    struct pg_link link;
    int64_t epoch;                     /* of the last life that was joined */
    char after[STORE_KEY_CLIENT_SIZE]; /* the client at which the last claim ended looking */
    bool is_held;                      /* a session has a transaction open for too long */
    char writer[33];                   /* the writer of these transactions, in the table writer */
    int64_t transaction;               /* number of the last one that was begun */
    bool is_begun;                     /* it has begun and not ended */
    bool is_relaxed;                   /* a database that may lose acknowledged writes is accepted */
    bool is_refused;                   /* the last that was reached will not do */
    atomic_bool is_away;               /* the writer waits for the database; any thread, as the next */
    atomic_bool is_hurried;            /* it shall wait no longer */
};

static inline struct pgsql *
pgsql_of(struct store_backend *b)
{
    return (struct pgsql *)b;
}

/* Operations of backend.h. The writer's thread alone. */
extern const struct sql_changes pg_dialect;
int pg_change_each(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values,
                   size_t nvalues, sql_row_cb *row_cb, void *arg, int64_t *changed, struct error *err);
int pg_drop_task(struct store_backend *b, const char *id, struct error *err);
int pg_add_job(struct store_backend *b, const struct submission_row *row, const char *together,
               const struct labels *labels, struct error *err);

/* A reader with a connection of its own. Given: its own free(). 0, ERR_UNAVAILABLE or ERR_NOMEM. */
int pg_reader_new(struct pgsql *p, struct store_reader **out, struct error *err);

#endif
