#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/funnel/private.h"

/*
 * A task is run once in a worker before it is taken up, so that nobody waits
 * for verdicts on a reference that does not run. Requests for the same task
 * that come meanwhile wait for the same registration. It holds a device, so it waits for its turn as a submission does:
 * in that of each client that asked for it, and the one whose turn comes first pays for it.
 */

#define WAITING_MAX 256
#define WAITING_EACH_MAX (WAITING_MAX / 2) /* of one client */
#define KNOWN_MAX 4096                     /* whose ids are known without asking the store: half a megabyte */

struct asker {
    struct asker *prev, *next;
    funnel_answer_cb *cb;
    void *arg;
    struct registration *registration;
    struct client *client;
    struct fair_turn
        turn; /* share NULL: it has none, as the registration runs, or has one through another asker */
    int urgency;
};

struct registration {
    UT_hash_handle hh;
    struct funnel *funnel;
    struct task_row row; /* owns its strings */
    json_t *cases;
    struct asker *askers;
    json_t *declared; /* what the task's id is made from, beside the reference */
    int losses;
    struct asker *runner; /* in whose turn it has a lane; NULL: it waits for one, or is being stored */
    int64_t lane_ns;
};

/* --- known tasks --- */

static void
remember(struct funnel *f, const char *id)
{
    struct known_task *t;

    HASH_FIND_STR(f->known_tasks, id, t);
    if (t)
        return;
    if (HASH_COUNT(f->known_tasks) >= KNOWN_MAX) { /* the one known longest makes room */
        t = f->known_tasks;
        HASH_DEL(f->known_tasks, t);
        free(t);
    }
    if (!(t = calloc(1, sizeof(*t))))
        return;
    snprintf(t->id, sizeof(t->id), "%s", id);
    HASH_ADD_STR(f->known_tasks, id, t);
}

void
task_forget_known(struct funnel *f)
{
    struct known_task *t, *next;
    HASH_ITER(hh, f->known_tasks, t, next)
    {
        HASH_DEL(f->known_tasks, t);
        free(t);
    }
}

/* 0, ERR_NOTFOUND or ERR_STORE. */
static int
look_up(struct funnel *f, const char *id, struct error *err)
{
    struct known_task *t;
    struct task_row row = { 0 };

    HASH_FIND_STR(f->known_tasks, id, t);
    if (t)
        return 0;
    int rc = store_get_task(f->store, id, &row, err);
    if (rc == 0)
        remember(f, id);
    task_row_release(&row);
    return rc;
}

struct by_name {
    int n;
    char *id;
};

static bool
by_name_cb(void *arg, const struct task_row *row)
{
    struct by_name *found = arg;
    if (found->n++ == 0)
        snprintf(found->id, HASH_TEXT_SIZE, "%s", row->id);
    return true;
}

enum funnel_refusal
task_find(struct funnel *f, const char *name, char id[HASH_TEXT_SIZE], struct json_fault *fault)
{
    struct by_name found = { .id = id };
    struct error err = { 0 };

    if (strncmp(name, "sha256:", 7) == 0) {
        int rc = strlen(name) < HASH_TEXT_SIZE ? look_up(f, name, &err) : ERR_NOTFOUND;
        snprintf(id, HASH_TEXT_SIZE, "%.*s", HASH_TEXT_SIZE - 1, name);
        found.n = rc == 0;
        if (rc != 0 && rc != ERR_NOTFOUND) {
            json_refuse(fault, "/task", "%s", err.text);
            return FUNNEL_UNAVAILABLE;
        }
    } else if (store_list_tasks(f->store, name, NULL, 2, by_name_cb, &found, &err) != 0) {
        json_refuse(fault, "/task", "%s", err.text);
        return FUNNEL_UNAVAILABLE;
    }
    if (found.n > 1) {
        json_refuse(fault, "/task", "more than one task is called \"%.80s\"; give its id", name);
        return FUNNEL_BAD;
    }
    if (found.n == 0)
        json_refuse(fault, "/task", "there is no task \"%.80s\"", name);
    return found.n == 1 ? FUNNEL_OK : FUNNEL_NO_TASK;
}

/* --- registering --- */

static void
registration_free(struct registration *r)
{
    task_row_release(&r->row);
    json_decref(r->cases);
    json_decref(r->declared);
    free(r);
}

static void
remove_turn(struct asker *a)
{
    struct funnel *f = a->registration->funnel;

    if (!a->turn.share)
        return;
    f->registration_turns[a->turn.urgency]--;
    fair_remove(&f->ready, &a->turn);
}

/* One turn for each client, as urgent as the most urgent that it asked with. */
static void
add_turn(struct asker *a, bool at_head)
{
    struct funnel *f = a->registration->funnel;
    struct asker *other;

    DL_FOREACH(a->registration->askers, other)
    {
        if (other == a || other->client != a->client || !other->turn.share)
            continue;
        if (other->turn.urgency <= a->urgency)
            return;
        remove_turn(other);
    }
    a->turn.is_registration = true;
    f->registration_turns[a->urgency]++;
    fair_add(&f->ready, &a->client->device, &a->turn, a->urgency, at_head);
}

/* The device is let go of: what it took is its client's. */
static void
end_turn(struct registration *r)
{
    struct funnel *f = r->funnel;
    struct asker *a = r->runner;
    double seconds = (double)(clock_monotonic_ns() - r->lane_ns) / 1e9;

    if (!a)
        return;
    r->runner = NULL;
    fair_done(&f->ready, &a->client->device, &a->turn, seconds);
    usage_add_gpu(&a->client->usage, seconds, clock_wall_ms());
    a->client->usage.running--;
    f->device_s += seconds;
    funnel_now(f)->device_s += seconds;
}

/* Everybody who asked hears the same; the registration is over. */
static void
answer_all(struct registration *r, const struct funnel_answer *answer)
{
    struct asker *a, *next, *askers = r->askers;
    struct funnel *f = r->funnel;

    DL_FOREACH(askers, a)
    {
        remove_turn(a);
        a->client->registrations--;
    }
    HASH_DEL(f->registrations, r);
    registration_free(r);
    DL_FOREACH_SAFE(askers, a, next)
    {
        a->cb(a->arg, answer);
        free(a);
    }
    funnel_check_drained(f);
}

static void
refuse(struct registration *r, enum funnel_refusal refusal, const char *text, char *detail)
{
    struct funnel_answer answer = { .refusal = refusal,
                                    .retry_after_s = funnel_retry_after(r->funnel),
                                    .detail = detail };

    json_refuse(&answer.fault, "/reference", "%s", text);
    answer_all(r, &answer);
}

static void
stored_cb(void *arg, int code, const struct error *err)
{
    struct registration *r = arg;
    struct funnel *f = r->funnel;
    struct funnel_answer answer = { .refusal = FUNNEL_OK, .is_new = true };

    if (code == 0) {
        snprintf(answer.id, sizeof(answer.id), "%s", r->row.id);
        remember(f, r->row.id);
        log_info(r->row.id, "task registered: %s", r->row.name);
        answer_all(r, &answer);
    } else {
        refuse(r, FUNNEL_UNAVAILABLE, err->text, NULL);
    }
    funnel_written(f);
}

/* The entry point that was found goes with the task. */
static int
take_spec(struct registration *r, const struct buffer *text)
{
    AUTO_JSON json_t *spec = json_loadb(text->data ? text->data : "", text->size, JSON_ALLOW_NUL, NULL);
    const char *entry = json_string_value(json_object_get(spec, "entry_point"));
    json_t *flag;
    size_t i;

    if (!json_is_object(spec))
        return ERR_PROTOCOL;
    if (!r->row.entry_point)
        r->row.entry_point = strdup(entry ? entry : "Model");
    if (!r->row.name)
        r->row.name = strdup(r->row.entry_point ? r->row.entry_point : "");
    /* Found cases do not tell which were declared, and a bundle needs these to make the same task elsewhere. */
    json_object_set(spec, "declared", r->declared);
    r->row.spec = json_dumps(spec, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_array_foreach(json_object_get(spec, "flags"), i, flag)
    {
        if (json_is_string(flag))
            log_warn(r->row.id, "task %s: %s", r->row.name ? r->row.name : "", json_string_value(flag));
    }
    return r->row.spec && r->row.entry_point && r->row.name ? 0 : ERR_NOMEM;
}

/* "RuntimeError: shapes do not match", from the traceback's end: formats that have no room for a traceback tell this. */
static void
put_reason(const char *type, const char *text, char *out, size_t size)
{
    const char *last = NULL;

    for (const char *at = text && *type ? strstr(text, type) : NULL; at; at = strstr(at + 1, type))
        last = at;
    snprintf(out, size, "the reference does not run: %.*s", last ? (int)strcspn(last, "\r\n") : 80,
             last ? last : type);
    utf8_clean(out);
}

static void
registered_cb(void *arg, const struct buffer *spec, json_t *error)
{
    struct registration *r = arg;
    struct funnel *f = r->funnel;
    struct error err = { 0 };
    struct asker *a;

    end_turn(r);
    if (error) {
        const char *text = json_string_value(json_object_get(error, "text"));
        const char *type = json_string_value(json_object_get(error, "type"));
        char why[192];
        put_reason(type ? type : "no reason given", text, why, sizeof(why));
        AUTO_FREE char *detail = text ? strdup(text) : NULL;
        refuse(r, FUNNEL_UNRUNNABLE, why, detail);
    } else if (!spec && ++r->losses < f->config->max_attempts && !f->is_draining) {
        DL_FOREACH(r->askers, a) add_turn(a, true);
    } else if (!spec) {
        refuse(r, f->is_draining ? FUNNEL_UNAVAILABLE : FUNNEL_UNRUNNABLE,
               "the worker was lost each time it ran the reference", NULL);
    } else if (take_spec(r, spec) != 0) {
        refuse(r, FUNNEL_UNAVAILABLE, "the worker's answer cannot be read", NULL);
    } else {
        r->row.created_ms = clock_wall_ms();
        f->writes++;
        if (store_add_task(f->store, &r->row, stored_cb, r, &err) != 0)
            stored_cb(r, err.code, &err);
    }
}

static struct asker *
asker_of(struct fair_turn *t)
{
    return (struct asker *)((char *)t - offsetof(struct asker, turn));
}

void
task_give_lane(struct funnel *f, struct lane *l, struct fair_turn *t)
{
    struct asker *a, *runner = asker_of(t);
    struct registration *r = runner->registration;
    struct error err = { 0 };

    f->registration_turns[t->urgency]--;
    fair_take(&f->ready, t);
    DL_FOREACH(r->askers, a) remove_turn(a);
    r->runner = runner;
    r->lane_ns = clock_monotonic_ns();
    runner->client->usage.running++;
    const struct lane_registration job = { .task_id = r->row.id,
                                           .entry = r->row.entry_point,
                                           .source = r->row.reference,
                                           .source_size = r->row.reference_size,
                                           .dynamic_shapes = r->row.dynamic_shapes,
                                           .cases = r->cases };
    if (lane_register(l, &job, registered_cb, r, &err) != 0) {
        end_turn(r);
        refuse(r, FUNNEL_UNAVAILABLE, err.text, NULL);
    }
}

/* Of those that wait, the one that came first; may: whether a client's are looked at. NULL: none. */
static struct fair_turn *
first_turn(struct funnel *f, bool (*may)(const struct funnel *f, const struct client *c))
{
    struct registration *r, *next;
    struct asker *a;

    HASH_ITER(hh, f->registrations, r, next)
    {
        DL_FOREACH(r->askers, a)
        {
            if (a->turn.share && (!may || may(f, a->client)))
                return &a->turn;
        }
    }
    return NULL;
}

struct fair_turn *
task_oldest_turn(struct funnel *f)
{
    return first_turn(f, client_may_run);
}

int64_t
task_registering(const struct funnel *f)
{
    return (int64_t)HASH_COUNT(f->registrations);
}

void
task_refuse_all(struct funnel *f)
{
    struct fair_turn *t;

    while ((t = first_turn(f, NULL)) != NULL)
        refuse(asker_of(t)->registration, FUNNEL_UNAVAILABLE, "the daemon stops", NULL);
}

static char *
copy_text(json_t *text)
{
    size_t size = json_string_length(text);
    char *out = malloc(size + 1);

    if (out) {
        memcpy(out, json_string_value(text), size);
        out[size] = '\0';
    }
    return out;
}

static struct registration *
registration_new(struct funnel *f, const struct task_request *t)
{
    struct registration *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->funnel = f;
    r->cases = json_incref(t->cases);
    r->declared = json_pack("{s:s?, s:O?}", "entry_point", t->entry, "cases", t->cases);
    r->row.level = (int)t->level;
    r->row.dynamic_shapes = t->dynamic_shapes;
    r->row.name = t->name ? strdup(t->name) : NULL;
    r->row.entry_point = t->entry ? strdup(t->entry) : NULL;
    r->row.reference = copy_text(t->reference);
    r->row.reference_size = json_string_length(t->reference);
    r->row.metadata = t->metadata ? json_dumps(t->metadata, JSON_COMPACT) : NULL;
    snprintf(r->row.id, sizeof(r->row.id), "%s", t->id);
    if (!r->declared || !r->row.reference || (t->name && !r->row.name) || (t->entry && !r->row.entry_point) ||
        (t->metadata && !r->row.metadata)) {
        registration_free(r);
        return NULL;
    }
    HASH_ADD(hh, f->registrations, row.id, strlen(r->row.id), r);
    return r;
}

static void
answer_now(struct funnel *f, enum funnel_refusal refusal, const char *text, const char *id,
           funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .refusal = refusal, .retry_after_s = funnel_retry_after(f) };

    json_refuse(&answer.fault, "", "%s", text);
    if (id)
        snprintf(answer.id, sizeof(answer.id), "%s", id);
    cb(arg, &answer);
}

bool
task_is_known(struct funnel *f, const char *id)
{
    return look_up(f, id, NULL) == 0;
}

static bool
has_turn(const struct registration *r)
{
    const struct asker *a;

    DL_FOREACH(r->askers, a)
    {
        if (a->turn.share)
            return true;
    }
    return false;
}

void
task_ensure(struct funnel *f, const struct task_request *t, const char *client, int priority,
            funnel_answer_cb *cb, void *arg)
{
    struct client *c = client_get(f, client);
    struct registration *r = NULL;
    struct error err = { 0 };

    int rc = look_up(f, t->id, &err);
    if (rc == 0) {
        answer_now(f, FUNNEL_OK, "", t->id, cb, arg);
        return;
    }
    if (rc != ERR_NOTFOUND || f->is_draining) {
        answer_now(f, FUNNEL_UNAVAILABLE, f->is_draining ? "the daemon is draining" : err.text, NULL, cb,
                   arg);
        return;
    }
    HASH_FIND(hh, f->registrations, t->id, strlen(t->id), r);
    if (!r && (HASH_COUNT(f->registrations) >= WAITING_MAX || (c && c->registrations >= WAITING_EACH_MAX))) {
        answer_now(f, FUNNEL_FULL, "too many tasks wait for their registration", NULL, cb, arg);
        return;
    }
    struct asker *a = c ? calloc(1, sizeof(*a)) : NULL;
    if (!a || (!r && !(r = registration_new(f, t)))) {
        free(a);
        answer_now(f, FUNNEL_UNAVAILABLE, "no memory", NULL, cb, arg);
        return;
    }
    *a = (struct asker){ .cb = cb, .arg = arg, .registration = r, .client = c, .urgency = priority };
    c->registrations++;
    bool is_first = r->askers == NULL, waits = is_first || has_turn(r);
    DL_APPEND(r->askers, a);
    if (waits)
        add_turn(a, true);
    scheduler_kick(f);
}

void
funnel_add_task(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .retry_after_s = funnel_retry_after(f) };
    struct task_request request;

    answer.refusal = task_request_read(body, &request, &answer.fault);
    if (answer.refusal == FUNNEL_OK && !task_is_known(f, request.id))
        answer.refusal = submit_admit(f, request.client, 1, &answer);
    if (answer.refusal != FUNNEL_OK)
        cb(arg, &answer);
    else
        task_ensure(f, &request, request.client, PRIORITY_INTERACTIVE, cb, arg);
}
