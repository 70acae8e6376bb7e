#include "server/store/pgsql/transaction.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "server/store/pgsql/checks.h"

/*
 * Theory of operation. A connection may end between COMMIT and its answer; whether the transaction was committed must
 * then be queried. So each transaction begins by writing its number into this writer's own row (table writer), and the
 * number in it after a loss is that of the last durable one. The row stays locked until the transaction has ended: if
 * the server is still about to commit for the lost connection, the query waits for that. The query is a write too: that
 * it is durable means, if a standby has to have it, that all before it is.
 *
 * The same holds for a warning at COMMIT: the server stopped waiting for its standby, and the connection counts as
 * lost.
 *
 * The writes of a lost transaction are repeated by the writer (ERR_UNAVAILABLE), as are those of two transactions that
 * waited for each other (is_undone).
 */

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000
#define SLICE_MS 50

static const char savepoint[] = "SAVEPOINT one";

/* --- the connection --- */

bool
pg_is_away(const struct store_backend *b)
{
    return atomic_load(&((struct pgsql *)(uintptr_t)b)->is_away);
}

void
pg_hurry(struct store_backend *b)
{
    atomic_store(&pgsql_of(b)->is_hurried, true);
}

/* rc: ERR_STORE where it was reached and will not do. */
static void
note_away(struct pgsql *p, int rc, const struct error *err)
{
    bool is_refused = rc == ERR_STORE;

    if (!atomic_exchange(&p->is_away, true) || (is_refused && !p->is_refused))
        log_error("store", is_refused ? "%s is not used: %s" : "%s is away: %s", p->shown, err->text);
    p->is_refused = is_refused;
}

/* Wait, more or less: several nodes shall not come back at once. */
static void
back_off(struct pgsql *p, int64_t *delay_ms)
{
    int64_t until_ns =
        clock_monotonic_ns() + (*delay_ms + (int64_t)(random_u64() % (uint64_t)*delay_ms)) * 1000000;

    while (clock_monotonic_ns() < until_ns && !atomic_load(&p->is_hurried))
        usleep(SLICE_MS * 1000);
    *delay_ms = *delay_ms * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : *delay_ms * 2;
}

/* After a failover it may be another server: what a start refuses is refused here too. */
static int
connect_again(struct pgsql *p, struct error *err)
{
    struct error unused;

    if (!err)
        err = &unused;
    for (int64_t delay_ms = BACKOFF_FIRST_MS;; back_off(p, &delay_ms)) {
        bool is_last = atomic_load(&p->is_hurried);
        int rc = pg_link_open(&p->link, p->where, p->base.lease.node, err);
        if (rc == 0)
            rc = pg_check_server(&p->link, p->is_relaxed, err);
        p->link.is_lost = rc < 0;
        if (rc == 0 && atomic_exchange(&p->is_away, false))
            log_info("store", "%s is back", p->shown);
        if (rc == 0 || is_last)
            return rc;
        note_away(p, rc, err);
    }
}

/* --- one transaction --- */

static int
write_number(struct pgsql *p, struct error *err)
{
    pg_defer(&p->link, "BEGIN");
    return pg_run(&p->link, "begin a transaction",
                  "INSERT INTO writer (id, n, at_ms) VALUES ($1, $2, now_ms())"
                  " ON CONFLICT (id) DO UPDATE SET n = excluded.n, at_ms = excluded.at_ms",
                  SQL_VALUES(sql_text(p->writer), sql_int(p->transaction + 1)), NULL, err);
}

/* One that the server asked to be undone, or that failed to begin, is still to be ended. */
static void
end_leftover(struct pgsql *p)
{
    struct error unused;

    p->link.is_undone = p->link.is_warned = false;
    p->link.ndeferred = 0;
    if (!p->link.is_lost && PQtransactionStatus(p->link.conn) != PQTRANS_IDLE)
        pg_run(&p->link, "roll back", "ROLLBACK", SQL_NO_VALUES, NULL, &unused);
}

int
pg_transaction_begin(struct store_backend *b, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    int rc;

    do {
        end_leftover(p);
        rc = p->link.is_lost ? connect_again(p, err) : 0;
        if (rc < 0)
            return rc;
        rc = write_number(p, err);
    } while (rc == ERR_UNAVAILABLE &&
             (p->link.is_lost ||
              !atomic_load(&p->is_hurried))); /* the row may be held yet by a connection that was lost */
    if (rc < 0)
        return rc;
    p->transaction++;
    p->is_begun = true;
    return 0;
}

/* The number of this writer's last durable transaction. */
static int
find_number(struct pgsql *p, int64_t *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc =
        pg_ask(&p->link, "ask for an outcome", "UPDATE writer SET at_ms = now_ms() WHERE id = $1 RETURNING n",
               SQL_VALUES(sql_text(p->writer)), &row, err);
    if (rc == 0)
        *out = PQntuples(row) == 1 ? pg_column_int(row, 0, 0) : 0;
    return rc;
}

/* After a COMMIT without an answer: 0, or ERR_UNAVAILABLE. */
static int
settle(struct pgsql *p, struct error *err)
{
    int64_t number = 0;
    int rc;

    do {
        rc = connect_again(p, err);
        if (rc < 0)
            return rc;
        rc = find_number(p, &number, err);
        p->link.is_lost = p->link.is_lost || p->link.is_warned || p->link.is_undone;
    } while (p->link.is_lost);
    if (rc < 0)
        return rc;
    bool is_there = number == p->transaction;
    log_info("store", "the connection was lost while a transaction ended: it is %s",
             is_there ? "there" : "not there, and made again");
    return is_there ? 0 : error_set(err, ERR_UNAVAILABLE, "the transaction was lost with its connection");
}

int
pg_transaction_commit(struct store_backend *b, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    AUTO_RESULT PGresult *r = NULL;

    p->link.is_warned = false;
    int rc = pg_ask(&p->link, "commit", "COMMIT", SQL_NO_VALUES, &r, err);
    p->is_begun = false;
    if (rc == 0 && p->link.is_warned)
        p->link.is_lost = true;
    if (p->link.is_lost)
        return settle(p, err);
    if (rc == 0 && strcmp(PQcmdStatus(r), "COMMIT") != 0)
        return error_set(err, ERR_STORE, "commit: the database rolled back");
    return rc;
}

void
pg_transaction_rollback(struct store_backend *b)
{
    end_leftover(pgsql_of(b));
    pgsql_of(b)->is_begun = false;
}

/* --- one write --- */

int
pg_transaction_save(struct store_backend *b, struct error *err)
{
    (void)err;
    pg_defer(&pgsql_of(b)->link, savepoint);
    return 0;
}

/* Whether a savepoint that was not sent yet was taken back: nothing was asked since. */
static bool
take_back(struct pg_link *l)
{
    if (l->ndeferred == 0 || l->deferred[l->ndeferred - 1] != savepoint)
        return false;
    l->ndeferred--;
    return true;
}

int
pg_transaction_keep(struct store_backend *b, struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;

    (void)err;
    if (!take_back(l))
        pg_defer(l, "RELEASE one");
    return 0;
}

void
pg_transaction_undo(struct store_backend *b)
{
    struct pg_link *l = &pgsql_of(b)->link;

    if (take_back(l))
        return;
    pg_defer(l, "ROLLBACK TO one");
    pg_defer(l, "RELEASE one");
}

bool
pg_transaction_is_open(const struct store_backend *b)
{
    const struct pgsql *p = (const struct pgsql *)b;
    return p->is_begun && !p->link.is_lost && !p->link.is_undone;
}

int
pg_transaction_is_alone(struct store_backend *b, enum store_duty duty, bool *out, struct error *err)
{
    /* Numbers of the database's locks; a version before has the first for both. */
    static const int64_t locks[] = { [DUTY_SWEEPS] = 2004247141, [DUTY_PRUNES] = 2004247142 };
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&pgsql_of(b)->link, "ask whether another node does it",
                    "SELECT pg_try_advisory_xact_lock($1)", SQL_VALUES(sql_int(locks[duty])), &row, err);

    *out = rc == 0 && pg_column_bool(row, 0, 0);
    return rc;
}

void
pg_transaction_forget(struct pgsql *p)
{
    struct error unused;

    if (p->link.conn && !p->link.is_lost && p->transaction > 0)
        pg_run(&p->link, "forget the writer", "DELETE FROM writer WHERE id = $1",
               SQL_VALUES(sql_text(p->writer)), NULL, &unused);
}
