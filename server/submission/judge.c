#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/submission/group_progress.h"
#include "server/submission/judging.h"

/*
 * The story of one submission, read top down: begun, taken from stage to stage
 * (the two of the CPU, then those on a device), and ended. Each stage ends in
 * judge_decide(), which notes the outcome and goes on, or finishes.
 *
 * What goes wrong is either the candidate's, and then judgement_fail() names its
 * class; or ours, and then judge_lose() has it done again.
 */

/* --- begun --- */

void
judge_note_env(struct judgement *j, json_t *versions)
{
    const char *key;
    json_t *value;

    if (!j->env)
        j->env = json_object();
    json_object_foreach(versions, key, value) json_object_set(j->env, key, value);
}

static void
fail_extract(struct submission *s, const char *why)
{
    struct judgement *j = s->judgement;

    judgement_fail(j, STAGE_EXTRACT, CLASS_EXTRACT, NULL, "extract: %s.", why);
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    submission_conclude(s, EVENT_FINISH);
}

/* Where other sizes judge, a reference has room for those, and serves such submissions alone. */
static bool
sizes_judge(const struct judgement *j)
{
    return strcmp(j->policy.shapes, "require") == 0;
}

void
judge_count_attempt(const struct submission *s, bool is_running)
{
    struct store_claim c = s->claim;
    struct error err = { 0 };

    c.attempts = s->attempts - !is_running;
    /* Not waited for: were it lost, the next start would count one attempt more or less, that is all. */
    if (store_set_attempts(s->funnel->store, &c, NULL, NULL, &err) != 0)
        log_warn(s->id, "%s", err.text);
}

/* It is ours. */
static void
begin_claimed(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };
    int64_t now_ns = clock_monotonic_ns();

    s->attempts = s->claim.attempts;
    if (judgement_new(s, &err) != 0 ||
        (sizes_judge(s->judgement) && task_let_sizes_judge(&s->judgement->task, &err) != 0)) {
        log_error(s->id, "%s", err.text);
        scheduler_release_slot(f->scheduler, &s->job);
        judgement_fail(s->judgement, STAGE_AST, CLASS_INFRA, NULL, "It could not be judged: %s.", err.text);
        submission_conclude(s, EVENT_FINISH);
        return;
    }
    snprintf(s->job.reference, sizeof(s->job.reference), "%s%s", s->judgement->row.task_id,
             sizes_judge(s->judgement) ? "+sizes" : "");
    const char *extract_fault = json_string_value(json_object_get(s->judgement->request, "extract_fault"));
    if (extract_fault && !s->is_cancelled) {
        fail_extract(s, extract_fault);
        return;
    }
    submission_move(s, EVENT_BEGIN);
    judge_note_wait(s, STAGE_AST, now_ns);
    judge_note_env(s->judgement, json_object_get(zygote_ready_message(f->zygote), "versions"));
    if (!judge_is_stopped(s))
        cpu_stages_begin(s);
}

static void
claimed_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;
    bool must_wait = code != 0 && code != ERR_CONFLICT && code != ERR_NOTFOUND && !f->is_stopping;

    s->is_claiming = must_wait;
    if (must_wait) {
        log_warn(s->id, "it cannot begin yet: %s", err->text);
        DL_APPEND(f->unclaimed, s);
        submission_try_later(f);
    } else if (f->is_stopping) { /* the next start takes it up */
        scheduler_release_slot(f->scheduler, &s->job);
    } else if (code == 0) {
        begin_claimed(s);
    } else {
        log_error(s->id, "it is not judged here: %s", err->text);
        scheduler_release_slot(f->scheduler, &s->job);
        submission_give_up(s);
    }
    pending_end_write(f->pending);
}

void
judge_begin(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };

    s->is_claiming = true;
    pending_begin_write(f->pending);
    if (store_claim(f->store, store_lease(f->store), s->id, &s->claim, claimed_cb, s, &err) != 0)
        claimed_cb(s, err.code, &err);
}

/* --- from stage to stage --- */

static void
get_ready(struct submission *s)
{
    struct funnel *f = s->funnel;

    submission_move(s, EVENT_NEXT);
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    /* No device is given to anybody any more. */
    if (pending_is_draining(f->pending)) {
        submission_return(s, true);
        return;
    }
    submission_waits(s);
    judge_count_attempt(s, false);
    scheduler_add_for_device(f->scheduler, &s->job, false);
    scheduler_kick(f->scheduler);
}

bool
judge_goes_on(const struct judgement *j)
{
    if (j->stage == STAGE_TIMING || j->until == j->stage)
        return false;
    if (j->failed_stage < 0)
        return true;
    if (j->stage + 1 == STAGE_TIMING)
        return !j->policy.skip_timing_on_failure && (!j->policy.staged || j->failed_stage == STAGE_FULL);
    return !j->policy.staged;
}

bool
judge_group_chooses(const struct submission *s)
{
    const struct judgement *j = s->judgement;
    return s->group && group_times_some(s->group) && !s->member.is_chosen && j->failed_stage < 0 &&
           (j->until < 0 || j->until > STAGE_FULL);
}

static void
park(struct submission *s)
{
    struct judgement *j = s->judgement;
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(j->full, "cases"), i, item)
    {
        json_t *took = json_object_get(item, "call_ms");
        if (json_is_number(took) && json_number_value(took) > 0)
            s->member.rough_ms =
                fmin(s->member.rough_ms, json_number_value(took)); /* fmin() leaves a NAN for a number */
    }
    j->is_parking = true;
    lane_close(j->lane);
}

void
judge_park(struct submission *s)
{
    struct funnel *f = s->funnel;

    submission_move(s, EVENT_PARK);
    if (pending_is_draining(f->pending)) {
        submission_return(s, true);
        return;
    }
    s->member.index = s->judgement->row.group_index;
    group_park(s->group, &s->member);
    judge_count_attempt(s, false);
    group_progress(f, s->group);
    scheduler_kick(f->scheduler);
}

void
judge_decide(struct submission *s, enum outcome outcome, enum verdict_class class_, int done, int of)
{
    struct judgement *j = s->judgement;

    judge_note(s, outcome, class_, done, of);
    if (!judge_goes_on(j)) {
        judge_finish(s);
    } else if (j->stage == STAGE_AST) {
        submission_move(s, EVENT_NEXT);
        cpu_stages_compile(s);
    } else if (j->stage == STAGE_COMPILE) {
        get_ready(s);
    } else if (j->stage == STAGE_FULL && judge_group_chooses(s)) {
        park(s);
    } else {
        submission_move(s, EVENT_NEXT);
        device_stages_go_on(s);
    }
}

/* --- the end --- */

void
judge_conclude(struct submission *s)
{
    const struct judgement *j = s->judgement;

    if (!s->is_cancelled && doubt_may_be_theirs(j) && doubt_promises_rerun(s, j->class_, j->failed_stage)) {
        submission_return(s, true);
        return;
    }
    doubt_excuse(s);
    submission_conclude(s, EVENT_FINISH);
}

void
judge_finish(struct submission *s)
{
    struct judgement *j = s->judgement;

    scheduler_release_slot(s->funnel->scheduler, &s->job);
    if (j->lane && baseline_begin(s))
        return;
    if (j->lane) {
        j->is_finishing = true;
        lane_close(j->lane);
        return;
    }
    judge_conclude(s);
}

bool
judge_is_stopped(struct submission *s)
{
    if (!s->is_cancelled && !s->is_returned)
        return false;
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    if (s->is_cancelled)
        submission_conclude(s, EVENT_CANCEL);
    else
        submission_return(s, true);
    return true;
}

void
judge_stop(struct submission *s)
{
    struct judgement *j = s->judgement;

    if (j->lane)
        lane_close(j->lane);
    else if (j->child)
        child_kill(j->child);
}

void
judge_untimed(struct submission *s)
{
    static const char why[] = "it is not among the best of its group";
    struct judgement *j = s->judgement;

    j->stage = STAGE_TIMING;
    j->stages[STAGE_TIMING] = (struct stage_record){ .outcome = OUTCOME_SKIP, .why = why };
    counters_skip_stage(s->funnel->counters, STAGE_TIMING);
    j->timing = json_pack("{s:s, s:s}", "outcome", "skipped", "why", why);
    submission_conclude(s, EVENT_FINISH);
}

/* --- ours --- */

static void
conclude_lost(struct submission *s, const char *why)
{
    struct judgement *j = s->judgement;
    int stage = j->stage < 0 ? STAGE_AST : j->stage;

    /* It was alone on its worker each time but the first, when nobody could tell whose doing it was. */
    if (s->lonely_losses > 0 && s->lonely_losses >= s->losses - 1)
        judgement_fail(j, stage, CLASS_CRASH, NULL, "It took its worker down %d times; the last time: %s.",
                       s->losses, why);
    else
        judgement_fail(j, stage, CLASS_INFRA, NULL, "It could not be judged in %d attempts: %s.", s->attempts,
                       why);
    submission_conclude(s, EVENT_FINISH);
}

void
judge_lose(struct submission *s, bool is_alone, const char *why)
{
    scheduler_release_slot(s->funnel->scheduler, &s->job);
    s->losses++;
    s->job.is_suspect = true;
    s->lonely_losses += is_alone;
    log_warn(s->id, "lost in attempt %d: %s", s->attempts, why);
    if (s->losses >= s->funnel->config->max_attempts)
        conclude_lost(s, why);
    else
        submission_return(s, false);
}

/* --- what is noted on the way --- */

void
judge_note_wait(struct submission *s, int stage, int64_t now_ns)
{
    double wait_ms = (double)(now_ns - s->queued_ns) / 1e6;

    s->judgement->stages[stage].wait_ms = wait_ms;
    counters_wait(s->funnel->counters, (enum stage)stage, wait_ms);
}

void
judge_note(struct submission *s, enum outcome outcome, enum verdict_class class_, int done, int of)
{
    struct judgement *j = s->judgement;
    struct stage_record *r = &j->stages[j->stage];

    r->outcome = outcome;
    r->done = done;
    r->of = of;
    r->run_ms = (double)(clock_monotonic_ns() - j->started_ns) / 1e6;
    r->class_ = outcome == OUTCOME_FAIL ? class_ : CLASS_NONE;
    counters_end_stage(s->funnel->counters, (enum stage)j->stage, outcome, r->run_ms, j->lane != NULL);
    if (outcome == OUTCOME_PASS && j->failed_stage < 0)
        j->passed = j->stage;
    log_info(s->id, "%s: %s%s%s, %.0f ms", stage_name((enum stage)j->stage),
             outcome == OUTCOME_PASS   ? "pass"
             : outcome == OUTCOME_FAIL ? "fail"
                                       : "skip",
             r->class_ ? " " : "", r->class_ ? class_name(r->class_) : "", r->run_ms);
}

void
judge_add_flags(struct judgement *j, json_t *flags)
{
    json_t *flag, *had;
    size_t i, k;

    json_array_foreach(flags, i, flag)
    {
        bool is_known = !json_is_string(flag);
        json_array_foreach(j->flags, k, had) is_known |= json_equal(flag, had) != 0;
        if (!is_known)
            json_array_append(j->flags, flag);
    }
}

void
judge_add_flag(struct judgement *j, const char *name)
{
    AUTO_JSON json_t *flags = json_pack("[s]", name);
    judge_add_flags(j, flags);
}

void
judge_take_output(struct judgement *j, const struct buffer *output, int64_t lost, int64_t limit)
{
    size_t room = (size_t)limit > j->log.size ? (size_t)limit - j->log.size : 0;
    size_t kept = output->size < room ? output->size : room;

    if (kept > 0 && buffer_append(&j->log, output->data, kept) != 0)
        kept = 0;
    j->log_lost += lost + (int64_t)(output->size - kept);
}
