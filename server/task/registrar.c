#include "server/task/registrar.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>
#include <utlist.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/admission.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/request.h"
#include "server/workers/device_worker.h"

/*
 * A task is run once in a worker before it is accepted, so that no client waits for verdicts on a reference that does
 * not run. Concurrent requests for the same task wait for the same registration. It holds a device, so it waits for its
 * turn as a submission does: in that of each client that asked for it, and the one whose turn comes first is charged.
 */

#define WAITING_MAX 256
#define WAITING_EACH_MAX (WAITING_MAX / 2) /* of one client */
#define KNOWN_MAX 4096                     /* tasks with ids in memory: half a megabyte */

struct asker {
    struct asker *prev, *next;
    funnel_answer_cb *cb;
    void *arg;
    struct registration *registration;
    /* It waits for a device; or not, as the registration runs, or as it waits through another asker. */
    struct scheduler_job job;
};

struct registration {
    UT_hash_handle hh;
    struct funnel *funnel;
    struct task_row row; /* owns its strings */
    json_t *cases;
    struct asker *askers;
    json_t *declared;              /* the parts of the task's id other than the reference */
    char by_entry[HASH_TEXT_SIZE]; /* the id with the entry point that was found */
    struct task_look look;
    int losses;
    struct asker *runner; /* in its turn it has a device worker; NULL: it waits for one, or is being stored */
};

struct registrar {
    json_t *known, *removing;           /* ids of tasks, as keys; the latter are not found any more */
    struct registration *registrations; /* in progress, by task id */
    int64_t removed;                    /* number of removed tasks */
};

/* --- known tasks --- */

static bool
has(json_t *ids, const char *id)
{
    return json_object_get(ids, id) != NULL;
}

static void
remember(struct funnel *f, const char *id)
{
    json_t *known = f->registrar->known;

    if (!has(known, id) && json_object_size(known) >= KNOWN_MAX) /* the one known longest makes room */
        json_object_del(known, json_object_iter_key(json_object_iter(known)));
    json_object_set_new(known, id, json_true()); /* without memory it is read again */
}

struct registrar *
registrar_new(void)
{
    struct registrar *r = calloc(1, sizeof(*r));

    if (r) {
        r->known = json_object();
        r->removing = json_object();
    }
    return r;
}

void
registrar_free(struct registrar *r)
{
    if (!r)
        return;
    json_decref(r->known);
    json_decref(r->removing);
    free(r);
}

int64_t
registrar_known(const struct registrar *r)
{
    return (int64_t)json_object_size(r->known);
}

static bool
is_known(const struct funnel *f, const char *id)
{
    return has(f->registrar->known, id);
}

/* entry NULL: any entry point. 0, or the reason why it is not known whether there is such a task. */
static int
read_task(struct store_reader *r, const char *id, const char *entry, bool *is_there, struct error *err)
{
    struct task_row row = { 0 };
    int rc = reader_get_task(r, id, &row, err);

    *is_there = rc == 0 && (!entry || (row.entry_point && strcmp(row.entry_point, entry) == 0));
    task_row_release(&row);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

static void
look_cb(void *arg, struct store_reader *r)
{
    struct task_look *l = arg;
    const struct task_request *t = l->request;

    l->is_found = l->is_known = l->is_twin = false;
    l->rc = 0;
    if (l->name && l->is_by_id) {
        l->rc = read_task(r, l->id, NULL, &l->is_found, &l->err);
    } else if (l->name) {
        int rc = reader_find_task(r, l->client, l->name, l->id, &l->is_own, &l->err);
        l->is_found = rc == 0;
        l->rc = rc == ERR_NOTFOUND ? 0 : rc;
    }
    if (l->rc == 0 && t)
        l->rc = read_task(r, t->id, NULL, &l->is_known, &l->err);
    if (l->rc == 0 && t && !l->is_known)
        l->rc = read_task(r, t->twin, t->entry, &l->is_twin, &l->err);
}

static void looked_cb(void *arg);

static void
ask(struct task_look *l)
{
    struct funnel *f = l->funnel;

    l->removed = f->registrar->removed;
    pending_begin_write(f->pending);
    if (store_read(f->store, look_cb, looked_cb, l, &l->err) != 0) {
        l->rc = l->err.code;
        looked_cb(l);
    }
}

static void
looked_cb(void *arg)
{
    struct task_look *l = arg;
    struct funnel *f = l->funnel;
    struct registrar *g = f->registrar;

    if (l->rc == 0 && l->removed != g->removed) { /* it may have been what was found */
        ask(l);
        pending_end_write(f->pending);
        return;
    }
    if (l->is_found && !has(g->removing, l->id))
        remember(f, l->id);
    if (l->is_twin)
        memcpy(l->request->id, l->request->twin, sizeof(l->request->id));
    l->is_known = (l->is_known || l->is_twin) && !has(g->removing, l->request->id);
    if (l->is_known)
        remember(f, l->request->id);
    l->cb(l->arg);
    pending_end_write(f->pending);
}

void
task_look(struct task_look *l)
{
    struct funnel *f = l->funnel;

    l->is_by_id = l->name && strncmp(l->name, "sha256:", 7) == 0 && strlen(l->name) < sizeof(l->id);
    if (l->is_by_id)
        memcpy(l->id, l->name, strlen(l->name) + 1);
    l->is_found = l->is_by_id && is_known(f, l->id);
    l->is_known = l->request && is_known(f, l->request->id);
    if (l->is_found == (l->name != NULL) && l->is_known == (l->request != NULL))
        l->cb(l->arg);
    else
        ask(l);
}

enum funnel_refusal
task_found(const struct task_look *l, struct json_fault *fault)
{
    struct error err = l->err;
    int rc = l->rc;

    if (rc == 0 && has(l->funnel->registrar->removing,
                       l->id)) /* whether it goes is not known yet: others may have names for it */
        rc = error_set(&err, ERR_UNAVAILABLE, "the task is being deleted");
    if (rc != 0)
        json_refuse(fault, "/task", "%s", log_for_client(l->name, &err));
    else if (!l->is_found)
        json_refuse(fault, "/task", "there is no task \"%.80s\"", l->name);
    return rc != 0 ? FUNNEL_UNAVAILABLE : l->is_found ? FUNNEL_OK : FUNNEL_NO_TASK;
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

    if (scheduler_waits(&a->job))
        scheduler_remove(f->scheduler, &a->job);
}

/* One turn for each client, as urgent as the most urgent that it asked with. */
static void
add_turn(struct asker *a)
{
    struct funnel *f = a->registration->funnel;
    struct asker *other;

    DL_FOREACH(a->registration->askers, other)
    {
        if (other == a || other->job.client != a->job.client || !scheduler_waits(&other->job))
            continue;
        if (other->job.urgency <= a->job.urgency)
            return;
        remove_turn(other);
    }
    scheduler_add_for_device(f->scheduler, &a->job, true);
}

/* The device is released: its time is charged to the client. */
static void
end_turn(struct registration *r)
{
    struct funnel *f = r->funnel;
    struct asker *a = r->runner;

    if (!a)
        return;
    r->runner = NULL;
    counters_hold_device(f->counters, scheduler_release_device(f->scheduler, &a->job));
}

/* Sends the same answer to all that asked; the registration ends. */
static void
answer_all(struct registration *r, const struct funnel_answer *answer)
{
    struct asker *a, *next, *askers = r->askers;
    struct funnel *f = r->funnel;

    DL_FOREACH(askers, a)
    {
        remove_turn(a);
        client_drop_registration(a->job.client);
    }
    HASH_DEL(f->registrar->registrations, r);
    registration_free(r);
    DL_FOREACH_SAFE(askers, a, next)
    {
        a->cb(a->arg, answer);
        free(a);
    }
    pending_check(f->pending);
}

static void
refuse(struct registration *r, enum funnel_refusal refusal, const char *text, char *detail)
{
    struct funnel_answer answer = { .refusal = refusal,
                                    .retry_after_s = admission_retry_after(r->funnel),
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
        refuse(r, FUNNEL_UNAVAILABLE, log_for_client(r->row.id, err), NULL);
    }
    pending_end_write(f->pending);
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
    /* The cases found do not show which were declared, and a bundle needs these to make the same task elsewhere. */
    json_object_set(spec, "declared", r->declared);
    r->row.spec = json_dumps(spec, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_array_foreach(json_object_get(spec, "flags"), i, flag)
    {
        if (json_is_string(flag))
            log_warn(r->row.id, "task %s: %s", r->row.name ? r->row.name : "", json_string_value(flag));
    }
    return r->row.spec && r->row.entry_point && r->row.name ? 0 : ERR_NOMEM;
}

int
task_let_sizes_judge(struct task_row *task, struct error *err)
{
    AUTO_JSON json_t *spec = json_of(task->spec);
    json_t *cases = json_object_get(spec, "cases"), *other = json_object_get(cases, "other");

    if (!json_is_array(other))
        return error_set(err, ERR_INPUT,
                         "task %.80s was registered by a version that did not look for its other sizes",
                         task->id);
    json_object_set_new(spec, "dynamic_shapes", json_true());
    if (json_array_extend(json_object_get(cases, "shapes"), other) != 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    json_object_del(cases, "other");
    char *text = json_dumps(spec, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    free(task->spec);
    task->spec = text;
    return 0;
}

/* "RuntimeError: shapes do not match", from the traceback's end: for formats without room for a traceback. */
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
store_task(struct registration *r)
{
    struct funnel *f = r->funnel;
    struct error err = { 0 };

    r->row.created_ms = clock_wall_ms();
    pending_begin_write(f->pending);
    if (store_add_task(f->store, &r->row, stored_cb, r, &err) != 0)
        stored_cb(r, err.code, &err);
}

static void
entry_looked_cb(void *arg)
{
    struct registration *r = arg;
    struct funnel_answer answer = { .refusal = FUNNEL_OK };

    memcpy(answer.id, r->by_entry, sizeof(answer.id));
    if (r->look.is_found && is_known(r->funnel, r->by_entry))
        answer_all(r, &answer);
    else
        store_task(r);
}

/* Unless the entry point that was found was named when the same was registered before. */
static void
store_unless_there(struct registration *r)
{
    const struct task_row *row = &r->row;

    r->look = (struct task_look){ .funnel = r->funnel, .name = r->by_entry, .cb = entry_looked_cb, .arg = r };
    if (json_is_string(json_object_get(r->declared, "entry_point")) ||
        task_identity(row->entry_point, row->reference, row->reference_size, row->dynamic_shapes, r->cases,
                      r->by_entry) != 0 ||
        strcmp(r->by_entry, row->id) == 0)
        store_task(r);
    else
        task_look(&r->look);
}

static void
registered_cb(void *arg, const struct buffer *spec, json_t *error)
{
    struct registration *r = arg;
    struct funnel *f = r->funnel;
    struct asker *a;

    end_turn(r);
    if (error) {
        const char *text = json_string_value(json_object_get(error, "text"));
        const char *type = json_string_value(json_object_get(error, "type"));
        char why[192];
        put_reason(type ? type : "no reason given", text, why, sizeof(why));
        AUTO_FREE char *detail = text ? strdup(text) : NULL;
        refuse(r, FUNNEL_UNRUNNABLE, why, detail);
    } else if (!spec && ++r->losses < f->config->max_attempts && !pending_is_draining(f->pending)) {
        DL_FOREACH(r->askers, a) add_turn(a);
    } else if (!spec) {
        refuse(r, pending_is_draining(f->pending) ? FUNNEL_UNAVAILABLE : FUNNEL_UNRUNNABLE,
               "the worker was lost each time it ran the reference", NULL);
    } else if (take_spec(r, spec) != 0) {
        refuse(r, FUNNEL_UNAVAILABLE, "the worker's answer cannot be read", NULL);
    } else {
        store_unless_there(r);
    }
}

void
task_give_device_worker(struct device_worker *w, struct scheduler_job *job)
{
    struct asker *a, *runner = scheduler_owner(job, struct asker, job);
    struct registration *r = runner->registration;
    struct error err = { 0 };

    DL_FOREACH(r->askers, a) remove_turn(a);
    r->runner = runner;
    const struct job_registration registration = { .task_id = r->row.id,
                                                   .entry = r->row.entry_point,
                                                   .source = r->row.reference,
                                                   .source_size = r->row.reference_size,
                                                   .dynamic_shapes = r->row.dynamic_shapes,
                                                   .cases = r->cases };
    if (device_worker_register(w, &registration, registered_cb, r, &err) != 0) {
        end_turn(r);
        refuse(r, FUNNEL_UNAVAILABLE, log_for_client(r->row.id, &err), NULL);
    }
}

static bool
has_turn(const struct registration *r)
{
    const struct asker *a;

    DL_FOREACH(r->askers, a)
    {
        if (scheduler_waits(&a->job))
            return true;
    }
    return false;
}

int64_t
registrar_registering(const struct registrar *r)
{
    return (int64_t)HASH_COUNT(r->registrations);
}

void
task_refuse_all(struct funnel *f)
{
    struct registration *r, *next;

    HASH_ITER(hh, f->registrar->registrations, r, next)
    {
        if (has_turn(r))
            refuse(r, FUNNEL_UNAVAILABLE, "the daemon stops", NULL);
    }
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
    HASH_ADD(hh, f->registrar->registrations, row.id, strlen(r->row.id), r);
    return r;
}

static void
answer_now(struct funnel *f, enum funnel_refusal refusal, const char *text, const char *id,
           funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .refusal = refusal, .retry_after_s = admission_retry_after(f) };

    json_refuse(&answer.fault, "", "%s", text);
    if (id)
        snprintf(answer.id, sizeof(answer.id), "%s", id);
    cb(arg, &answer);
}

void
task_ensure(struct funnel *f, const struct task_request *t, const char *client, int priority,
            funnel_answer_cb *cb, void *arg)
{
    struct client *c = clients_get(f->clients, client);
    struct registration *r = NULL;

    if (is_known(f, t->id)) {
        answer_now(f, FUNNEL_OK, "", t->id, cb, arg);
        return;
    }
    if (pending_is_draining(f->pending)) {
        answer_now(f, FUNNEL_UNAVAILABLE, "the daemon is draining", NULL, cb, arg);
        return;
    }
    HASH_FIND(hh, f->registrar->registrations, t->id, strlen(t->id), r);
    if (!r && (HASH_COUNT(f->registrar->registrations) >= WAITING_MAX ||
               (c && client_registrations(c) >= WAITING_EACH_MAX))) {
        answer_now(f, FUNNEL_FULL, "too many tasks wait for their registration", NULL, cb, arg);
        return;
    }
    struct asker *a = c ? calloc(1, sizeof(*a)) : NULL;
    if (!a || (!r && !(r = registration_new(f, t)))) {
        free(a);
        answer_now(f, FUNNEL_UNAVAILABLE, "no memory", NULL, cb, arg);
        return;
    }
    *a = (struct asker){ .cb = cb, .arg = arg, .registration = r };
    a->job.client = c;
    a->job.urgency = priority == PRIORITY_BATCH ? FAIR_BATCH : FAIR_INTERACTIVE;
    a->job.is_registration = true;
    client_add_registration(c);
    bool is_first = r->askers == NULL, waits = is_first || has_turn(r);
    DL_APPEND(r->askers, a);
    if (waits)
        add_turn(a);
    scheduler_kick(f->scheduler);
}

/* --- names --- */

/* A request that registers a task under a name, or changes its name. */
struct naming {
    struct funnel *funnel;
    funnel_answer_cb *cb;
    void *arg;
    struct funnel_answer answer;
    char *client, *name;
    json_t *body; /* of a registration: the request looks into it */
    struct task_request request;
    struct task_look look;
};

static void
naming_free(struct naming *n)
{
    free(n->client);
    free(n->name);
    json_decref(n->body);
    free(n);
}

/* NULL: the refusal is sent. */
static struct naming *
naming_new(struct funnel *f, const char *client, const char *name, const char *id, funnel_answer_cb *cb,
           void *arg)
{
    struct naming *n = calloc(1, sizeof(*n));

    if (n) {
        n->funnel = f;
        n->cb = cb;
        n->arg = arg;
        n->client = strdup(client ? client : "");
        n->name = name ? strdup(name) : NULL;
        snprintf(n->answer.id, sizeof(n->answer.id), "%s", id);
    }
    if (n && n->client && (n->name || !name))
        return n;
    if (n)
        naming_free(n);
    answer_now(f, FUNNEL_UNAVAILABLE, "no memory", NULL, cb, arg);
    return NULL;
}

static void
named_cb(void *arg, int code, const struct error *err)
{
    struct naming *n = arg;
    struct funnel *f = n->funnel;

    n->answer.refusal = code == 0              ? FUNNEL_OK
                        : code == ERR_NOTFOUND ? FUNNEL_NO_TASK
                        : code == ERR_INPUT    ? FUNNEL_NOT_YOURS
                        : code != ERR_CONFLICT ? FUNNEL_UNAVAILABLE
                        : n->name              ? FUNNEL_NAME_TAKEN
                                               : FUNNEL_IN_USE;
    n->answer.retry_after_s = admission_retry_after(f);
    if (code != 0)
        json_refuse(&n->answer.fault, n->name ? "/name" : "", "%s", log_for_client(n->answer.id, err));
    if (!n->name) {
        json_object_del(f->registrar->removing, n->answer.id);
        f->registrar->removed += code == 0;
    }
    n->cb(n->arg, &n->answer);
    naming_free(n);
    pending_end_write(f->pending);
}

/* The task is there: it gets the client's name. */
static void
claim_name(struct naming *n)
{
    struct error err = { 0 };

    pending_begin_write(n->funnel->pending);
    if (store_name_task(n->funnel->store, n->client, n->name, n->answer.id, clock_wall_ms(), named_cb, n,
                        &err) != 0)
        named_cb(n, err.code, &err);
}

static void
ready_for_name_cb(void *arg, const struct funnel_answer *answer)
{
    struct naming *n = arg;

    if (answer->refusal == FUNNEL_OK) {
        n->answer = *answer;
        claim_name(n);
        return;
    }
    n->cb(n->arg, answer);
    naming_free(n);
}

/* FUNNEL_OK, or why the client cannot call it so. */
static enum funnel_refusal
check_name(const struct naming *n, struct json_fault *fault)
{
    const struct task_look *l = &n->look;
    bool is_taken = l->is_found && l->is_own && strcmp(l->id, n->request.id) != 0;

    if (l->rc != 0)
        json_refuse(fault, "/name", "%s", log_for_client(n->request.id, &l->err));
    else if (is_taken && !has(l->funnel->registrar->removing, l->id))
        json_refuse(fault, "/name",
                    "\"%.80s\" is the name of %s; rename or delete that, or take another name", n->name,
                    l->id);
    else
        return FUNNEL_OK;
    return l->rc != 0 ? FUNNEL_UNAVAILABLE : FUNNEL_NAME_TAKEN;
}

static void
add_looked_cb(void *arg)
{
    struct naming *n = arg;
    struct funnel *f = n->funnel;
    const struct task_look *l = &n->look;
    struct funnel_answer *a = &n->answer;
    bool is_called = l->is_found && l->is_own && strcmp(l->id, n->request.id) == 0;

    memcpy(a->id, n->request.id, sizeof(a->id));
    a->refusal = check_name(n, &a->fault);
    if (a->refusal == FUNNEL_OK && !l->is_known)
        a->refusal = admission_check_quota(f, n->request.client, 1, 0, a);
    if (a->refusal != FUNNEL_OK || (l->is_known && is_called)) {
        n->cb(n->arg, a);
        naming_free(n);
    } else if (l->is_known) {
        claim_name(n);
    } else {
        task_ensure(f, &n->request, n->request.client, PRIORITY_INTERACTIVE, ready_for_name_cb, n);
    }
}

void
funnel_add_task(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .retry_after_s = admission_retry_after(f) };
    struct task_request request;

    answer.refusal = task_request_read(body, &request, &answer.fault);
    if (answer.refusal != FUNNEL_OK) {
        cb(arg, &answer);
        return;
    }
    struct naming *n = naming_new(f, request.client, request.name, request.id, cb, arg);
    if (!n)
        return;
    n->answer.retry_after_s = answer.retry_after_s;
    n->body = json_incref(body);
    n->request = request;
    n->look = (struct task_look){ .funnel = f,
                                  .client = request.client,
                                  .name = request.name,
                                  .request = &n->request,
                                  .cb = add_looked_cb,
                                  .arg = n };
    task_look(&n->look);
}

void
funnel_rename_task(struct funnel *f, const char *client, const char *id, json_t *body, funnel_answer_cb *cb,
                   void *arg)
{
    struct funnel_answer answer = { 0 };
    struct error err = { 0 };
    const char *name;

    answer.refusal = task_name_read(body, &name, &answer.fault);
    if (answer.refusal != FUNNEL_OK) {
        cb(arg, &answer);
        return;
    }
    struct naming *n = naming_new(f, client, name, id, cb, arg);
    if (!n)
        return;
    pending_begin_write(f->pending);
    if (store_rename_task(f->store, client, name, id, clock_wall_ms(), named_cb, n, &err) != 0)
        named_cb(n, err.code, &err);
}

/* The task is not found from now on, so that no submission is accepted for a task that is being removed. */
void
funnel_remove_task(struct funnel *f, const char *client, const char *id, funnel_answer_cb *cb, void *arg)
{
    struct error err = { 0 };

    if (has(f->registrar->removing, id)) {
        answer_now(f, FUNNEL_UNAVAILABLE, "the task is being deleted", NULL, cb, arg);
        return;
    }
    struct naming *n = naming_new(f, client, NULL, id, cb, arg);
    if (!n)
        return;
    if (json_object_set_new(f->registrar->removing, id, json_true()) != 0) {
        naming_free(n);
        answer_now(f, FUNNEL_UNAVAILABLE, "no memory", NULL, cb, arg);
        return;
    }
    json_object_del(f->registrar->known, id);
    pending_begin_write(f->pending);
    if (store_remove_task(f->store, client, id, named_cb, n, &err) != 0)
        named_cb(n, err.code, &err);
}
