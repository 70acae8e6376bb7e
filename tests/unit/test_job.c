/* test_job.c - what a device's job does in each phase when anything happens, with children and a referee of our own. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "common/auto.h"
#include "server/workers/job.h"

/* --- what the job uses, and a log of what it does --- */

static char done[256];

static void
note(const char *what)
{
    size_t size = strlen(done);
    snprintf(done + size, sizeof(done) - size, "%s%s", size ? " " : "", what);
}

struct child {
    const char *name;
    struct buffer output;
};

struct gpu_child {
    struct child child;
    bool is_loaded;
};

static struct gpu_child candidate = { .child = { .name = "candidate" } },
                        reference = { .child = { .name = "reference" } },
                        tool = { .child = { .name = "tool" } };
static bool is_ready, is_quiet, is_on_gpu, has_executor, is_renewing, has_run_enough;

const char *
child_name(const struct child *c)
{
    return c->name;
}

int
child_pid(const struct child *c)
{
    (void)c;
    return 0;
}

void
child_kill(struct child *c)
{
    note(c == &candidate.child ? "kill" : c == &tool.child ? "kill-tool" : "kill-reference");
}

void
child_read(struct child *c)
{
    (void)c;
}

const struct buffer *
child_output(const struct child *c)
{
    return &c->output;
}

int64_t
child_output_lost(const struct child *c)
{
    (void)c;
    return 0;
}

const struct child_end *
child_end(const struct child *c)
{
    (void)c;
    return NULL;
}

struct child *
gpu_child_process(const struct gpu_child *c)
{
    return (struct child *)(uintptr_t)&c->child;
}

struct gpu_child *
gpu_children_reference(const struct gpu_children *all, const char *task_id)
{
    (void)all;
    (void)task_id;
    return NULL;
}

struct gpu_child *
gpu_children_take(struct gpu_children *all, enum gpu_child_use use, const char *task_id)
{
    (void)all;
    (void)task_id;
    return !is_ready ? NULL : use == GPU_CHILD_REFERENCE ? &reference : &candidate;
}

struct gpu_child *
gpu_children_take_executor(struct gpu_children *all)
{
    (void)all;
    if (!has_executor)
        return NULL;
    note("executor");
    return &candidate;
}

bool
gpu_children_are_renewing(const struct gpu_children *all)
{
    (void)all;
    return is_renewing;
}

bool
gpu_child_keep(struct gpu_child *c)
{
    (void)c;
    return !has_run_enough;
}

void
gpu_child_note_loaded(struct gpu_child *c, const char *task_id)
{
    (void)task_id;
    c->is_loaded = true;
}

bool
gpu_child_is_loaded(const struct gpu_child *c)
{
    return c->is_loaded;
}

void
gpu_child_note_used(struct gpu_child *c)
{
    (void)c;
}

void
gpu_child_let_go(struct gpu_child *c)
{
    (void)c;
    note("let-go");
}

void
gpu_child_discard(struct gpu_child *c)
{
    note(c == &reference ? "discard-reference" : "discard");
}

void
gpu_children_make_room(struct gpu_children *all, const struct gpu_child *a, const struct gpu_child *b)
{
    (void)all;
    (void)a;
    (void)b;
}

void
gpu_children_note_busy(struct gpu_children *all, bool is_busy)
{
    (void)all;
    (void)is_busy;
}

bool
gpu_children_are_quiet(const struct gpu_children *all)
{
    (void)all;
    return is_quiet;
}

bool
gpu_children_can_stand_still(const struct gpu_children *all)
{
    (void)all;
    return is_quiet;
}

int64_t
gpu_children_lost(const struct gpu_children *all)
{
    (void)all;
    return 0;
}

bool
referee_open(struct referee *r, const char *job, const char *name, const char *other,
             const struct job_submission *what)
{
    (void)r, (void)job, (void)name, (void)what;
    assert_string_equal(other, "candidate");
    note("ask-open");
    return true;
}

bool
referee_register(struct referee *r, const char *job, const char *child, const struct job_registration *what)
{
    (void)r, (void)job, (void)child, (void)what;
    note("ask-register");
    return true;
}

void
referee_stage(struct referee *r, const char *job, const char *stage, const char *child)
{
    (void)r;
    (void)job;
    (void)stage;
    note(child ? "ask-tool" : "ask-stage");
}

struct gpu_child *
gpu_children_take_tool(struct gpu_children *all)
{
    (void)all;
    note("take-tool");
    return is_quiet ? &tool : NULL;
}

bool
gpu_child_is_known(const struct gpu_child *c)
{
    (void)c;
    return is_ready;
}

void
referee_close(struct referee *r, const char *job, bool is_kept)
{
    (void)r;
    (void)job;
    note(is_kept ? "keep" : "forget");
}

void
referee_kill(struct referee *r, const char *why)
{
    (void)r;
    (void)why;
    note("kill-referee");
}

struct process *
referee_process(const struct referee *r)
{
    (void)r;
    return NULL;
}

json_t *
referee_gpu(const struct referee *r)
{
    static json_t gpu;

    (void)r;
    return is_on_gpu ? &gpu : NULL;
}

int
process_pid(const struct process *p)
{
    (void)p;
    return 0;
}

/* --- its owner --- */

static void
report_cb(void *arg, const struct stage_report *r)
{
    (void)arg;
    (void)r;
    note("reported");
}

static void
closed_cb(void *arg, const struct job_closing *c)
{
    (void)arg;
    note(!c->is_lost ? "closed" : c->is_others ? "lost-to-others" : "lost");
}

static void
ended_cb(void *arg, bool needs_canary)
{
    (void)arg;
    note(needs_canary ? "ended-abnormally" : "ended");
}

static const struct job_ops ops = { report_cb, closed_cb };

/* --- phases and events --- */

struct rig {
    uv_loop_t loop;
    struct config config;
    struct job *job;
    char id[24];
};

enum place { NONE, ACQUIRE, ASKED, ANSWERED, QUIET, REOPEN, CLOSE, CLOSE_ASKED, PLACES };
enum event {
    PUMP,
    REPORT,
    OTHER_REPORT,
    CANDIDATE_ENDS,
    REFERENCE_ENDS,
    REFERENCE_FAILS,
    CLOSES,
    LOSES,
    EVENTS
};

static void
report(struct rig *r, const char *id, enum verdict_class class_)
{
    struct stage_report what = { .stage = class_ == CLASS_INFRA ? "reference" : "open",
                                 .outcome = class_ == CLASS_NONE ? REPORT_PASS : REPORT_FAIL,
                                 .class_ = class_,
                                 .is_reference = class_ == CLASS_INFRA };

    job_reported(r->job, id, &what);
    job_pump(r->job);
}

static void
rig_begin(struct rig *r, enum place to, int images_fd)
{
    const struct job_submission s = { .task_id = "task",
                                      .entry = "ModelNew",
                                      .task_entry = "Model",
                                      .source = "",
                                      .spec = "",
                                      .reference = "",
                                      .images_fd = images_fd };
    struct error err;

    *r = (struct rig){ .config = { .stage_limit_ms = 60000, .tiny_limit_ms = 10000 } };
    uv_loop_init(&r->loop);
    assert_int_equal(job_new(&r->loop, &r->config, NULL, NULL, ended_cb, r, &r->job, &err), 0);
    is_ready = to != ACQUIRE;
    is_quiet = to != QUIET;
    snprintf(r->id, sizeof(r->id), "j1");
    if (to != NONE) {
        job_open(r->job, &s, &ops, r);
        job_pump(r->job);
    }
    if (to >= ANSWERED && to != CLOSE_ASKED)
        report(r, "j1", to == CLOSE ? CLASS_CRASH : CLASS_NONE); /* how it ends may say more of a crash */
    if (to == QUIET)
        job_stage(r->job, "timing", 60000);
    if (to == REOPEN)
        job_reopen(r->job);
    if (to == CLOSE || to == CLOSE_ASKED)
        job_close(r->job);
    job_pump(r->job);
    done[0] = '\0';
}

static void
rig_new(struct rig *r, enum place to)
{
    rig_begin(r, to, -1);
}

static void
rig_free(struct rig *r)
{
    job_lose(r->job, "the test is over", false);
    job_free(r->job);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
}

static void
happens(struct rig *r, enum event event)
{
    switch (event) {
    case PUMP:
        is_ready = is_quiet = true;
        break;
    case REPORT:
        report(r, "j1", CLASS_NONE);
        break;
    case OTHER_REPORT:
        report(r, "j0", CLASS_NONE);
        break;
    case CANDIDATE_ENDS:
        job_child_ended(r->job, &candidate);
        break;
    case REFERENCE_ENDS:
        job_child_ended(r->job, &reference);
        break;
    case REFERENCE_FAILS:
        report(r, "j1", CLASS_INFRA);
        break;
    case CLOSES:
        job_close(r->job);
        break;
    case LOSES:
        job_lose(r->job, "its workers are gone", false);
        break;
    case EVENTS:
        break;
    }
    job_pump(r->job);
}

static void
each_phase_knows_what_each_event_leads_to(void **state)
{
    static const char *const expected[PLACES][EVENTS] = {
        [NONE] = { "", "", "", "", "", "", "", "" },
        [ACQUIRE] = { "ask-open", "", "", "", "", "", "closed ended", "lost-to-others" },
        [ASKED] = { "", "reported", "", "", "", "discard-reference reported", "kill", "lost" },
        [ANSWERED] = { "", "", "", "", "", "", "kill forget let-go closed ended", "lost" },
        [QUIET] = { "ask-stage", "", "", "", "", "", "kill forget let-go closed ended", "lost" },
        [REOPEN] = { "", "", "", "forget ask-open", "", "", "kill forget let-go closed ended", "lost" },
        [CLOSE] = { "", "", "", "forget closed ended-abnormally", "", "", "", "lost" },
        [CLOSE_ASKED] = { "", "", "", "", "", "discard-reference", "", "lost" },
    };

    (void)state;
    for (int place = 0; place < PLACES; place++) {
        for (int event = 0; event < EVENTS; event++) {
            struct rig r;
            rig_new(&r, (enum place)place);
            happens(&r, (enum event)event);
            if (strcmp(done, expected[place][event]) != 0)
                fail_msg("place %d, event %d: \"%s\", not \"%s\"", place, event, done,
                         expected[place][event]);
            rig_free(&r);
        }
    }
}

/* What is killed for its end to be seen closes the job when both have come: the end, and what the referee owes. */
static void
a_job_that_is_asked_closes_after_the_end_and_the_report(void **state)
{
    struct rig r;

    (void)state;
    rig_new(&r, CLOSE_ASKED);
    happens(&r, CANDIDATE_ENDS);
    assert_string_equal(done, "");
    happens(&r, REPORT);
    assert_string_equal(done, "forget closed ended");
    assert_true(job_is_none(r.job));
    rig_free(&r);
    rig_new(&r, CLOSE_ASKED);
    happens(&r, REPORT);
    assert_string_equal(done, "");
    happens(&r, CANDIDATE_ENDS);
    assert_string_equal(done, "forget closed ended");
    rig_free(&r);
}

/* Only what ran a plan on a GPU, and gave no cause for doubt, runs another one. */
static void
a_process_that_ran_a_plan_is_kept(void **state)
{
    static const struct {
        bool is_planned, is_on_gpu, has_run_enough;
        enum verdict_class class_;
        const char *expected;
    } rows[] = {
        { true, true, false, CLASS_NONE, "keep closed ended" },
        { true, true, false, CLASS_MISMATCH, "keep closed ended" },
        { true, true, false, CLASS_CRASH, "kill" },
        { true, true, true, CLASS_NONE, "kill forget let-go closed ended" },
        { true, false, false, CLASS_NONE, "kill forget let-go closed ended" },
        { false, true, false, CLASS_NONE, "kill forget let-go closed ended" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int fd = rows[i].is_planned ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
        struct rig r;
        is_on_gpu = rows[i].is_on_gpu;
        has_run_enough = rows[i].has_run_enough;
        rig_begin(&r, ASKED, fd);
        report(&r, "j1", rows[i].class_);
        done[0] = '\0';
        happens(&r, CLOSES);
        if (strcmp(done, rows[i].expected) != 0)
            fail_msg("row %zu: \"%s\", not \"%s\"", i, done, rows[i].expected);
        rig_free(&r);
        if (fd >= 0)
            close(fd);
    }
    is_on_gpu = has_run_enough = false;
}

static void
an_executor_is_for_plans_alone(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct rig r;

    (void)state;
    rig_begin(&r, ACQUIRE, fd);
    is_renewing = true; /* which takes less than another context */
    happens(&r, PUMP);
    assert_string_equal(done, "");
    has_executor = true;
    happens(&r, PUMP);
    assert_string_equal(done, "executor ask-open");
    rig_free(&r);
    has_executor = false;
    rig_new(&r, ACQUIRE);
    has_executor = true;
    happens(&r, PUMP);
    assert_string_equal(done, "ask-open");
    rig_free(&r);
    has_executor = is_renewing = false;
    close(fd);
}

/* It is asked with its process, once that is known, and that process ends with the report; without one where it is lost. */
static void
the_tool_has_a_process_of_its_own_for_one_report(void **state)
{
    static const struct {
        bool is_lost, is_closed_before, is_closed_after;
        const char *expected;
    } rows[] = {
        { false, false, false, "take-tool ask-tool kill-tool let-go reported" },
        { true, false, false, "take-tool ask-stage reported" },
        { false, true, false, "take-tool kill-tool let-go kill forget let-go closed ended" },
        { false, false, true, "take-tool ask-tool kill-tool kill" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rig r;
        rig_new(&r, ANSWERED);
        is_ready = false;
        job_sanitize(r.job, 60000);
        job_pump(r.job);
        assert_string_equal(done, "take-tool");
        if (rows[i].is_lost)
            job_child_ended(r.job, &tool);
        is_ready = !rows[i].is_closed_before;
        job_pump(r.job);
        if (rows[i].is_closed_before || rows[i].is_closed_after)
            happens(&r, CLOSES);
        else
            report(&r, "j1", CLASS_NONE);
        if (strcmp(done, rows[i].expected) != 0)
            fail_msg("row %zu: \"%s\", not \"%s\"", i, done, rows[i].expected);
        rig_free(&r);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_phase_knows_what_each_event_leads_to),
        cmocka_unit_test(a_job_that_is_asked_closes_after_the_end_and_the_report),
        cmocka_unit_test(a_process_that_ran_a_plan_is_kept),
        cmocka_unit_test(an_executor_is_for_plans_alone),
        cmocka_unit_test(the_tool_has_a_process_of_its_own_for_one_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
