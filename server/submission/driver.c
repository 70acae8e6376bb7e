#include "server/submission/driver.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/classes.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/cancel.h"
#include "server/submission/carry.h"
#include "server/submission/conclude.h"
#include "server/submission/counters.h"
#include "server/submission/cpu_stages.h"
#include "server/submission/device_stages.h"
#include "server/submission/attribution.h"
#include "server/submission/group_progress.h"
#include "server/submission/groups.h"
#include "server/submission/node.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/stage_end.h"
#include "server/submission/state.h"
#include "server/submission/story.h"
#include "server/submission/submission.h"
#include "server/task/registrar.h"
#include "server/workers/device_worker.h"
#include "server/workers/zygote.h"

/*
 * The course of one submission, read top down: begun, moved from stage to stage (the two of the CPU, then those on a
 * device), and ended. A stage reports its end here; story.c decides what follows, and go_on() does that.
 *
 * A failure is either the candidate's, and then the stage has named a class; or ours, and then the attempt is repeated.
 * A call that ends a submission here is the last one that uses it in that turn of the loop.
 */

static void stage_ended(struct submission *s, const struct stage_end *end);

/* --- begun --- */

/* Where other sizes judge, a reference has room for those, and serves such submissions alone. */
static bool
sizes_judge(const struct attempt *j)
{
    return strcmp(j->policy.shapes, "require") == 0;
}

/* The stored data of a claimed submission, read on a thread of the store. */
struct loading {
    struct submission *submission; /* it is not freed while it is being claimed */
    char id[ID_SIZE];
    struct submission_row row;
    struct task_row task;
    struct buffer source;
    bool is_handed_on;
    struct carried_row carried; /* all zero: there is none */
    int rc;
    struct error err;
};

static void
load_cb(void *arg, struct store_reader *r)
{
    struct loading *l = arg;

    l->rc = reader_get_submission(r, l->id, &l->row, &l->err);
    if (l->rc == 0)
        l->rc = reader_get_task(r, l->row.task_id, &l->task, &l->err);
    if (l->rc == 0)
        l->rc = reader_get_source(r, l->row.source_hash, &l->source, &l->err);
    if (l->rc == 0 && l->is_handed_on)
        reader_get_carried(r, l->id, &l->carried, NULL); /* without it all is done here */
}

static void
loading_free(struct loading *l)
{
    submission_row_release(&l->row);
    task_row_release(&l->task);
    buffer_release(&l->source);
    carried_row_release(&l->carried);
    free(l);
}

/* Moves the data into the attempt, which needs them for its verdict also after a failure. */
static int
take_loaded(struct loading *l, struct error *err)
{
    struct attempt *j = l->submission->attempt;

    memcpy(l->row.id, l->id, sizeof(l->row.id));
    int rc = attempt_read_row(j, &l->row, err);
    j->task = l->task;
    l->task = (struct task_row){ 0 };
    j->source = l->source;
    l->source = (struct buffer)BUFFER_INIT;
    if (l->rc != 0) {
        *err = l->err;
        return l->rc;
    }
    return rc == 0 && sizes_judge(j) ? task_let_sizes_judge(&j->task, err) : rc;
}

static void
end_before_the_first_stage(struct submission *s)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    submission_conclude(s, EVENT_FINISH);
}

static void
note_wait(struct submission *s, enum stage stage, int64_t now_ns)
{
    double wait_ms = (double)(now_ns - s->entry.since_ns) / 1e6;

    s->attempt->stages[stage].wait_ms = wait_ms;
    counters_wait(s->funnel->counters, stage, wait_ms);
}

/* The store has granted the claim, and returned the data. */
static void
begin_claimed(struct submission *s, struct loading *l)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };
    int64_t now_ns = clock_monotonic_ns();

    s->attempts = s->claim.attempts;
    s->is_claimed = false; /* node.c may have claimed it again while it was read */
    if (s->claim.cancel >= CANCEL_ORDER(CANCEL_ASKED) && s->claim.cancel <= CANCEL_ORDER(CANCEL_DECIDED)) {
        s->is_cancelled = true;
        s->cancel_reason = (enum cancel_reason)(s->claim.cancel - 1);
    }
    int rc = take_loaded(l, &err);
    if (rc != 0) {
        log_error(s->id, "%s", err.text);
        attempt_fail(s->attempt, STAGE_AST, CLASS_INFRA, NULL, "It could not be judged: %s.", err.text);
    } else if (s->is_exhausted) {
        attempt_fail(s->attempt, STAGE_AST, CLASS_INFRA, NULL,
                     "The service went down %d times while judging it.", s->attempts);
    }
    if (rc != 0 || s->is_exhausted) {
        end_before_the_first_stage(s);
        return;
    }
    if (l->carried.about)
        carry_take(s, &l->carried);
    snprintf(s->job.reference, sizeof(s->job.reference), "%s%s", s->attempt->row.task_id,
             sizes_judge(s->attempt) ? "+sizes" : "");
    const char *fault = json_string_value(json_object_get(s->attempt->request, "extract_fault"));
    if (fault && !s->is_cancelled) {
        attempt_fail(s->attempt, STAGE_EXTRACT, CLASS_EXTRACT, NULL, "extract: %s.", fault);
        end_before_the_first_stage(s);
        return;
    }
    submission_move(s, EVENT_BEGIN);
    note_wait(s, STAGE_AST, now_ns);
    attempt_note_env(s->attempt, json_object_get(zygote_ready_message(f->zygote), "versions"));
    struct stage_end end = submission_is_stopped(s) ? stage_lost(false, "it was stopped before it began")
                                                    : cpu_stages_ast(s, stage_ended);
    stage_ended(s, &end);
}

/* It has a slot still. */
static void
begin_again(void *arg)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;

    if (!pending_is_draining(f->pending) || s->is_cancelled) {
        driver_begin(s);
        return;
    }
    s->is_claiming = false;
    scheduler_release_slot(f->scheduler, &s->job);
    scheduler_add_for_slot(f->scheduler, &s->job, true);
    if (s->is_unread)
        s->attempts = s->claim.attempts + 1;
    if (s->is_unread || s->is_claimed)
        submission_release(s);
    scheduler_kick(f->scheduler);
}

/* The store could not be read. It is claimed once more, as the same attempt: another node may have it by then. */
static void
begin_later(struct submission *s, const struct error *err)
{
    log_warn(s->id, "it cannot begin yet: %s", err->text);
    s->is_claimed = s->is_exhausted; /* which ends as it was found, without another claim */
    s->claim.attempts -= !s->is_exhausted;
    s->is_unread = !s->is_exhausted;
    s->is_claiming = true;
    pending_retry(s->funnel->pending, &s->retry, begin_again, s);
}

/* The daemon stops before it has begun, which counts as no attempt. */
static void
leave_claimed(struct submission *s)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    if (s->is_exhausted)
        return;
    s->attempts = s->claim.attempts;
    submission_release(s);
}

static void
loaded_cb(void *arg)
{
    struct loading *l = arg;
    struct submission *s = l->submission;
    struct funnel *f = s->funnel;

    s->is_claiming = false;
    if (pending_is(f->pending, PENDING_STOPPING))
        leave_claimed(s);
    else if (l->rc == ERR_UNAVAILABLE)
        begin_later(s, &l->err);
    else
        begin_claimed(s, l);
    loading_free(l);
    pending_end_write(f->pending);
}

/* It is read before it begins: a cancellation or a drain meanwhile finds it in the state before the store was asked. */
static void
load(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct loading *l = calloc(1, sizeof(*l));

    s->is_claiming = true;
    if (!l) {
        log_warn(s->id, "no memory to begin it: it is tried again");
        pending_retry(s->funnel->pending, &s->retry, begin_again, s);
        return;
    }
    pending_begin_write(f->pending);
    *l = (struct loading){ .submission = s, .source = BUFFER_INIT, .is_handed_on = s->claim.is_handed_on };
    memcpy(l->id, s->id, sizeof(l->id));
    if (store_read(f->store, load_cb, loaded_cb, l, &l->err) != 0) {
        l->rc = l->err.code;
        loaded_cb(l);
    }
}

static void
claimed_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;
    /* It was claimed by another write (node.c) at the same time: this claim was refused for that alone. */
    if (code == ERR_CONFLICT && s->is_claimed)
        code = 0;
    s->is_claimed = s->is_claimed && code != 0;
    s->is_unread = s->is_unread && code != 0;
    bool is_stopping = pending_is(f->pending, PENDING_STOPPING), is_full = code == ERR_FULL && !is_stopping;
    bool must_wait = code != 0 && code != ERR_CONFLICT && code != ERR_NOTFOUND && !is_full && !is_stopping;

    s->is_claiming = must_wait;
    if (is_full) {
        scheduler_end_rerun(f->scheduler, &s->job);
        scheduler_release_slot(f->scheduler, &s->job);
        client_hold(s->job.client);
        scheduler_add_for_slot(f->scheduler, &s->job, true);
        if (s->is_cancelled) { /* as one that waits it can be */
            s->is_cancelled = false;
            cancel_ordered(f, s->id, CANCEL_ORDER(s->cancel_reason));
        }
    } else if (must_wait) {
        log_warn(s->id, "it cannot begin yet: %s", err->text);
        pending_retry(s->funnel->pending, &s->retry, begin_again, s);
    } else if (code != 0 && is_stopping) { /* the next start takes it up */
        scheduler_release_slot(f->scheduler, &s->job);
    } else if (is_stopping) {
        leave_claimed(s);
    } else if (code == 0) {
        load(s);
    } else {
        log_info(s->id, "it is not judged here: %s", err->text);
        f->taken(s);
    }
    pending_end_write(f->pending);
}

void
driver_begin(struct submission *s)
{
    struct funnel *f = s->funnel;
    const struct store_wants wants = node_wants(f);
    struct error err = { 0 };

    s->is_claiming = true;
    pending_begin_write(f->pending);
    if (s->is_claimed)
        claimed_cb(s, 0, NULL);
    else if (store_claim(f->store, node_lease(f->node), &wants, s->id, &s->claim, claimed_cb, s, &err) != 0)
        claimed_cb(s, err.code, &err);
}

void
driver_place(struct submission *s, struct device_worker *w)
{
    submission_count_attempt(s, true);
    submission_move(s, EVENT_DEVICE);
    note_wait(s, STAGE_TINY, clock_monotonic_ns());
    struct stage_end end = device_stages_open(s, w, stage_ended);
    stage_ended(s, &end);
}

/* --- from stage to stage --- */

/* The stage that it is in is decided. */
static void
note_outcome(struct submission *s, const struct stage_end *end)
{
    struct attempt *j = s->attempt;
    struct stage_record *r = &j->stages[j->stage];

    r->outcome = end->outcome;
    r->done = end->done;
    r->of = end->of;
    r->run_ms = (double)(clock_monotonic_ns() - j->started_ns) / 1e6;
    r->class_ = end->outcome == OUTCOME_FAIL ? end->class_ : CLASS_NONE;
    counters_end_stage(s->funnel->counters, (enum stage)j->stage, end->outcome, r->run_ms,
                       j->device_worker != NULL);
    if (end->outcome == OUTCOME_PASS && j->failed_stage < 0)
        j->passed = j->stage;
    log_info(s->id, "%s: %s%s%s, %.0f ms", stage_name((enum stage)j->stage),
             end->outcome == OUTCOME_PASS   ? "pass"
             : end->outcome == OUTCOME_FAIL ? "fail"
                                            : "skip",
             r->class_ ? " " : "", r->class_ ? class_name(r->class_) : "", r->run_ms);
}

static struct stage_end
run(struct submission *s)
{
    return s->state == STATE_COMPILE ? cpu_stages_compile(s, stage_ended) : device_stages_run(s);
}

static void
wait_for_device(struct submission *s)
{
    struct funnel *f = s->funnel;

    submission_move(s, EVENT_NEXT);
    scheduler_release_slot(f->scheduler, &s->job);
    if (config_has_role(f->config, "compile")) {
        carry_hand_on(s);
        return;
    }
    /* No device is assigned any more. */
    if (pending_is_draining(f->pending)) {
        submission_return(s, true);
        return;
    }
    submission_waits(s);
    submission_count_attempt(s, false);
    scheduler_add_for_device(f->scheduler, &s->job, false);
    scheduler_kick(f->scheduler);
}

/* --- until its group has chosen whom to time --- */

static void
leave_device(struct submission *s)
{
    struct attempt *j = s->attempt;
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(j->full, "cases"), i, item)
    {
        json_t *took = json_object_get(item, "call_ms");
        /* fmin() ignores a NAN. A submission whose speed is not credited takes no place among the fastest. */
        if (json_is_number(took) && json_number_value(took) > 0 && !attempt_is_uncredited(j))
            s->member.rough_ms = fmin(s->member.rough_ms, json_number_value(took));
    }
    j->is_parking = true;
    device_worker_close(j->device_worker);
}

static void
park(struct submission *s)
{
    struct funnel *f = s->funnel;

    s->attempt->is_parking = false;
    submission_move(s, EVENT_PARK);
    if (pending_is_draining(f->pending)) {
        submission_return(s, true);
        return;
    }
    s->member.index = s->attempt->row.group_index;
    group_park(s->group, &s->member);
    submission_count_attempt(s, false);
    group_progress(f, s->group);
    scheduler_kick(f->scheduler);
}

/* --- the end --- */

/* Its processes are gone, and its verdict is clear. */
static void
conclude(struct submission *s)
{
    struct attempt *j = s->attempt;

    if (!s->is_cancelled && attribution_has_no_disk(s)) {
        log_warn(s->id, "%s at %s does not count: no files can be written in scratch", class_name(j->class_),
                 stage_name((enum stage)j->failed_stage));
        if (s->attempts < s->funnel->config->max_attempts) {
            submission_return(s, false);
            return;
        }
        attribution_excuse_disk(j);
    }
    if (!s->is_cancelled && attribution_may_be_theirs(j) &&
        attribution_promises_rerun(s, j->class_, j->failed_stage)) {
        submission_return(s, true);
        return;
    }
    attribution_excuse(s);
    submission_conclude(s, EVENT_FINISH);
}

static void
finish(struct submission *s)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    if (s->attempt->device_worker)
        device_stages_finish(s);
    else
        conclude(s);
}

static void
stop(struct submission *s)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    if (s->is_cancelled)
        submission_conclude(s, EVENT_CANCEL);
    else if (s->is_taken)
        s->funnel->taken(s);
    else
        submission_return(s, true);
}

/* --- ours --- */

static void
conclude_lost(struct submission *s, bool is_sole, const char *why)
{
    struct attempt *j = s->attempt;
    int stage = j->stage < 0 ? STAGE_AST : j->stage;

    /* It was alone on its worker this time, and each time but one, when the cause could not be attributed. */
    if (is_sole && s->sole_losses >= s->losses - 1)
        attempt_fail(j, stage, CLASS_CRASH, NULL, "It took its worker down %d times; the last time: %s.",
                     s->losses, why);
    else
        attempt_fail(j, stage, CLASS_INFRA, NULL, "It could not be judged in %d attempts: %s.", s->attempts,
                     why);
    submission_conclude(s, EVENT_FINISH);
}

static void
lose(struct submission *s, bool is_sole, const char *why)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    s->losses++;
    s->job.is_suspect = true;
    s->sole_losses += is_sole;
    log_warn(s->id, "lost in attempt %d: %s", s->attempts, why);
    if (s->losses >= s->funnel->config->max_attempts)
        conclude_lost(s, is_sole, why);
    else
        submission_return(s, false);
}

/* --- what follows --- */

static enum story_step
next_step(const struct submission *s, const struct stage_end *end)
{
    const struct attempt *j = s->attempt;
    const struct story_facts facts = {
        .goes_on = !end->is_last && attempt_goes_on(j),
        .will_park = submission_will_park(s),
        .needs_fresh = end->needs_fresh,
        .is_stopped = submission_is_stopped(s),
        .is_finishing = j->is_finishing,
        .is_parking = j->is_parking,
    };

    return story_next(s->state, end->event, &facts);
}

/* One step. What it returns is what the stage that it began reports at once; STAGE_PENDING: nothing, and s may be gone. */
static struct stage_end
go_on(struct submission *s, const struct stage_end *end)
{
    enum story_step step = next_step(s, end);

    assert(step != STORY_ILLEGAL);
    if (end->event == STAGE_DECIDED)
        note_outcome(s, end);
    switch (step) {
    case STORY_RUN:
        return run(s);
    case STORY_NEXT:
        submission_move(s, EVENT_NEXT);
        return run(s);
    case STORY_NEXT_FRESH:
        submission_move(s, EVENT_NEXT);
        return device_stages_reopen(s);
    case STORY_READY:
        wait_for_device(s);
        break;
    case STORY_LEAVE:
        leave_device(s);
        break;
    case STORY_PARK:
        park(s);
        break;
    case STORY_FINISH:
        finish(s);
        break;
    case STORY_CONCLUDE:
        conclude(s);
        break;
    case STORY_STOP:
        stop(s);
        break;
    case STORY_LOSE:
        lose(s, end->is_sole, end->why);
        break;
    case STORY_ILLEGAL:
    case STORY_NSTEPS:
        break;
    }
    return stage_pending();
}

static void
stage_ended(struct submission *s, const struct stage_end *end)
{
    struct stage_end now = *end;

    while (now.event != STAGE_PENDING)
        now = go_on(s, &now);
}
