#include "server/store/pgsql/reading.h"

#include "common/clock.h"
#include "common/log.h"

/* A reader's thread may be the loop's: while the database is away, not every read tries to connect. */
#define RETRY_NS 500000000

void
pg_reads_begin(struct store_reader *base)
{
    pg_reader_of(base)->is_one = true;
}

void
pg_reads_end(struct store_reader *base)
{
    struct pg_reader *r = pg_reader_of(base);
    struct error unused;

    if (r->is_begun)
        pg_run(&r->link, "end a read", "COMMIT", SQL_NO_VALUES, NULL, &unused);
    r->is_one = r->is_begun = false;
}

/* The cause is logged once; the text of err is sent to clients. */
static int
connect_again(struct pg_reader *r, struct error *err)
{
    int64_t now_ns = clock_monotonic_ns();
    struct error why;

    if (r->tried_ns == 0 || now_ns - r->tried_ns >= RETRY_NS) {
        if (pg_link_open(&r->link, r->of->where, r->of->base.lease.node, &why) == 0) {
            r->tried_ns = 0;
            return 0;
        }
        if (r->tried_ns == 0)
            log_warn("store", "%s cannot be read: %s", r->of->shown, why.text);
        r->tried_ns = clock_monotonic_ns();
    }
    return error_set(err, ERR_UNAVAILABLE, "the database is away");
}

/* Before a question. *is_first: nothing was read of this transaction yet. */
static int
prepare(struct pg_reader *r, bool *is_first, struct error *err)
{
    *is_first = !r->is_begun;
    if (r->link.is_lost && r->is_begun)
        return error_set(err, ERR_UNAVAILABLE, "the connection to the database was lost");
    int rc = r->link.is_lost ? connect_again(r, err) : 0;
    if (rc == 0 && r->link.is_undone && !r->is_begun)
        rc = pg_run(&r->link, "roll back", "ROLLBACK", SQL_NO_VALUES, NULL, err);
    r->link.is_undone = false;
    if (rc < 0 || !r->is_one || r->is_begun)
        return rc;
    pg_defer(&r->link, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
    r->is_begun = true;
    return 0;
}

/* Whether to ask again after rc. */
static bool
is_to_repeat(struct pg_reader *r, int rc, bool is_first)
{
    if (rc != ERR_UNAVAILABLE || !is_first)
        return false;
    r->is_begun = false;
    return true;
}

int
pg_read_each(struct store_reader *base, const char *what, const char *sql, const struct sql_value *values,
             size_t nvalues, sql_row_cb *row_cb, void *arg, size_t *n, struct error *err)
{
    struct pg_reader *r = pg_reader_of(base);
    bool is_first, was_lost = r->link.is_lost;
    int rc = prepare(r, &is_first, err);

    if (rc == 0)
        rc = pg_each(&r->link, what, sql, values, nvalues, row_cb, arg, n, err);
    if (was_lost || !is_to_repeat(r, rc, is_first))
        return rc;
    rc = prepare(r, &is_first, err);
    return rc == 0 ? pg_each(&r->link, what, sql, values, nvalues, row_cb, arg, n, err) : rc;
}

int
pg_change(struct store_reader *base, const char *what, const char *sql, const struct sql_value *values,
          size_t n, int64_t *changed, struct error *err)
{
    struct pg_reader *r = pg_reader_of(base);
    bool was_lost = r->link.is_lost;
    int rc = was_lost ? connect_again(r, err) : 0;

    r->link.is_warned = false;
    if (rc == 0)
        rc = pg_run(&r->link, what, sql, values, n, changed, err);
    if (rc == 0 && r->link.is_warned) /* a standby may lack it: see transaction.c */
        return error_set(err, ERR_UNAVAILABLE, "%s: the database warned of it", what);
    if (rc != ERR_UNAVAILABLE || was_lost || connect_again(r, err) != 0)
        return rc;
    return pg_run(&r->link, what, sql, values, n, changed, err);
}
