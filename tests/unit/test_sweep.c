/*
 * test_sweep.c - what is no longer to be kept goes, with all that only it named, and nothing else does: on each back end,
 * and on a PostgreSQL while another node stores the same text, or sweeps, or the connection is cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/store/backend.h"
#include "server/store/changes.h"
#include "server/store/private.h"
#include "server/store/sweep.h"
#include "tests/unit/postgres.h"
#include "tests/unit/store_rig.h"

#define OLD 1000 /* what ended before it goes */
#define NOW (INT64_C(2) * STORE_KEY_LIFE_MS)
#define PLAIN "{\"class\":\"ok\"}"

/* --- short ways --- */

static struct submission_row
row_of(const char *source)
{
    struct submission_row row = rig_row();

    snprintf(row.source_hash, sizeof(row.source_hash), "sha256:%s", source);
    return row;
}

static void
end(struct rig *r, struct submission_row row, int64_t finished_ms, const char *verdict, const char *log)
{
    struct outcome o = { 0 };

    row.state = SUBMISSION_DONE;
    row.class_ = (char *)"ok";
    row.reward = 0.5;
    row.verdict = (char *)verdict;
    row.finished_ms = finished_ms;
    assert_int_equal(store_finish(r->store, &row, log, log ? strlen(log) : 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

/* One that ended then; its id stays the caller's. */
static struct submission_row
add_ended(struct rig *r, const char *source, int64_t finished_ms, const char *verdict, const char *log)
{
    struct submission_row row = row_of(source);

    assert_int_equal(rig_add(r, &row, source), 0);
    end(r, row, finished_ms, verdict, log);
    return row;
}

/* A group of two, stored under the key (may be NULL), and when they ended; 0: not yet. */
static struct group_row
add_pair(struct rig *r, struct submission_row rows[2], const char *key, int64_t first_ms, int64_t second_ms)
{
    struct group_row group = { .request = (char *)"{}", .size = 2 };
    const int64_t ends[2] = { first_ms, second_ms };
    const struct store_source sources[2] = { { "p", 1, "so: p", 5 }, { .text = "q", .size = 1 } };
    struct key_row kept = { .created_ms = NOW, .request_hash = "h" };
    struct outcome o = { 0 };

    id_new(group.id);
    for (int i = 0; i < 2; i++) {
        rows[i] = row_of(group.id);
        rows[i].group_index = i;
        memcpy(rows[i].group_id, group.id, ID_SIZE);
    }
    memcpy(kept.id, group.id, ID_SIZE);
    snprintf(kept.key, sizeof(kept.key), "%s", key ? key : "");
    assert_int_equal(
        store_add_submissions(r->store, &group, key ? &kept : NULL, rows, sources, 2, rig_done, &o, &r->err),
        0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    for (int i = 0; i < 2; i++)
        if (ends[i] > 0)
            end(r, rows[i], ends[i], PLAIN, NULL);
    return group;
}

static struct store_sweep
sweep(struct rig *r, enum sweep_what what, int64_t most)
{
    struct store_sweep step = { .what = what, .before_ms = OLD, .most = most, .now_ms = NOW };
    struct outcome o = { 0 };

    for (int i = 0; !step.is_over; i++) {
        assert_true(i < 100);
        assert_int_equal(store_sweep_step(r->store, &step, rig_done, &o, &r->err), 0);
        rig_wait(r);
        assert_int_equal(o.code, 0);
    }
    return step;
}

static bool
is_there(struct rig *r, const char *id)
{
    struct submission_row row;
    int rc = reader_get_submission(store_reader(r->store), id, &row, &r->err);

    assert_true(rc == 0 || rc == ERR_NOTFOUND);
    submission_row_release(&row);
    return rc == 0;
}

static bool
is_group_there(struct rig *r, const char *id)
{
    struct group_row row;
    int rc = reader_get_group(store_reader(r->store), id, &row, &r->err);

    assert_true(rc == 0 || rc == ERR_NOTFOUND);
    group_row_release(&row);
    return rc == 0;
}

/* What a model answered; "": nothing is kept, or the submission is gone. */
static void
expect_answer(struct rig *r, const char *id, const char *expected)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    int rc = reader_get_completion(store_reader(r->store), id, &text, &r->err);
    assert_int_equal(rc, is_there(r, id) ? 0 : ERR_NOTFOUND);
    assert_string_equal(text.data ? text.data : "", expected);
}

static bool
is_text_there(struct rig *r, const char *name)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    char hash[HASH_TEXT_SIZE];

    snprintf(hash, sizeof(hash), "sha256:%s", name);
    int rc = reader_get_source(store_reader(r->store), hash, &text, &r->err);
    assert_true(rc == 0 || rc == ERR_NOTFOUND);
    return rc == 0;
}

static int64_t
ended(struct rig *r)
{
    struct store_counts counts;

    assert_int_equal(reader_count(store_reader(r->store), &counts, &r->err), 0);
    return counts.by_state[SUBMISSION_DONE];
}

static void
count_leader(void *arg, const struct leader_row *row)
{
    (void)row;
    ++*(int *)arg;
}

/* --- on each back end --- */

static void
a_submission_goes_unless_it_is_referred_to(void **state)
{
    static const char timed[] = "{\"class\":\"ok\",\"components\":{\"timed\":1,\"speedup\":%d}}";
    struct rig *r = *state;
    char fast[128], slow[128], handed[128];
    int leaders = 0;
    struct submission_row waits = row_of("waits"), answered = row_of("answered");
    struct key_row key = { .created_ms = NOW, .request_hash = "h", .key = "k" };
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    snprintf(fast, sizeof(fast), timed, 3);
    snprintf(slow, sizeof(slow), timed, 2);
    struct submission_row fastest = add_ended(r, "fastest", 1, fast, NULL);
    struct submission_row slower = add_ended(r, "slower", 2, slow, "said");
    struct submission_row shares = add_ended(r, "shared", 3, PLAIN, NULL);
    struct submission_row young = add_ended(r, "shared", OLD, PLAIN, NULL);
    struct submission_row first = add_ended(r, "first", 4, PLAIN, NULL);
    snprintf(handed, sizeof(handed), "{\"class\":\"ok\",\"cached_from\":\"%s\"}", first.id);
    struct submission_row second = add_ended(r, "second", OLD, handed, NULL);
    memcpy(key.id, answered.id, ID_SIZE);
    assert_int_equal(
        store_add_submissions(r->store, NULL, &key, &answered, &source, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    end(r, answered, 5, PLAIN, NULL);
    assert_int_equal(rig_add(r, &waits, "waits"), 0);

    struct store_sweep done = sweep(r, SWEEP_SUBMISSIONS, INT64_MAX);
    assert_int_equal(done.submissions, 2);
    assert_int_equal(done.groups, 0);
    assert_int_equal(done.blobs, 2); /* a source, and captured output */
    assert_false(is_there(r, slower.id) || is_there(r, shares.id));
    assert_false(is_text_there(r, "slower"));
    assert_true(is_there(r, fastest.id) && is_there(r, young.id) && is_there(r, first.id));
    assert_true(is_there(r, second.id) && is_there(r, answered.id) && is_there(r, waits.id));
    assert_true(is_text_there(r, "shared"));
    assert_int_equal(ended(r), 5);
    assert_int_equal(
        reader_each_leader(store_reader(r->store), fastest.task_id, NULL, 9, count_leader, &leaders, &r->err),
        0);
    assert_int_equal(leaders, 5);
}

static void
a_group_goes_whole_or_not_at_all(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[2], gone[2];
    char handed[128];

    struct group_row goes = add_pair(r, gone, NULL, 30, 10), young = add_pair(r, rows, NULL, 1, OLD);
    struct group_row open = add_pair(r, rows, NULL, 1, 0), answered = add_pair(r, rows, "k", 1, 2);
    struct group_row referred = add_pair(r, rows, NULL, 40, 50);
    snprintf(handed, sizeof(handed), "{\"class\":\"ok\",\"cached_from\":\"%s\"}", rows[0].id);
    add_ended(r, "refers", OLD, handed, NULL);

    expect_answer(r, gone[0].id, "so: p");
    struct store_sweep done = sweep(r, SWEEP_SUBMISSIONS, INT64_MAX);
    assert_int_equal(done.submissions, 2);
    assert_int_equal(done.groups, 1);
    expect_answer(r, gone[0].id, "");
    expect_answer(r, rows[0].id, "so: p");
    expect_answer(r, rows[1].id, "");
    assert_false(is_group_there(r, goes.id) || is_text_there(r, goes.id));
    /* It went, too: it would be in the way of the same id. */
    const struct store_source again = { .text = "p", .size = 1, "once more", 9 };
    struct outcome o = { 0 };
    gone[0].group_id[0] = '\0';
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, gone, &again, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    expect_answer(r, gone[0].id, "once more");
    assert_true(is_group_there(r, young.id) && is_group_there(r, open.id));
    assert_true(is_group_there(r, answered.id) && is_group_there(r, referred.id));
    assert_true(is_text_there(r, referred.id));
    assert_int_equal(ended(r), 8);
}

/* More than two batches, of groups that each lie across all of them. */
static void
of_many_as_many_go_as_are_to_go(void **state)
{
    enum { GROUPS = 170, SIZE = 3 };
    struct rig *r = *state;
    const struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };
    char ids[GROUPS][ID_SIZE];

    for (int g = 0; g < GROUPS; g++) {
        struct group_row group = { .request = (char *)"{}", .size = SIZE };
        struct submission_row rows[SIZE];
        struct store_source sources[SIZE] = { source, source, source };
        id_new(group.id);
        memcpy(ids[g], group.id, ID_SIZE);
        for (int i = 0; i < SIZE; i++) {
            rows[i] = row_of("x");
            rows[i].group_index = i;
            rows[i].state = SUBMISSION_DONE;
            rows[i].verdict = (char *)PLAIN;
            rows[i].finished_ms = 1 + g + i * GROUPS;
            memcpy(rows[i].group_id, group.id, ID_SIZE);
        }
        assert_int_equal(
            store_add_submissions(r->store, &group, NULL, rows, sources, SIZE, rig_done, &o, &r->err), 0);
    }
    rig_wait(r);
    assert_int_equal(sweep(r, SWEEP_SUBMISSIONS, 100).submissions, 34 * SIZE); /* a group is not cut */
    for (int g = 0; g < GROUPS; g++)
        assert_int_equal(is_group_there(r, ids[g]), g >= 34);
    assert_true(is_text_there(r, "x"));
    struct store_sweep done = sweep(r, SWEEP_SUBMISSIONS, INT64_MAX);
    assert_int_equal(done.submissions, (GROUPS - 34) * SIZE);
    assert_int_equal(done.groups, GROUPS - 34);
    assert_int_equal(ended(r), 0);
    assert_false(is_text_there(r, "x"));
}

static void
captured_output_goes_alone(void **state)
{
    struct rig *r = *state;
    char hash[HASH_TEXT_SIZE];
    AUTO_BUFFER struct buffer log = BUFFER_INIT;

    struct submission_row old = add_ended(r, "a", 1, PLAIN, "said"),
                          same = add_ended(r, "b", 2, PLAIN, "both");
    struct submission_row young = add_ended(r, "c", OLD, PLAIN, "both"), source = row_of("d");
    hash_text("text", 4, hash);
    memcpy(source.source_hash, hash, sizeof(hash));
    assert_int_equal(rig_add(r, &source, "text"), 0);
    end(r, source, 3, PLAIN, "text");

    struct store_sweep done = sweep(r, SWEEP_LOGS, INT64_MAX);
    assert_int_equal(done.logs, 3);
    assert_int_equal(done.blobs, 1);
    assert_int_equal(done.submissions, 0);
    assert_int_equal(reader_get_log(store_reader(r->store), old.id, &log, &r->err), 0);
    assert_int_equal(reader_get_log(store_reader(r->store), same.id, &log, &r->err), 0);
    assert_int_equal(log.size, 0);
    assert_int_equal(reader_get_log(store_reader(r->store), young.id, &log, &r->err), 0);
    assert_string_equal(log.data, "both");
    assert_true(is_text_there(r, hash + strlen("sha256:")));
}

/* --- beside other sessions of a PostgreSQL --- */

static struct store *
open_other(struct rig *r)
{
    const struct store_options options = { .node = "other", .lease_ms = STORE_LEASE_ENDLESS };
    struct store *s;

    assert_int_equal(store_open(&r->loop, r->path, &options, 10, &s, &r->err), 0);
    return s;
}

/* The loop runs for a while, and the write is not done yet. */
static void
check_waits(struct rig *r, const struct outcome *o)
{
    for (int i = 0; i < 30; i++) {
        uv_run(&r->loop, UV_RUN_NOWAIT);
        uv_sleep(10);
    }
    assert_int_equal(o->calls, 0);
}

/* What another node stores has not been committed when its old text goes: that is waited for. */
static void
check_named_again(struct rig *r, bool is_committed)
{
    const char *text = is_committed ? "kept" : "dropped";
    struct store *other = open_other(r);
    struct store_backend *b = other->backend;
    struct submission_row old = add_ended(r, text, 1, PLAIN, NULL), again = row_of(text);
    const struct store_source source = { .text = text, .size = strlen(text) };
    struct store_intake intake = { .rows = &again, .sources = &source, .n = 1 };
    struct store_sweep step = { .before_ms = OLD, .most = INT64_MAX, .now_ms = NOW };
    struct outcome o = { 0 };

    assert_int_equal(b->ops->begin(b, &r->err), 0);
    assert_int_equal(change_add_submissions(b, &intake, &r->err), 0);
    assert_int_equal(store_sweep_step(r->store, &step, rig_done, &o, &r->err), 0);
    check_waits(r, &o);
    if (is_committed)
        assert_int_equal(b->ops->commit(b, &r->err), 0);
    else
        b->ops->rollback(b);
    rig_wait(r);
    store_close(other);
    assert_int_equal(o.code, 0);
    assert_int_equal(step.blobs, !is_committed);
    assert_false(is_there(r, old.id));
    assert_int_equal(is_there(r, again.id), is_committed);
    assert_int_equal(is_text_there(r, text), is_committed);
}

static void
a_text_stays_that_is_named_again_at_that_moment(void **state)
{
    check_named_again(*state, true);
    check_named_again(*state, false);
}

/* The other way round: who stores a text that is going waits, and finds that it is to be stored anew. */
static void
a_text_that_is_going_is_stored_anew(void **state)
{
    struct rig *r = *state;
    struct store *other = open_other(r);
    struct store_backend *b = r->store->backend;
    struct submission_row again = row_of("x");
    const struct store_source source = { .text = "x", .size = 1 };
    struct store_sweep step = { .before_ms = OLD, .most = INT64_MAX, .now_ms = NOW };
    struct outcome o = { 0 };

    add_ended(r, "x", 1, PLAIN, NULL);
    assert_int_equal(b->ops->begin(b, &r->err), 0);
    assert_int_equal(sweep_step(b, &step, &r->err), 0);
    assert_int_equal(step.blobs, 1);
    assert_int_equal(store_add_submissions(other, NULL, NULL, &again, &source, 1, rig_done, &o, &r->err), 0);
    check_waits(r, &o);
    assert_int_equal(b->ops->commit(b, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_true(is_text_there(r, "x"));
    store_close(other);
}

static void
a_sweep_goes_on_while_another_node_prunes_its_sums(void **state)
{
    struct rig *r = *state;
    struct store *other = open_other(r);
    struct store_backend *b = other->backend;
    bool is_alone = false;

    add_ended(r, "x", 1, PLAIN, NULL);
    assert_int_equal(b->ops->begin(b, &r->err), 0);
    assert_int_equal(b->ops->is_alone(b, DUTY_PRUNES, &is_alone, &r->err), 0);
    assert_true(is_alone);
    assert_int_equal(sweep(r, SWEEP_SUBMISSIONS, INT64_MAX).submissions, 1);
    b->ops->rollback(b);
    store_close(other);
}

static void
one_node_sweeps_at_a_time_and_what_it_began_is_undone_with_it(void **state)
{
    struct rig *r = *state;
    struct store *other = open_other(r);
    struct store_backend *b = other->backend;
    struct store_sweep step = { .before_ms = OLD, .most = INT64_MAX, .now_ms = NOW };
    struct submission_row old = add_ended(r, "x", 1, PLAIN, "said");

    assert_int_equal(b->ops->begin(b, &r->err), 0);
    assert_int_equal(sweep_step(b, &step, &r->err), 0);
    assert_int_equal(step.submissions, 1);
    assert_int_equal(sweep(r, SWEEP_SUBMISSIONS, INT64_MAX).submissions, 0);
    postgres_number(r->path, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                             " WHERE state = 'idle in transaction'");
    assert_true(b->ops->commit(b, &r->err) < 0);
    assert_true(is_there(r, old.id) && is_text_there(r, "x"));
    assert_int_equal(ended(r), 1);
    assert_int_equal(sweep(r, SWEEP_SUBMISSIONS, INT64_MAX).blobs, 2);
    store_close(other);
}

/* Neither sees that the other is going; the later of the two takes the text that both named. */
static void
a_text_goes_with_a_task_and_a_submission_that_go_at_once(void **state)
{
    struct rig *r = *state;
    struct store *other = open_other(r);
    struct store_backend *b = other->backend;
    struct task_row task = { .id = "sha256:t", .reference = (char *)"text", .reference_size = 4 };
    char hash[HASH_TEXT_SIZE];

    task.entry_point = (char *)"Model";
    hash_text("text", 4, hash);
    for (int is_sweep_first = 0; is_sweep_first < 2; is_sweep_first++) {
        struct submission_row row = rig_row();
        struct store_sweep step = { .before_ms = OLD, .most = INT64_MAX, .now_ms = NOW };
        struct outcome o = { 0 }, added = { 0 };
        memcpy(row.source_hash, hash, sizeof(hash));
        assert_int_equal(rig_add(r, &row, "text"), 0);
        end(r, row, 1, PLAIN, NULL);
        assert_int_equal(store_add_task(r->store, &task, rig_done, &added, &r->err), 0);
        rig_wait(r);
        assert_int_equal(b->ops->begin(b, &r->err), 0);
        if (is_sweep_first) {
            assert_int_equal(sweep_step(b, &step, &r->err), 0);
            assert_int_equal(store_remove_task(r->store, NULL, task.id, rig_done, &o, &r->err), 0);
        } else {
            struct store_naming naming = { .client = NULL };
            memcpy(naming.id, task.id, sizeof(naming.id));
            assert_int_equal(change_remove_task(b, &naming, &r->err), 0);
            assert_int_equal(store_sweep_step(r->store, &step, rig_done, &o, &r->err), 0);
        }
        check_waits(r, &o);
        assert_int_equal(b->ops->commit(b, &r->err), 0);
        rig_wait(r);
        assert_int_equal(o.code, 0);
        assert_int_equal(step.submissions, 1);
        assert_false(is_text_there(r, hash + strlen("sha256:")));
    }
    store_close(other);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    static const struct CMUnitTest all[] = {
        RIGGED(a_submission_goes_unless_it_is_referred_to),
        RIGGED(a_group_goes_whole_or_not_at_all),
        RIGGED(of_many_as_many_go_as_are_to_go),
        RIGGED(captured_output_goes_alone),
    };
    static const struct CMUnitTest of_nodes[] = {
        RIGGED(a_text_stays_that_is_named_again_at_that_moment),
        RIGGED(a_text_that_is_going_is_stored_anew),
        RIGGED(a_text_goes_with_a_task_and_a_submission_that_go_at_once),
        RIGGED(a_sweep_goes_on_while_another_node_prunes_its_sums),
        RIGGED(one_node_sweeps_at_a_time_and_what_it_began_is_undone_with_it),
    };
    int failed = 0;

    for (size_t i = 0; i < rig_nbackends; i++) {
        printf("== %s\n", rig_backends[i].name);
        rig_backend = &rig_backends[i];
        failed += cmocka_run_group_tests(all, NULL, NULL);
    }
    return failed + cmocka_run_group_tests(of_nodes, NULL, NULL);
}
