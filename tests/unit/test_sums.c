/* test_sums.c - what the store keeps beside verdicts: counted once, by scope, within bounds, with the verdict. */
#include "server/store/store.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "tests/unit/postgres.h"
#include "tests/unit/store_rig.h"

#define NOON_MS 1700006400000 /* begins stretches of every length */

/* A submission of this row that ends at this time with this verdict; it held a device for 40 ms. */
static struct submission_row
end_row(struct rig *r, struct submission_row row, int64_t finished_ms, double reward, const char *verdict)
{
    struct submission_row end;
    struct outcome o = { 0 };

    assert_int_equal(rig_add(r, &row, "source"), 0);
    end = row;
    end.state = SUBMISSION_DONE;
    end.verdict = (char *)verdict;
    end.reward = reward;
    end.finished_ms = finished_ms;
    end.device_ms = 40;
    assert_int_equal(store_finish(r->store, &end, NULL, 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    return row;
}

static struct submission_row
end_one(struct rig *r, const char *client, int64_t finished_ms, double reward, const char *verdict)
{
    struct submission_row row = rig_row();

    row.client = (char *)client;
    return end_row(r, row, finished_ms, reward, verdict);
}

#define OK(speedup) \
    "{\"class\":\"ok\",\"passed_stage\":\"timing\",\"components\":{\"timed\":1,\"speedup\":" speedup "}}"
#define FAILED(text)                                                                                   \
    "{\"class\":\"mismatch\",\"passed_stage\":\"compile\",\"failed_at\":\"tiny\",\"error\":{\"text\":" \
    "\"" text "\"}}"

struct seen {
    int rows;
    int64_t n, ok;
    double reward_sum;
    char text[256], id[ID_SIZE];
    double figures[8];
};

static void
trend_cb(void *arg, const struct trend_row *row)
{
    struct seen *seen = arg;
    seen->rows++;
    seen->n += row->n;
    seen->reward_sum += row->reward_sum;
    seen->figures[0] += (double)row->wait_ms;
    seen->figures[1] += (double)row->device_ms;
    snprintf(seen->text, sizeof(seen->text), "%s %s %s %d", row->class_, row->failed_at, row->passed,
             row->reward_bin);
}

static struct seen
trends(struct rig *r, const char *scope, int span_s, int64_t since_s)
{
    struct seen seen = { 0 };
    assert_int_equal(
        reader_each_trend(store_reader(r->store), scope, span_s, since_s, trend_cb, &seen, &r->err), 0);
    return seen;
}

static void
verdicts_that_are_alike_are_one_row_of_each_length(void **state)
{
    struct rig *r = *state;

    end_one(r, NULL, NOON_MS, 0.3, FAILED("a"));
    end_one(r, NULL, NOON_MS + 1000, 0.31, FAILED("b"));
    for (size_t i = 0; i < 3; i++) {
        const int spans[] = { STORE_TREND_MINUTE_S, STORE_TREND_QUARTER_S, STORE_TREND_LONG_S };
        struct seen seen = trends(r, "", spans[i], 0);
        assert_int_equal(seen.rows, 1);
        assert_int_equal(seen.n, 2);
        assert_float_equal(seen.reward_sum, 0.61, 1e-9);
        assert_string_equal(seen.text, "mismatch tiny compile 4");
    }
    end_one(r, NULL, NOON_MS + 60000, 0.3, FAILED("a"));
    assert_int_equal(trends(r, "", STORE_TREND_MINUTE_S, 0).rows, 2);
    assert_int_equal(trends(r, "", STORE_TREND_QUARTER_S, 0).rows, 1);
    assert_int_equal(trends(r, "", STORE_TREND_MINUTE_S, NOON_MS / 1000 + 60).n, 1);
}

static void
a_scope_has_its_client_alone(void **state)
{
    struct rig *r = *state;
    char ann[STORE_SCOPE_SIZE], nobody[STORE_SCOPE_SIZE];

    store_scope("ann", ann);
    store_scope("", nobody);
    end_one(r, "ann", NOON_MS, 0.3, FAILED("a"));
    end_one(r, "bob", NOON_MS, 0.3, FAILED("a"));
    end_one(r, NULL, NOON_MS, 0.3, FAILED("a"));
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 3);
    assert_int_equal(trends(r, ann, STORE_TREND_LONG_S, 0).n, 1);
    assert_int_equal(trends(r, nobody, STORE_TREND_LONG_S, 0).n, 0);
}

static void
what_did_not_end_or_has_no_class_is_not_counted(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();

    assert_int_equal(rig_add(r, &row, "source"), 0);
    assert_int_equal(rig_finish(r, row.id, SUBMISSION_CANCELLED, NULL), 0);
    end_one(r, NULL, NOON_MS, NAN, "{\"class\":null}");
    end_one(r, NULL, NOON_MS, NAN, "no JSON");
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 0);
}

static void
waits_and_device_time_are_added_up(void **state)
{
    struct rig *r = *state;

    end_one(r, NULL, NOON_MS, 0.3,
            "{\"class\":\"crash\",\"stages\":[{\"wait_ms\":7.5},{\"wait_ms\":30},{\"wait_ms\":null}]}");
    end_one(r, NULL, NOON_MS, 0.3, "{\"class\":\"crash\",\"stages\":[{\"wait_ms\":5}]}");
    struct seen seen = trends(r, "", STORE_TREND_LONG_S, 0);
    assert_float_equal(seen.figures[0], 42, 0);
    assert_float_equal(seen.figures[1], 80, 0);
}

#define WEAK_OK                                                                                         \
    "{\"class\":\"ok\",\"policy\":\"strict*\",\"passed_stage\":\"timing\",\"components\":{\"timed\":1," \
    "\"speedup\":9.5}}"

static void
one_by_a_weakened_policy_leads_nothing(void **state)
{
    struct rig *r = *state;

    end_one(r, NULL, NOON_MS, 1.5, WEAK_OK);
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 0);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM leader"), 0);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM record"), 0);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM task_sum"), 0);
}

static void
one_that_is_refused_is_not_counted_again(void **state)
{
    struct rig *r = *state;
    struct submission_row row = end_one(r, NULL, NOON_MS, 0.3, FAILED("a"));

    assert_int_equal(rig_finish(r, row.id, SUBMISSION_DONE, NULL), ERR_CONFLICT);
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 1);
}

static void
one_stored_as_ended_is_counted(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();

    row.state = SUBMISSION_DONE;
    row.class_ = (char *)"ok";
    row.verdict = (char *)OK("2");
    row.finished_ms = NOON_MS;
    row.reward = 1;
    assert_int_equal(rig_add(r, &row, "source"), 0);
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 1);
}

static void
old_short_stretches_go_and_long_ones_stay(void **state)
{
    struct rig *r = *state;

    end_one(r, NULL, NOON_MS, 0.3, FAILED("a"));
    end_one(r, NULL, NOON_MS + 3 * 3600 * 1000, 0.3, FAILED("a"));
    assert_int_equal(trends(r, "", STORE_TREND_MINUTE_S, 0).n, 1);
    assert_int_equal(trends(r, "", STORE_TREND_QUARTER_S, 0).n, 2);
    end_one(r, NULL, NOON_MS + 32 * INT64_C(86400000), 0.3, FAILED("a"));
    assert_int_equal(trends(r, "", STORE_TREND_LONG_S, 0).n, 1);
    assert_int_equal(rig_number(r, "SELECT count(*) FROM failure"), 1);
}

static void
rewards_fall_into_tenths(void **state)
{
    static const struct {
        double reward;
        int bin;
    } rows[] = { { -1, 0 },    { 0, 1 },  { 0.0999, 1 }, { 0.1, 2 },  { 0.3, 4 },      { 0.7, 8 },
                 { 0.99, 10 }, { 1, 11 }, { 1e300, 11 }, { NAN, -1 }, { INFINITY, -1 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(store_reward_bin(rows[i].reward), rows[i].bin);
}

static void
failure_cb(void *arg, const struct failure_row *row)
{
    struct seen *seen = arg;

    if (seen->rows++ > 0)
        return;
    seen->n = row->n;
    snprintf(seen->text, sizeof(seen->text), "%s %s %s", row->class_, row->failed_at, row->message);
    snprintf(seen->id, sizeof(seen->id), "%s", row->last_id);
    seen->figures[0] = (double)(row->last_ms - row->first_ms);
    seen->figures[1] = (double)row->all_n;
    seen->figures[2] = (double)row->all_rows;
}

static struct seen
failures(struct rig *r, struct failure_filter f)
{
    struct seen seen = { 0 };
    f.scope = f.scope ? f.scope : "";
    f.limit = f.limit ? f.limit : 200;
    assert_int_equal(reader_each_failure(store_reader(r->store), &f, failure_cb, &seen, &r->err), 0);
    return seen;
}

static void
failures_are_grouped_by_message(void **state)
{
    struct rig *r = *state;

    end_one(r, NULL, NOON_MS, 0, FAILED("12 of 16 differ"));
    end_one(r, NULL, NOON_MS + 500, 0, FAILED("another"));
    end_one(r, NULL, NOON_MS + 1000, 0, OK("2"));
    /* In another stretch, too. */
    struct submission_row last = end_one(r, NULL, NOON_MS + 8000000, 0, FAILED("7 of 9 differ"));
    struct seen seen = failures(r, (struct failure_filter){ .class_ = "mismatch" });
    assert_int_equal(seen.rows, 2);
    assert_int_equal(seen.n, 2);
    assert_string_equal(seen.text, "mismatch tiny # of # differ");
    assert_string_equal(seen.id, last.id);
    assert_float_equal(seen.figures[0], 8000000, 0);
    assert_int_equal(failures(r, (struct failure_filter){ .class_ = "launch" }).rows, 0);
}

static void
failures_of_a_run_or_a_task_are_told_apart(void **state)
{
    struct rig *r = *state;
    struct submission_row row = rig_row();

    row.request = (char *)"{\"metadata\":{\"run\":\"grpo\"}}";
    end_row(r, row, NOON_MS, 0, FAILED("of the run"));
    end_one(r, "ann", NOON_MS, 0, FAILED("of none"));
    end_one(r, "ann", NOON_MS, 0, FAILED("of none"));
    struct seen seen = failures(r, (struct failure_filter){ .run = "grpo" });
    assert_int_equal(seen.rows, 1);
    assert_string_equal(seen.text, "mismatch tiny of the run");
    assert_int_equal(failures(r, (struct failure_filter){ .task_id = "sha256:task" }).rows, 2);
    assert_int_equal(failures(r, (struct failure_filter){ .task_id = "sha256:other" }).rows, 0);
    /* What the limit leaves out is counted. */
    seen = failures(r, (struct failure_filter){ .limit = 1 });
    assert_int_equal(seen.rows, 1);
    assert_float_equal(seen.figures[1], 3, 0);
    assert_float_equal(seen.figures[2], 2, 0);
}

/* Of the rows that the store has of failures. */
static int64_t
stored(struct rig *r, const char *what)
{
    bool is_file = strcmp(rig_backend->name, "sqlite") == 0;
    char sql[128];

    snprintf(sql, sizeof(sql), "SELECT %s FROM %s", what, is_file ? "failure" : "verifierd.cause");
    return is_file ? rig_number(r, sql) : postgres_number(r->path, sql);
}

static void
messages_without_end_take_no_room_without_end(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 518; i++) {
        char verdict[256];
        snprintf(verdict, sizeof(verdict), FAILED("kind %c%c"), 'a' + i / 26, 'a' + i % 26);
        end_one(r, NULL, NOON_MS, 0, verdict);
    }
    /* One that is known is still counted as itself. */
    end_one(r, NULL, NOON_MS, 0, FAILED("kind aa"));
    struct seen seen = failures(r, (struct failure_filter){ 0 });
    assert_float_equal(seen.figures[1], 519, 0);
    assert_float_equal(seen.figures[2], 513, 0);
    assert_int_equal(seen.n, 6);
    assert_string_equal(seen.text, "mismatch tiny ");
    assert_int_equal(stored(r, "sum(CASE message WHEN 'kind aa' THEN n END)"), 2);
}

static void
a_message_keeps_its_name_beyond_the_room_for_tasks(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 600; i++) {
        struct submission_row row = rig_row();
        snprintf(row.task_id, sizeof(row.task_id), "sha256:%d", i);
        end_row(r, row, NOON_MS, 0, FAILED("always"));
    }
    struct seen seen = failures(r, (struct failure_filter){ 0 });
    assert_int_equal(seen.rows, 1);
    assert_int_equal(seen.n, 600);
    assert_string_equal(seen.text, "mismatch tiny always");
    assert_int_equal(stored(r, "count(*)"), 513);
    /* A task that has a row goes on with it. */
    struct submission_row row = rig_row();
    snprintf(row.task_id, sizeof(row.task_id), "sha256:0");
    end_row(r, row, NOON_MS, 0, FAILED("always"));
    assert_int_equal(failures(r, (struct failure_filter){ .task_id = "sha256:0" }).n, 2);
    assert_int_equal(failures(r, (struct failure_filter){ .task_id = "sha256:599" }).rows, 0);
}

static void
task_cb(void *arg, const struct task_sum_row *row)
{
    struct seen *seen = arg;
    seen->rows++;
    seen->n = row->n;
    seen->ok = row->ok;
    seen->figures[0] = row->speedup;
    seen->figures[1] = (double)row->cheats;
    snprintf(seen->text, sizeof(seen->text), "%s", row->id);
}

static void
record_cb(void *arg, const struct record_row *row)
{
    struct seen *seen = arg;
    seen->figures[seen->rows++] = row->speedup;
}

static void
a_task_keeps_its_best_and_when_it_was_beaten(void **state)
{
    struct rig *r = *state;
    struct seen seen = { 0 }, records = { 0 };
    char scope[STORE_SCOPE_SIZE];

    store_scope("ann", scope);
    end_one(r, NULL, NOON_MS, 0.8, OK("1.5"));
    end_one(r, NULL, NOON_MS + 1, 0.7, OK("1.2"));
    end_one(r, NULL, NOON_MS + 2, 0, "{\"class\":\"hack\"}");
    end_one(r, "ann", NOON_MS + 3, 0.7, OK("1.3"));
    end_one(r, NULL, NOON_MS + 4, 0.9, OK("2.5"));
    end_one(r, NULL, NOON_MS + 5, 0.7, "{\"class\":\"ok\",\"passed_stage\":\"full\"}");
    assert_int_equal(
        reader_each_task_sum(store_reader(r->store), "", INT64_MAX, "", 10, task_cb, &seen, &r->err), 0);
    assert_int_equal(seen.rows, 1);
    assert_int_equal(seen.n, 6);
    assert_int_equal(seen.ok, 5);
    assert_float_equal(seen.figures[0], 2.5, 0);
    assert_float_equal(seen.figures[1], 1, 0);
    assert_int_equal(reader_each_task_sum(store_reader(r->store), "", NOON_MS + 5, "sha256:task", 10, task_cb,
                                          &seen, &r->err),
                     0);
    assert_int_equal(seen.rows, 1); /* nothing before it */
    assert_int_equal(
        reader_each_record(store_reader(r->store), "", "sha256:task", record_cb, &records, &r->err), 0);
    assert_int_equal(records.rows, 2);
    assert_float_equal(records.figures[0], 2.5, 0);
    assert_float_equal(records.figures[1], 1.5, 0);
    records.rows = 0;
    assert_int_equal(
        reader_each_record(store_reader(r->store), scope, "sha256:task", record_cb, &records, &r->err), 0);
    assert_int_equal(records.rows, 1);
    assert_float_equal(records.figures[0], 1.3, 0);
}

static void
leader_cb(void *arg, const struct leader_row *row)
{
    struct seen *seen = arg;
    seen->figures[seen->rows++] = row->speedup;
}

static void
leaders_are_the_fastest_first_and_go_with_their_submission(void **state)
{
    struct rig *r = *state;
    struct seen seen = { 0 };

    end_one(r, NULL, NOON_MS, 0.7, "{\"class\":\"ok\",\"passed_stage\":\"full\"}");
    end_one(r, "ann", NOON_MS, 0.8, OK("1.5"));
    struct submission_row best = end_one(r, NULL, NOON_MS, 0.9, OK("2.5"));
    end_one(r, NULL, NOON_MS, 0, FAILED("a"));
    assert_int_equal(
        reader_each_leader(store_reader(r->store), "sha256:task", NULL, 10, leader_cb, &seen, &r->err), 0);
    assert_int_equal(seen.rows, 3);
    assert_float_equal(seen.figures[0], 2.5, 0);
    assert_float_equal(seen.figures[1], 1.5, 0);
    assert_true(isnan(seen.figures[2]));
    seen.rows = 0;
    assert_int_equal(
        reader_each_leader(store_reader(r->store), "sha256:task", "ann", 10, leader_cb, &seen, &r->err), 0);
    assert_int_equal(seen.rows, 1);

    sqlite3 *db = rig_raw(r);
    char sql[128];
    snprintf(sql, sizeof(sql), "DELETE FROM submission WHERE id = '%s'", best.id);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    seen.rows = 0;
    assert_int_equal(
        reader_each_leader(store_reader(r->store), "sha256:task", NULL, 1, leader_cb, &seen, &r->err), 0);
    assert_float_equal(seen.figures[0], 1.5, 0);
}

static void
group_cb(void *arg, const struct group_sum_row *row)
{
    struct seen *seen = arg;
    seen->rows++;
    seen->n = row->by_state[SUBMISSION_DONE];
    seen->ok = row->ok;
    seen->figures[0] = row->reward;
    seen->figures[1] = row->size;
    snprintf(seen->id, sizeof(seen->id), "%s", row->id);
    snprintf(seen->text, sizeof(seen->text), "%s", row->client ? row->client : "-");
}

static void
groups_tell_how_far_they_are(void **state)
{
    struct rig *r = *state;
    struct seen seen = { 0 };
    struct group_row group = { .size = 2, .request = (char *)"{}", .created_ms = NOON_MS };
    struct submission_row rows[2] = { rig_row(), rig_row() };
    struct store_source sources[2] = { { .text = "a", .size = 1 }, { .text = "b", .size = 1 } };
    struct outcome o = { 0 };

    id_new(group.id);
    for (int i = 0; i < 2; i++) {
        rows[i].client = (char *)"ann";
        rows[i].group_index = i;
        snprintf(rows[i].group_id, ID_SIZE, "%s", group.id);
    }
    assert_int_equal(store_add_submissions(r->store, &group, NULL, rows, sources, 2, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(rig_finish(r, rows[1].id, SUBMISSION_DONE, NULL), 0);
    assert_int_equal(reader_each_group(store_reader(r->store), &(struct groups_filter){ .limit = 10 },
                                       group_cb, &seen, &r->err),
                     0);
    assert_int_equal(seen.rows, 1);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.ok, 1);
    assert_float_equal(seen.figures[0], 0.5, 0);
    assert_float_equal(seen.figures[1], 2, 0);
    assert_string_equal(seen.text, "ann");
    assert_string_equal(seen.id, group.id);
    assert_int_equal(reader_each_group(store_reader(r->store),
                                       &(struct groups_filter){ .client = "bob", .limit = 10 }, group_cb,
                                       &seen, &r->err),
                     0);
    assert_int_equal(
        reader_each_group(store_reader(r->store),
                          &(struct groups_filter){ .client = "ann", .before = group.id, .limit = 10 },
                          group_cb, &seen, &r->err),
        0);
    assert_int_equal(seen.rows, 1); /* not bob's, and none before it */
    assert_int_equal(reader_each_group(store_reader(r->store),
                                       &(struct groups_filter){ .client = "ann", .limit = 10 }, group_cb,
                                       &seen, &r->err),
                     0);
    assert_int_equal(seen.rows, 2);
    assert_int_equal(reader_each_group(store_reader(r->store), &(struct groups_filter){ .limit = 0 },
                                       group_cb, &seen, &r->err),
                     ERR_INPUT);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        RIGGED(verdicts_that_are_alike_are_one_row_of_each_length),
        RIGGED(a_scope_has_its_client_alone),
        RIGGED(what_did_not_end_or_has_no_class_is_not_counted),
        RIGGED(one_that_is_refused_is_not_counted_again),
        RIGGED(one_stored_as_ended_is_counted),
        cmocka_unit_test(rewards_fall_into_tenths),
        RIGGED(failures_of_a_run_or_a_task_are_told_apart),
        RIGGED(waits_and_device_time_are_added_up),
        RIGGED(failures_are_grouped_by_message),
        RIGGED(messages_without_end_take_no_room_without_end),
        RIGGED(a_message_keeps_its_name_beyond_the_room_for_tasks),
        RIGGED(a_task_keeps_its_best_and_when_it_was_beaten),
        RIGGED(groups_tell_how_far_they_are),
    };
    /* These look into the file. */
    const struct CMUnitTest of_sqlite[] = {
        RIGGED(one_by_a_weakened_policy_leads_nothing),
        RIGGED(old_short_stretches_go_and_long_ones_stay),
        RIGGED(leaders_are_the_fastest_first_and_go_with_their_submission),
    };
    int failed = cmocka_run_group_tests(of_sqlite, NULL, NULL);

    for (size_t i = 0; i < rig_nbackends; i++) {
        printf("== %s\n", rig_backends[i].name);
        rig_backend = &rig_backends[i];
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
