#include "server/submission/conclude.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/recheck.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/verdict.h"

/*
 * The last steps of a submission: its verdict is made and written, and once that is durable the submission ends
 * (ended.c). A write that the store refused, or that lacked memory, is repeated. Or the submission goes back into the
 * queue.
 */

static void record(void *arg);

static void
recorded_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;

    if (code == 0) {
        f->ended(s, true);
    } else if (code == ERR_CONFLICT && s->attempt->row.claim != s->claim.number) {
        record(s); /* this node claimed it from the store while the write was under way (node.c) */
    } else if (code == ERR_CONFLICT || code == ERR_NOTFOUND) {
        log_warn(s->id, "its verdict is refused: %s", err->text);
        counters_count(f->counters, COUNT_FENCED);
        f->taken(s);
    } else {
        log_error(s->id, "its verdict is not stored yet: %s", err->text);
        pending_retry(f->pending, &s->retry, record, s);
    }
    pending_end_write(f->pending);
}

static void
record(void *arg)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;
    struct attempt *j = s->attempt;
    struct error err = { 0 };

    pending_begin_write(f->pending);
    j->row.claim = s->claim.number;
    if (store_finish(f->store, &j->row, j->log.data, j->log.size, recorded_cb, s, &err) != 0)
        recorded_cb(s, err.code, &err);
}

/* The parts of its verdict that its end needs. */
static void
note_verdict(struct submission *s, json_t *verdict)
{
    json_t *components = json_object_get(verdict, "components"),
           *speedup = json_object_get(components, "speedup");
    bool is_timed = json_is_number(speedup) && json_integer_value(json_object_get(components, "timed")) == 1;

    s->is_correct = verdict_is_correct(verdict);
    s->speedup = is_timed ? json_number_value(speedup) : NAN;
}

static double
seconds_taken(const struct submission_row *row)
{
    return fmax(0, (double)(row->finished_ms - row->created_ms) / 1000); /* a clock may be set back */
}

/* What sums count: none where it takes a rank, which cheats alone do not wait for. */
static double
counted_reward(const struct attempt *j, json_t *verdict)
{
    return reward_needs_rank(&j->reward) ? NAN : number_or_nan(verdict, "reward");
}

/* The row of a finished submission; verdict: given, as it is in the row. False: there was no memory for it. */
static bool
fill_row(struct submission *s, json_t **verdict)
{
    struct attempt *j = s->attempt;
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
    AUTO_FREE char *text = *verdict ? json_text(*verdict) : NULL;
    if (!text || (stage && !j->row.stage) || (!is_cancelled && !j->row.class_))
        return false;
    j->row.reward = counted_reward(j, *verdict);
    j->row.verdict = ptr_take(&text);
    return true;
}

void
submission_fill_cancelled(struct submission *s)
{
    AUTO_JSON json_t *verdict = NULL;

    if (fill_row(s, &verdict))
        attempt_release_documents(s->attempt);
}

/* Its verdict is made, counted and written; repeated in a second if there is no memory. */
static void
settle(void *arg)
{
    struct submission *s = arg;
    AUTO_JSON json_t *verdict = NULL;

    if (fill_row(s, &verdict)) {
        note_verdict(s, verdict);
        reuse_key(s, s->attempt->row.cache_key);
        recheck_compare(s);
    }
    submission_concluded(s);
}

void
submission_concluded(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct attempt *j = s->attempt;

    if (!j->row.verdict) {
        log_error(s->id, "no memory for its verdict: it is tried again");
        pending_retry(f->pending, &s->retry, settle, s);
        return;
    }
    counters_finish(f->counters, class_find(j->row.class_), seconds_taken(&j->row), false);
    log_info(s->id, "%s%s%s%s%s, reward %.4g", j->row.class_ ? j->row.class_ : "cancelled",
             j->row.stage ? " at " : "", j->row.stage ? j->row.stage : "", *j->rule ? ", rule " : "", j->rule,
             j->row.reward);
    record(s);
}

void
submission_conclude(struct submission *s, enum event event)
{
    struct attempt *j = s->attempt;

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
    struct submission_row *row = &s->attempt->row;

    row->verdict = json_text(verdict);
    row->class_ = strdup(from->class_);
    row->stage = from->stage ? strdup(from->stage) : NULL;
    if (!row->verdict || !row->class_ || (from->stage && !row->stage))
        return ERR_NOMEM;
    submission_move(s, EVENT_FINISH);
    row->state = SUBMISSION_DONE;
    row->attempts = s->attempts;
    row->reward = counted_reward(s->attempt, verdict);
    note_verdict(s, verdict);
    s->is_shared = true;
    counters_finish(s->funnel->counters, class_find(row->class_), seconds_taken(row), true);
    log_info(s->id, "%s as %s (%s), reward %.4g", row->class_, from->id, s->cache, row->reward);
    record(s);
    return 0;
}

void
submission_end_untimed(struct submission *s)
{
    static const char why[] = "it is not among the best of its group";
    struct attempt *j = s->attempt;

    j->stage = STAGE_TIMING;
    j->stages[STAGE_TIMING] = (struct stage_record){ .outcome = OUTCOME_SKIP, .why = why };
    counters_skip_stage(s->funnel->counters, STAGE_TIMING);
    j->timing = json_pack("{s:s, s:s}", "outcome", "skipped", "why", why);
    submission_conclude(s, EVENT_FINISH);
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

static void
release(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };

    pending_begin_write(f->pending);
    s->claim.attempts = s->attempts;
    if (store_release(f->store, &s->claim, returned_cb, f, &err) != 0)
        returned_cb(f, err.code, &err);
}

void
submission_release(struct submission *s)
{
    s->is_claimed = false;
    s->attempts -= s->attempts > 0;
    release(s);
}

void
submission_return(struct submission *s, bool gives_back)
{
    struct funnel *f = s->funnel;

    submission_move(s, EVENT_RETURN);
    if (gives_back && s->attempts > 0)
        s->attempts--;
    funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_QUEUED, s->id, s->attempt->row.group_id,
                                           s->attempt->row.client, NULL, false, s->attempts, NULL, NULL });
    attempt_free(f, s->attempt);
    s->attempt = NULL;
    s->is_returned = false;
    submission_waits(s);
    counters_count(f->counters, COUNT_RETURNED);
    release(s);
    scheduler_add_for_slot(f->scheduler, &s->job, true);
    scheduler_kick(f->scheduler);
}
