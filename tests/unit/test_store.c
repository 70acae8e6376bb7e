/* test_store.c - the store in a SQLite file: what test_store_conformance.c cannot say of every back end. */
#include "server/store/store.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/store/sqlite/schema.h"
#include "tests/unit/store_rig.h"

/* --- keys --- */

static void
a_key_is_forgotten_after_a_day(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[2] = { rig_row(), rig_row() };
    struct key_row old = rig_key("ann", "old", rows[0].id, 1000), found;
    struct key_row fresh = rig_key("ann", "fresh", rows[1].id, 1000 + STORE_KEY_LIFE_MS);

    rig_add_with_key(r, &old, &rows[0], 0);
    assert_int_equal(
        reader_get_key(store_reader(r->store), "ann", "old", 999 + STORE_KEY_LIFE_MS, &found, &r->err), 0);
    assert_int_equal(
        reader_get_key(store_reader(r->store), "ann", "old", 1000 + STORE_KEY_LIFE_MS, &found, &r->err),
        ERR_NOTFOUND);
    rig_add_with_key(r, &fresh, &rows[1], 0);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM idempotency"), 1);
}

/* --- lists --- */

static bool
stop_at_once(void *arg, const struct submission_row *row)
{
    (void)arg;
    (void)row;
    return false;
}

static void
a_reader_that_stopped_early_does_not_hold_the_log(void **state)
{
    struct rig *r = *state;
    struct submission_filter f = { .state = -1, .limit = 200 };

    for (int i = 0; i < 96; i++) {
        struct submission_row row = rig_row();
        assert_int_equal(rig_add(r, &row, "x"), 0);
    }
    assert_int_equal(reader_list_submissions(store_reader(r->store), &f, stop_at_once, NULL, &r->err), 0);
    assert_int_equal(rig_add(r, &(struct submission_row){ .id = "later", .request = (char *)"{}" }, "x"), 0);
    assert_int_equal(rig_number(r, "PRAGMA wal_checkpoint(TRUNCATE)"), 0); /* 1: somebody is in the way */
}

/* --- sources --- */

static void
the_same_bytes_are_stored_once_and_small(void **state)
{
    struct rig *r = *state;
    char text[20001];
    AUTO_BUFFER struct buffer got = BUFFER_INIT;

    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = "tl.load(x_ptr + offsets, mask=mask)\n"[i % 36];
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 5; i++) {
        struct submission_row row = rig_row();
        assert_int_equal(rig_add(r, &row, text), 0);
    }
    assert_int_equal(rig_number(r, "SELECT count(*) FROM blob"), 1);
    assert_true(rig_number(r, "SELECT length(data) FROM blob") < 1000);
    assert_int_equal(reader_get_source(store_reader(r->store), "sha256:source", &got, &r->err), 0);
    assert_int_equal(got.size, sizeof text - 1);
    assert_memory_equal(got.data, text, got.size);
}

static void
run_sql(struct rig *r, const char *sql)
{
    sqlite3 *db = rig_raw(r);

    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

struct brief_seen {
    char id[ID_SIZE], brief[512]; /* "": NULL */
    int n;
};

static bool
note_brief(void *arg, const char *id, const char *brief)
{
    struct brief_seen *seen = arg;

    snprintf(seen->id, sizeof(seen->id), "%s", id);
    snprintf(seen->brief, sizeof(seen->brief), "%s", brief ? brief : "");
    seen->n++;
    return true;
}

static void
a_table_is_read_without_its_verdicts(void **state)
{
    static const char verdict[] =
        "{\"id\":\"a\",\"class\":\"ok\",\"reward\":0.7,\"components\":{\"speedup\":1.5},"
        "\"stages\":[{\"stage\":\"ast\",\"outcome\":\"pass\",\"run_ms\":3.0}],"
        "\"timing\":{\"reference_ns\":[1.0,2.0]}}";
    static const char brief[] = "{\"id\":\"a\",\"class\":\"ok\",\"reward\":0.7,"
                                "\"run\":null,\"step\":null,\"policy_version\":null,"
                                "\"stages\":[{\"stage\":\"ast\",\"outcome\":\"pass\"}],\"speedup\":1.5}";
    struct rig *r = *state;
    struct submission_row row = rig_row();
    struct submission_filter f = { .state = -1, .limit = 7 };
    struct brief_seen seen = { .n = 0 };
    struct outcome o = { 0 };

    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(reader_list_briefs(store_reader(r->store), &f, note_brief, &seen, &r->err), 0);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.id, row.id);
    assert_string_equal(seen.brief, ""); /* it has not ended */
    row.state = SUBMISSION_DONE;
    row.verdict = (char *)verdict;
    assert_int_equal(store_finish(r->store, &row, NULL, 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(reader_list_briefs(store_reader(r->store), &f, note_brief, &seen, &r->err), 0);
    assert_string_equal(seen.brief, brief);
    /* As an earlier version left it. */
    run_sql(r, "UPDATE submission SET brief = NULL");
    assert_int_equal(reader_list_briefs(store_reader(r->store), &f, note_brief, &seen, &r->err), 0);
    assert_string_equal(seen.id, row.id);
    assert_string_equal(seen.brief, "");
    f.limit = 202;
    assert_int_equal(reader_list_briefs(store_reader(r->store), &f, note_brief, &seen, &r->err), ERR_INPUT);
}

static void
damaged_bytes_are_an_error_not_an_answer(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();
    AUTO_BUFFER struct buffer got = BUFFER_INIT;
    static const char *const damage[] = {
        "UPDATE blob SET size = size + 1",
        "UPDATE blob SET size = size - 1, data = substr(data, 1, length(data) - 3)",
        "UPDATE blob SET data = x'00'",
        "UPDATE blob SET data = x''",
        "UPDATE blob SET size = -1",
    };

    assert_int_equal(rig_add(r, &row, "a text that is long enough to be cut"), 0);
    for (size_t i = 0; i < ARRAY_LEN(damage); i++) {
        run_sql(r, damage[i]);
        assert_int_equal(reader_get_source(store_reader(r->store), "sha256:source", &got, &r->err),
                         ERR_STORE);
        assert_int_equal(got.size, 0);
    }
}

struct twice {
    sqlite3 *raw;
    char id[ID_SIZE];
    int seen[2]; /* priorities */
};

static void
read_twice(void *arg, struct store_reader *r)
{
    struct twice *t = arg;

    for (int i = 0; i < 2; i++) {
        struct submission_row found = { 0 };
        reader_get_submission(r, t->id, &found, NULL);
        t->seen[i] = found.priority;
        submission_row_release(&found);
        sqlite3_exec(t->raw, "UPDATE submission SET priority = priority + 1", NULL, NULL, NULL);
    }
}

static void
nothing_more(void *arg)
{
    (void)arg;
}

static void
reads_together_are_of_one_instant(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();
    struct twice t = { .raw = rig_raw(r) };

    row.priority = 0;
    assert_int_equal(rig_add(r, &row, "x"), 0);
    memcpy(t.id, row.id, ID_SIZE);
    for (int before = 0; before <= 2; before += 2) {
        assert_int_equal(store_read(r->store, read_twice, nothing_more, &t, &r->err), 0);
        uv_run(&r->loop, UV_RUN_DEFAULT);
        assert_true(t.seen[0] == before && t.seen[1] == before);
    }
    /* and none of them holds the log */
    assert_int_equal(sqlite3_wal_checkpoint_v2(t.raw, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(t.raw);
}

struct feeder {
    struct rig *rig;
    int started, finished, failed, total;
};

static void feed(struct feeder *f);

static void
feed_next(void *arg, int code, const struct error *err)
{
    struct feeder *f = arg;

    (void)err;
    f->finished++;
    f->failed += code != 0;
    feed(f);
}

static void
feed(struct feeder *f)
{
    struct submission_row row = rig_row();
    struct store_source source = { .text = row.id, .size = ID_SIZE - 1 };

    if (f->started == f->total)
        return;
    f->started++;
    snprintf(row.source_hash, sizeof row.source_hash, "sha256:%s", row.id);
    if (store_add_submissions(f->rig->store, NULL, NULL, &row, &source, 1, feed_next, f, &f->rig->err) < 0)
        f->failed++;
}

static void
ten_thousand_with_64_under_way_are_all_there(void **state)
{
    struct rig *r = *state;
    struct feeder f = { .rig = r, .total = 10000 };
    struct store_figures figures;

    for (int i = 0; i < 64; i++)
        feed(&f);
    rig_wait(r);
    assert_int_equal(f.finished, 10000);
    assert_int_equal(f.failed, 0);
    store_figures(r->store, &figures);
    assert_int_equal(figures.rows_written, 10000);
    assert_true(figures.commits < 10000); /* some did share a transaction */
    rig_reopen(r);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM submission JOIN blob ON hash = source_hash"), 10000);
}

/* --- opening --- */

static void
the_size_of_the_log_is_known(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();
    struct store_figures figures;

    assert_int_equal(rig_add(r, &row, "x"), 0);
    store_figures(r->store, &figures);
    assert_true(figures.wal_bytes > 0);
}

static void
a_store_is_opened_by_one_only(void **state)
{
    struct rig *r = *state;
    struct store *second;
    char link[160];

    assert_int_equal(store_open(&r->loop, r->path, NULL, 10, &second, &r->err), ERR_STORE);
    assert_null(second);
    assert_non_null(strstr(r->err.text, r->path));
    assert_non_null(strstr(r->err.text, "in use"));
    snprintf(link, sizeof link, "%s/link.db", r->dir);
    assert_int_equal(symlink(r->path, link), 0);
    assert_int_equal(store_open(&r->loop, link, NULL, 10, &second, &r->err), ERR_STORE);
    assert_non_null(strstr(r->err.text, "in use"));
    rig_reopen(r); /* and the first was not harmed */
}

static void
only_its_owner_may_read_it(void **state)
{
    struct rig *r = *state;
    struct stat s;

    assert_int_equal(stat(r->path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
}

static void
check_refused(struct rig *r, const char *path, int code, const char *text)
{
    struct store *s;

    assert_int_equal(store_open(&r->loop, path, NULL, 10, &s, &r->err), code);
    assert_null(s);
    if (strstr(r->err.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, r->err.text);
}

static void
what_cannot_be_a_store_is_refused(void **state)
{
    struct rig *r = *state;
    char other[160];
    FILE *f;
    sqlite3 *db;

    check_refused(r, "", ERR_INPUT, "must be a file");
    check_refused(r, ":memory:", ERR_INPUT, ":memory:");
    check_refused(r, "/nonexistent/store.db", ERR_SYS, "/nonexistent/store.db");
    check_refused(r, r->dir, ERR_STORE, r->dir);
    snprintf(other, sizeof other, "%s/other.db", r->dir);
    f = fopen(other, "w");
    assert_non_null(f);
    fprintf(f, "%0512d", 7);
    fclose(f);
    check_refused(r, other, ERR_STORE, other);
    unlink(other);
    assert_int_equal(sqlite3_open(other, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE song (title)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    check_refused(r, other, ERR_STORE, "not a verifierd store");
    strcat(other, ".lock");
    unlink(other);
}

static void
a_schema_that_is_not_read_is_refused(void **state)
{
    struct rig *r = *state;

    store_close(r->store);
    r->store = NULL;
    run_sql(r, "PRAGMA user_version = 99");
    check_refused(r, r->path, ERR_STORE, "version 99");
    run_sql(r, "PRAGMA user_version = 12");
    check_refused(r, r->path, ERR_STORE,
                  "version 12 is older than any that was released: move the file away");
    assert_non_null(strstr(r->err.text, r->path));
    size_t known;
    char sql[64];
    schema_steps(&known);
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu", known);
    run_sql(r, sql);
    rig_open(r);
}

/* --- migrations: pretend that this program were a later one --- */

static int
migrate_to(struct rig *r, const struct schema_step *later, size_t n)
{
    struct schema_step steps[16];
    size_t known;
    const struct schema_step *present = schema_steps(&known);
    sqlite3 *db = rig_raw(r);
    int code;

    assert_true(known + n <= ARRAY_LEN(steps));
    memcpy(steps, present, known * sizeof *steps);
    memcpy(steps + known, later, n * sizeof *steps);
    code = schema_migrate(db, steps, known + n, &r->err);
    sqlite3_close(db);
    return code;
}

static void
an_older_file_is_brought_up_step_by_step(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();
    static const struct schema_step later[] = {
        { "ALTER TABLE submission ADD COLUMN rack TEXT; UPDATE submission SET rack = 'here';" },
        { "ALTER TABLE submission RENAME COLUMN rack TO host; CREATE TABLE lease (id TEXT PRIMARY KEY);" },
    };
    size_t known;

    schema_steps(&known);
    assert_int_equal(rig_add(r, &row, "x"), 0);
    store_close(r->store);
    r->store = NULL;
    assert_int_equal(rig_number(r, "PRAGMA user_version"), known);
    assert_int_equal(migrate_to(r, later, 2), 0);
    assert_int_equal(rig_number(r, "PRAGMA user_version"), known + 2);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM submission WHERE host = 'here'"), 1);
    assert_int_equal(migrate_to(r, later, 2), 0); /* nothing left to do */
    check_refused(r, r->path, ERR_STORE, "newer");
}

static void
a_step_that_fails_leaves_the_version_before_it(void **state)
{
    struct rig *r = *state;
    static const struct schema_step later[] = {
        { "CREATE TABLE first (x);" },
        { "CREATE TABLE second (x); CREATE TABLE first (x);" },
    };
    size_t known;
    char version[64];

    schema_steps(&known);
    store_close(r->store);
    r->store = NULL;
    assert_int_equal(migrate_to(r, later, 2), ERR_STORE);
    snprintf(version, sizeof(version), "making schema version %zu", known + 2);
    assert_non_null(strstr(r->err.text, version));
    assert_int_equal(rig_number(r, "PRAGMA user_version"), known + 1);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM sqlite_schema WHERE name = 'second'"), 0);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        RIGGED(a_key_is_forgotten_after_a_day),
        RIGGED(a_table_is_read_without_its_verdicts),
        RIGGED(a_reader_that_stopped_early_does_not_hold_the_log),
        RIGGED(the_same_bytes_are_stored_once_and_small),
        RIGGED(damaged_bytes_are_an_error_not_an_answer),
        RIGGED(reads_together_are_of_one_instant),
        RIGGED(ten_thousand_with_64_under_way_are_all_there),
        RIGGED(the_size_of_the_log_is_known),
        RIGGED(a_store_is_opened_by_one_only),
        RIGGED(only_its_owner_may_read_it),
        RIGGED(what_cannot_be_a_store_is_refused),
        RIGGED(a_schema_that_is_not_read_is_refused),
        RIGGED(an_older_file_is_brought_up_step_by_step),
        RIGGED(a_step_that_fails_leaves_the_version_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
