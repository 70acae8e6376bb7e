#include "server/store/pgsql/open.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/pgsql/checks.h"
#include "server/store/pgsql/claims.h"
#include "server/store/pgsql/pgsql.h"
#include "server/store/pgsql/schema.h"
#include "server/store/pgsql/transaction.h"

bool
pgsql_is_url(const char *where)
{
    return strncmp(where, "postgresql://", 13) == 0 || strncmp(where, "postgres://", 11) == 0;
}

/* --- opening --- */

static const char *
option(const PQconninfoOption *all, const char *keyword)
{
    for (; all->keyword; all++)
        if (strcmp(all->keyword, keyword) == 0)
            return all->val && *all->val ? all->val : NULL;
    return NULL;
}

/* The URL for log lines: without a password. */
static int
show_url(struct pgsql *p, struct error *err)
{
    char *told = NULL;
    PQconninfoOption *all = PQconninfoParse(p->where, &told);

    if (!all) {
        int rc =
            error_set(err, ERR_INPUT, "store: %.*s", told ? (int)strcspn(told, "\n") : 0, told ? told : "");
        PQfreemem(told);
        return rc;
    }
    const char *host = option(all, "host"), *port = option(all, "port"), *database = option(all, "dbname");
    int size = asprintf(&p->shown, "postgresql://%s%s%s/%s", host ? host : "", port ? ":" : "",
                        port ? port : "", database ? database : "");
    PQconninfoFree(all);
    if (size < 0) {
        p->shown = NULL;
        return error_set(err, ERR_NOMEM, "no memory to open the store");
    }
    return 0;
}

static int
join(struct pgsql *p, const struct store_options *o, struct error *err)
{
    struct store_order order = { .lease = p->base.lease, .lease_ms = o->lease_ms };
    int rc = pg_transaction_begin(&p->base, err);

    if (rc == 0)
        rc = pg_ownership.join(&p->base, &order, err);
    p->base.lease.epoch = order.got_lease.epoch;
    if (rc == 0)
        rc = pg_transaction_commit(&p->base, err);
    return rc;
}

static int
connect_and_join(struct pgsql *p, const struct store_options *o, struct error *err)
{
    size_t n;
    const struct pg_step *steps = pg_schema_steps(&n);
    int rc = pg_link_open(&p->link, p->where, p->base.lease.node, err);

    if (rc == 0)
        rc = pg_check_server(&p->link, p->is_relaxed, err);
    if (rc == 0)
        rc = pg_schema_migrate(&p->link, steps, n, err);
    if (rc == 0 && o->lease_ms != STORE_LEASE_ENDLESS)
        rc = pg_wait_name(&p->link, p->base.lease.node, o->lease_ms, err);
    return rc == 0 ? join(p, o, err) : rc;
}

/* Nothing is changed. */
static int
connect_and_compare(struct pgsql *p, struct store_schema *out, struct error *err)
{
    size_t n;

    pg_schema_steps(&n);
    out->known = (int64_t)n;
    int rc = pg_link_open(&p->link, p->where, p->base.lease.node, err);
    if (rc == 0)
        rc = pg_check_server(&p->link, p->is_relaxed, err);
    return rc == 0 ? pg_schema_look(&p->link, n, &out->version, err) : rc;
}

/* The same. A database that has no schema yet has no nodes. */
static int
connect_and_look(struct pgsql *p, struct store_found *out, struct error *err)
{
    struct store_schema schema;
    int rc = connect_and_compare(p, &schema, err);

    if (rc == 0)
        rc = pg_find_holder(&p->link, PG_HELD_S, out->holder, sizeof(out->holder), err);
    return rc == 0 && schema.version > 0 ? pg_is_alive(&p->link, p->base.lease.node, &out->is_alive, err)
                                         : rc;
}

static int
connect_and_migrate(struct pgsql *p, bool only_look, struct store_schema *out, struct error *err)
{
    size_t n;
    const struct pg_step *steps = pg_schema_steps(&n);
    int rc = connect_and_compare(p, out, err);

    return rc == 0 && !only_look ? pg_schema_migrate(&p->link, steps, n, err) : rc;
}

static int
fill(struct pgsql *p, const char *where, const struct store_options *o, struct error *err)
{
    if (!*o->node || strlen(o->node) >= sizeof(p->base.lease.node))
        return error_set(err, ERR_INPUT, "the name of a node has 1 to %d bytes", STORE_NODE_SIZE - 1);
    snprintf(p->base.lease.node, sizeof(p->base.lease.node), "%s", o->node);
    p->is_relaxed = o->is_relaxed;
    p->where = strdup(where);
    if (!p->where)
        return error_set(err, ERR_NOMEM, "no memory to open the store");
    int rc = show_url(p, err);
    p->base.name = p->shown;
    if (rc == 0)
        rc = packer_init(&p->base.packer, err);
    return rc;
}

static void
empty(struct pgsql *p)
{
    pg_link_close(&p->link);
    packer_release(&p->base.packer);
    free(p->where);
    free(p->shown);
}

static void
close_all(struct store_backend *base)
{
    struct pgsql *p = pgsql_of(base);

    pg_leave(p);
    pg_transaction_forget(p);
    empty(p);
    free(p);
}

static int
new_reader(struct store_backend *base, struct store_reader **out, struct error *err)
{
    struct pgsql *p = pgsql_of(base);
    int rc = pg_reader_new(p, out, err);

    if (rc < 0)
        error_prefix(err, "%s", p->shown);
    return rc;
}

/* The transaction's own row needs no new space; the row written here does, and is removed again. */
static int
probe(struct store_backend *base, void *what, struct error *err)
{
    const bool touch = *(const bool *)what;
    struct pg_link *l = &pgsql_of(base)->link;
    int rc = 0;

    if (touch)
        rc = pg_run(l, "look for room",
                    "INSERT INTO blob (hash, size, data) VALUES ($1, 0, decode(repeat('00', 65536), 'hex'))",
                    SQL_VALUES(sql_text(pgsql_of(base)->writer)), NULL, err);
    if (rc == 0 && touch)
        rc = pg_run(l, "look for room", "DELETE FROM blob WHERE hash = $1",
                    SQL_VALUES(sql_text(pgsql_of(base)->writer)), NULL, err);
    return rc;
}

static const struct backend_ops pgsql_ops = {
    .reader_new = new_reader,
    .close = close_all,
    .is_away = pg_is_away,
    .hurry = pg_hurry,
    .begin = pg_transaction_begin,
    .commit = pg_transaction_commit,
    .rollback = pg_transaction_rollback,
    .save = pg_transaction_save,
    .keep = pg_transaction_keep,
    .undo = pg_transaction_undo,
    .is_open = pg_transaction_is_open,
    .probe = probe,
    .each = pg_change_each,
    .dialect = &pg_dialect,
    .drop_task = pg_drop_task,
    .add_job = pg_add_job,
    .is_alone = pg_transaction_is_alone,
    .owns = &pg_ownership,
    .hand_on = pg_hand_on,
};

int
pgsql_check(const char *where, const struct store_options *options, struct store_found *out,
            struct error *err)
{
    struct pgsql p = { .transaction = 0 };
    int rc = fill(&p, where, options, err);

    if (rc == 0) {
        snprintf(out->shown, sizeof(out->shown), "%s", p.shown);
        rc = connect_and_look(&p, out, err);
        if (rc < 0)
            error_prefix(err, "%s", p.shown);
    }
    empty(&p);
    return rc;
}

int
pgsql_migrate(const char *where, const struct store_options *options, bool only_look,
              struct store_schema *out, struct error *err)
{
    struct pgsql p = { .transaction = 0 };
    int rc = fill(&p, where, options, err);

    if (rc == 0) {
        rc = connect_and_migrate(&p, only_look, out, err);
        if (rc < 0)
            error_prefix(err, "%s", p.shown);
    }
    empty(&p);
    return rc;
}

int
pgsql_open(const char *where, const struct store_options *options, struct store_backend **out,
           struct error *err)
{
    struct pgsql *p = calloc(1, sizeof(*p));

    *out = NULL;
    if (!p)
        return error_set(err, ERR_NOMEM, "no memory to open the store");
    p->base.ops = &pgsql_ops;
    snprintf(p->writer, sizeof(p->writer), "%016llx%016llx", (unsigned long long)random_u64(),
             (unsigned long long)random_u64());
    atomic_store(&p->is_hurried, true); /* at the start a database that is away ends it */
    int rc = fill(p, where, options, err);
    if (rc == 0) {
        rc = connect_and_join(p, options, err);
        if (rc < 0)
            error_prefix(err, "%s", p->shown);
    }
    atomic_store(&p->is_hurried, false);
    if (rc < 0) {
        close_all(&p->base);
        return rc;
    }
    *out = &p->base;
    return 0;
}
