/*
 * test_store_conformance.c - what every back end of the store promises: the cases use store.h alone, and run once for each
 * back end (store_rig.h). What goes in comes out, in the right order, once, or not at all; and what is judged has one owner.
 */
#include "server/store/store.h"

#include <math.h>
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
#include "server/store/labels.h"
#include "tests/unit/store_rig.h"

/* --- names --- */

static void
every_state_has_a_name_that_leads_back(void **state)
{
    (void)state;
    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        assert_int_equal(submission_state_find(submission_state_name((enum submission_state)i)), i);
    assert_int_equal(submission_state_find("timing"), -1);
    assert_string_equal(submission_state_name(SUBMISSION_CANCELLED), "cancelled");
}

/* --- tasks --- */

static struct task_row
a_task(const char *id, const char *name)
{
    static const char reference[] = "class Model:\n    text = '\0 inside'\n";
    struct task_row row = {
        .name = (char *)name,
        .entry_point = (char *)"Model",
        .level = 2,
        .dynamic_shapes = true,
        .reference = (char *)reference,
        .reference_size = sizeof reference - 1,
        .spec = (char *)"{\"cases\":[]}",
        .created_ms = 1700000000123,
    };

    snprintf(row.id, sizeof row.id, "%s", id);
    return row;
}

static int
add_task(struct rig *r, const struct task_row *row)
{
    struct outcome o = { 0 };

    assert_int_equal(store_add_task(r->store, row, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.calls, 1);
    return o.code;
}

static void
a_task_comes_back_as_it_was(void **state)
{
    struct rig *r = *state;
    struct task_row in = a_task("sha256:a", "relu"), out;

    assert_int_equal(add_task(r, &in), 0);
    rig_reopen(r);
    assert_int_equal(reader_get_task(store_reader(r->store), "sha256:a", &out, &r->err), 0);
    assert_string_equal(out.id, in.id);
    assert_string_equal(out.name, in.name);
    assert_string_equal(out.entry_point, in.entry_point);
    assert_int_equal(out.level, 2);
    assert_true(out.dynamic_shapes);
    assert_int_equal(out.reference_size, in.reference_size);
    assert_memory_equal(out.reference, in.reference, in.reference_size);
    assert_string_equal(out.spec, in.spec);
    assert_null(out.metadata);
    assert_int_equal(out.created_ms, in.created_ms);
    task_row_release(&out);
}

static void
a_task_that_exists_stays_as_it_is(void **state)
{
    struct rig *r = *state;
    struct task_row first = a_task("sha256:a", "relu"), second = a_task("sha256:a", "other"), out;
    struct store_counts counts;

    assert_int_equal(add_task(r, &first), 0);
    assert_int_equal(add_task(r, &second), 0);
    assert_int_equal(reader_get_task(store_reader(r->store), "sha256:a", &out, &r->err), 0);
    assert_string_equal(out.name, "relu");
    task_row_release(&out);
    assert_int_equal(reader_count(store_reader(r->store), &counts, &r->err), 0);
    assert_int_equal(counts.tasks, 1);
}

static int
name_task(struct rig *r, const char *client, const char *name, const char *id)
{
    struct outcome o = { 0 };

    assert_int_equal(store_name_task(r->store, client, name, id, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static int
rename_task(struct rig *r, const char *client, const char *name, const char *id)
{
    struct outcome o = { 0 };

    assert_int_equal(store_rename_task(r->store, client, name, id, 2, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static int
remove_task(struct rig *r, const char *client, const char *id)
{
    struct outcome o = { 0 };

    assert_int_equal(store_remove_task(r->store, client, id, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static void
check_found(struct rig *r, const char *client, const char *name, const char *id, bool is_own)
{
    char found[HASH_TEXT_SIZE] = "";
    bool found_own = false;

    int code = reader_find_task(store_reader(r->store), client, name, found, &found_own, &r->err);
    assert_int_equal(code, id ? 0 : ERR_NOTFOUND);
    assert_string_equal(found, id ? id : "");
    assert_int_equal(found_own, is_own);
}

static void
check_shown(struct rig *r, const char *id, const char *name)
{
    struct task_row row;

    assert_int_equal(reader_get_task(store_reader(r->store), id, &row, &r->err), name ? 0 : ERR_NOTFOUND);
    if (name)
        assert_string_equal(row.name, name);
    task_row_release(&row);
}

static void
names_are_a_clients_own_and_else_the_oldest(void **state)
{
    struct rig *r = *state;
    struct task_row a = a_task("sha256:a", "relu"), b = a_task("sha256:b", "relu");

    assert_int_equal(add_task(r, &a), 0);
    assert_int_equal(add_task(r, &b), 0);
    check_found(r, "", "relu", NULL, false);
    assert_int_equal(name_task(r, "", "relu", "sha256:a"), 0);
    assert_int_equal(name_task(r, "", "relu", "sha256:a"), 0);
    assert_int_equal(name_task(r, "", "relu", "sha256:b"), ERR_CONFLICT);
    assert_int_equal(name_task(r, "bob", "relu", "sha256:b"), 0);
    check_found(r, NULL, "relu", "sha256:a", true);
    check_found(r, "bob", "relu", "sha256:b", true);
    check_found(r, "carol", "relu", "sha256:a", false);
    rig_reopen(r);
    check_found(r, "bob", "relu", "sha256:b", true);
}

static void
a_name_is_changed_for_who_has_it(void **state)
{
    struct rig *r = *state;
    struct task_row a = a_task("sha256:a", "relu"), b = a_task("sha256:b", "gelu");

    assert_int_equal(add_task(r, &a), 0);
    assert_int_equal(add_task(r, &b), 0);
    assert_int_equal(name_task(r, "", "relu", "sha256:a"), 0);
    assert_int_equal(name_task(r, "", "gelu", "sha256:b"), 0);
    assert_int_equal(name_task(r, "bob", "mine", "sha256:a"), 0);
    assert_int_equal(rename_task(r, "carol", "x", "sha256:a"), ERR_INPUT);
    assert_int_equal(rename_task(r, "", "x", "sha256:none"), ERR_NOTFOUND);
    assert_int_equal(rename_task(r, NULL, "gelu", "sha256:a"), ERR_CONFLICT);
    check_found(r, "", "relu", "sha256:a", true); /* a refusal changes nothing */
    assert_int_equal(rename_task(r, "bob", "gelu", "sha256:a"), 0);
    check_found(r, "bob", "gelu", "sha256:a", true);
    check_found(r, "bob", "mine", NULL, false);
    check_shown(r, "sha256:a", "relu");
    assert_int_equal(rename_task(r, NULL, "relu2", "sha256:a"), 0);
    check_found(r, "", "relu2", "sha256:a", true);
    check_shown(r, "sha256:a", "relu2");
}

static void
a_task_goes_with_its_last_name(void **state)
{
    struct rig *r = *state;
    struct task_row a = a_task("sha256:task", "relu");
    struct submission_row in = rig_row();
    const struct store_source source = { .text = "code", .size = 4 };
    struct outcome o = { 0 };
    AUTO_BUFFER struct buffer kept = BUFFER_INIT;

    memcpy(in.task_id, a.id, sizeof(a.id));
    assert_int_equal(add_task(r, &a), 0);
    assert_int_equal(name_task(r, "", "relu", a.id), 0);
    assert_int_equal(name_task(r, "bob", "mine", a.id), 0);
    assert_int_equal(remove_task(r, "carol", a.id), ERR_INPUT);
    assert_int_equal(remove_task(r, "", a.id), 0);
    check_shown(r, a.id, "mine");
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, &in, &source, 1, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(remove_task(r, "bob", a.id), ERR_CONFLICT);
    check_found(r, "bob", "mine", a.id, true);
    in.state = SUBMISSION_CANCELLED;
    in.finished_ms = 3;
    assert_int_equal(store_finish(r->store, &in, NULL, 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(remove_task(r, NULL, a.id), 0);
    check_shown(r, a.id, NULL);
    check_found(r, "bob", "mine", NULL, false);
    assert_int_equal(reader_get_source(store_reader(r->store), in.source_hash, &kept, &r->err),
                     0); /* the submission's stays */
    assert_int_equal(remove_task(r, NULL, a.id), ERR_NOTFOUND);
}

struct names {
    char text[256];
    int stop_after;
};

static bool
note_task(void *arg, const struct task_row *row)
{
    struct names *n = arg;

    assert_null(row->reference);
    assert_null(row->spec);
    strcat(n->text, row->id + strlen("sha256:"));
    return --n->stop_after != 0;
}

static void
check_tasks(struct rig *r, const char *name, const char *after, int limit, int stop_after,
            const char *expected)
{
    struct names n = { "", stop_after };

    assert_int_equal(reader_list_tasks(store_reader(r->store), name, after, limit, note_task, &n, &r->err),
                     0);
    assert_string_equal(n.text, expected);
}

static void
tasks_are_listed_by_id(void **state)
{
    struct rig *r = *state;
    static const char *const ids[] = { "sha256:c", "sha256:a", "sha256:d", "sha256:b" };

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct task_row row = a_task(ids[i], i % 2 == 0 ? "even" : "odd");
        assert_int_equal(add_task(r, &row), 0);
    }
    check_tasks(r, NULL, NULL, 200, 0, "abcd");
    check_tasks(r, NULL, NULL, 3, 0, "abc");
    check_tasks(r, NULL, "sha256:b", 200, 0, "cd");
    check_tasks(r, "even", NULL, 200, 0, "cd");
    check_tasks(r, "odd", "sha256:a", 200, 0, "b");
    check_tasks(r, NULL, NULL, 200, 2, "ab");
    check_tasks(r, "none", NULL, 200, 0, "");
}

static bool
list_again(void *arg, const struct task_row *row)
{
    struct rig *r = arg;
    struct names n = { "", 0 };

    (void)row;
    assert_int_equal(reader_list_tasks(store_reader(r->store), NULL, NULL, 1, note_task, &n, &r->err),
                     ERR_STORE);
    return true;
}

static void
a_list_within_itself_is_refused(void **state)
{
    struct rig *r = *state;
    struct task_row row = a_task("sha256:a", "relu");

    assert_int_equal(add_task(r, &row), 0);
    assert_int_equal(reader_list_tasks(store_reader(r->store), NULL, NULL, 1, list_again, r, &r->err), 0);
    check_tasks(r, NULL, NULL, 1, 0, "a");
}

/* --- one submission --- */

static void
check_answer(struct rig *r, const char *id, const char *client, const char *verdict)
{
    char *got_client, *got_verdict;

    assert_int_equal(reader_get_answer(store_reader(r->store), id, &got_client, &got_verdict, &r->err), 0);
    assert_true(client ? got_client && strcmp(got_client, client) == 0 : !got_client);
    assert_true(verdict ? got_verdict && strcmp(got_verdict, verdict) == 0 : !got_verdict);
    free(got_client);
    free(got_verdict);
}

static void
a_submission_comes_back_as_it_was(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row(), out;
    AUTO_BUFFER struct buffer source = BUFFER_INIT;

    in.priority = 1;
    in.client = (char *)"trainer-7";
    in.group_index = 0;
    assert_int_equal(rig_add(r, &in, "import triton\n"), 0);
    rig_reopen(r);
    assert_int_equal(reader_get_submission(store_reader(r->store), in.id, &out, &r->err), 0);
    assert_string_equal(out.id, in.id);
    assert_string_equal(out.group_id, "");
    assert_string_equal(out.task_id, in.task_id);
    assert_string_equal(out.source_hash, in.source_hash);
    assert_int_equal(out.state, SUBMISSION_QUEUED);
    assert_int_equal(out.priority, 1);
    assert_string_equal(out.client, "trainer-7");
    assert_string_equal(out.request, in.request);
    assert_int_equal(out.created_ms, in.created_ms);
    assert_int_equal(out.finished_ms, 0);
    assert_null(out.stage);
    assert_null(out.class_);
    assert_true(isnan(out.reward));
    assert_null(out.verdict);
    submission_row_release(&out);
    check_answer(r, in.id, "trainer-7", NULL);
    assert_int_equal(reader_get_source(store_reader(r->store), in.source_hash, &source, &r->err), 0);
    assert_string_equal(source.data, "import triton\n");
}

static void
what_is_not_there_is_not_found(void **state)
{
    struct rig *r = *state;
    struct task_row task;
    struct submission_row submission;
    struct group_row group;
    char *client, *verdict;
    AUTO_BUFFER struct buffer b = BUFFER_INIT;

    assert_int_equal(reader_get_task(store_reader(r->store), "sha256:x", &task, &r->err), ERR_NOTFOUND);
    assert_non_null(strstr(r->err.text, "sha256:x"));
    assert_int_equal(reader_get_submission(store_reader(r->store), "no", &submission, &r->err), ERR_NOTFOUND);
    assert_int_equal(reader_get_answer(store_reader(r->store), "no", &client, &verdict, &r->err),
                     ERR_NOTFOUND);
    assert_true(!client && !verdict);
    assert_int_equal(reader_get_group(store_reader(r->store), "no", &group, &r->err), ERR_NOTFOUND);
    assert_int_equal(reader_get_source(store_reader(r->store), "sha256:x", &b, &r->err), ERR_NOTFOUND);
    assert_int_equal(reader_get_log(store_reader(r->store), "no", &b, &r->err), ERR_NOTFOUND);
    assert_int_equal(b.size, 0);
}

static void
a_verdict_comes_back_with_its_log(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row(), out;
    AUTO_BUFFER struct buffer log = BUFFER_INIT;

    assert_int_equal(rig_add(r, &in, "x = 1"), 0);
    assert_int_equal(reader_get_log(store_reader(r->store), in.id, &log, &r->err), 0);
    assert_int_equal(log.size, 0);
    assert_int_equal(rig_begin(r, in.id), 0);
    assert_int_equal(rig_finish(r, in.id, SUBMISSION_DONE, "hello from the kernel\n"), 0);
    rig_reopen(r);
    assert_int_equal(reader_get_submission(store_reader(r->store), in.id, &out, &r->err), 0);
    assert_int_equal(out.state, SUBMISSION_DONE);
    assert_int_equal(out.attempts, 1);
    assert_int_equal(out.finished_ms, 1700000001000);
    assert_string_equal(out.stage, "full");
    assert_string_equal(out.class_, "ok");
    assert_true(out.reward == 0.5);
    assert_string_equal(out.verdict, "{\"class\":\"ok\"}");
    submission_row_release(&out);
    check_answer(r, in.id, NULL, "{\"class\":\"ok\"}");
    assert_int_equal(reader_get_log(store_reader(r->store), in.id, &log, &r->err), 0);
    assert_string_equal(log.data, "hello from the kernel\n");
}

static void
a_finished_row_may_be_added_at_once(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row(), out;

    in.state = SUBMISSION_DONE;
    in.class_ = (char *)"mismatch";
    in.reward = 0.3;
    in.verdict = (char *)"{}";
    in.finished_ms = 5;
    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(reader_get_submission(store_reader(r->store), in.id, &out, &r->err), 0);
    assert_int_equal(out.state, SUBMISSION_DONE);
    assert_string_equal(out.class_, "mismatch");
    assert_true(out.reward == 0.3);
    assert_int_equal(out.finished_ms, 5);
    submission_row_release(&out);
}

/* --- moves, and what a restart takes up --- */

enum verb { BEGIN, REQUEUE, FINISH, CANCEL, NVERBS };

static int
do_verb(struct rig *r, enum verb verb, const char *id)
{
    switch (verb) {
    case BEGIN:
        return rig_begin(r, id);
    case REQUEUE:
        return rig_release(r, id, 0);
    case FINISH:
        return rig_finish(r, id, SUBMISSION_DONE, NULL);
    default:
        return rig_finish(r, id, SUBMISSION_CANCELLED, NULL);
    }
}

static void
put_into(struct rig *r, enum submission_state wanted, char id[ID_SIZE])
{
    struct submission_row row = rig_row();

    memcpy(id, row.id, ID_SIZE);
    assert_int_equal(rig_add(r, &row, "x"), 0);
    if (wanted == SUBMISSION_RUNNING)
        assert_int_equal(rig_begin(r, id), 0);
    else if (wanted != SUBMISSION_QUEUED)
        assert_int_equal(rig_finish(r, id, wanted, NULL), 0);
}

static int
state_of(struct rig *r, const char *id)
{
    struct submission_row row;
    int found;

    assert_int_equal(reader_get_submission(store_reader(r->store), id, &row, &r->err), 0);
    found = row.state;
    submission_row_release(&row);
    return found;
}

static void
every_state_has_its_moves(void **state)
{
    struct rig *r = *state;
    /* The state after each verb; -1: refused, and the state stays. */
    static const int after[SUBMISSION_NSTATES][NVERBS] = {
        [SUBMISSION_QUEUED] = { SUBMISSION_RUNNING, -1, SUBMISSION_DONE, SUBMISSION_CANCELLED },
        [SUBMISSION_RUNNING] = { -1, SUBMISSION_QUEUED, SUBMISSION_DONE, SUBMISSION_CANCELLED },
        [SUBMISSION_DONE] = { -1, -1, -1, -1 },
        [SUBMISSION_CANCELLED] = { -1, -1, -1, -1 },
    };
    char id[ID_SIZE];

    for (int from = 0; from < SUBMISSION_NSTATES; from++) {
        for (int verb = 0; verb < NVERBS; verb++) {
            int to = after[from][verb];
            put_into(r, (enum submission_state)from, id);
            assert_int_equal(do_verb(r, (enum verb)verb, id), to < 0 ? ERR_CONFLICT : 0);
            assert_int_equal(state_of(r, id), to < 0 ? from : to);
            if (to < 0)
                assert_non_null(strstr(r->err.text, submission_state_name((enum submission_state)from)));
        }
    }
    for (int verb = 0; verb < NVERBS; verb++)
        assert_int_equal(do_verb(r, (enum verb)verb, "0199f2c4-0000-7000-8000-000000000000"), ERR_NOTFOUND);
}

struct ids {
    char ids[8][ID_SIZE];
    int attempts[8];
    int n;
};

static bool
note_submission(void *arg, const struct submission_row *row)
{
    struct ids *ids = arg;

    assert_true(ids->n < 8);
    ids->attempts[ids->n] = row->attempts;
    memcpy(ids->ids[ids->n++], row->id, ID_SIZE);
    return true;
}

static void
a_restart_takes_up_what_has_not_ended(void **state)
{
    struct rig *r = *state;
    char by_state[SUBMISSION_NSTATES][ID_SIZE];
    struct submission_row requeued = rig_row();
    struct ids found = { 0 };

    for (int i = SUBMISSION_NSTATES - 1; i >= 0; i--)
        put_into(r, (enum submission_state)i, by_state[i]);
    assert_int_equal(rig_add(r, &requeued, "x"), 0);
    assert_int_equal(rig_begin(r, requeued.id), 0);
    assert_int_equal(rig_release(r, requeued.id, 1), 0);
    rig_reopen(r);
    assert_int_equal(reader_each_unfinished(store_reader(r->store), note_submission, &found, &r->err), 0);
    assert_int_equal(found.n, 3); /* oldest first, whatever its state */
    assert_memory_equal(found.ids[0], requeued.id, ID_SIZE);
    assert_int_equal(found.attempts[0], 1); /* what it was put back with */
    assert_memory_equal(found.ids[1], by_state[SUBMISSION_RUNNING], ID_SIZE);
    assert_memory_equal(found.ids[2], by_state[SUBMISSION_QUEUED], ID_SIZE);
}

/* --- groups --- */

static struct group_row
a_group(int size)
{
    struct group_row group = {
        .task_id = "sha256:task", .request = (char *)"{\"time_top_k\":2}", .size = size, .created_ms = 7
    };

    id_new(group.id);
    return group;
}

/* Fill n rows of the group with sources "0", "1", ... */
static void
fill_group(const struct group_row *group, struct submission_row *rows, struct store_source *sources, size_t n)
{
    static const char digits[] = "0123456789";

    for (size_t i = 0; i < n; i++) {
        rows[i] = rig_row();
        rows[i].group_index = (int)i;
        memcpy(rows[i].group_id, group->id, ID_SIZE);
        snprintf(rows[i].source_hash, sizeof rows[i].source_hash, "sha256:%s-%zu", group->id, i);
        sources[i] = (struct store_source){ .text = digits + i, .size = 1 };
    }
}

static void
a_group_comes_back_in_order(void **state)
{
    struct rig *r = *state;
    struct group_row group = a_group(3), out;
    struct submission_row rows[3];
    struct store_source sources[3];
    struct outcome o = { 0 };
    struct ids found = { 0 };
    AUTO_BUFFER struct buffer source = BUFFER_INIT;

    fill_group(&group, rows, sources, 3);
    assert_int_equal(store_add_submissions(r->store, &group, NULL, rows, sources, 3, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    rig_reopen(r);
    assert_int_equal(reader_get_group(store_reader(r->store), group.id, &out, &r->err), 0);
    assert_string_equal(out.id, group.id);
    assert_string_equal(out.task_id, group.task_id);
    assert_string_equal(out.request, group.request);
    assert_int_equal(out.size, 3);
    assert_int_equal(out.created_ms, 7);
    group_row_release(&out);
    assert_int_equal(reader_each_of_group(store_reader(r->store), group.id, note_submission, &found, &r->err),
                     0);
    assert_int_equal(found.n, 3);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(found.ids[i], rows[i].id, ID_SIZE);
    assert_int_equal(reader_get_source(store_reader(r->store), rows[2].source_hash, &source, &r->err), 0);
    assert_string_equal(source.data, "2");
    assert_int_equal(reader_each_of_group(store_reader(r->store), "none", note_submission, &found, &r->err),
                     ERR_NOTFOUND);
}

static void
a_group_is_stored_whole_or_not_at_all(void **state)
{
    struct rig *r = *state;
    struct group_row group = a_group(3), missing;
    struct submission_row rows[3], before = rig_row(), after = rig_row(), unused;
    struct store_source sources[3], one = { .text = "x", .size = 1 };
    struct outcome o[3] = { { 0 } };
    struct store_counts counts;
    AUTO_BUFFER struct buffer source = BUFFER_INIT;

    fill_group(&group, rows, sources, 3);
    memcpy(rows[2].id, before.id, ID_SIZE); /* the last row is the one that exists already */
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, &before, &one, 1, rig_done, &o[0], &r->err),
                     0);
    assert_int_equal(
        store_add_submissions(r->store, &group, NULL, rows, sources, 3, rig_done, &o[1], &r->err), 0);
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, &after, &one, 1, rig_done, &o[2], &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o[1].code, ERR_CONFLICT);
    assert_non_null(strstr(o[1].err.text, before.id));
    assert_int_equal(reader_get_group(store_reader(r->store), group.id, &missing, &r->err), ERR_NOTFOUND);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reader_get_submission(store_reader(r->store), rows[i].id, &unused, &r->err),
                         ERR_NOTFOUND);
        assert_int_equal(reader_get_source(store_reader(r->store), rows[i].source_hash, &source, &r->err),
                         ERR_NOTFOUND);
    }
    /* and its neighbours in the same transaction did not notice */
    assert_int_equal(o[0].code, 0);
    assert_int_equal(o[2].code, 0);
    assert_int_equal(state_of(r, before.id), SUBMISSION_QUEUED);
    assert_int_equal(state_of(r, after.id), SUBMISSION_QUEUED);
    assert_int_equal(reader_count(store_reader(r->store), &counts, &r->err), 0);
    assert_int_equal(counts.by_state[SUBMISSION_QUEUED], 2);
}

static void
a_key_is_stored_with_what_it_made(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[3] = { rig_row(), rig_row(), rig_row() };
    struct key_row ann = rig_key("ann", "k", rows[0].id, 1000), bob = rig_key("bob", "k", rows[1].id, 1000);
    struct key_row again = rig_key("bob", "k", rows[2].id, 2000), found;
    struct key_row later = rig_key("bob", "k", rows[2].id, 1000 + STORE_KEY_LIFE_MS);

    rig_add_with_key(r, &ann, &rows[0], 0);
    rig_add_with_key(r, &bob, &rows[1], 0);
    rig_reopen(r);
    assert_int_equal(reader_get_key(store_reader(r->store), "ann", "k", 2000, &found, &r->err), 0);
    assert_memory_equal(&found, &ann, sizeof found);
    assert_int_equal(reader_get_key(store_reader(r->store), "bob", "k", 2000, &found, &r->err), 0);
    assert_memory_equal(&found, &bob, sizeof found);
    assert_int_equal(reader_get_key(store_reader(r->store), "bob", "l", 2000, &found, &r->err), ERR_NOTFOUND);
    assert_int_equal(reader_get_key(store_reader(r->store), "", "k", 2000, &found, &r->err), ERR_NOTFOUND);
    /* what fails leaves no key, and the one of before stays */
    rig_add_with_key(r, &again, &rows[0], ERR_CONFLICT);
    assert_int_equal(reader_get_key(store_reader(r->store), "bob", "k", 2000, &found, &r->err), 0);
    assert_string_equal(found.id, rows[1].id);
    /* one request made something under it: another makes nothing, until the key is forgotten */
    rig_add_with_key(r, &again, &rows[2], ERR_CONFLICT);
    assert_int_equal(reader_get_key(store_reader(r->store), "bob", "k", 2000, &found, &r->err), 0);
    assert_string_equal(found.id, rows[1].id);
    rig_add_with_key(r, &later, &rows[2], 0);
    assert_int_equal(
        reader_get_key(store_reader(r->store), "bob", "k", 1000 + STORE_KEY_LIFE_MS, &found, &r->err), 0);
    assert_string_equal(found.id, rows[2].id);
    /* one whose submission is not there is as good as none, and one that replaces it needs not wait for that */
    struct submission_row made[3] = { rig_row(), rig_row(), rig_row() };
    struct key_row gone = rig_key("cat", "k", "no such id", 1000 + STORE_KEY_LIFE_MS);
    rig_add_with_key(r, &gone, &made[0], 0);
    memcpy(gone.id, made[1].id, sizeof(gone.id));
    rig_add_with_key(r, &gone, &made[1], 0);
    memcpy(gone.id, made[2].id, sizeof(gone.id));
    rig_add_with_key(r, &gone, &made[2], ERR_CONFLICT);
    gone.replaces = true;
    rig_add_with_key(r, &gone, &made[2], 0);
}

/* --- lists --- */

#define LISTED 96

static const char *const some_tasks[] = { "sha256:t0", "sha256:t1", "sha256:t2" };
static const char *const some_classes[] = { NULL, "ok", "mismatch" };
static const char *const some_clients[] = { NULL, "ann", "bob" };
static const char *const some_requests[] = {
    NULL,
    "{\"metadata\":{\"run\":\"r\",\"note\":\"\\u0000\"}}",
    "{\"metadata\":{\"run\":\"r\",\"step\":7,\"policy_version\":\"v \u00e9'2\"}}",
    "{\"metadata\":{\"run\":\"s\",\"step\":7}}",
};

/* Rows that mix every value of every field that a filter looks at. */
static void
fill_list(struct rig *r, struct submission_row rows[LISTED], struct group_row groups[2])
{
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    groups[0] = a_group(0);
    groups[1] = a_group(0);
    for (int i = 0; i < LISTED; i++) {
        uint32_t mix = (uint32_t)i * 2654435761U >> 8;
        rows[i] = rig_row();
        rows[i].state = (enum submission_state)(mix % SUBMISSION_NSTATES);
        snprintf(rows[i].task_id, sizeof rows[i].task_id, "%s", some_tasks[mix / 4 % 3]);
        rows[i].class_ = (char *)some_classes[mix / 16 % 3];
        rows[i].client = (char *)some_clients[mix / 64 % 3];
        rows[i].request = (char *)some_requests[mix / 32 % 4];
        rows[i].group_index = i;
        if (mix / 256 % 3 < 2)
            memcpy(rows[i].group_id, groups[mix / 256 % 3].id, ID_SIZE);
        assert_int_equal(
            store_add_submissions(r->store, NULL, NULL, &rows[i], &source, 1, rig_done, &o, &r->err), 0);
    }
    rig_wait(r);
    assert_int_equal(o.calls, LISTED);
    assert_int_equal(o.code, 0);
}

static bool
is_of_run(const struct submission_filter *f, const struct submission_row *row)
{
    struct labels labels;

    labels_read(row->request, &labels);
    return f->run == NULL || (strcmp(f->run, labels.run) == 0 && (f->step < 0 || f->step == labels.step) &&
                              (f->policy_version == NULL || strstr(row->request, f->policy_version) != NULL));
}

static bool
is_wanted(const struct submission_filter *f, const struct submission_row *row)
{
    return is_of_run(f, row) && (f->state < 0 || (int)row->state == f->state) &&
           (f->task_id == NULL || strcmp(f->task_id, row->task_id) == 0) &&
           (f->class_ == NULL || (row->class_ != NULL && strcmp(f->class_, row->class_) == 0)) &&
           (f->client == NULL || (row->client != NULL && strcmp(f->client, row->client) == 0)) &&
           (f->group_id == NULL || strcmp(f->group_id, row->group_id) == 0);
}

struct page {
    char ids[LISTED][ID_SIZE];
    int n;
};

static bool
note_page(void *arg, const struct submission_row *row)
{
    struct page *p = arg;

    assert_true(p->n < LISTED);
    memcpy(p->ids[p->n++], row->id, ID_SIZE);
    return true;
}

/* Read all pages of the filter and compare with looking at every row. Returns how many there were. */
static int
check_filter(struct rig *r, struct submission_filter f, const struct submission_row rows[LISTED])
{
    struct page got = { .n = 0 };
    char cursor[ID_SIZE];
    int before, expected = 0;

    do {
        before = got.n;
        assert_int_equal(reader_list_submissions(store_reader(r->store), &f, note_page, &got, &r->err), 0);
        assert_true(got.n - before <= f.limit);
        if (got.n > 0)
            memcpy(cursor, got.ids[got.n - 1], ID_SIZE);
        f.before = cursor;
    } while (got.n > before);
    for (int i = LISTED - 1; i >= 0; i--) {
        if (is_wanted(&f, &rows[i]))
            assert_string_equal(got.ids[expected++], rows[i].id);
    }
    assert_int_equal(got.n, expected);
    return got.n;
}

static void
every_filter_finds_what_it_should_page_by_page(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[LISTED];
    struct group_row groups[2];
    int combinations = 0, hits = 0;

    fill_list(r, rows, groups);
    for (int i = 0; i < 5 * 3 * 3 * 3 * 2 * 4; i++) {
        struct submission_filter f = {
            .state = i % 5 - 1,
            .task_id = i / 5 % 3 ? some_tasks[i / 5 % 3] : NULL,
            .class_ = some_classes[i / 15 % 3],
            .client = some_clients[i / 45 % 3],
            .group_id = i / 135 % 2 ? groups[1].id : NULL,
            .run = i / 270 ? "r" : NULL,
            .step = i / 270 == 2 ? 7 : LABEL_STEP_NONE,
            .policy_version = i / 270 == 3 ? "v \u00e9'2" : NULL,
            .limit = 7,
        };
        int n = check_filter(r, f, rows);
        combinations++;
        hits += n > 0;
    }
    assert_int_equal(combinations, 1080);
    assert_true(hits > 100); /* the rows do exercise the filters */
}

/* --- runs --- */

#define RUN_OK(speedup) \
    "{\"class\":\"ok\",\"passed_stage\":\"timing\",\"components\":{\"timed\":1,\"speedup\":" speedup "}}"

static void
end_labelled(struct rig *r, const char *client, const char *request, double reward, const char *verdict,
             int64_t at_ms)
{
    struct submission_row row = rig_row();
    struct outcome o = { 0 };

    row.client = (char *)client;
    row.request = (char *)request;
    assert_int_equal(rig_add(r, &row, "x"), 0);
    row.state = SUBMISSION_DONE;
    row.verdict = (char *)verdict;
    row.reward = reward;
    row.finished_ms = at_ms;
    assert_int_equal(store_finish(r->store, &row, NULL, 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

#define LABELS(run, step) "{\"metadata\":{\"run\":\"" run "\",\"step\":" step "}}"

static void
fill_runs(struct rig *r)
{
    end_labelled(r, "ann", LABELS("r", "0"), 0.5, RUN_OK("1.5"), 1000);
    end_labelled(r, "ann", LABELS("r", "1"), 1.0, RUN_OK("2.5"), 2000);
    end_labelled(r, "ann", LABELS("r", "1"), 0, "{\"class\":\"hack\"}", 3000);
    end_labelled(r, "bob", LABELS("r", "1"), NAN, "{\"class\":\"infra\"}", 4000);
    end_labelled(r, "bob", LABELS("other", "null"), 0.1, "{\"class\":\"mismatch\"}", 5000);
    end_labelled(r, "bob", "{\"metadata\":{\"step\":3}}", 0.1, RUN_OK("9"), 6000);
    end_labelled(r, "bob", NULL, 0.1, RUN_OK("9"), 7000);
}

struct runs_seen {
    char text[512];
};

static void
note_run(void *arg, const struct run_row *row)
{
    struct runs_seen *seen = arg;
    const struct run_counts *c = &row->counts;
    size_t used = strlen(seen->text);

    snprintf(seen->text + used, sizeof(seen->text) - used, "%s[%d %d %d %d %d %.1f %.1f %d-%d %d-%d]",
             row->run, (int)c->n, (int)c->infra, (int)c->ok, (int)c->cheats, (int)c->rewarded, c->reward_sum,
             isnan(c->speedup) ? -1 : c->speedup, (int)row->first_step, (int)row->last_step,
             (int)row->first_ms, (int)row->last_ms);
}

static void
note_step(void *arg, const struct run_step_row *row)
{
    struct runs_seen *seen = arg;
    size_t used = strlen(seen->text);

    snprintf(seen->text + used, sizeof(seen->text) - used, "%s%s[%d: %d %d %.1f %d%d%d]",
             row->task_id ? row->task_id : "", row->task_name ? row->task_name : "", (int)row->step,
             (int)row->counts.n, (int)row->counts.ok, row->counts.reward_sum, (int)row->counts.speedups[4],
             (int)row->counts.speedups[5], (int)row->counts.speedups[6]);
}

static void
verdicts_are_summed_up_by_their_run(void **state)
{
    struct rig *r = *state;
    struct runs_seen seen = { "" }, page = { "" }, bob = { "" }, one = { "" };
    char scope[STORE_SCOPE_SIZE];

    fill_runs(r);
    rig_reopen(r);
    assert_int_equal(reader_each_run(store_reader(r->store), "", INT64_MAX, "", 10, note_run, &seen, &r->err),
                     0);
    assert_string_equal(seen.text, "other[1 0 0 0 1 0.1 -1.0 -1--1 5000-5000]"
                                   "r[4 1 2 1 3 1.5 2.5 0-1 1000-4000]");
    assert_int_equal(reader_each_run(store_reader(r->store), "", 5000, "other", 1, note_run, &page, &r->err),
                     0);
    assert_string_equal(page.text, "r[4 1 2 1 3 1.5 2.5 0-1 1000-4000]");
    store_scope("bob", scope);
    assert_int_equal(
        reader_each_run(store_reader(r->store), scope, INT64_MAX, "", 10, note_run, &bob, &r->err), 0);
    assert_string_equal(bob.text, "other[1 0 0 0 1 0.1 -1.0 -1--1 5000-5000]"
                                  "r[1 1 0 0 0 0.0 -1.0 1-1 4000-4000]");
    assert_int_equal(reader_get_run(store_reader(r->store), "", "other", note_run, &one, &r->err), 0);
    assert_int_equal(reader_get_run(store_reader(r->store), "=carol", "r", note_run, &one, &r->err),
                     0); /* she has none */
    assert_string_equal(one.text, "other[1 0 0 0 1 0.1 -1.0 -1--1 5000-5000]");
    assert_int_equal(reader_each_run(store_reader(r->store), "", 0, "", 202, note_run, &one, &r->err),
                     ERR_INPUT);
}

static void
a_run_is_read_by_step_and_by_task(void **state)
{
    struct rig *r = *state;
    struct runs_seen steps = { "" }, whole = { "" }, tasks = { "" }, ann = { "" };

    fill_runs(r);
    assert_int_equal(reader_each_run_step(store_reader(r->store), "", "r", 0, 1, note_step, &steps, &r->err),
                     0);
    assert_string_equal(steps.text, "[0: 1 1 0.5 100][1: 3 1 1.0 001]");
    assert_int_equal(reader_each_run_step(store_reader(r->store), "", "r", 0, 2, note_step, &whole, &r->err),
                     0);
    assert_string_equal(whole.text, "[0: 4 2 1.5 101]");
    assert_int_equal(
        reader_each_run_task(store_reader(r->store), "", "r", 0, 1, 5, note_step, &tasks, &r->err), 0);
    assert_string_equal(tasks.text, "sha256:task[0: 1 1 0.5 100]sha256:task[1: 3 1 1.0 001]");
    assert_int_equal(
        reader_each_run_task(store_reader(r->store), "=ann", "r", 1, 1, 5, note_step, &ann, &r->err), 0);
    assert_string_equal(ann.text, "sha256:task[1: 2 1 1.0 001]");
}

static void
add_labelled_group(struct rig *r, const char *client, const char *request, char id[ID_SIZE])
{
    struct group_row group = { .size = 1, .request = (char *)request };
    struct submission_row row = rig_row();
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    id_new(group.id);
    memcpy(row.group_id, group.id, ID_SIZE);
    memcpy(id, group.id, ID_SIZE);
    row.client = (char *)client;
    assert_int_equal(store_add_submissions(r->store, &group, NULL, &row, &source, 1, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

static void
note_group(void *arg, const struct group_sum_row *row)
{
    struct runs_seen *seen = arg;
    size_t used = strlen(seen->text);

    snprintf(seen->text + used, sizeof(seen->text) - used, "[%s %s %d]", row->client,
             row->run ? row->run : "-", (int)row->step);
}

static void
groups_are_found_by_their_run(void **state)
{
    struct rig *r = *state;
    char ids[4][ID_SIZE];

    add_labelled_group(r, "ann", LABELS("r", "1"), ids[0]);
    add_labelled_group(r, "ann", LABELS("r", "2"), ids[1]);
    add_labelled_group(r, "bob", LABELS("r", "null"), ids[2]);
    add_labelled_group(r, "bob", "{}", ids[3]);
    const struct {
        struct groups_filter filter;
        const char *found;
    } rows[] = {
        { { .step = -1 }, "[bob - -1][bob r -1][ann r 2][ann r 1]" },
        { { .step = -1, .run = "r" }, "[bob r -1][ann r 2][ann r 1]" },
        { { .step = 2, .run = "r" }, "[ann r 2]" },
        { { .step = -1, .run = "r", .client = "bob" }, "[bob r -1]" },
        { { .step = 2, .run = "r", .client = "bob" }, "" },
        { { .step = -1, .run = "r", .before = ids[2] }, "[ann r 2][ann r 1]" },
        { { .step = 2, .client = "bob" }, "[bob - -1][bob r -1]" },
        { { .step = -1, .run = "R" }, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct runs_seen seen = { "" };
        struct groups_filter f = rows[i].filter;
        f.limit = 10;
        assert_int_equal(reader_each_group(store_reader(r->store), &f, note_group, &seen, &r->err), 0);
        assert_string_equal(seen.text, rows[i].found);
    }
}

static void
a_label_is_of_its_type_and_size_or_none(void **state)
{
    static const struct {
        const char *request, *run;
        int64_t step;
    } rows[] = {
        { NULL, "", -1 },
        { "{}", "", -1 },
        { "no JSON \"run\"", "", -1 },
        { "{\"run\":\"r\"}", "", -1 },
        { LABELS("r", "4"), "r", 4 },
        { LABELS("r", "-4"), "r", -1 },
        { LABELS("r", "\"4\""), "r", -1 },
        { LABELS("r", "9007199254740992"), "r", -1 },
        { LABELS("", "4"), "", -1 },
        { LABELS("a\\u0000b", "4"), "", -1 },
        { "{\"metadata\":{\"run\":7,\"step\":4}}", "", -1 },
    };
    struct labels labels;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        labels_read(rows[i].request, &labels);
        assert_string_equal(labels.run, rows[i].run);
        assert_int_equal(labels.step, rows[i].step);
    }
}

static void
a_list_has_bounds(void **state)
{
    struct rig *r = *state;
    struct submission_filter f = { .state = -1, .limit = 0 };
    struct page page = { .n = 0 };

    assert_int_equal(reader_list_submissions(store_reader(r->store), &f, note_page, &page, &r->err),
                     ERR_INPUT);
    f.limit = 202;
    assert_int_equal(reader_list_submissions(store_reader(r->store), &f, note_page, &page, &r->err),
                     ERR_INPUT);
    f.limit = 201;
    f.state = SUBMISSION_NSTATES;
    assert_int_equal(reader_list_submissions(store_reader(r->store), &f, note_page, &page, &r->err),
                     ERR_INPUT);
    f.state = SUBMISSION_DONE;
    assert_int_equal(reader_list_submissions(store_reader(r->store), &f, note_page, &page, &r->err), 0);
    assert_int_equal(page.n, 0);
}

static void
counts_follow_every_move(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[LISTED];
    struct group_row groups[2];
    struct store_counts counts;
    int64_t expected[SUBMISSION_NSTATES] = { 0 };
    char id[ID_SIZE];

    fill_list(r, rows, groups);
    for (int i = 0; i < LISTED; i++)
        expected[rows[i].state]++;
    put_into(r, SUBMISSION_RUNNING, id);
    assert_int_equal(rig_release(r, id, 0), 0);
    assert_int_equal(rig_finish(r, id, SUBMISSION_CANCELLED, NULL), 0);
    expected[SUBMISSION_CANCELLED]++;
    assert_int_equal(reader_count(store_reader(r->store), &counts, &r->err), 0);
    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        assert_int_equal(counts.by_state[i], expected[i]);
}

/* --- the queue --- */

struct order {
    int next, wrong;
    uv_thread_t loop_thread;
};

struct ticket {
    struct order *order;
    int number;
};

static void
check_order(void *arg, int code, const struct error *err)
{
    struct ticket *t = arg;
    uv_thread_t here = uv_thread_self();

    (void)err;
    if (code != 0 || t->order->next++ != t->number || !uv_thread_equal(&here, &t->order->loop_thread))
        t->order->wrong++;
}

static void
callbacks_come_in_order_on_the_loops_thread(void **state)
{
    struct rig *r = *state;
    struct order order = { 0, 0, uv_thread_self() };
    struct ticket tickets[500];
    struct store_source source = { .text = "x", .size = 1 };

    for (int i = 0; i < 500; i++) {
        struct submission_row row = rig_row();
        tickets[i] = (struct ticket){ &order, i };
        assert_int_equal(
            store_add_submissions(r->store, NULL, NULL, &row, &source, 1, check_order, &tickets[i], &r->err),
            0);
    }
    assert_int_equal(order.next, 0); /* never within the call */
    rig_wait(r);
    assert_int_equal(order.next, 500);
    assert_int_equal(order.wrong, 0);
}

static void
a_full_queue_refuses_new_work_first(void **state)
{
    struct rig *r = *state;
    struct submission_row row, known = rig_row();
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 }, moved = { 0 };
    struct store_claim claim = { .id = "none" };
    struct store_figures figures;

    assert_int_equal(rig_add(r, &known, "x"), 0);
    for (int i = 0; i < RIG_LIMIT; i++) {
        row = rig_row();
        assert_int_equal(store_add_submissions(r->store, NULL, NULL, &row, &source, 1, rig_done, &o, &r->err),
                         0);
    }
    row = rig_row();
    assert_int_equal(store_add_submissions(r->store, NULL, NULL, &row, &source, 1, rig_done, &o, &r->err),
                     ERR_FULL);
    for (int i = 0; i < RIG_LIMIT; i++)
        assert_int_equal(store_release(r->store, &claim, rig_done, &moved, &r->err), 0);
    assert_int_equal(store_release(r->store, &claim, NULL, NULL, &r->err), ERR_FULL);
    store_figures(r->store, &figures);
    assert_int_equal(figures.queued_writes, 2 * RIG_LIMIT);
    rig_wait(r);
    assert_int_equal(o.calls, RIG_LIMIT); /* the refused ones never call back */
    row = rig_row();
    assert_int_equal(rig_add(r, &row, "x"), 0);
}

static void
figures_say_what_was_done(void **state)
{
    struct rig *r = *state;
    struct store_figures figures;
    struct submission_row row = rig_row();

    store_figures(r->store, &figures);
    assert_int_equal(figures.rows_written, 0);
    assert_int_equal(rig_add(r, &row, "x"), 0);
    assert_int_equal(rig_add(r, &row, "x"), ERR_CONFLICT);
    store_figures(r->store, &figures);
    assert_int_equal(figures.rows_written, 1);
    assert_int_equal(figures.commits, 2);
    assert_int_equal(figures.queued_writes, 0);
    assert_true(figures.commit_ms_last > 0 && figures.commit_ms_last <= figures.commit_ms_max);
}

struct closing {
    struct rig *rig;
    int calls, refused;
};

static void
write_while_closing(void *arg, int code, const struct error *err)
{
    struct closing *c = arg;
    struct submission_row row = rig_row(), found;
    struct store_source source = { .text = "x", .size = 1 };

    (void)err;
    assert_int_equal(code, 0);
    c->calls++;
    /* reading is still possible, writing is not */
    assert_int_equal(reader_get_submission(store_reader(c->rig->store), "none", &found, NULL), ERR_NOTFOUND);
    if (store_add_submissions(c->rig->store, NULL, NULL, &row, &source, 1, rig_done, NULL, NULL) ==
        ERR_UNAVAILABLE)
        c->refused++;
}

static void
closing_commits_what_is_queued(void **state)
{
    struct rig *r = *state;
    struct closing c = { r, 0, 0 };
    struct store_counts counts;
    struct store_source source = { .text = "x", .size = 1 };

    for (int i = 0; i < 100; i++) {
        struct submission_row row = rig_row();
        assert_int_equal(
            store_add_submissions(r->store, NULL, NULL, &row, &source, 1, write_while_closing, &c, &r->err),
            0);
    }
    store_close(r->store);
    assert_int_equal(c.calls, 100);
    assert_int_equal(c.refused, 100);
    rig_open(r);
    assert_int_equal(reader_count(store_reader(r->store), &counts, &r->err), 0);
    assert_int_equal(counts.by_state[SUBMISSION_QUEUED], 100);
}

struct late_write {
    struct rig *rig;
    struct outcome outcome;
    bool is_overdue;
};

static void
write_in_prepare(uv_prepare_t *prepare)
{
    struct late_write *l = prepare->data;
    struct submission_row row = rig_row();
    struct store_source source = { .text = "x", .size = 1 };

    uv_prepare_stop(prepare);
    assert_int_equal(store_add_submissions(l->rig->store, NULL, NULL, &row, &source, 1, rig_done, &l->outcome,
                                           &l->rig->err),
                     0);
}

static void
end_the_wait(uv_timer_t *timer)
{
    struct late_write *l = timer->data;

    l->is_overdue = true;
    uv_stop(timer->loop);
}

/* The loop sleeps next, and nothing but the write would wake it. */
static void
a_write_from_a_prepare_callback_waits_for_nothing(void **state)
{
    struct rig *r = *state;
    struct late_write l = { .rig = r };
    uv_prepare_t prepare;
    uv_timer_t limit;

    uv_prepare_init(&r->loop, &prepare);
    uv_timer_init(&r->loop, &limit);
    prepare.data = limit.data = &l;
    uv_prepare_start(&prepare, write_in_prepare);
    uv_timer_start(&limit, end_the_wait, 20000, 0);
    uv_unref((uv_handle_t *)&limit);
    rig_wait(r);
    assert_false(l.is_overdue);
    assert_int_equal(l.outcome.calls, 1);
    assert_int_equal(l.outcome.code, 0);
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_close((uv_handle_t *)&limit, NULL);
    rig_wait(r);
}

/* --- calibrations --- */

struct calibrations_found {
    int n;
    char text[256];
};

static void
note_calibration(void *arg, const struct calibration_row *row)
{
    struct calibrations_found *found = arg;
    size_t used = strlen(found->text);

    found->n++;
    snprintf(found->text + used, sizeof(found->text) - used, "%s %lld %s;", row->gpu,
             (long long)row->created_ms, row->document);
}

static void
the_newest_calibration_of_each_gpu_comes_back(void **state)
{
    struct rig *r = *state;
    static const struct {
        const char *gpu, *document;
        int64_t created_ms;
    } rows[] = { { "a", "{\"n\":1}", 10 }, { "b", "{\"n\":2}", 20 }, { "a", "{\"n\":3}", 30 } };
    struct outcome outcome = { 0 };
    struct calibrations_found none = { 0 }, found = { 0 };

    assert_int_equal(reader_each_calibration(store_reader(r->store), note_calibration, &none, &r->err), 0);
    assert_int_equal(none.n, 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct calibration_row row = { .created_ms = rows[i].created_ms,
                                       .gpu = rows[i].gpu,
                                       .document = rows[i].document };
        id_new(row.id);
        assert_int_equal(store_add_calibration(r->store, &row, rig_done, &outcome, &r->err), 0);
        rig_wait(r);
        assert_int_equal(outcome.code, 0);
    }
    rig_reopen(r);
    assert_int_equal(reader_each_calibration(store_reader(r->store), note_calibration, &found, &r->err), 0);
    assert_string_equal(found.text, "a 30 {\"n\":3};b 20 {\"n\":2};");
}

/* --- canaries --- */

static void
note_canary(void *arg, const struct canary_row *row)
{
    char *text = arg;
    size_t used = strlen(text);

    snprintf(text + used, 256 - used, "%s %s %s %lld %s;", row->gpu, row->driver, row->kind,
             (long long)row->changed_ms, row->document);
}

static void
a_canary_takes_the_place_of_the_one_before_until_it_is_forgotten(void **state)
{
    struct rig *r = *state;
    static const struct canary_row rows[] = {
        { "GPU-1", "570", "chain", 10, "1" }, { "GPU-1", "580", "chain", 20, "2" },
        { "GPU-2", "570", "chain", 30, "3" }, { "GPU-1", "570", "chain", 40, "4" },
        { "GPU-1", "570", "other", 50, "5" }, { "GPU-2", "570", "chain", 60, NULL },
    };
    struct outcome outcome = { 0 };
    char found[256] = "";

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(store_put_canary(r->store, &rows[i], rig_done, &outcome, &r->err), 0);
        rig_wait(r);
        assert_int_equal(outcome.code, 0);
    }
    rig_reopen(r);
    assert_int_equal(reader_each_canary(store_reader(r->store), note_canary, found, &r->err), 0);
    assert_string_equal(found, "GPU-1 570 chain 40 4;GPU-1 570 other 50 5;GPU-1 580 chain 20 2;");
}

static void
a_key_finds_the_newest_verdict_under_it(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[] = { rig_row(), rig_row(), rig_row() }, found;

    assert_int_equal(reader_find_cached(store_reader(r->store), "k", &found, &r->err), ERR_NOTFOUND);
    for (size_t i = 0; i < 3; i++) {
        struct outcome o = { 0 };
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
        rows[i].state = SUBMISSION_DONE;
        rows[i].verdict = (char *)(i == 0 ? "{\"n\":0}" : "{\"n\":1}");
        snprintf(rows[i].cache_key, sizeof(rows[i].cache_key), "%s", i < 2 ? "k" : "");
        assert_int_equal(store_finish(r->store, &rows[i], NULL, 0, rig_done, &o, &r->err), 0);
        rig_wait(r);
        assert_int_equal(o.code, 0);
    }
    rig_reopen(r);
    assert_int_equal(reader_find_cached(store_reader(r->store), "k", &found, &r->err), 0);
    assert_string_equal(found.id, rows[1].id);
    assert_string_equal(found.verdict, "{\"n\":1}");
    submission_row_release(&found);
    assert_int_equal(reader_find_cached(store_reader(r->store), "", &found, &r->err), ERR_NOTFOUND);
}

/* --- ownership --- */

/* A file has one daemon, and looks at no lease: any name will do. */
static struct store_lease
join(struct rig *r, const char *node, int64_t lease_ms)
{
    struct store_lease lease = { .epoch = 0 };
    struct outcome o = { 0 };

    if (store_is_file(r->path)) {
        snprintf(lease.node, sizeof(lease.node), "%s", node);
        return lease;
    }
    assert_int_equal(store_join(r->store, node, lease_ms, &lease, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    assert_string_equal(lease.node, node);
    return lease;
}

static int
claim(struct rig *r, const struct store_lease *l, const char *id, struct store_claim *out)
{
    struct outcome o = { 0 };

    assert_int_equal(store_claim(r->store, l, NULL, id, out, rig_done, &o, &r->err), 0);
    rig_wait(r);
    r->err = o.err;
    return o.code;
}

static int
claim_next(struct rig *r, const struct store_lease *l, struct store_claim *out)
{
    struct outcome o = { 0 };
    size_t n;

    assert_int_equal(store_claim_next(r->store, l, NULL, 1, out, &n, rig_done, &o, &r->err), 0);
    rig_wait(r);
    r->err = o.err;
    return o.code;
}

static int
release(struct rig *r, const struct store_claim *c)
{
    struct outcome o = { 0 };

    assert_int_equal(store_release(r->store, c, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static int
finish(struct rig *r, const struct store_claim *c, enum submission_state state)
{
    struct submission_row row = rig_row();
    struct outcome o = { 0 };

    memcpy(row.id, c->id, ID_SIZE);
    row.claim = c->number;
    row.state = state;
    row.verdict = (char *)"{\"class\":\"ok\"}";
    row.class_ = (char *)"ok";
    row.finished_ms = 9;
    assert_int_equal(store_finish(r->store, &row, NULL, 0, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static int
renew(struct rig *r, const struct store_lease *l, int64_t lease_ms)
{
    struct outcome o = { 0 };

    assert_int_equal(
        store_renew(r->store, l, lease_ms, &(struct store_node_state){ 0 }, rig_done, &o, &r->err), 0);
    rig_wait(r);
    return o.code;
}

static void
reap(struct rig *r)
{
    struct outcome o = { 0 };

    assert_int_equal(store_reap(r->store, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
}

static struct submission_row
row_of(struct rig *r, const char *id)
{
    struct submission_row row;

    assert_int_equal(reader_get_submission(store_reader(r->store), id, &row, &r->err), 0);
    return row;
}

static void
a_claim_gives_a_submission_to_one_node_only(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row();
    struct store_claim first = { .number = 0 }, second = { .number = 0 };

    assert_int_equal(claim(r, &a, in.id, &first), ERR_NOTFOUND);
    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &first), 0);
    assert_string_equal(first.id, in.id);
    assert_int_equal(first.attempts, 1);
    assert_int_equal(claim(r, &b, in.id, &second), ERR_CONFLICT);
    assert_int_equal(second.number, 0);
    assert_int_equal(claim_next(r, &b, &second), ERR_NOTFOUND);
    assert_int_equal(state_of(r, in.id), SUBMISSION_RUNNING);
}

static void
two_claims_under_way_at_once_have_one_winner(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row();
    struct store_claim claims[2] = { { .number = 0 }, { .number = 0 } };
    struct outcome o[2] = { { 0 }, { 0 } };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(store_claim(r->store, &a, NULL, in.id, &claims[0], rig_done, &o[0], &r->err), 0);
    assert_int_equal(store_claim(r->store, &b, NULL, in.id, &claims[1], rig_done, &o[1], &r->err), 0);
    rig_wait(r);
    assert_int_equal(o[0].code + o[1].code, ERR_CONFLICT);
    assert_true(o[0].code == 0 || o[1].code == 0);
}

static void
what_waits_is_claimed_by_urgency_then_by_age(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS);
    static const int priorities[] = { 1, 0, 1, 0 };
    static const int order[] = { 1, 3, 0, 2 };
    struct submission_row rows[4];
    struct store_claim c = { .number = 0 };

    for (int i = 0; i < 4; i++) {
        rows[i] = rig_row();
        rows[i].priority = priorities[i];
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(claim_next(r, &a, &c), 0);
        assert_string_equal(c.id, rows[order[i]].id);
    }
    assert_int_equal(claim_next(r, &a, &c), ERR_NOTFOUND);
}

static void
add_usage_cb(void *arg, const char *client, int64_t device_ms)
{
    char *out = arg;

    snprintf(out + strlen(out), 32, "%s %lld,", client, (long long)device_ms);
}

static void
what_a_client_has_queued_and_used_is_summed_up(void **state)
{
    struct rig *r = *state;
    struct submission_row rows[4];
    struct store_usage u;
    struct outcome o = { 0 };
    const int64_t midnight_ms = 86400000;
    char used[128] = "";

    for (int i = 0; i < 4; i++) {
        rows[i] = rig_row();
        rows[i].client = (char *)(i < 3 ? "one" : "other");
        assert_int_equal(rig_add(r, &rows[i], "x"), 0);
    }
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", midnight_ms + 5, 9, &u, &r->err), 0);
    assert_int_equal(u.queued, 3);
    assert_int_equal(u.device_ms, 0);
    for (int i = 1; i < 4; i++) {
        struct store_claim c;
        assert_int_equal(claim(r, store_lease(r->store), rows[i].id, &c), 0);
        if (i == 1)
            continue;
        rows[i].claim = c.number;
        rows[i].state = SUBMISSION_DONE;
        rows[i].stage = (char *)"full";
        rows[i].class_ = (char *)"ok";
        rows[i].verdict = (char *)"{\"class\":\"ok\"}";
        rows[i].finished_ms = midnight_ms + 5;
        rows[i].device_ms = 700;
        assert_int_equal(store_finish(r->store, &rows[i], NULL, 0, rig_done, &o, &r->err), 0);
        rig_wait(r);
        assert_int_equal(o.code, 0);
    }
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", midnight_ms + 5, 9, &u, &r->err), 0);
    assert_int_equal(u.queued, 1);
    assert_int_equal(u.device_ms, 700);
    assert_int_equal(reader_each_usage(store_reader(r->store), midnight_ms, add_usage_cb, used, &r->err), 0);
    assert_true(strcmp(used, "one 700,other 700,") == 0 || strcmp(used, "other 700,one 700,") == 0);
    *used = '\0';
    assert_int_equal(reader_each_usage(store_reader(r->store), 2 * midnight_ms, add_usage_cb, used, &r->err),
                     0);
    assert_string_equal(used, "");
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", 2 * midnight_ms, 9, &u, &r->err), 0);
    assert_int_equal(u.device_ms, 0);
    assert_int_equal(u.recent, 0);
    int64_t now_ms = clock_wall_ms();
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", now_ms, 9, &u, &r->err), 0);
    assert_int_equal(u.recent, 3); /* ids are of now */
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", now_ms, 2, &u, &r->err), 0);
    assert_int_equal(u.recent, 2);
    assert_int_equal(reader_get_usage(store_reader(r->store), "one", now_ms + 61000, 9, &u, &r->err), 0);
    assert_int_equal(u.recent, 0);
}

static void
what_has_ended_or_was_cancelled_is_never_claimed(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS);
    static const enum submission_state ends[] = { SUBMISSION_CANCELLED, SUBMISSION_DONE };

    for (int i = 0; i < 2; i++) {
        struct submission_row in = rig_row();
        struct store_claim c = { .number = 0 };
        assert_int_equal(rig_add(r, &in, "x"), 0);
        assert_int_equal(rig_finish(r, in.id, ends[i], NULL), 0); /* while it waits */
        assert_int_equal(claim(r, &a, in.id, &c), ERR_CONFLICT);
        assert_int_equal(claim_next(r, &a, &c), ERR_NOTFOUND);
        assert_int_equal(state_of(r, in.id), ends[i]);
    }
}

/* Its release failed, so the store still counts the attempt that was cut short. */
static void
what_is_claimed_again_by_its_holder_has_the_attempts_that_its_release_said(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row();
    struct store_claim c = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    assert_int_equal(c.attempts, 1);
    c.attempts = 0;
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    assert_int_equal(c.attempts, 1);
    c.attempts = 1; /* it was judged, and lost */
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    assert_int_equal(c.attempts, 2);
}

static void
a_release_gives_it_back_with_the_attempts_that_it_says(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row(), out;
    struct store_claim c = { .number = 0 }, later = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    c.attempts = 0; /* cut short: it does not count */
    assert_int_equal(release(r, &c), 0);
    out = row_of(r, in.id);
    assert_int_equal(out.state, SUBMISSION_QUEUED);
    assert_int_equal(out.attempts, 0);
    assert_false(out.is_lost);
    submission_row_release(&out);
    assert_int_equal(release(r, &c), ERR_CONFLICT);
    assert_int_equal(claim(r, &b, in.id, &later), 0);
    assert_int_equal(later.attempts, 1);
    assert_true(later.number > c.number);
    assert_int_equal(release(r, &c), ERR_CONFLICT); /* it is b's */
    assert_int_equal(state_of(r, in.id), SUBMISSION_RUNNING);
}

static void
an_earlier_claim_finishes_nothing(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row(), out;
    struct store_claim old = { .number = 0 }, now = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &old), 0);
    assert_int_equal(release(r, &old), 0);
    assert_int_equal(claim(r, &b, in.id, &now), 0);
    assert_int_equal(finish(r, &old, SUBMISSION_DONE), ERR_CONFLICT);
    out = row_of(r, in.id);
    assert_int_equal(out.state, SUBMISSION_RUNNING);
    assert_null(out.verdict);
    submission_row_release(&out);
    assert_int_equal(finish(r, &now, SUBMISSION_DONE), 0);
    assert_int_equal(finish(r, &now, SUBMISSION_CANCELLED), ERR_CONFLICT); /* a verdict never changes */
    assert_int_equal(state_of(r, in.id), SUBMISSION_DONE);
}

/* Long enough for a lease of a millisecond to end by any clock. */
static void
let_it_end(void)
{
    uv_sleep(20);
}

static void
what_a_dead_node_had_claimed_is_judged_by_another(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", 1), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row kept = rig_row(), lost = rig_row(), out;
    struct store_claim mine = { .number = 0 }, old = { .number = 0 }, now = { .number = 0 };

    a = join(r, "a", 60000);
    assert_int_equal(rig_add(r, &lost, "x"), 0);
    assert_int_equal(claim(r, &a, lost.id, &old), 0);
    assert_int_equal(rig_add(r, &kept, "x"), 0);
    assert_int_equal(claim(r, &b, kept.id, &mine), 0);
    assert_int_equal(renew(r, &a, 1), 0);
    let_it_end();
    assert_int_equal(claim(r, &b, lost.id, &now), ERR_CONFLICT); /* not before it is reaped */
    reap(r);
    out = row_of(r, lost.id);
    assert_int_equal(out.state, SUBMISSION_QUEUED);
    assert_int_equal(out.attempts, 1); /* it was one */
    assert_true(out.is_lost);
    submission_row_release(&out);
    assert_int_equal(finish(r, &old, SUBMISSION_DONE), ERR_CONFLICT); /* late, though nobody has it yet */
    assert_int_equal(claim(r, &b, lost.id, &now), 0);
    assert_int_equal(now.attempts, 2);
    assert_int_equal(finish(r, &old, SUBMISSION_DONE), ERR_CONFLICT);
    assert_int_equal(finish(r, &now, SUBMISSION_DONE), 0);
    assert_int_equal(state_of(r, kept.id), SUBMISSION_RUNNING); /* b lives */
    assert_int_equal(finish(r, &mine, SUBMISSION_DONE), 0);
}

static void
a_renewed_lease_is_not_reaped(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", 60000);
    struct submission_row in = rig_row();
    struct store_claim c = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    assert_int_equal(renew(r, &a, 60000), 0);
    reap(r);
    assert_int_equal(finish(r, &c, SUBMISSION_DONE), 0);
}

static void
a_lease_that_has_ended_claims_and_renews_nothing(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", 1);
    struct submission_row in = rig_row();
    struct store_claim c = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    let_it_end();
    assert_int_equal(claim(r, &a, in.id, &c), ERR_CONFLICT);
    assert_non_null(strstr(r->err.text, "lease"));
    assert_int_equal(claim_next(r, &a, &c), ERR_CONFLICT);
    assert_int_equal(renew(r, &a, 60000), ERR_CONFLICT);
    assert_int_equal(state_of(r, in.id), SUBMISSION_QUEUED);
}

static void
a_second_life_of_a_node_ends_the_first(void **state)
{
    struct rig *r = *state;
    struct store_lease first = join(r, "a", STORE_LEASE_ENDLESS), second;
    struct submission_row in = rig_row();
    struct store_claim old = { .number = 0 }, now = { .number = 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &first, in.id, &old), 0);
    second = join(r, "a", STORE_LEASE_ENDLESS);
    assert_true(second.epoch > first.epoch);
    assert_int_equal(renew(r, &first, 60000), ERR_CONFLICT);
    assert_int_equal(finish(r, &old, SUBMISSION_DONE), ERR_CONFLICT);
    assert_int_equal(claim(r, &first, in.id, &now), ERR_CONFLICT);
    assert_int_equal(claim(r, &second, in.id, &now), 0);
    assert_int_equal(finish(r, &now, SUBMISSION_DONE), 0);
}

static void
a_file_is_no_other_daemons(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row();
    struct store_lease out = *store_lease(r->store);
    const struct store_node_state told = { 0 };

    assert_int_equal(store_join(r->store, "b", 1, &out, rig_done, NULL, &r->err), ERR_UNAVAILABLE);
    assert_int_equal(store_renew(r->store, &out, 1, &told, rig_done, NULL, &r->err), ERR_UNAVAILABLE);
    assert_int_equal(store_reap(r->store, rig_done, NULL, &r->err), ERR_UNAVAILABLE);
    assert_int_equal(store_cancel(r->store, in.id, 1, rig_done, NULL, &r->err), ERR_UNAVAILABLE);
    assert_true(out.epoch == store_lease(r->store)->epoch && out.epoch > 0);
}

static void
a_restart_takes_back_what_the_last_life_had_claimed(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row(), out;
    struct store_claim c = { .number = 0 };
    bool is_unfinished = false;

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, store_lease(r->store), in.id, &c), 0);
    rig_reopen(r);
    out = row_of(r, in.id);
    assert_int_equal(out.state, SUBMISSION_QUEUED);
    assert_true(out.is_lost);
    submission_row_release(&out);
    assert_int_equal(finish(r, &c, SUBMISSION_DONE), ERR_CONFLICT);
    assert_int_equal(reader_is_unfinished(store_reader(r->store), in.id, &is_unfinished, &r->err), 0);
    assert_true(is_unfinished);
}

static void
a_node_may_claim_again_what_it_could_not_release(void **state)
{
    struct rig *r = *state;
    struct store_lease a = join(r, "a", STORE_LEASE_ENDLESS), b = join(r, "b", STORE_LEASE_ENDLESS);
    struct submission_row in = rig_row();
    struct store_claim c = { .number = 0 }, other;

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    other = c;
    assert_int_equal(claim(r, &b, in.id, &other), ERR_CONFLICT); /* to know the number is not enough */
    assert_int_equal(claim(r, &a, in.id, &c), 0);
    assert_int_equal(c.attempts, 2);
    assert_int_equal(finish(r, &other, SUBMISSION_DONE), ERR_CONFLICT);
    assert_int_equal(finish(r, &c, SUBMISSION_DONE), 0);
}

static void
an_attempt_that_only_waits_is_taken_off_and_put_back(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row(), out;
    struct store_claim c = { .number = 0 }, stale;
    struct outcome o = { 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    assert_int_equal(claim(r, store_lease(r->store), in.id, &c), 0);
    c.attempts = 0;
    assert_int_equal(store_set_attempts(r->store, &c, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, 0);
    out = row_of(r, in.id);
    assert_int_equal(out.attempts, 0);
    assert_int_equal(out.state, SUBMISSION_RUNNING);
    submission_row_release(&out);
    stale = c;
    stale.number--;
    assert_int_equal(store_set_attempts(r->store, &stale, rig_done, &o, &r->err), 0);
    rig_wait(r);
    assert_int_equal(o.code, ERR_CONFLICT);
}

static void
a_group_is_unfinished_until_its_last_has_ended(void **state)
{
    struct rig *r = *state;
    struct group_row group = a_group(2);
    struct submission_row rows[2];
    struct store_source sources[2];
    struct outcome o = { 0 };
    bool is_unfinished = true;

    assert_int_equal(reader_is_unfinished(store_reader(r->store), group.id, &is_unfinished, &r->err), 0);
    assert_false(is_unfinished);
    fill_group(&group, rows, sources, 2);
    assert_int_equal(store_add_submissions(r->store, &group, NULL, rows, sources, 2, rig_done, &o, &r->err),
                     0);
    rig_wait(r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reader_is_unfinished(store_reader(r->store), group.id, &is_unfinished, &r->err), 0);
        assert_true(is_unfinished);
        assert_int_equal(rig_finish(r, rows[i].id, SUBMISSION_DONE, NULL), 0);
        assert_int_equal(reader_is_unfinished(store_reader(r->store), rows[i].id, &is_unfinished, &r->err),
                         0);
        assert_false(is_unfinished);
    }
    assert_int_equal(reader_is_unfinished(store_reader(r->store), group.id, &is_unfinished, &r->err), 0);
    assert_false(is_unfinished);
}

/* --- reads beside the loop --- */

struct asked {
    char id[ID_SIZE];
    pthread_t loop;
    bool is_beside;
    int rc, done;
    enum submission_state state;
};

static void
read_beside(void *arg, struct store_reader *reader)
{
    struct asked *a = arg;
    struct submission_row row;

    a->is_beside = !pthread_equal(pthread_self(), a->loop);
    a->rc = reader_get_submission(reader, a->id, &row, NULL);
    a->state = row.state;
    submission_row_release(&row);
}

static void
read_is_done(void *arg)
{
    struct asked *a = arg;

    assert_true(pthread_equal(pthread_self(), a->loop));
    a->done++;
}

static void
ask(struct rig *r, struct asked *a, const char *id)
{
    *a = (struct asked){ .loop = pthread_self(), .rc = -1 };
    memcpy(a->id, id, ID_SIZE);
    assert_int_equal(store_read(r->store, read_beside, read_is_done, a, &r->err), 0);
}

static void
a_read_beside_the_loop_sees_what_was_reported(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row();
    struct asked a;

    assert_int_equal(rig_add(r, &in, "x"), 0);
    for (int i = 0; i < 100; i++) { /* each write is seen by the read that follows its report */
        assert_int_equal(i % 2 == 0 ? rig_begin(r, in.id) : rig_release(r, in.id, 0), 0);
        ask(r, &a, in.id);
        rig_wait(r);
        assert_int_equal(a.done, 1);
        assert_true(a.is_beside);
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.state, i % 2 == 0 ? SUBMISSION_RUNNING : SUBMISSION_QUEUED);
    }
}

struct passing {
    uv_sem_t passed;
    bool is_passed;
    int done;
};

static void
read_until_passed(void *arg, struct store_reader *reader)
{
    struct passing *p = arg;

    (void)reader;
    for (int i = 0; i < 10000 && !p->is_passed; i++) {
        usleep(1000);
        p->is_passed = uv_sem_trywait(&p->passed) == 0;
    }
}

static void
read_past(void *arg, struct store_reader *reader)
{
    (void)reader;
    uv_sem_post(&((struct passing *)arg)->passed);
}

static void
passing_is_done(void *arg)
{
    ((struct passing *)arg)->done++;
}

static void
a_short_read_passes_a_long_one(void **state)
{
    struct rig *r = *state;
    struct passing p = { .done = 0 };

    uv_sem_init(&p.passed, 0);
    assert_int_equal(store_read(r->store, read_until_passed, passing_is_done, &p, &r->err), 0);
    assert_int_equal(store_read(r->store, read_past, passing_is_done, &p, &r->err), 0);
    rig_wait(r);
    assert_int_equal(p.done, 2);
    assert_true(p.is_passed);
    uv_sem_destroy(&p.passed);
}

static void
closing_answers_what_was_asked(void **state)
{
    struct rig *r = *state;
    struct submission_row in = rig_row();
    static struct asked all[200];
    struct store_source source = { .text = "x", .size = 1 };
    struct outcome o = { 0 };

    assert_int_equal(rig_add(r, &in, "x"), 0);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct submission_row more = rig_row();
        ask(r, &all[i], in.id);
        assert_int_equal(
            store_add_submissions(r->store, NULL, NULL, &more, &source, 1, rig_done, &o, &r->err), 0);
    }
    store_finish_writes(r->store);
    assert_int_equal(o.calls, ARRAY_LEN(all));
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_true(all[i].done == 1 && all[i].rc == 0);
    assert_int_equal(store_read(r->store, read_beside, read_is_done, all, &r->err), ERR_UNAVAILABLE);
    rig_reopen(r);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_a_name_that_leads_back),
        RIGGED(a_task_comes_back_as_it_was),
        RIGGED(a_task_that_exists_stays_as_it_is),
        RIGGED(names_are_a_clients_own_and_else_the_oldest),
        RIGGED(a_name_is_changed_for_who_has_it),
        RIGGED(a_task_goes_with_its_last_name),
        RIGGED(tasks_are_listed_by_id),
        RIGGED(a_list_within_itself_is_refused),
        RIGGED(a_submission_comes_back_as_it_was),
        RIGGED(what_is_not_there_is_not_found),
        RIGGED(a_verdict_comes_back_with_its_log),
        RIGGED(a_finished_row_may_be_added_at_once),
        RIGGED(every_state_has_its_moves),
        RIGGED(a_restart_takes_up_what_has_not_ended),
        RIGGED(a_group_comes_back_in_order),
        RIGGED(a_group_is_stored_whole_or_not_at_all),
        RIGGED(a_key_is_stored_with_what_it_made),
        RIGGED(every_filter_finds_what_it_should_page_by_page),
        RIGGED(a_list_has_bounds),
        cmocka_unit_test(a_label_is_of_its_type_and_size_or_none),
        RIGGED(groups_are_found_by_their_run),
        RIGGED(verdicts_are_summed_up_by_their_run),
        RIGGED(a_run_is_read_by_step_and_by_task),
        RIGGED(counts_follow_every_move),
        RIGGED(callbacks_come_in_order_on_the_loops_thread),
        RIGGED(a_full_queue_refuses_new_work_first),
        RIGGED(figures_say_what_was_done),
        RIGGED(closing_commits_what_is_queued),
        RIGGED(a_write_from_a_prepare_callback_waits_for_nothing),
        RIGGED(the_newest_calibration_of_each_gpu_comes_back),
        RIGGED(a_canary_takes_the_place_of_the_one_before_until_it_is_forgotten),
        RIGGED(a_key_finds_the_newest_verdict_under_it),
        RIGGED(a_claim_gives_a_submission_to_one_node_only),
        RIGGED(two_claims_under_way_at_once_have_one_winner),
        RIGGED(what_waits_is_claimed_by_urgency_then_by_age),
        RIGGED(what_a_client_has_queued_and_used_is_summed_up),
        RIGGED(what_has_ended_or_was_cancelled_is_never_claimed),
        RIGGED(what_is_claimed_again_by_its_holder_has_the_attempts_that_its_release_said),
        RIGGED(a_release_gives_it_back_with_the_attempts_that_it_says),
        RIGGED(an_earlier_claim_finishes_nothing),
        RIGGED(a_restart_takes_back_what_the_last_life_had_claimed),
        RIGGED(a_node_may_claim_again_what_it_could_not_release),
        RIGGED(an_attempt_that_only_waits_is_taken_off_and_put_back),
        RIGGED(a_group_is_unfinished_until_its_last_has_ended),
        RIGGED(a_read_beside_the_loop_sees_what_was_reported),
        RIGGED(a_short_read_passes_a_long_one),
        RIGGED(closing_answers_what_was_asked),
    };
    static const struct CMUnitTest shared[] = {
        RIGGED(what_a_dead_node_had_claimed_is_judged_by_another),
        RIGGED(a_renewed_lease_is_not_reaped),
        RIGGED(a_lease_that_has_ended_claims_and_renews_nothing),
        RIGGED(a_second_life_of_a_node_ends_the_first),
    };
    static const struct CMUnitTest own[] = { RIGGED(a_file_is_no_other_daemons) };
    int failed = 0;

    for (size_t i = 0; i < rig_nbackends; i++) {
        printf("== %s\n", rig_backends[i].name);
        rig_backend = &rig_backends[i];
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        failed += strcmp(rig_backend->name, "sqlite") == 0 ? cmocka_run_group_tests(own, NULL, NULL)
                                                           : cmocka_run_group_tests(shared, NULL, NULL);
    }
    return failed;
}
