#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/admission.h"
#include "server/submission/elsewhere.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/node.h"
#include "server/submission/node_about.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/request.h"
#include "server/submission/reuse.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/submission.h"
#include "server/task/registrar.h"
#include "server/workers/device_worker.h"

/*
 * How candidates come in. It is acknowledged once what it asks for is durable, and only then does it queue. The steps, in
 * their order, which is upwards from the end of this file:
 *
 *   find_task()         by the name of the body's `task`
 *   begin_reading()     all else of the body; and whether the task is still there
 *   ask_nodes()         where other nodes may have the GPU, or count for the client's quota
 *   find_inline_task()  one that came with the request
 *   decide_cb()         room, quota; a new task is registered
 *   store_intake()      the rows, and the client's key with them
 *   added_cb()          they are durable: acknowledged, and queued
 */

struct ticket {
    char id[ID_SIZE], source_hash[HASH_TEXT_SIZE], content[HASH_TEXT_SIZE];
};

typedef enum funnel_refusal request_read_fn(json_t *body, struct submit_request *out,
                                            struct json_fault *fault);

/* One request on its way into the store. */
struct intake {
    struct funnel *funnel;
    json_t *body;
    struct submit_request request;
    funnel_answer_cb *cb;
    void *arg;
    char task_id[HASH_TEXT_SIZE];
    char group_id[ID_SIZE]; /* "" for none */
    bool is_group, has_key;
    struct key_row key;
    struct ticket *tickets; /* one for each candidate */
    int64_t created_ms;
    request_read_fn *read;
    struct pending_work work;
    struct funnel_answer answer; /* the result of reading */
    struct task_look look;     /* for the task by its name, before the rest is read, or for the inline one */
    enum funnel_refusal found; /* of the former */
    bool has_gpu;              /* a live node has it, or none was asked for */
    bool has_usage;            /* of its client on all nodes, against a quota */
    struct store_usage usage;
    int64_t rate;          /* its client's, to count so far; 0: none */
    struct client *client; /* once it is admitted: it expects request.n more; else NULL */
    struct json_fault found_fault;
};

static void
release(void *arg)
{
    struct intake *in = arg;

    submit_request_release(&in->request);
    json_decref(in->body);
    free(in->tickets);
}

/* For a group in libuv's pool, as it was read: it frees thousands of blocks. */
static void
intake_free(struct intake *in)
{
    if (in->client)
        client_expect(in->client, -(int64_t)in->request.n);
    if (in->is_group) {
        pending_work(in->funnel->pending, &in->work, release, free, in);
        return;
    }
    release(in);
    free(in);
}

/* Answers and ends it. */
static void
answer(struct intake *in, struct funnel_answer *a)
{
    if (a->retry_after_s == 0)
        a->retry_after_s = admission_retry_after(in->funnel);
    in->cb(in->arg, a);
    intake_free(in);
}

static void
refuse(struct intake *in, enum funnel_refusal refusal, const char *pointer, const char *text)
{
    struct funnel_answer a = { .refusal = refusal };
    json_refuse(&a.fault, pointer, "%s", text);
    answer(in, &a);
}

static void
make_content(struct intake *in, size_t i)
{
    struct submission_row row = { .client = (char *)(uintptr_t)in->request.client };

    memcpy(row.task_id, in->task_id, HASH_TEXT_SIZE);
    memcpy(row.source_hash, in->tickets[i].source_hash, HASH_TEXT_SIZE);
    reuse_content(&row, in->request.candidates[i].request, in->tickets[i].content);
}

/* Durable: from here on it is ours to finish. */
static void
added_cb(void *arg, int code, const struct error *err)
{
    struct intake *in = arg;
    struct funnel *f = in->funnel;
    struct funnel_answer a = { .refusal = FUNNEL_OK, .is_new = true };

    if (!in->has_gpu)
        a.warning = "no node has such a GPU now: it waits for one";
    if (code != 0) {
        if (in->has_key && code == ERR_CONFLICT)
            refuse(in, FUNNEL_KEY_TAKEN, "", err->text);
        else
            refuse(in, FUNNEL_UNAVAILABLE, "", log_for_client(in->tickets[0].id, err));
        pending_end_write(f->pending);
        return;
    }
    for (size_t i = 0; i < in->request.n; i++) {
        struct submission *s =
            submission_new(f, in->tickets[i].id, in->group_id, in->request.client, in->request.priority, 0);
        if (!s) {
            log_error(in->tickets[i].id, "no memory to queue it: it waits in the store for the next start");
            continue;
        }
        s->is_accepted = true;
        if (s->group && group_is_new(s->group)) {
            AUTO_JSON json_t *request = json_of(in->request.document);
            group_configure(s->group, request, 0);
            group_set_whole(s->group);
        }
        memcpy(s->content, in->tickets[i].content, sizeof(s->content));
        funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_QUEUED, s->id, in->group_id, in->request.client,
                                               NULL, false, 0, NULL, NULL });
        reuse_enqueue(s);
    }
    snprintf(a.id, sizeof(a.id), "%s", in->is_group ? in->group_id : in->tickets[0].id);
    answer(in, &a);
    scheduler_kick(f->scheduler);
    pending_end_write(f->pending);
}

/*
 * Any thread: the request, and of each candidate what takes long to make, its hash and what makes another identical. A
 * task that is named is known by then.
 */
static void
read_body(void *arg)
{
    struct intake *in = arg;
    struct funnel_answer *a = &in->answer;

    a->refusal = in->read(in->body, &in->request, &a->fault);
    if (a->refusal != FUNNEL_OK)
        return;
    in->tickets = calloc(in->request.n, sizeof(*in->tickets));
    if (!in->tickets) {
        a->refusal = FUNNEL_UNAVAILABLE;
        json_refuse(&a->fault, "", "no memory");
        return;
    }
    for (size_t i = 0; i < in->request.n; i++) {
        const struct candidate_request *c = &in->request.candidates[i];
        hash_text(c->source.data ? c->source.data : "", c->source.size, in->tickets[i].source_hash);
        if (!in->request.is_inline)
            make_content(in, i);
    }
}

/* Rows point into the intake; the store copies. */
static void
fill_rows(struct intake *in, struct submission_row *rows, struct store_source *sources)
{
    const struct funnel *f = in->funnel;
    int64_t now_ms = clock_wall_ms();

    for (size_t i = 0; i < in->request.n; i++) {
        struct candidate_request *c = &in->request.candidates[i];
        struct submission_row *row = &rows[i];
        id_new(in->tickets[i].id);
        memcpy(row->id, in->tickets[i].id, ID_SIZE);
        memcpy(row->group_id, in->group_id, ID_SIZE);
        row->group_index = (int)i;
        memcpy(row->task_id, in->task_id, HASH_TEXT_SIZE);
        sources[i] = (struct store_source){ c->source.data ? c->source.data : "", c->source.size, c->answer,
                                            c->answer_size };
        memcpy(row->source_hash, in->tickets[i].source_hash, HASH_TEXT_SIZE);
        row->priority = in->request.priority;
        row->client = (char *)(uintptr_t)in->request.client;
        row->request = c->document;
        row->created_ms = now_ms;
        row->reward = NAN;
        if (in->request.is_inline)
            make_content(in, i);
        /* Those of a group that chooses wait for each other: two such groups would never end. */
        if (f->config->cache && !in->request.keeps_together)
            row->content = reuse_number(in->tickets[i].content);
    }
}

static void
store_intake(struct intake *in)
{
    struct funnel *f = in->funnel;
    size_t n = in->request.n;
    AUTO_FREE struct submission_row *rows = calloc(n, sizeof(*rows));
    AUTO_FREE struct store_source *sources = calloc(n, sizeof(*sources));
    struct group_row group = { .request = in->request.document,
                               .size = (int)n,
                               .keeps_together = in->request.keeps_together,
                               .created_ms = clock_wall_ms() };
    struct error err = { 0 };

    if (!rows || !sources) {
        refuse(in, FUNNEL_UNAVAILABLE, "", "no memory");
        return;
    }
    if (in->is_group)
        id_new(in->group_id);
    memcpy(group.id, in->group_id, sizeof(group.id));
    memcpy(group.task_id, in->task_id, sizeof(group.task_id));
    fill_rows(in, rows, sources);
    snprintf(in->key.id, sizeof(in->key.id), "%s", in->is_group ? in->group_id : in->tickets[0].id);
    in->key.created_ms = in->created_ms = group.created_ms;
    pending_begin_write(f->pending);
    int rc = store_add_submissions(f->store, in->is_group ? &group : NULL, in->has_key ? &in->key : NULL,
                                   rows, sources, n, added_cb, in, &err);
    if (rc != 0) {
        refuse(in, rc == ERR_FULL ? FUNNEL_FULL : FUNNEL_UNAVAILABLE, "",
               log_for_client(in->tickets[0].id, &err));
        pending_end_write(f->pending);
    }
}

static void
registered_cb(void *arg, const struct funnel_answer *a)
{
    struct intake *in = arg;

    if (a->refusal != FUNNEL_OK) {
        in->cb(in->arg, a);
        intake_free(in);
        return;
    }
    snprintf(in->task_id, sizeof(in->task_id), "%.*s", HASH_TEXT_SIZE - 1, a->id);
    store_intake(in);
}

/* A task that has to be registered first counts against the rate like a submission; they never wait at once. */
static enum funnel_refusal
admit(struct intake *in, struct funnel_answer *a)
{
    bool registers = in->request.is_inline && !in->look.is_known;

    if (in->has_usage)
        clients_note(in->funnel->clients, in->request.client, &in->usage);
    enum funnel_refusal refusal =
        admission_check_quota(in->funnel, in->request.client, in->request.n, registers, a);
    if (refusal == FUNNEL_OK && (in->client = clients_get(in->funnel->clients, in->request.client)))
        client_expect(in->client, (int64_t)in->request.n); /* others ask before the store has them */
    return refusal;
}

static bool
has_room(const struct funnel *f, size_t n, struct funnel_answer *a)
{
    if (pending_is_draining(f->pending)) {
        a->refusal = FUNNEL_UNAVAILABLE;
        json_refuse(&a->fault, "", "the daemon is draining");
    } else if ((int64_t)n > f->config->queue_limit) { /* waiting would not help */
        a->refusal = FUNNEL_BAD;
        json_refuse(&a->fault, "/candidates", "are %zu, and queue_limit is %lld: send fewer at once", n,
                    (long long)f->config->queue_limit);
    } else if (admission_waiting(f) + (int64_t)n > f->config->queue_limit) {
        a->refusal = FUNNEL_FULL;
        char left[48] = "";
        if (elsewhere_owned(f->elsewhere) > 0)
            snprintf(left, sizeof(left), ", %lld of them for other nodes",
                     (long long)elsewhere_owned(f->elsewhere));
        json_refuse(&a->fault, "",
                    "%lld submissions wait already%s, of queue_limit %lld; try later or raise it",
                    (long long)admission_waiting(f), left, (long long)f->config->queue_limit);
    }
    return a->refusal == FUNNEL_OK;
}

bool
funnel_has_room(const struct funnel *f, struct funnel_answer *answer)
{
    *answer = (struct funnel_answer){ .retry_after_s = admission_retry_after(f) };
    return has_room(f, 1, answer);
}

/* Only for a daemon without other nodes: with them it waits for one that has such a GPU. */
static bool
has_gpu(const struct funnel *f, const char *gpu, struct funnel_answer *a)
{
    const struct store_wants wants = node_wants(f);

    if (!gpu || store_lease_ms(f->store) != STORE_LEASE_ENDLESS || strstr(wants.gpu, gpu))
        return true;
    bool is_known = true;
    for (int i = 0; i < f->n_device_workers; i++)
        is_known &= !device_worker_is_gpu(f->device_workers[i]) || device_worker_gpu(f->device_workers[i]);
    a->refusal = is_known ? FUNNEL_BAD : FUNNEL_UNAVAILABLE;
    if (is_known)
        json_refuse(&a->fault, "/gpu", "no GPU here has \"%.60s\" in its name%s%s", gpu,
                    *wants.gpu ? ": there is " : "", wants.gpu);
    else
        json_refuse(&a->fault, "/gpu", "the GPU has not said its name yet");
    return false;
}

/* All is known of it: it is taken in, or refused. */
static void
decide_cb(void *arg)
{
    struct intake *in = arg;
    struct funnel *f = in->funnel;
    struct funnel_answer *a = &in->answer;

    if (a->refusal == FUNNEL_OK && in->request.is_inline && in->look.rc != 0) {
        a->refusal = FUNNEL_UNAVAILABLE;
        json_refuse(&a->fault, "", "%s", log_for_client(in->request.reference.id, &in->look.err));
    }
    if (a->refusal == FUNNEL_OK && in->found != FUNNEL_OK) {
        a->refusal = in->found;
        a->fault = in->found_fault;
    }
    if (a->refusal == FUNNEL_OK && has_gpu(f, in->request.gpu, a) && has_room(f, in->request.n, a))
        a->refusal = admit(in, a);
    if (a->refusal == FUNNEL_OK && in->request.is_inline) {
        task_ensure(f, &in->request.reference, in->request.client, in->request.priority, registered_cb, in);
        return;
    }
    if (a->refusal == FUNNEL_OK)
        store_intake(in);
    else
        answer(in, a);
}

static void
find_inline_task(struct intake *in)
{
    if (in->answer.refusal == FUNNEL_OK && in->request.is_inline) {
        in->look = (struct task_look){
            .funnel = in->funnel, .request = &in->request.reference, .cb = decide_cb, .arg = in
        };
        task_look(&in->look);
    } else {
        decide_cb(in);
    }
}

static void
node_cb(void *arg, const struct node_row *row)
{
    struct intake *in = arg;

    if (row->lease_left_ms > 0 && !row->is_draining)
        in->has_gpu |= node_about_has_gpu(row->about, in->request.gpu);
}

static void
read_nodes(void *arg, struct store_reader *r)
{
    struct intake *in = arg;
    if (!in->has_gpu && reader_each_node(r, node_cb, in, NULL) != 0)
        in->has_gpu = true; /* not known */
    if (in->has_usage)      /* not known: what was counted here counts */
        in->has_usage =
            reader_get_usage(r, in->request.client, clock_wall_ms(), in->rate, &in->usage, NULL) == 0;
}

static void
nodes_read_cb(void *arg)
{
    struct intake *in = arg;
    struct funnel *f = in->funnel;

    find_inline_task(in);
    pending_end_write(f->pending);
}

/* Its client has a quota of what other nodes may know more of. */
static bool
must_sum_up(const struct intake *in)
{
    const struct quota *q = clients_quota(in->funnel->clients, in->request.client);

    return in->request.client && *in->request.client && (q->queued > 0 || q->gpu_s > 0 || q->rate > 0);
}

/*
 * It was read. A node that has just left may come back with the GPU that is asked for; if no node has it, the response
 * says so.
 */
static void
ask_nodes(struct intake *in)
{
    struct funnel *f = in->funnel;

    bool is_alone = store_lease_ms(f->store) == STORE_LEASE_ENDLESS;
    in->has_gpu = !in->request.gpu || is_alone;
    in->has_usage = !is_alone && must_sum_up(in);
    in->rate = clients_quota(f->clients, in->request.client)->rate;
    if (in->answer.refusal == FUNNEL_OK && (!in->has_gpu || in->has_usage)) {
        pending_begin_write(f->pending);
        if (store_read(f->store, read_nodes, nodes_read_cb, in, NULL) == 0)
            return;
        in->has_gpu = true;
        in->has_usage = false;
        pending_end_write(f->pending);
    }
    find_inline_task(in);
}

static void
still_there_cb(void *arg)
{
    struct intake *in = arg;

    in->found = task_found(&in->look, &in->found_fault);
    ask_nodes(in);
}

static void
body_read_cb(void *arg)
{
    struct intake *in = arg;

    if (*in->task_id && in->found == FUNNEL_OK) { /* it may have been deleted meanwhile */
        in->look =
            (struct task_look){ .funnel = in->funnel, .name = in->task_id, .cb = still_there_cb, .arg = in };
        task_look(&in->look);
    } else {
        ask_nodes(in);
    }
}

static void
begin_reading(struct intake *in)
{
    if (in->is_group) { /* hundreds of candidates take longer than the loop may be away */
        pending_work(in->funnel->pending, &in->work, read_body, body_read_cb, in);
        return;
    }
    read_body(in);
    ask_nodes(in);
}

static void
named_task_cb(void *arg)
{
    struct intake *in = arg;

    in->found = task_found(&in->look, &in->found_fault);
    memcpy(in->task_id, in->look.id, sizeof(in->task_id));
    begin_reading(in);
}

/* Finds the task by the body's members before the rest is read: their faults are found then. */
static void
find_task(struct intake *in)
{
    const char *name = json_string_value(json_object_get(in->body, "task"));
    const char *client = json_string_value(json_object_get(in->body, "client"));

    in->look = (struct task_look){
        .funnel = in->funnel, .client = client, .name = name, .cb = named_task_cb, .arg = in
    };
    if (name)
        task_look(&in->look);
    else
        begin_reading(in);
}

static void
take_in(struct funnel *f, json_t *body, request_read_fn *read, const struct key_row *key,
        funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer a = { .refusal = FUNNEL_UNAVAILABLE, .retry_after_s = 1 };
    struct intake *in = calloc(1, sizeof(*in));

    if (!in) {
        json_refuse(&a.fault, "", "no memory");
        cb(arg, &a);
        return;
    }
    *in = (struct intake){ .funnel = f, .body = json_incref(body), .read = read, .cb = cb, .arg = arg };
    in->is_group = read == group_request_read;
    in->has_key = key != NULL;
    if (key)
        in->key = *key;
    find_task(in);
}

void
funnel_submit(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb, void *arg)
{
    take_in(f, body, submit_request_read, key, cb, arg);
}

void
funnel_submit_group(struct funnel *f, json_t *body, const struct key_row *key, funnel_answer_cb *cb,
                    void *arg)
{
    take_in(f, body, group_request_read, key, cb, arg);
}

void
funnel_replay(struct funnel *f, json_t *bundle, funnel_answer_cb *cb, void *arg)
{
    take_in(f, bundle, replay_request_read, NULL, cb, arg);
}
