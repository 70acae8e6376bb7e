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
    /* It waits for a device; or not, as the registration runs, or as it waits through another asker. */
    struct scheduler_job job;
};

struct registration {
    UT_hash_handle hh;
    struct funnel *funnel;
    struct task_row row; /* owns its strings */
    json_t *cases;
    struct asker *askers;
    json_t *declared; /* what the task's id is made from, beside the reference */
    int losses;
    struct asker
        *runner; /* in whose turn it has a device worker; NULL: it waits for one, or is being stored */
};

struct known_task {
    UT_hash_handle hh;
    char id[HASH_TEXT_SIZE];
};

struct registrar {
    struct known_task *known;
    struct known_task *removing;        /* tasks that nobody finds any more */
    struct registration *registrations; /* in progress, by task id */
};

/* --- known tasks --- */

static bool
has(struct known_task *tasks, const char *id)
{
    struct known_task *t;

    HASH_FIND_STR(tasks, id, t);
    return t != NULL;
}

static int
add(struct known_task **tasks, const char *id)
{
    struct known_task *t = calloc(1, sizeof(*t));

    if (!t)
        return ERR_NOMEM;
    snprintf(t->id, sizeof(t->id), "%s", id);
    HASH_ADD_STR(*tasks, id, t);
    return 0;
}

static void
drop(struct known_task **tasks, const char *id)
{
    struct known_task *t;

    HASH_FIND_STR(*tasks, id, t);
    if (t)
        HASH_DEL(*tasks, t);
    free(t);
}

static void
remember(struct funnel *f, const char *id)
{
    if (has(f->registrar->known, id))
        return;
    if (HASH_COUNT(f->registrar->known) >= KNOWN_MAX) /* the one known longest makes room */
        drop(&f->registrar->known, f->registrar->known->id);
    add(&f->registrar->known, id); /* without memory it is asked for again */
}

struct registrar *
registrar_new(void)
{
    return calloc(1, sizeof(struct registrar));
}

void
registrar_free(struct registrar *r)
{
    while (r && r->known)
        drop(&r->known, r->known->id);
    while (r && r->removing)
        drop(&r->removing, r->removing->id);
    free(r);
}

int64_t
registrar_known(const struct registrar *r)
{
    return (int64_t)HASH_COUNT(r->known);
}

/* 0, ERR_NOTFOUND or ERR_STORE. */
static int
look_up(struct funnel *f, const char *id, struct error *err)
{
    struct task_row row = { 0 };

    if (has(f->registrar->removing, id))
        return error_set(err, ERR_NOTFOUND, "no task %s", id);
    if (has(f->registrar->known, id))
        return 0;
    int rc = reader_get_task(store_reader(f->store), id, &row, err);
    if (rc == 0)
        remember(f, id);
    task_row_release(&row);
    return rc;
}

enum funnel_refusal
task_find(struct funnel *f, const char *client, const char *name, char id[HASH_TEXT_SIZE],
          struct json_fault *fault)
{
    struct error err = { 0 };
    bool is_own;
    int rc;

    if (strncmp(name, "sha256:", 7) == 0) {
        rc = strlen(name) < HASH_TEXT_SIZE ? 0 : ERR_NOTFOUND;
        id[0] = '\0';
        strncat(id, name, HASH_TEXT_SIZE - 1);
    } else {
        rc = reader_find_task(store_reader(f->store), client, name, id, &is_own, &err);
    }
    if (rc == 0 &&
        has(f->registrar->removing, id)) /* whether it goes is not known yet: others may have names for it */
        rc = error_set(&err, ERR_UNAVAILABLE, "the task is being deleted");
    if (rc == 0)
        rc = look_up(f, id, &err);
    if (rc == ERR_NOTFOUND)
        json_refuse(fault, "/task", "there is no task \"%.80s\"", name);
    else if (rc != 0)
        json_refuse(fault, "/task", "%s", log_for_client(name, &err));
    return rc == 0 ? FUNNEL_OK : rc == ERR_NOTFOUND ? FUNNEL_NO_TASK : FUNNEL_UNAVAILABLE;
}

/* Whether the task under the twin's id has the entry point that is asked for. */
static bool
is_same(struct funnel *f, const struct task_request *r)
{
    struct task_row row = { 0 };

    if (has(f->registrar->removing, r->twin) ||
        reader_get_task(store_reader(f->store), r->twin, &row, NULL) != 0)
        return false;
    bool has_entry = !r->entry || (row.entry_point && strcmp(row.entry_point, r->entry) == 0);
    task_row_release(&row);
    return has_entry;
}

bool
task_is_known(struct funnel *f, struct task_request *r)
{
    if (look_up(f, r->id, NULL) == 0)
        return true;
    if (!is_same(f, r))
        return false;
    memcpy(r->id, r->twin, sizeof(r->id));
    return true;
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

/* The device is let go of: what it took is its client's. */
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

/* Everybody who asked hears the same; the registration is over. */
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

int
task_let_sizes_judge(struct task_row *task, struct error *err)
{
    AUTO_JSON json_t *spec = json_loads(task->spec ? task->spec : "", JSON_ALLOW_NUL, NULL);
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

/* The entry point that was found was named when the same was registered before: id is that task's. */
static bool
is_there_by_its_entry(const struct registration *r, char id[HASH_TEXT_SIZE])
{
    const struct task_row *row = &r->row;

    return !json_is_string(json_object_get(r->declared, "entry_point")) &&
           task_identity(row->entry_point, row->reference, row->reference_size, row->dynamic_shapes, r->cases,
                         id) == 0 &&
           strcmp(id, row->id) != 0 && look_up(r->funnel, id, NULL) == 0;
}

static void
registered_cb(void *arg, const struct buffer *spec, json_t *error)
{
    struct registration *r = arg;
    struct funnel *f = r->funnel;
    struct funnel_answer answer = { .refusal = FUNNEL_OK };
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
    } else if (!spec && ++r->losses < f->config->max_attempts && !pending_is_draining(f->pending)) {
        DL_FOREACH(r->askers, a) add_turn(a);
    } else if (!spec) {
        refuse(r, pending_is_draining(f->pending) ? FUNNEL_UNAVAILABLE : FUNNEL_UNRUNNABLE,
               "the worker was lost each time it ran the reference", NULL);
    } else if (take_spec(r, spec) != 0) {
        refuse(r, FUNNEL_UNAVAILABLE, "the worker's answer cannot be read", NULL);
    } else if (is_there_by_its_entry(r, answer.id)) {
        answer_all(r, &answer);
    } else {
        r->row.created_ms = clock_wall_ms();
        pending_begin_write(f->pending);
        if (store_add_task(f->store, &r->row, stored_cb, r, &err) != 0)
            stored_cb(r, err.code, &err);
    }
}

void
task_give_device_worker(struct device_worker *l, struct scheduler_job *job)
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
    if (device_worker_register(l, &registration, registered_cb, r, &err) != 0) {
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

/* One that waits for a device; NULL: none does. */
static struct registration *
first_waiting(struct funnel *f)
{
    struct registration *r, *next;

    HASH_ITER(hh, f->registrar->registrations, r, next)
    {
        if (has_turn(r))
            return r;
    }
    return NULL;
}

int64_t
registrar_registering(const struct registrar *r)
{
    return (int64_t)HASH_COUNT(r->registrations);
}

void
task_refuse_all(struct funnel *f)
{
    struct registration *r;

    while ((r = first_waiting(f)) != NULL)
        refuse(r, FUNNEL_UNAVAILABLE, "the daemon stops", NULL);
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
    struct error err = { 0 };

    int rc = look_up(f, t->id, &err);
    if (rc == 0) {
        answer_now(f, FUNNEL_OK, "", t->id, cb, arg);
        return;
    }
    if (rc != ERR_NOTFOUND || pending_is_draining(f->pending)) {
        answer_now(f, FUNNEL_UNAVAILABLE,
                   pending_is_draining(f->pending) ? "the daemon is draining" : log_for_client(t->id, &err),
                   NULL, cb, arg);
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

/* One who registers a task under a name, or changes what it has. */
struct naming {
    struct funnel *funnel;
    funnel_answer_cb *cb;
    void *arg;
    struct funnel_answer answer;
    char *client, *name;
};

static void
naming_free(struct naming *n)
{
    free(n->client);
    free(n->name);
    free(n);
}

/* NULL: the refusal is told. */
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
    if (!n->name)
        drop(&f->registrar->removing, n->answer.id);
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

/* FUNNEL_OK, or why the client cannot call it so. is_called: it does already. */
static enum funnel_refusal
check_name(struct funnel *f, const struct task_request *r, bool *is_called, struct json_fault *fault)
{
    char id[HASH_TEXT_SIZE];
    struct error err = { 0 };
    bool is_own = false;
    int rc = reader_find_task(store_reader(f->store), r->client, r->name, id, &is_own, &err);

    *is_called = rc == 0 && is_own && strcmp(id, r->id) == 0;
    if (rc == 0 && is_own && !*is_called && !has(f->registrar->removing, id)) {
        json_refuse(fault, "/name",
                    "\"%.80s\" is the name of %s; rename or delete that, or take another name", r->name, id);
        return FUNNEL_NAME_TAKEN;
    }
    if (rc == 0 || rc == ERR_NOTFOUND)
        return FUNNEL_OK;
    json_refuse(fault, "/name", "%s", log_for_client(r->id, &err));
    return FUNNEL_UNAVAILABLE;
}

void
funnel_add_task(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer answer = { .retry_after_s = admission_retry_after(f) };
    struct task_request request;
    bool is_known = false, is_called = false;

    answer.refusal = task_request_read(body, &request, &answer.fault);
    if (answer.refusal == FUNNEL_OK) {
        is_known = task_is_known(f, &request);
        answer.refusal = check_name(f, &request, &is_called, &answer.fault);
    }
    if (answer.refusal == FUNNEL_OK && !is_known)
        answer.refusal = admission_check_quota(f, request.client, 1, &answer);
    if (answer.refusal != FUNNEL_OK) {
        cb(arg, &answer);
        return;
    }
    if (is_known && is_called) {
        answer_now(f, FUNNEL_OK, "", request.id, cb, arg);
        return;
    }
    struct naming *n = naming_new(f, request.client, request.name, request.id, cb, arg);
    if (n && is_known)
        claim_name(n);
    else if (n)
        task_ensure(f, &request, request.client, PRIORITY_INTERACTIVE, ready_for_name_cb, n);
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

/* Nobody finds it from now on, so that what comes is not accepted for a task that goes. */
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
    if (add(&f->registrar->removing, id) != 0) {
        naming_free(n);
        answer_now(f, FUNNEL_UNAVAILABLE, "no memory", NULL, cb, arg);
        return;
    }
    drop(&f->registrar->known, id);
    pending_begin_write(f->pending);
    if (store_remove_task(f->store, client, id, named_cb, n, &err) != 0)
        named_cb(n, err.code, &err);
}
