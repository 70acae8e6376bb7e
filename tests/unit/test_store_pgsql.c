/*
 * test_store_pgsql.c - what a store in PostgreSQL promises beyond the conformance suite: a database that goes away and
 * comes back loses nothing that was acknowledged, several daemons share it, and what cannot be opened gets one line.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/pgsql/checks.h"
#include "server/store/changes.h"
#include "server/store/pgsql/pgsql.h"
#include "server/store/pgsql/schema.h"
#include "server/store/private.h"
#include "tests/unit/postgres.h"
#include "tests/unit/store_rig.h"

static struct pgsql *
back_end(struct rig *r)
{
    return pgsql_of(r->store->backend);
}

static void
what_waits_while_the_database_is_away_is_stored_when_it_is_back(void **state)
{
    struct rig *r = *state;
    struct submission_row before = rig_row(), during = rig_row(), refused = rig_row(), found;
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    assert_int_equal(rig_add(r, &before, "x"), 0);
    postgres_crash();
    assert_int_equal(reader_get_submission(store_reader(r->store), before.id, &found, &r->err),
                     ERR_UNAVAILABLE);
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, &during, &source, 1, rig_done, &o, &r->err),
                     0);
    for (int i = 0; i < 2000 && store_is_writable(r->store); i++) { /* until the writer knows */
        uv_run(&r->loop, UV_RUN_NOWAIT);
        uv_sleep(5);
    }
    assert_false(store_is_writable(r->store));
    assert_int_equal(
        store_add_submissions(r->store, NULL, NULL, &refused, &source, 1, rig_done, NULL, &r->err),
        ERR_UNAVAILABLE);
    assert_int_equal(o.calls, 0);
    postgres_start();
    rig_wait(r);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.code, 0);
    uv_sleep(600); /* a reader does not ask for the database at each read */
    assert_int_equal(reader_get_submission(store_reader(r->store), before.id, &found, &r->err), 0);
    submission_row_release(&found);
    assert_int_equal(reader_get_submission(store_reader(r->store), during.id, &found, &r->err), 0);
    submission_row_release(&found);
}

static void
a_connection_that_was_cut_between_writes_is_not_noticed(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row(), found;

    for (int i = 0; i < 5; i++) {
        row = rig_row();
        postgres_number(r->path, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                                 " WHERE datname = current_database() AND pid <> pg_backend_pid()");
        assert_int_equal(rig_add(r, &row, "x"), 0);
        assert_int_equal(reader_get_submission(store_reader(r->store), row.id, &found, &r->err), 0);
        submission_row_release(&found);
    }
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.submission"), 5);
}

/* A commit whose answer never came: is_there says whether the server has done it. */
static void
check_outcome(struct rig *r, bool is_there)
{
    struct pgsql *p = back_end(r);
    struct submission_row row = rig_row();

    assert_int_equal(p->base.ops->begin(&p->base, &r->err), 0);
    assert_int_equal(change_add_submissions(
                         &p->base,
                         &(struct store_intake){ .rows = &row,
                                                 .sources = &(struct store_source){ .text = "x", .size = 1 },
                                                 .n = 1 },
                         &r->err),
                     0);
    if (is_there)
        assert_int_equal(pg_run(&p->link, "commit", "COMMIT", SQL_NO_VALUES, NULL, &r->err), 0);
    p->link.is_lost = true;
    assert_int_equal(p->base.ops->commit(&p->base, &r->err), is_there ? 0 : ERR_UNAVAILABLE);
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.submission"), is_there);
}

static void
a_commit_whose_answer_was_lost_is_asked_for(void **state)
{
    struct rig *r = *state;

    check_outcome(r, false);
    check_outcome(r, true);
}

static void
a_warning_at_commit_counts_as_no_answer(void **state)
{
    struct rig *r = *state;
    struct pgsql *p = back_end(r);

    /* As when the wait for a standby is cancelled: the commit is there, and the server warned. */
    postgres_number(r->path, "CREATE FUNCTION verifierd.warn() RETURNS trigger LANGUAGE plpgsql AS"
                             " 'BEGIN RAISE WARNING ''not replicated''; RETURN NULL; END';"
                             "CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON verifierd.calibration"
                             " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION verifierd.warn()");
    int before = PQbackendPID(p->link.conn);
    struct calibration_row row = { .gpu = "a", .document = "{}" };
    struct outcome o = { 0 };

    id_new(row.id);
    assert_int_equal(store_add_calibration(r->store, &row, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_not_equal(PQbackendPID(p->link.conn), before); /* another connection was asked */
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.calibration"), 1);
}

static struct store *
open_as(struct rig *r, const char *where, const char *node)
{
    const struct store_options options = { .node = node, .lease_ms = STORE_LEASE_ENDLESS };
    struct store *s;

    store_open(&r->loop, where, &options, 10, &s, &r->err);
    return s;
}

static void
the_later_of_two_lives_under_one_name_has_the_lease(void **state)
{
    struct rig *r = *state;
    struct store *second = open_as(r, r->path, "this"), *other = open_as(r, r->path, "other");
    struct submission_row row = rig_row();
    struct store_claim c = { .number = 0 };
    struct outcome o = { 0 };

    assert_non_null(second);
    assert_non_null(other);
    assert_int_equal(store_lease(second)->epoch, store_lease(r->store)->epoch + 1);
    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(store_claim(r->store, store_lease(r->store), NULL, row.id, &c, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, ERR_CONFLICT);
    assert_int_equal(store_claim(second, store_lease(second), NULL, row.id, &c, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    store_close(second);
    store_close(other);
}

/* What the other daemon gets when it claims the row. */
static int
claim_as(struct rig *r, struct store *s, const struct submission_row *row, struct store_claim *out)
{
    struct outcome o = { 0 };

    assert_int_equal(store_claim(s, store_lease(s), NULL, row->id, out, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static bool
waits_for(struct rig *r, struct store *s)
{
    bool out;

    assert_int_equal(reader_waits(s->loop_reader, store_lease(s), NULL, &out, &r->err), 0);
    return out;
}

/* n: 3 at most */
static void
add_group_together(struct rig *r, struct submission_row *rows, int n)
{
    struct group_row group = { .request = (char *)"{}", .size = n, .keeps_together = true };
    const struct store_source sources[3] = { { .text = "x", .size = 1 },
                                             { .text = "y", .size = 1 },
                                             { .text = "z", .size = 1 } };
    struct outcome o = { 0 };

    id_new(group.id);
    for (int i = 0; i < n; i++) {
        rows[i] = rig_row();
        memcpy(rows[i].group_id, group.id, ID_SIZE);
        rows[i].group_index = i;
    }
    assert_int_equal(
        store_add_submissions(r->store, &group, NULL, rows, sources, (size_t)n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

static int
cancel(struct rig *r, const char *id, int why)
{
    struct outcome o = { 0 };

    assert_int_equal(store_cancel(r->store, id, why, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static int
claim_wanted(struct rig *r, struct store *s, const struct store_wants *wants, struct store_claim *out)
{
    struct outcome o = { 0 };
    size_t n;

    assert_int_equal(store_claim_next(s, store_lease(s), wants, 1, out, &n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static void
a_group_that_chooses_is_judged_by_one_node_at_a_time(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    struct submission_row rows[3];
    struct store_claim c = { .number = 0 }, next = { .number = 0 };

    assert_non_null(other);
    add_group_together(r, rows, 3);
    assert_int_equal(claim_as(r, other, &rows[0], &c), 0);
    assert_int_equal(claim_as(r, r->store, &rows[1], &c), ERR_CONFLICT);
    assert_int_equal(claim_wanted(r, r->store, NULL, &next), ERR_NOTFOUND);
    assert_int_equal(claim_as(r, other, &rows[1], &c), 0);
    assert_false(waits_for(r, r->store));
    assert_true(waits_for(r, other));
    /* It drains: the rest is anybody's. */
    postgres_number(r->path, "UPDATE verifierd.node SET draining = true WHERE name = 'other'");
    assert_true(waits_for(r, r->store));
    assert_int_equal(claim_as(r, r->store, &rows[2], &c), 0);
    store_close(other);
}

static int
hand_on(struct rig *r, const struct store_claim *c, const struct store_carried *carried)
{
    struct outcome o = { 0 };

    assert_int_equal(store_hand_on(r->store, c, carried, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static void
what_a_compiler_hands_on_is_for_others_and_goes_with_its_end(void **state)
{
    struct rig *r = *state;
    const struct store_wants compiler = { .is_compiler = true };
    const struct store_carried carried = { "{}", "im\0ages", 7 };
    struct submission_row row = rig_row(), rows[2];
    struct carried_row found;
    struct store_claim c = { .number = 0 }, old;

    add_group_together(r, rows, 2); /* one node judges it: no compiler takes it apart */
    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(claim_wanted(r, r->store, &compiler, &c), 0);
    assert_string_equal(c.id, row.id);
    assert_false(c.is_handed_on);
    assert_int_equal(claim_wanted(r, r->store, &compiler, &old), ERR_NOTFOUND);
    old = c;
    old.number--;
    assert_int_equal(hand_on(r, &old, &carried), ERR_CONFLICT);
    assert_int_equal(reader_get_carried(r->store->loop_reader, row.id, &found, &r->err), ERR_NOTFOUND);
    c.attempts = 0;
    assert_int_equal(hand_on(r, &c, &carried), 0);
    assert_int_equal(hand_on(r, &c, &carried), ERR_CONFLICT);
    assert_int_equal(claim_wanted(r, r->store, &compiler, &old), ERR_NOTFOUND);
    assert_int_equal(claim_as(r, r->store, &row, &c), 0);
    assert_true(c.is_handed_on);
    assert_int_equal(c.attempts, 1);
    assert_int_equal(reader_get_carried(r->store->loop_reader, row.id, &found, &r->err), 0);
    assert_int_equal(found.size, 7);
    assert_memory_equal(found.bytes, "im\0ages", 7);
    carried_row_release(&found);
    row.claim = c.number;
    assert_int_equal(rig_release(r, row.id, 1), 0);
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.carried"), 1);
    assert_int_equal(claim_as(r, r->store, &row, &c), 0);
    assert_int_equal(rig_finish(r, row.id, SUBMISSION_DONE, NULL), 0);
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.carried"), 0);
}

static void
who_asks_for_a_gpu_waits_for_a_node_that_has_it(void **state)
{
    struct rig *r = *state;
    const struct store_wants none = { 0 }, compiler = { .is_compiler = true },
                             a100 = { .gpu = "NVIDIA A100" }, h100 = { .gpu = "NVIDIA H100 80GB HBM3" };
    struct submission_row row = rig_row();
    struct store_claim c = { .number = 0 };
    bool out;

    row.request = (char *)"{\"gpu\":\"H100\"}";
    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(claim_wanted(r, r->store, &none, &c), ERR_NOTFOUND);
    assert_int_equal(claim_wanted(r, r->store, &compiler, &c), ERR_NOTFOUND);
    assert_int_equal(claim_wanted(r, r->store, &a100, &c), ERR_NOTFOUND);
    assert_int_equal(claim_as(r, r->store, &row, &c), ERR_CONFLICT);
    assert_int_equal(reader_waits(r->store->loop_reader, store_lease(r->store), &a100, &out, &r->err), 0);
    assert_false(out);
    assert_int_equal(reader_waits(r->store->loop_reader, store_lease(r->store), &h100, &out, &r->err), 0);
    assert_true(out);
    assert_int_equal(claim_wanted(r, r->store, &h100, &c), 0);
    assert_string_equal(c.id, row.id);
}

static void
the_first_that_wait_are_claimed_together(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    struct submission_row rows[3], away[2];
    struct store_claim claims[STORE_CLAIMS_MAX];
    struct outcome o = { 0 };
    size_t n = 0;

    assert_non_null(other);
    add_group_together(r, away, 2);
    assert_int_equal(claim_as(r, other, &away[0], &claims[0]), 0);
    for (int i = 0; i < 3; i++) {
        rows[i] = rig_row();
        rows[i].priority = i == 0;
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(
        store_claim_next(r->store, store_lease(r->store), NULL, 2, claims, &n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++)
        assert_true(strcmp(claims[i].id, rows[1].id) == 0 || strcmp(claims[i].id, rows[2].id) == 0);
    assert_string_not_equal(claims[0].id, claims[1].id);
    o.code = -1;
    assert_int_equal(store_claim_next(r->store, store_lease(r->store), NULL, STORE_CLAIMS_MAX, claims, &n,
                                      rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(n, 1); /* not what is at home elsewhere */
    assert_string_equal(claims[0].id, rows[0].id);
    store_close(other);
}

static void
nodes_claim_next_what_is_of_a_client_of_whom_less_runs_anywhere(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    struct submission_row rows[7];
    struct store_claim c, claims[4];
    struct outcome o = { 0 };
    size_t n = 0;

    assert_non_null(other);
    for (int i = 0; i < 7; i++) {
        rows[i] = rig_row();
        rows[i].client = (char *)(i < 5 ? "many" : "few");
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
    assert_string_equal(c.id, rows[0].id);
    assert_int_equal(claim_wanted(r, other, NULL, &c), 0); /* of "many" one runs on another node */
    assert_string_equal(c.id, rows[5].id);
    assert_int_equal(claim_as(r, other, &rows[1], &c), 0);
    assert_int_equal(
        store_claim_next(r->store, store_lease(r->store), NULL, 3, claims, &n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(n, 2); /* of "many" 2 run, of "few" 1, which has no third */
    for (int i = 2; i < 7; i++) {
        bool is_claimed = false;
        for (size_t k = 0; k < n; k++)
            is_claimed |= strcmp(claims[k].id, rows[i].id) == 0;
        assert_int_equal(is_claimed, i == 2 || i == 6);
    }
    store_close(other);
}

/* What a statement of the writer's has read of an index, or of the table from end to end, since the store was made. */
static int
scans(struct rig *r, const char *sql)
{
    assert_int_equal(pg_script(&back_end(r)->link, "SELECT pg_stat_force_next_flush(); SELECT 1", &r->err),
                     0);
    return (int)postgres_number(r->path, sql);
}

static void
a_claim_looks_at_no_more_than_some_of_the_clients_that_wait(void **state)
{
    static const char table[] = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'",
                      index[] = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE relname = 'job'";
    struct rig *r = *state;
    struct store_claim c;
    char seen[2000] = { 0 };

    postgres_number(r->path, "INSERT INTO verifierd.job (id, state, priority, attempts, claim, client)"
                             " SELECT lpad(i::text, 36, '0'), 0, i % 2, 0, 0, lpad(i::text, 6, '0')"
                             " FROM generate_series(0, 1999) i; ANALYZE verifierd.job");
    int before = scans(r, table), probed = scans(r, index);
    assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
    assert_int_equal(scans(r, table), before);
    assert_in_range(scans(r, index) - probed, 1, 500);
    /* The next claims look further, and each has its turn. */
    seen[atoi(c.id)] = 1;
    for (int i = 1; i < 1000; i++) {
        assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
        assert_int_equal(atoi(c.id) % 2, 0); /* interactive */
        assert_int_equal(seen[atoi(c.id)]++, 0);
    }
    assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
    assert_int_equal(atoi(c.id) % 2, 1);
}

static void
no_more_of_a_client_is_claimed_by_all_nodes_than_may_run(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    const struct store_wants wants = { .limits = "{\"one\":2,\"free\":2147483647,\"*\":1}" };
    struct submission_row rows[6];
    struct store_claim c, claims[8];
    struct outcome o = { 0 };
    size_t n = 0;

    assert_non_null(other);
    for (int i = 0; i < 6; i++) { /* "one": four of them, of both urgencies */
        rows[i] = rig_row();
        rows[i].client = (char *)(i < 4 ? "one" : i == 4 ? "two" : NULL);
        rows[i].priority = i % 2;
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(claim_as(r, other, &rows[0], &c), 0);
    assert_int_equal(
        store_claim_next(r->store, store_lease(r->store), &wants, 8, claims, &n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(n, 3); /* one more of "one", that of "two", and the operator's */
    for (size_t i = 0; i < n; i++)
        assert_true(strcmp(claims[i].id, rows[2].id) == 0 || strcmp(claims[i].id, rows[4].id) == 0 ||
                    strcmp(claims[i].id, rows[5].id) == 0);
    assert_int_equal(claim_wanted(r, other, &wants, &c), ERR_NOTFOUND);
    assert_int_equal(store_claim(other, store_lease(other), &wants, rows[1].id, &c, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, ERR_FULL);
    assert_int_equal(rig_release(r, rows[2].id, 0), 0);
    assert_int_equal(store_claim(other, store_lease(other), &wants, rows[1].id, &c, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    store_close(other);
}

/* It is claimed in a transaction that has not ended while the other node tries. */
static int
claim_beside(struct rig *r, struct store *first, const char *id, const struct store_wants *wants,
             const struct submission_row *row)
{
    struct pgsql *p = pgsql_of(first->backend);
    struct store_order order = { .lease = *store_lease(first), .wants = *wants };
    struct store_claim c = { .number = 0 };
    struct outcome o = { 0 };

    memcpy(order.claim.id, id, sizeof(order.claim.id));
    assert_int_equal(p->base.ops->begin(&p->base, &r->err), 0);
    assert_int_equal(p->base.ops->owns->claim(&p->base, &order, &r->err), 0);
    assert_int_equal(store_claim(r->store, store_lease(r->store), wants, row->id, &c, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(p->base.ops->commit(&p->base, &r->err), 0);
    return o.code;
}

static void
what_is_identical_runs_on_one_node_at_a_time(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    const struct store_wants all = { 0 };
    struct submission_row rows[4];
    struct store_claim c = { .number = 0 };

    assert_non_null(other);
    for (int i = 0; i < 4; i++) {
        rows[i] = rig_row();
        rows[i].content = i < 3 ? -7 : 0;
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(claim_beside(r, other, rows[1].id, &all, &rows[0]), ERR_CONFLICT);
    assert_int_equal(claim_as(r, r->store, &rows[0], &c), ERR_CONFLICT);
    assert_int_equal(claim_as(r, other, &rows[2], &c), 0); /* where it runs, it follows */
    assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
    assert_string_equal(c.id, rows[3].id);
    assert_false(waits_for(r, r->store));
    assert_true(waits_for(r, other));
    assert_int_equal(cancel(r, rows[0].id, 1), 0); /* whoever takes that ends it at once */
    assert_int_equal(claim_wanted(r, r->store, NULL, &c), 0);
    assert_string_equal(c.id, rows[0].id);
    store_close(other);
}

static void
two_claims_at_once_do_not_pass_over_a_limit(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    const struct store_wants wants = { .limits = "{\"*\":1}" };
    struct submission_row rows[2];

    assert_non_null(other);
    for (int i = 0; i < 2; i++) {
        rows[i] = rig_row();
        rows[i].client = (char *)"one";
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(claim_beside(r, other, rows[0].id, &wants, &rows[1]), ERR_FULL);
    store_close(other);
}

static void
a_home_ends_with_the_life_that_made_it(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other"), *next;
    struct submission_row rows[3];
    struct store_claim c = { .number = 0 };

    assert_non_null(other);
    add_group_together(r, rows, 3);
    assert_int_equal(claim_as(r, other, &rows[0], &c), 0);
    assert_int_equal(claim_as(r, r->store, &rows[1], &c), ERR_CONFLICT);
    next = open_as(r, r->path, "other"); /* the same name, and it knows nothing of the group */
    assert_non_null(next);
    assert_int_equal(claim_as(r, r->store, &rows[1], &c), 0);
    assert_int_equal(claim_as(r, next, &rows[2], &c), ERR_CONFLICT);
    store_close(next);
    store_close(other);
}

static void
a_group_that_another_node_is_taking_home_is_not_waited_for(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    struct submission_row rows[2];
    struct store_claim c = { .number = 0 };
    struct pgsql *p = pgsql_of(other->backend);
    struct store_order order = { .lease = *store_lease(other), .most = 1 };

    assert_non_null(other);
    add_group_together(r, rows, 2);
    assert_int_equal(p->base.ops->begin(&p->base, &r->err), 0);
    assert_int_equal(p->base.ops->owns->claim_next(&p->base, &order, &r->err), 0);
    assert_int_equal(claim_as(r, r->store, &rows[1], &c), ERR_CONFLICT); /* while that is not committed */
    assert_int_equal(p->base.ops->commit(&p->base, &r->err), 0);
    store_close(other);
}

static void
a_name_is_not_taken_from_a_daemon_that_lives(void **state)
{
    struct rig *r = *state;
    struct store *second = open_as(r, r->path, "this"); /* the later life has the lease */
    struct store_lease lease;
    struct outcome o = { 0 };

    assert_non_null(second);
    assert_int_equal(store_join(r->store, "this", 60000, &lease, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, ERR_CONFLICT);
    assert_int_equal(store_join(second, "this", 60000, &lease, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    store_close(second);
}

static void
nodes_that_are_gone_are_forgotten(void **state)
{
    struct rig *r = *state;
    struct outcome o = { 0 };

    postgres_number(r->path,
                    "INSERT INTO verifierd.node SELECT name, 1, verifierd.now_ms() - age FROM (VALUES"
                    " ('old', 86400001), ('holds', 86400001), ('new', 60000)) AS n (name, age);"
                    "INSERT INTO verifierd.job VALUES ('j', 1, 0, 1, 1, 'holds')");
    assert_int_equal(store_reap(r->store, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(postgres_number(r->path, "SELECT state FROM verifierd.job"), 0); /* what one held */
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.node"), 2);
}

static void
a_lease_from_before_the_clock_was_set_back_ends_within_a_minute(void **state)
{
    struct rig *r = *state;
    struct outcome o = { 0 };

    postgres_number(r->path,
                    "INSERT INTO verifierd.node SELECT name, 1, verifierd.now_ms() + ahead FROM (VALUES"
                    " ('dead', 3600000), ('lives', 15000)) AS n (name, ahead)");
    assert_int_equal(store_reap(r->store, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_in_range(postgres_number(r->path, "SELECT lease_until_ms - verifierd.now_ms() FROM verifierd.node"
                                             " WHERE name = 'dead'"),
                    15001, 60000);
    assert_in_range(postgres_number(r->path, "SELECT lease_until_ms - verifierd.now_ms() FROM verifierd.node"
                                             " WHERE name = 'lives'"),
                    0, 15000);
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.node WHERE lease_until_ms ="
                                              " 9223372036854775807"),
                     1); /* our own */
}

static void
a_node_that_was_forgotten_begins_another_epoch(void **state)
{
    struct rig *r = *state;
    struct store *first = open_as(r, r->path, "other"), *second;
    struct outcome o = { 0 };

    assert_non_null(first);
    int64_t before = store_lease(first)->epoch;
    store_close(first);
    postgres_number(r->path, "UPDATE verifierd.node SET lease_until_ms = verifierd.now_ms() - 86400001"
                             " WHERE name = 'other'");
    assert_int_equal(store_reap(r->store, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.node"), 1);
    second = open_as(r, r->path, "other");
    assert_non_null(second);
    assert_true(store_lease(second)->epoch > before);
    store_close(second);
}

struct orders {
    int n, why;
    char id[ID_SIZE];
};

static void
order_cb(void *arg, const char *id, int why)
{
    struct orders *o = arg;

    o->n++;
    o->why = why;
    snprintf(o->id, sizeof(o->id), "%s", id);
}

static struct orders
orders_of(struct rig *r, const char *node)
{
    struct orders o = { 0 };

    assert_int_equal(reader_each_cancel(r->store->loop_reader, node, 10, order_cb, &o, &r->err), 0);
    return o;
}

static void
who_has_a_submission_finds_that_it_is_to_be_cancelled(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();
    struct store_claim c = { .number = 0 };

    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(orders_of(r, "this").n, 0);
    assert_int_equal(cancel(r, row.id, 2), 0);
    assert_int_equal(cancel(r, row.id, 1), 0);      /* the first counts */
    assert_int_equal(orders_of(r, "other").why, 2); /* it waits: anybody who has a copy */
    assert_int_equal(claim_as(r, r->store, &row, &c), 0);
    assert_int_equal(orders_of(r, "other").n, 0);
    assert_string_equal(orders_of(r, "this").id, row.id);
    assert_int_equal(cancel(r, "01890000-0000-7000-8000-000000000000", 1), ERR_NOTFOUND);
}

static void
the_lease_is_renewed_while_the_writer_waits(void **state)
{
    struct rig *r = *state;
    struct pgsql *p = back_end(r);
    struct outcome o = { 0 };
    const struct store_node_state told = { true, "{\"version\":\"9\"}" };

    assert_int_equal(p->base.ops->begin(&p->base, &r->err), 0); /* and does not end */
    postgres_number(r->path, "UPDATE verifierd.node SET lease_until_ms = verifierd.now_ms() + 5000");
    assert_int_equal(store_renew(r->store, store_lease(r->store), 60000, &told, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_int_equal(postgres_number(r->path,
                                     "SELECT count(*) FROM verifierd.node WHERE draining AND about LIKE"
                                     " '%9%' AND lease_until_ms > verifierd.now_ms() + 50000"),
                     1);
    postgres_number(r->path, "UPDATE verifierd.node SET lease_until_ms = verifierd.now_ms() - 1");
    assert_int_equal(store_renew(r->store, store_lease(r->store), 60000, &told, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, ERR_CONFLICT);
    p->base.ops->rollback(&p->base);
}

/* Another session, which holds the table for 2.5 s and then asks how long one more had to wait for it. */
struct holder {
    const char *url;
    int64_t asked_ms;
};

static void *
hold_table(void *arg)
{
    struct holder *h = arg;
    PGconn *conn = PQconnectdb(h->url);

    PQclear(PQexec(conn, "BEGIN; SELECT FROM verifierd.job"));
    uv_sleep(2500);
    int64_t before_ns = clock_monotonic_ns();
    postgres_number(h->url, "SELECT count(*) FROM verifierd.job");
    h->asked_ms = (clock_monotonic_ns() - before_ns) / 1000000;
    PQfinish(conn);
    return NULL;
}

static void
a_new_schema_holds_up_nobody_while_a_table_is_in_use(void **state)
{
    struct rig *r = *state;
    struct pg_link link = { 0 };
    char url[POSTGRES_URL_SIZE];
    struct holder h = { .url = url };
    pthread_t thread;
    size_t known;

    postgres_new(url);
    assert_int_equal(pg_link_open(&link, url, "old", &r->err), 0);
    assert_int_equal(pg_schema_migrate(&link, pg_schema_steps(&known), PG_SCHEMA_FIRST, &r->err), 0);
    pg_link_close(&link);
    assert_int_equal(pthread_create(&thread, NULL, hold_table, &h), 0);
    uv_sleep(300);
    struct store *s = open_as(r, url, "this");
    pthread_join(thread, NULL);
    assert_non_null(s);
    assert_in_range(h.asked_ms, 0, 1500);
    store_close(s);
}

static void
end_at_step(struct rig *r, struct store *s, const char *request)
{
    struct submission_row row = rig_row();
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    row.request = (char *)request;
    row.state = SUBMISSION_DONE;
    row.verdict = (char *)"{\"class\":\"ok\",\"components\":{\"timed\":1,\"speedup\":2}}";
    row.reward = 0.5;
    assert_int_equal(store_add_submissions(s, NULL, NULL, &row, &source, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

static void
note_run(void *arg, const struct run_row *row)
{
    snprintf(arg, 64, "%s %d %d-%d", row->run, (int)row->counts.n, (int)row->first_step, (int)row->last_step);
}

static void
note_step(void *arg, const struct run_step_row *row)
{
    snprintf((char *)arg + strlen(arg), 64, "[%d: %d]", (int)row->step, (int)row->counts.n);
}

static void
what_several_nodes_judged_of_a_run_is_added_up(void **state)
{
    struct rig *r = *state;
    struct store *other = open_as(r, r->path, "other");
    char run[64] = "", steps[256] = "";

    assert_non_null(other);
    end_at_step(r, r->store, "{\"metadata\":{\"run\":\"r\",\"step\":1}}");
    end_at_step(r, other, "{\"metadata\":{\"run\":\"r\",\"step\":1}}");
    end_at_step(r, other, "{\"metadata\":{\"run\":\"r\",\"step\":2}}");
    assert_int_equal(reader_get_run(store_reader(r->store), "", "r", note_run, run, &r->err), 0);
    assert_string_equal(run, "r 3 1-2");
    assert_int_equal(reader_each_run_step(store_reader(other), "", "r", 1, 1, note_step, steps, &r->err), 0);
    assert_string_equal(steps, "[1: 2][2: 1]");
    assert_int_equal(postgres_number(r->path, "SELECT count(*) FROM verifierd.run_sum"), 2);
    store_close(other);
}

static void
who_has_a_transaction_open_for_long_is_named(void **state)
{
    struct rig *r = *state;
    struct pg_link *l = &back_end(r)->link;
    PGconn *conn = PQconnectdb(r->path);
    char holder[192];

    PQclear(
        PQexec(conn, "SET application_name = 'someone'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"));
    assert_int_equal(pg_find_holder(l, 60, holder, sizeof(holder), &r->err), 0);
    assert_string_equal(holder, "");
    assert_int_equal(pg_find_holder(l, 0, holder, sizeof(holder), &r->err), 0);
    assert_memory_equal(holder, "someone of ", 11);
    PQfinish(conn);
}

static void
check_refused(struct rig *r, const char *where, const char *word)
{
    assert_null(open_as(r, where, "this"));
    if (!strstr(r->err.text, word))
        fail_msg("\"%s\" says nothing of \"%s\"", r->err.text, word);
    assert_null(strchr(r->err.text, '\n'));
    assert_null(strstr(r->err.text, "secret"));
}

static void
what_cannot_be_opened_gets_one_line(void **state)
{
    struct rig *r = *state;
    char url[POSTGRES_URL_SIZE];

    check_refused(r, "postgresql:///x?host=/nowhere&password=secret", "/nowhere");
    check_refused(r, "postgresql://host/x?nonsense=1", "store: invalid");
    snprintf(url, sizeof(url), "postgresql:///none%s", strchr(r->path, '?'));
    check_refused(r, url, "\"none\" does not exist");
    assert_int_equal(pg_check_version(PG_OLDEST, &r->err), 0);
    assert_int_equal(pg_check_version(120017, &r->err), ERR_STORE);
    assert_non_null(strstr(r->err.text, "has version 12, and 13 is the oldest"));
    postgres_number(r->path, "UPDATE verifierd.meta SET version = 11");
    check_refused(r, r->path, "older than any that was released");
    postgres_number(r->path, "UPDATE verifierd.meta SET version = 99, oldest = 98");
    check_refused(r, r->path, "use a newer verifierd");
    postgres_number(r->path, "DROP TABLE verifierd.meta");
    check_refused(r, r->path, "not a verifierd store");
    postgres_number(r->path,
                    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on',"
                    " current_database()); END $$");
    check_refused(r, r->path, "read-only");
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        RIGGED(what_waits_while_the_database_is_away_is_stored_when_it_is_back),
        RIGGED(a_connection_that_was_cut_between_writes_is_not_noticed),
        RIGGED(a_commit_whose_answer_was_lost_is_asked_for),
        RIGGED(a_warning_at_commit_counts_as_no_answer),
        RIGGED(the_later_of_two_lives_under_one_name_has_the_lease),
        RIGGED(a_group_that_chooses_is_judged_by_one_node_at_a_time),
        RIGGED(the_first_that_wait_are_claimed_together),
        RIGGED(nodes_claim_next_what_is_of_a_client_of_whom_less_runs_anywhere),
        RIGGED(a_claim_looks_at_no_more_than_some_of_the_clients_that_wait),
        RIGGED(no_more_of_a_client_is_claimed_by_all_nodes_than_may_run),
        RIGGED(two_claims_at_once_do_not_pass_over_a_limit),
        RIGGED(what_is_identical_runs_on_one_node_at_a_time),
        RIGGED(what_a_compiler_hands_on_is_for_others_and_goes_with_its_end),
        RIGGED(who_asks_for_a_gpu_waits_for_a_node_that_has_it),
        RIGGED(a_home_ends_with_the_life_that_made_it),
        RIGGED(a_group_that_another_node_is_taking_home_is_not_waited_for),
        RIGGED(a_name_is_not_taken_from_a_daemon_that_lives),
        RIGGED(nodes_that_are_gone_are_forgotten),
        RIGGED(a_lease_from_before_the_clock_was_set_back_ends_within_a_minute),
        RIGGED(a_node_that_was_forgotten_begins_another_epoch),
        RIGGED(a_new_schema_holds_up_nobody_while_a_table_is_in_use),
        RIGGED(who_has_a_submission_finds_that_it_is_to_be_cancelled),
        RIGGED(the_lease_is_renewed_while_the_writer_waits),
        RIGGED(what_several_nodes_judged_of_a_run_is_added_up),
        RIGGED(who_has_a_transaction_open_for_long_is_named),
        RIGGED(what_cannot_be_opened_gets_one_line),
    };

    rig_backend = &rig_backends[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
