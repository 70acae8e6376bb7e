/* reading.h - a connection that reads: its transactions, and how it comes back after it was lost. Of one thread at a time. */
#ifndef PGSQL_READING_H
#define PGSQL_READING_H

#include "server/store/backend.h"
#include "server/store/pgsql/pgsql.h"

struct pg_reader {
    struct store_reader base;
    const struct pgsql *of; /* borrowed: what never changes of it */
    struct pg_link link;
    int64_t tried_ns; /* when it last failed to connect */
    bool is_one;      /* the reads are to see one snapshot */
    bool is_begun;    /* the transaction for that has begun */
};

static inline struct pg_reader *
pg_reader_of(struct store_reader *r)
{
    return (struct pg_reader *)r;
}

/* Operations of backend.h. */
void pg_reads_begin(struct store_reader *r);
void pg_reads_end(struct store_reader *r);

/*
 * Operation of backend.h, as pg_each(). Where the connection was lost before anything was read of this transaction, it is
 * made again first; ERR_UNAVAILABLE: it cannot be made, or the rest of the transaction is lost.
 */
int pg_read_each(struct store_reader *r, const char *what, const char *sql, const struct sql_value *values,
                 size_t nvalues, sql_row_cb *row_cb, void *arg, size_t *n, struct error *err);
/* One statement that may be made twice, as a transaction of its own. changed: how many rows. */
int pg_change(struct store_reader *r, const char *what, const char *sql, const struct sql_value *values,
              size_t n, int64_t *changed, struct error *err);

#endif
