#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/submission/group_progress.h"
#include "server/submission/private.h"

#define RECORD_RETRY_MS 1000

struct submission *
submission_new(struct funnel *f, const char *id, const char *group_id, const char *client, int priority,
               int attempts)
{
    struct submission *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->job.client = clients_get(f->clients, client);
    if (!s->job.client) {
        free(s);
        return NULL;
    }
    s->funnel = f;
    memcpy(s->id, id, sizeof(s->id));
    s->priority = priority == PRIORITY_BATCH ? PRIORITY_BATCH : PRIORITY_INTERACTIVE;
    s->job.urgency = s->priority == PRIORITY_BATCH ? FAIR_BATCH : FAIR_INTERACTIVE;
    s->attempts = attempts;
    s->cache = "miss";
    s->member.rough_ms = NAN;
    if (group_id && *group_id) {
        s->group = groups_get(f->groups, group_id);
        if (!s->group) {
            free(s);
            return NULL;
        }
        group_join(s->group);
    }
    client_add_submission(s->job.client);
    HASH_ADD_STR(f->submissions, id, s);
    submission_waits(s);
    return s;
}

/* The clock does not go back, so that what is appended is the youngest: the oldest is known without looking at all. */
static struct submission **
waiting_list(struct submission *s)
{
    return s->state == STATE_QUEUED ? &s->funnel->queued_oldest : &s->funnel->ready_oldest;
}

static void
end_waiting(struct submission *s)
{
    if (s->is_waiting)
        DL_DELETE2(*waiting_list(s), s, older, newer);
    s->is_waiting = false;
}

void
submission_waits(struct submission *s)
{
    assert(s->state == STATE_QUEUED || s->state == STATE_READY);
    end_waiting(s);
    s->queued_ns = clock_monotonic_ns();
    DL_APPEND2(*waiting_list(s), s, older, newer);
    s->is_waiting = true;
    counters_touch(s->funnel->counters);
}

void
submission_move(struct submission *s, enum event event)
{
    struct funnel *f = s->funnel;
    int next = state_after(s->state, event);

    /* Only our own bug asks for a move that the table does not have. */
    assert(next != STATE_ILLEGAL);
    end_waiting(s);
    counters_touch(f->counters);
    log_debug(s->id, "%s: %s to %s", event_name(event), state_name(s->state), state_name((enum state)next));
    s->state = (enum state)next;
    bool is_over = event == EVENT_FINISH || event == EVENT_CANCEL || event == EVENT_PARK;
    if (is_over || (event == EVENT_RETURN && scheduler_is_alone(f->scheduler, &s->job)))
        scheduler_end_rerun(f->scheduler, &s->job);
    int stage = stage_of_state(s->state);
    if (stage >= 0 && s->judgement) {
        s->judgement->stage = stage;
        s->judgement->entered_ns = clock_monotonic_ns();
        s->judgement->started_ns = s->judgement->entered_ns;
        counters_enter_stage(f->counters, (enum stage)stage);
        funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_STAGE, s->id, s->judgement->row.group_id,
                                               s->judgement->row.client, stage_name((enum stage)stage),
                                               event == EVENT_BEGIN, s->attempts, NULL });
    }
}

/* --- judgements --- */

static int
read_request(struct judgement *j, struct error *err)
{
    struct json_fault fault;
    const char *until, *seed;

    j->request = json_loads(j->row.request ? j->row.request : "", JSON_ALLOW_NUL, NULL);
    j->entry = json_string_value(json_object_get(j->request, "entry_point"));
    until = json_string_value(json_object_get(j->request, "until"));
    seed = json_string_value(json_object_get(j->request, "seed"));
    if (!j->entry || !seed ||
        policy_read(json_object_get(j->request, "policy"), "", &j->policy, &fault) != 0 ||
        reward_spec_read(json_object_get(j->request, "reward"), "", &j->reward, &fault) != 0)
        return error_set(err, ERR_STORE, "the stored request of %s cannot be read", j->row.id);
    j->until = until ? stage_find(until) : -1;
    j->seed = strtoull(seed, NULL, 16);
    j->policy_json = policy_json(&j->policy);
    json_t *flags = json_object_get(j->request, "flags");
    if (json_is_array(flags)) {
        json_decref(j->flags);
        j->flags = json_deep_copy(flags);
    }
    return 0;
}

bool
judgement_make(struct submission *s)
{
    if (!s->judgement && (s->judgement = calloc(1, sizeof(*s->judgement))))
        s->judgement->plan_fd = s->judgement->images_fd = -1;
    return s->judgement != NULL;
}

/* What is told of a request that cannot be read is as whole as any other verdict. */
static void
set_defaults(struct judgement *j)
{
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;

    j->stage = j->passed = j->failed_stage = j->until = -1;
    j->reward = standard;
    j->flags = json_array();
    policy_find("strict", &j->policy);
}

int
judgement_read(struct submission *s, struct error *err)
{
    struct funnel *f = s->funnel;

    if (!judgement_make(s))
        return error_set(err, ERR_NOMEM, "no memory to judge %s", s->id);
    struct judgement *j = s->judgement;
    set_defaults(j);
    int rc = store_get_submission(f->store, s->id, &j->row, err);
    memcpy(j->row.id, s->id, sizeof(j->row.id));
    return rc == 0 ? read_request(j, err) : rc;
}

int
judgement_read_row(struct judgement *j, struct submission_row *row, struct error *err)
{
    set_defaults(j);
    j->row = *row;
    *row = (struct submission_row){ .reward = NAN };
    return read_request(j, err);
}

int
judgement_new(struct submission *s, struct error *err)
{
    struct funnel *f = s->funnel;
    int rc = judgement_read(s, err);
    struct judgement *j = s->judgement;

    if (rc == 0)
        rc = store_get_task(f->store, j->row.task_id, &j->task, err);
    if (rc == 0)
        rc = store_get_source(f->store, j->row.source_hash, &j->source, err);
    return rc;
}

static void
release_documents(struct judgement *j)
{
    json_t **const owned[] = { &j->request,  &j->policy_json, &j->error,    &j->flags,    &j->kernels,
                               &j->compiled, &j->claim,       &j->tiny,     &j->full,     &j->timing,
                               &j->env,      &j->result,      &j->baseline, &j->untraced, &j->plan };

    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        json_decref(ptr_take(owned[i]));
    j->entry = NULL;
}

void
judgement_free(struct funnel *f, struct judgement *j)
{
    if (!j)
        return;
    assert(!j->child && !j->lane);
    if (j->cache[0])
        scratch_remove(f->loop, j->cache);
    submission_row_release(&j->row);
    task_row_release(&j->task);
    buffer_release(&j->source);
    buffer_release(&j->log);
    release_documents(j);
    auto_close(&j->plan_fd);
    auto_close(&j->images_fd);
    free(j->generality);
    free(j);
}

void
judgement_fail(struct judgement *j, int stage, enum verdict_class class_, json_t *error, const char *format,
               ...)
{
    va_list args;

    /* Under a policy that goes on after a failure, a cheat that fails honestly first is a cheat still. */
    bool is_found_out = class_ == CLASS_HACK && j->class_ != CLASS_HACK && j->class_ != CLASS_INFRA;
    if (j->failed_stage >= 0 && !is_found_out)
        return;
    j->failed_stage = stage;
    j->class_ = class_;
    j->rule[0] = j->doubt[0] = '\0';
    json_decref(j->error);
    j->error = json_incref(error);
    va_start(args, format);
    vsnprintf(j->text, sizeof(j->text), format, args);
    va_end(args);
}

/* --- the end --- */

static void
count_rerun(const struct submission *s)
{
    struct funnel *f = s->funnel;

    if (!s->job.is_rerun || !s->judgement->row.class_)
        return;
    counters_rerun(f->counters, s->judgement->class_ == s->rerun.class_ ? RERUN_CONFIRMED : RERUN_CLEARED);
}

/* What an early failure saved: the stages that it did not come to. */
static void
count_spared(struct funnel *f, const struct judgement *j)
{
    int last = j->failed_stage == STAGE_EXTRACT ? -1 : j->failed_stage;

    if (j->failed_stage < 0)
        return;
    for (int i = last + 1; i < STAGE_NSTAGES; i++) {
        if (j->stages[i].outcome != OUTCOME_NONE || (j->until >= 0 && i > j->until))
            continue;
        counters_spare_stage(f->counters, (enum stage)i);
    }
}

static double
seconds_taken(const struct submission_row *row)
{
    return (double)(row->finished_ms - row->created_ms) / 1000;
}

static void
end_group(struct funnel *f, struct group *g, const char *client)
{
    funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_GROUP, .group = group_id(g), .client = client });
    waits_notify(group_waits(g));
    group_free(g);
}

/* Nobody will find it in memory any more, then those who wait are told: it has ended, or it is another's. */
static void
forget(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct group *g = s->group;
    bool is_chosen = s->member.is_chosen, is_correct = s->is_correct;

    counters_touch(f->counters);
    cache_settle(s, s->judgement);
    AUTO_FREE char *client = ptr_take(&s->judgement->row.client);
    judgement_free(f, s->judgement);
    s->judgement = NULL;
    waits_notify(&s->waits);
    client_drop_submission(s->job.client);
    free(s);
    if (g && group_finish_one(g, is_chosen, is_correct))
        end_group(f, g, client);
    else if (g)
        group_progress(f, g);
    scheduler_kick(f->scheduler); /* those that followed it may have to be judged */
}

/* Durable. */
static void
publish(struct submission *s)
{
    struct funnel *f = s->funnel;

    HASH_DEL(f->submissions, s);
    funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_VERDICT, s->id, s->judgement->row.group_id,
                                           s->judgement->row.client, NULL, false, s->attempts,
                                           s->judgement->row.verdict });
    forget(s);
}

void
submission_give_up(struct submission *s)
{
    struct judgement *j = s->judgement;

    HASH_DEL(s->funnel->submissions, s);
    j->class_ = CLASS_INFRA; /* whatever it came to is handed on to nobody */
    j->failed_stage = STAGE_AST;
    forget(s);
}

static void record(struct submission *s);
static void settle(struct submission *s);

static void
recorded_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;

    if (code == 0) {
        publish(s);
    } else if (code == ERR_CONFLICT || code == ERR_NOTFOUND) {
        log_error(s->id, "its verdict is refused: %s", err->text);
        submission_give_up(s);
    } else {
        log_error(s->id, "its verdict is not stored yet: %s", err->text);
        DL_APPEND(f->unrecorded, s);
        submission_try_later(f);
    }
    pending_end_write(f->pending);
}

static void
record_timer_cb(uv_timer_t *timer)
{
    struct funnel *f = timer->data;
    struct submission *s, *next, *list = f->unrecorded;

    f->unrecorded = NULL;
    DL_FOREACH_SAFE(list, s, next)
    {
        DL_DELETE(list, s);
        if (s->judgement->row.verdict)
            record(s);
        else
            settle(s);
    }
    list = f->unclaimed;
    f->unclaimed = NULL;
    DL_FOREACH_SAFE(list, s, next)
    {
        DL_DELETE(list, s);
        if (!pending_is_draining(f->pending)) {
            judge_begin(s);
            continue;
        }
        s->is_claiming = false;
        scheduler_release_slot(f->scheduler, &s->job);
        scheduler_add_for_slot(f->scheduler, &s->job, true);
    }
    scheduler_kick(f->scheduler);
}

void
submission_try_later(struct funnel *f)
{
    if (!uv_is_active((uv_handle_t *)&f->record_timer))
        uv_timer_start(&f->record_timer, record_timer_cb, RECORD_RETRY_MS, 0);
}

static void
record(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct judgement *j = s->judgement;
    struct error err = { 0 };

    pending_begin_write(f->pending);
    j->row.claim = s->claim.number;
    if (store_finish(f->store, &j->row, j->log.data, j->log.size, recorded_cb, s, &err) != 0)
        recorded_cb(s, err.code, &err);
}

static void
count_figures(struct submission *s, double reward, json_t *verdict)
{
    struct funnel *f = s->funnel;
    json_t *components = json_object_get(verdict, "components"),
           *speedup = json_object_get(components, "speedup");

    s->is_correct = verdict_is_correct(verdict);
    bool is_timed = json_is_number(speedup) && json_integer_value(json_object_get(components, "timed")) == 1;
    counters_add_reward(f->counters, reward, is_timed ? json_number_value(speedup) : NAN);
}

/* What the row of a finished submission says; verdict: given, as it is in the row. False: there was no memory for it. */
static bool
fill_row(struct submission *s, json_t **verdict)
{
    struct judgement *j = s->judgement;
    bool is_cancelled = s->state == STATE_CANCELLED;
    const char *stage = verdict_stage(j), *class_ = class_name(verdict_class_of(j));

    j->row.state = is_cancelled ? SUBMISSION_CANCELLED : SUBMISSION_DONE;
    j->row.attempts = s->attempts;
    j->row.finished_ms = clock_wall_ms();
    j->row.device_ms = (int64_t)(s->device_s * 1000);
    free(j->row.stage);
    j->row.stage = stage ? strdup(stage) : NULL;
    free(j->row.class_);
    j->row.class_ = is_cancelled ? NULL : strdup(class_);
    free(ptr_take(&j->row.verdict));
    *verdict = verdict_json(s);
    AUTO_FREE char *text = *verdict ? json_dumps(*verdict, JSON_COMPACT) : NULL;
    if (!text || (stage && !j->row.stage) || (!is_cancelled && !j->row.class_))
        return false;
    json_t *reward = json_object_get(*verdict, "reward");
    j->row.reward = json_is_number(reward) ? json_number_value(reward) : NAN;
    j->row.verdict = ptr_take(&text);
    return true;
}

void
submission_fill_cancelled(struct submission *s)
{
    AUTO_JSON json_t *verdict = NULL;

    if (fill_row(s, &verdict))
        release_documents(s->judgement);
}

/* Its verdict is made, counted and written; where there is no memory for it, in a second. */
static void
settle(struct submission *s)
{
    AUTO_JSON json_t *verdict = NULL;

    if (fill_row(s, &verdict)) {
        count_figures(s, s->judgement->row.reward, verdict);
        cache_key(s, s->judgement->row.cache_key);
        cache_compare(s);
        count_rerun(s);
    }
    submission_concluded(s);
}

void
submission_concluded(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct judgement *j = s->judgement;

    if (!j->row.verdict) {
        log_error(s->id, "no memory for its verdict: it is tried again");
        DL_APPEND(f->unrecorded, s);
        submission_try_later(f);
        return;
    }
    counters_finish(f->counters, class_find(j->row.class_), seconds_taken(&j->row), false);
    if (j->row.class_) {
        if (class_info(j->class_)->is_cheat)
            counters_reject(f->counters, j->class_, j->rule);
        count_spared(f, j);
    }
    log_info(s->id, "%s%s%s%s%s, reward %.4g", j->row.class_ ? j->row.class_ : "cancelled",
             j->row.stage ? " at " : "", j->row.stage ? j->row.stage : "", *j->rule ? ", rule " : "", j->rule,
             j->row.reward);
    record(s);
}

void
submission_conclude(struct submission *s, enum event event)
{
    struct judgement *j = s->judgement;

    submission_move(s, event);
    if (j->log_lost > 0)
        buffer_printf(&j->log, "\n[output truncated: %lld bytes more were not kept]\n",
                      (long long)j->log_lost);
    settle(s);
    scheduler_kick(s->funnel->scheduler);
}

int
submission_conclude_as(struct submission *s, const struct submission_row *from, json_t *verdict)
{
    struct funnel *f = s->funnel;
    struct submission_row *row = &s->judgement->row;
    json_t *reward = json_object_get(verdict, "reward");

    row->verdict = json_dumps(verdict, JSON_COMPACT);
    row->class_ = strdup(from->class_);
    row->stage = from->stage ? strdup(from->stage) : NULL;
    if (!row->verdict || !row->class_ || (from->stage && !row->stage))
        return ERR_NOMEM;
    submission_move(s, EVENT_FINISH);
    row->state = SUBMISSION_DONE;
    row->attempts = s->attempts;
    row->reward = json_is_number(reward) ? json_number_value(reward) : NAN;
    count_figures(s, row->reward, verdict);
    counters_finish(f->counters, class_find(row->class_), seconds_taken(row), true);
    log_info(s->id, "%s as %s (%s), reward %.4g", row->class_, from->id, s->cache, row->reward);
    record(s);
    return 0;
}

static void
returned_cb(void *arg, int code, const struct error *err)
{
    struct funnel *f = arg;
    /* It stays claimed in the store until it is begun again or finished, or until the next start. */
    if (code != 0)
        log_warn(NULL, "a submission put back to the queue is not stored as such: %s", err->text);
    pending_end_write(f->pending);
}

void
submission_return(struct submission *s, bool gives_back)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };

    submission_move(s, EVENT_RETURN);
    if (gives_back && s->attempts > 0)
        s->attempts--;
    funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_QUEUED, s->id, s->judgement->row.group_id,
                                           s->judgement->row.client, NULL, false, s->attempts, NULL });
    judgement_free(f, s->judgement);
    s->judgement = NULL;
    s->is_returned = false;
    submission_waits(s);
    counters_return(f->counters);
    pending_begin_write(f->pending);
    s->claim.attempts = s->attempts;
    if (store_release(f->store, &s->claim, returned_cb, f, &err) != 0)
        returned_cb(f, err.code, &err);
    scheduler_add_for_slot(f->scheduler, &s->job, true);
    scheduler_kick(f->scheduler);
}
