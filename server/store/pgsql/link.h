/*
 * link.h - one connection to PostgreSQL, and the few calls of libpq that this back end makes: connect, ask, and what the
 * server's refusals are called here. Of one thread at a time; each call waits for its answer.
 */
#ifndef PGSQL_LINK_H
#define PGSQL_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "common/error.h"
#include "server/store/sql.h"

#define PG_VALUES_MAX 24
#define PG_DEFERRED_MAX 6
#define PG_LOCK_TIMEOUT "'2s'" /* that a statement waits for what another session holds: then is_undone */
#define PG_PATIENCE_MS 10000   /* after this time without an answer the server is checked */

struct pg_statement;

/* All zero at first. */
struct pg_link {
    PGconn *conn;
    struct pg_statement *statements; /* by their text; prepared at the first use */
    const char *deferred[PG_DEFERRED_MAX];
    int ndeferred;
    int nstatements;
    bool is_lost; /* the connection ended: everything is ERR_UNAVAILABLE until it is opened again */
    bool
        is_undone; /* the server asks for the whole transaction to be rolled back (a lock that it waited for) */
    bool is_hung;   /* it is lost, as nothing comes; another server may have taken over */
    bool is_warned; /* the server warned since this was last cleared */
};

/*
 * Connect to the URL `where`, in place of the previous connection. node: the name under which this session's rows are
 * counted. 0 or ERR_UNAVAILABLE; is_lost stays then.
 */
int pg_link_open(struct pg_link *l, const char *where, const char *node, struct error *err);
void pg_link_close(struct pg_link *l); /* a closed one is fine */

/* Statements without parameters or an interesting answer, sent with the next that is asked; sql stays as it is. */
void pg_defer(struct pg_link *l, const char *sql);

/* Several statements without parameters. 0, or as pg_ask(). */
int pg_script(struct pg_link *l, const char *sql, struct error *err);

/*
 * Run one statement; what names it in errors. out: given, PQclear().
 * 0, ERR_CONFLICT (a key that exists), ERR_STORE, ERR_NOMEM, or ERR_UNAVAILABLE (is_lost).
 */
int pg_ask(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values, size_t n,
           PGresult **out, struct error *err);
/* The same for one that gives no rows. changed (may be NULL): how many it changed. */
int pg_run(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values, size_t n,
           int64_t *changed, struct error *err);

/*
 * Calls row_cb for each row of the answer, until it returns false; n (may be NULL) counts the calls. ERR_STORE also where
 * it is called from its own callback.
 */
int pg_each(struct pg_link *l, const char *what, const char *sql, const struct sql_value *values,
            size_t nvalues, sql_row_cb *row_cb, void *arg, size_t *n, struct error *err);

/* Columns of a row; a text is a view of the answer, NULL for NULL. */
char *pg_column_text(const PGresult *rows, int row, int column);
int64_t pg_column_int(const PGresult *rows, int row, int column); /* NULL: 0 */
bool pg_column_bool(const PGresult *rows, int row, int column);
void pg_column_name(const PGresult *rows, int row, int column, char *out, size_t size); /* NULL: "" */

static inline void
pg_auto_clear(PGresult **r)
{
    PQclear(*r);
}
#define AUTO_RESULT __attribute__((cleanup(pg_auto_clear)))

#endif
