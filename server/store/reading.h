/* reading.h - what the reads of store.h share, whichever database answers. A reader's own thread. Private to store/. */
#ifndef STORE_READING_H
#define STORE_READING_H

#include "server/store/backend.h"

/* Whom a row is given to: the arg of a sql_row_cb. */
struct call {
    void (*cb)(void);
    void *arg;
};
#define CALL(cb, arg) (&(struct call){ (void (*)(void))(cb), (arg) })

static inline const struct sql_dialect *
dialect_of(const struct store_reader *r)
{
    return r->ops->dialect;
}

/* " INDEXED BY name" where this database's statements name indices, else "". */
#define INDEXED(r, name) (dialect_of(r)->names_indices ? " INDEXED BY " name : "")

/* False: a page may not have that many rows, which is ERR_INPUT. */
static inline bool
is_page(int limit, int most, struct error *err)
{
    if (limit < 1 || limit > most)
        error_set(err, ERR_INPUT, "a page has 1 to %d rows, not %d", most, limit);
    return limit >= 1 && limit <= most;
}

#endif
