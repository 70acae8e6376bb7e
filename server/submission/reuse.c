#include "server/submission/reuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/reward.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/counters.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/request.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/single_flight.h"
#include "server/submission/submission.h"
#include "server/verdict/rewards.h"
#include "server/workers/devices.h"

/*
 * Identical candidates are judged once. What makes two of them identical is the *content*: client, task, source,
 * entry point, policy, until, and how the code was found; not the reward, which is computed anew. The first that
 * arrives leads, those that arrive while it is in flight follow it, and those that come later get the verdict that
 * the store has under its *key*: the content, and the environment that judged it.
 *
 * A verdict is written by the daemon alone, and is reused only under the hash of all bytes that it judged, within one
 * client: a candidate can spoil none but its own. A verdict that depends on the moment more than on the candidate (a
 * worker of ours that failed, a limit, a crash, an unclear timing) is not reused, and a sample is judged again.
 */

/* --- handing on --- */

/* The verdict of another, as it is for this one. */
static json_t *
adopt(const struct submission *s, const struct submission_row *from)
{
    const struct attempt *j = s->attempt;
    json_t *out = json_of(from->verdict);
    struct reward_input in;

    if (!out || !verdict_input(out, &in)) {
        json_decref(out);
        return NULL;
    }
    json_t *group_index = *j->row.group_id ? json_integer(j->row.group_index) : json_null();
    json_t *source = json_object_get(out, "cached_from");
    json_object_set_new(out, "cached_from",
                        json_is_string(source) ? json_incref(source) : json_string(from->id));
    json_object_set_new(out, "id", json_string(s->id));
    json_object_set_new(out, "group", text_or_null(j->row.group_id));
    json_object_set_new(out, "group_index", group_index);
    json_object_set_new(out, "client", text_or_null(j->row.client));
    json_object_set_new(out, "priority",
                        json_string(s->priority == PRIORITY_BATCH ? "batch" : "interactive"));
    json_object_set_new(out, "metadata", get_or_null(j->request, "metadata"));
    json_object_set_new(out, "cache", json_string(s->cache));
    json_object_set_new(out, "attempts", json_integer(s->attempts));
    json_object_set_new(out, "rerun", json_null());
    json_object_set_new(out, "created", time_json(j->row.created_ms));
    json_object_set_new(out, "finished", time_json(j->row.finished_ms));
    json_object_set_new(out, "reward_spec", reward_spec_json(&j->reward));
    json_object_set_new(out, "reward", real_or_null(verdict_reward(&j->reward, &in)));
    json_object_set_new(out, "reward_parts", reward_parts_json(&j->reward, &in));
    return out;
}

/* That judging it took of a device. */
static double
device_seconds(json_t *verdict)
{
    json_t *stage;
    double seconds = 0;
    size_t i;

    json_array_foreach(json_object_get(verdict, "stages"), i, stage)
    {
        const char *name = json_string_value(json_object_get(stage, "stage"));
        if (name && stage_find(name) >= STAGE_TINY)
            seconds += json_number_value(json_object_get(stage, "run_ms")) / 1000;
    }
    return seconds;
}

/* --- asking --- */

struct reuse {
    struct asking *askings; /* in the order of the requests */
    int64_t n[FAIR_URGENCIES];
};

struct reuse *
reuse_new(void)
{
    return calloc(1, sizeof(struct reuse));
}

int64_t
reuse_asking(const struct reuse *r, int urgency)
{
    return r->n[urgency];
}

/* A read of the store for a waiting submission: a verdict, and what reusing it needs. It is dropped if s is gone. */
struct asking {
    struct asking *prev, *next;
    struct funnel *funnel;
    char id[ID_SIZE];
    char primary[ID_SIZE]; /* the submission whose verdict it is; "": the newest under one of the keys */
    char keys[DEVICES_MAX][HASH_TEXT_SIZE];
    int n_keys;
    bool is_read;
    int urgency;                     /* that it is counted with */
    struct submission_row row, from; /* of s, and of the submission with the verdict: owned */
    struct buffer log;
    int rc;
    struct error err;
};

static void
read_cb(void *arg, struct store_reader *r)
{
    struct asking *a = arg;

    a->rc = *a->primary ? reader_get_submission(r, a->primary, &a->from, &a->err) : ERR_NOTFOUND;
    for (int i = 0; i < a->n_keys && a->rc == ERR_NOTFOUND; i++)
        a->rc = reader_find_cached(r, a->keys[i], &a->from, &a->err);
    if (a->rc == 0)
        a->rc = reader_get_submission(r, a->id, &a->row, &a->err);
    if (a->rc == 0)
        a->rc = reader_get_log(r, a->from.id, &a->log, &a->err);
}

/* Ends s with the verdict that was found. False: that cannot be done, and nothing has changed. */
static bool
hand_on(struct submission *s, struct asking *a)
{
    struct funnel *f = s->funnel;
    struct error err = a->err;

    int rc = a->rc;
    if (rc == 0 && !submission_make_attempt(s))
        rc = error_set(&err, ERR_NOMEM, "no memory for its verdict");
    if (rc == 0)
        rc = attempt_read_row(s->attempt, &a->row, &err);
    if (rc == 0) {
        s->attempt->log = a->log;
        a->log = (struct buffer)BUFFER_INIT;
        s->cache = *a->primary ? "joined" : "hit";
        s->attempt->row.finished_ms = clock_wall_ms();
        AUTO_JSON json_t *verdict = adopt(s, &a->from);
        if (verdict && submission_conclude_as(s, &a->from, verdict) == 0) {
            counters_save_by_reuse(f->counters, device_seconds(verdict));
            return true;
        }
        error_set(&err, ERR_STORE, "the verdict of %s cannot be handed on", a->from.id);
    }
    log_warn(s->id, "it is judged itself: %s", err.text);
    attempt_free(f, ptr_take(&s->attempt));
    s->cache = "miss";
    return false;
}

/* False: it is to be judged. */
static bool
is_answered(struct submission *s, struct asking *a)
{
    struct funnel *f = s->funnel;

    if (a->rc == ERR_NOTFOUND && !*a->primary)
        return false;
    if (a->rc == 0 && !*a->primary && (int64_t)(random_u64() % 100) < f->config->cache_recheck_percent) {
        memcpy(s->recheck_of, a->from.id, sizeof(s->recheck_of));
        s->cache = "rechecked";
        counters_count(f->counters, REUSE_RECHECKED);
        return false;
    }
    if (!hand_on(s, a))
        return false;
    counters_count(f->counters, *a->primary ? REUSE_JOINED : REUSE_HIT);
    return true;
}

/* It was requested before it came to the queue, or when it was about to leave it (lifetime.c: prepare()). */
static void
begin_waiting(struct submission *s)
{
    struct funnel *f = s->funnel;

    if (s->flight.is_primary)
        scheduler_add_for_slot(f->scheduler, &s->job, s->is_claimed);
    else
        reuse_enqueue(s);
    scheduler_kick(f->scheduler);
}

static void
finish(struct asking *a)
{
    struct funnel *f = a->funnel;
    struct submission *s = submission_by_id(f, a->id);

    DL_DELETE(f->reuse->askings, a);
    f->reuse->n[a->urgency]--;
    if (s && s->asking == a) {
        s->asking = NULL;
        if (s->state == STATE_QUEUED && !pending_is(f->pending, PENDING_STOPPING) && !is_answered(s, a))
            begin_waiting(s);
    }
    submission_row_release(&a->row);
    submission_row_release(&a->from);
    buffer_release(&a->log);
    free(a);
    pending_end_write(f->pending);
}

/* Two threads read, and those of a client are queued in the order in which they came. */
static void
asked_cb(void *arg)
{
    struct asking *a = arg;
    const struct reuse *r = a->funnel->reuse;

    a->is_read = true;
    while (r->askings && r->askings->is_read)
        finish(r->askings);
}

static struct asking *
asking_new(const struct submission *s, const char *primary)
{
    struct asking *a = calloc(1, sizeof(*a));

    if (a) {
        a->funnel = s->funnel;
        a->log = (struct buffer)BUFFER_INIT;
        memcpy(a->id, s->id, sizeof(a->id));
        snprintf(a->primary, sizeof(a->primary), "%s", primary);
    }
    return a;
}

/* a: taken; NULL is fine. False: the store cannot be asked. */
static bool
ask(struct submission *s, struct asking *a)
{
    struct funnel *f = s->funnel;

    if (!a || store_read(f->store, read_cb, asked_cb, a, NULL) != 0) {
        log_warn(s->id, "it is judged itself: the store cannot be asked for a verdict");
        free(a);
        return false;
    }
    s->asking = a;
    DL_APPEND(f->reuse->askings, a);
    f->reuse->n[a->urgency = s->job.urgency]++;
    pending_begin_write(f->pending);
    return true;
}

bool
reuse_asks(struct submission *s)
{
    struct funnel *f = s->funnel;
    char key[HASH_TEXT_SIZE];
    struct asking *a = NULL;

    if (s->is_looked_up || !*s->content || !f->config->cache || s->job.is_rerun)
        return false;
    for (int i = 0; i < f->n_device_workers; i++) {
        reuse_key_on(f, i, s->content, key);
        if (!*key || (a && strcmp(key, a->keys[a->n_keys - 1]) == 0) || (!a && !(a = asking_new(s, ""))))
            continue;
        memcpy(a->keys[a->n_keys++], key, sizeof(key));
    }
    s->is_looked_up = a != NULL;
    return a && ask(s, a);
}

/* --- the first of identical ones --- */

/*
 * A group that chooses whom to time waits for all of its members: were one to follow a stranger, two groups could wait
 * for each other.
 */
static void
flight_key(const struct submission *s, char out[HASH_TEXT_SIZE])
{
    char text[HASH_TEXT_SIZE + ID_SIZE];

    memcpy(out, s->content, HASH_TEXT_SIZE);
    if (!s->group || !group_times_some(s->group))
        return;
    int n = snprintf(text, sizeof(text), "%s %s", s->content, group_id(s->group));
    hash_text(text, (size_t)n, out);
}

static struct submission *
submission_of(struct flight_member *m)
{
    return m ? scheduler_owner(m, struct submission, flight) : NULL;
}

void
reuse_enqueue(struct submission *s)
{
    struct funnel *f = s->funnel;
    char key[HASH_TEXT_SIZE];

    if (*s->content && f->config->cache) {
        flight_key(s, key);
        struct submission *primary = submission_of(flight_find(f->flight, key));
        if (primary) {
            s->cache = "joined";
            flight_follow(f->flight, &s->flight, &primary->flight);
            if (s->group)
                group_begin_following(s->group);
            scheduler_hurry(f->scheduler, &primary->job, s->job.urgency);
            return;
        }
        if (reuse_asks(s))
            return;
        flight_lead(f->flight, &s->flight, key);
        if (!*s->recheck_of)
            counters_count(f->counters, REUSE_MISS);
    }
    scheduler_add_for_slot(f->scheduler, &s->job, s->is_claimed);
}

void
reuse_settle(struct submission *s, bool has_verdict)
{
    struct funnel *f = s->funnel;
    bool is_shared = has_verdict && reuse_is_reusable(s->attempt);
    struct submission *follower;

    flight_land(f->flight, &s->flight);
    while ((follower = submission_of(flight_take_follower(f->flight, &s->flight))) != NULL) {
        if (follower->group)
            group_end_following(follower->group);
        follower->cache = "miss";
        if (!is_shared || !ask(follower, asking_new(follower, s->id)))
            reuse_enqueue(follower); /* the first of them leads now */
    }
}
