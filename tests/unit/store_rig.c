#include "tests/unit/store_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"
#include "tests/unit/postgres.h"

void
rig_open(struct rig *r)
{
    const struct store_options options = { .node = "this", .lease_ms = STORE_LEASE_ENDLESS };

    if (store_open(&r->loop, r->path, &options, RIG_LIMIT, &r->store, &r->err) < 0)
        fail_msg("%s", r->err.text);
}

void
rig_reopen(struct rig *r)
{
    store_close(r->store);
    rig_open(r);
}

static void
make_sqlite(struct rig *r)
{
    snprintf(r->dir, sizeof(r->dir), "/tmp/store-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->path, sizeof(r->path), "%s/store.db", r->dir);
}

static void
remove_sqlite(struct rig *r)
{
    static const char *const names[] = { "store.db",      "store.db-wal", "store.db-shm",
                                         "store.db.lock", "link.db",      "other.db" };
    char path[160];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", r->dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(r->dir), 0);
}

static void
make_pgsql(struct rig *r)
{
    postgres_new(r->path);
}

static void
remove_pgsql(struct rig *r)
{
    (void)r; /* it goes with the server */
}

const struct rig_backend rig_backends[] = { { "sqlite", make_sqlite, remove_sqlite },
                                            { "pgsql", make_pgsql, remove_pgsql } };
const size_t rig_nbackends = ARRAY_LEN(rig_backends);
const struct rig_backend *rig_backend = &rig_backends[0];

int
rig_setup(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    rig_backend->make(r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    rig_open(r);
    *state = r;
    return 0;
}

int
rig_teardown(void **state)
{
    struct rig *r = *state;

    store_close(r->store);
    assert_int_equal(uv_loop_close(&r->loop), 0); /* nothing was left on the loop */
    rig_backend->remove(r);
    free(r);
    return 0;
}

void
rig_done(void *arg, int code, const struct error *err)
{
    struct outcome *o = arg;

    o->calls++;
    o->code = code;
    if (code < 0)
        o->err = *err;
}

void
rig_wait(struct rig *r)
{
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
}

struct submission_row
rig_row(void)
{
    struct submission_row row = {
        .task_id = "sha256:task",
        .source_hash = "sha256:source",
        .request = (char *)"{\"policy\":\"strict\"}",
        .created_ms = 1700000000000,
        .reward = __builtin_nan(""),
    };

    id_new(row.id);
    return row;
}

static int
waited(struct rig *r, struct outcome *o, int code)
{
    assert_int_equal(code, 0);
    rig_wait(r);
    assert_int_equal(o->calls, 1);
    r->err = o->err;
    return o->code;
}

int
rig_add(struct rig *r, const struct submission_row *row, const char *source)
{
    struct store_source s = { .text = source, .size = strlen(source) };
    struct outcome o = { 0 };

    return waited(r, &o, store_add_submissions(r->store, NULL, NULL, row, &s, 1, rig_done, &o, &r->err));
}

struct key_row
rig_key(const char *client, const char *name, const char *id, int64_t created_ms)
{
    struct key_row key = { .created_ms = created_ms };
    snprintf(key.client, sizeof key.client, "%s", client);
    snprintf(key.key, sizeof key.key, "%s", name);
    snprintf(key.request_hash, sizeof key.request_hash, "sha256:%s", id);
    snprintf(key.id, sizeof key.id, "%s", id);
    return key;
}

void
rig_add_with_key(struct rig *r, const struct key_row *key, const struct submission_row *row, int expect)
{
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };
    assert_int_equal(store_add_submissions(r->store, NULL, key, row, &source, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, expect);
}

static struct store_claim
claim_of(struct rig *r, const char *id)
{
    struct submission_row row = { 0 };
    struct store_claim c = { 0 };

    reader_get_submission(store_reader(r->store), id, &row, NULL);
    snprintf(c.id, sizeof(c.id), "%s", id);
    c.number = row.claim;
    c.attempts = row.attempts;
    submission_row_release(&row);
    return c;
}

int
rig_begin(struct rig *r, const char *id)
{
    struct store_claim c = { 0 };
    struct outcome o = { 0 };

    return waited(r, &o, store_claim(r->store, store_lease(r->store), NULL, id, &c, rig_done, &o, &r->err));
}

int
rig_release(struct rig *r, const char *id, int attempts)
{
    struct store_claim c = claim_of(r, id);
    struct outcome o = { 0 };

    c.attempts = attempts;
    return waited(r, &o, store_release(r->store, &c, rig_done, &o, &r->err));
}

int
rig_finish(struct rig *r, const char *id, enum submission_state state, const char *log)
{
    struct submission_row row = rig_row();
    struct outcome o = { 0 };

    snprintf(row.id, sizeof row.id, "%s", id);
    row.claim = claim_of(r, id).number;
    row.state = state;
    row.stage = (char *)"full";
    row.class_ = (char *)"ok";
    row.reward = 0.5;
    row.verdict = (char *)"{\"class\":\"ok\"}";
    row.finished_ms = 1700000001000;
    return waited(r, &o,
                  store_finish(r->store, &row, log, log != NULL ? strlen(log) : 0, rig_done, &o, &r->err));
}

sqlite3 *
rig_raw(struct rig *r)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(r->path, &db), SQLITE_OK);
    return db;
}

int64_t
rig_number(struct rig *r, const char *sql)
{
    sqlite3 *db = rig_raw(r);
    sqlite3_stmt *stmt;
    int64_t number;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    number = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return number;
}
