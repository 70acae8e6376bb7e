#include "server/http/compat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/policy.h"
#include "common/reward.h"
#include "server/submission/seen.h"
#include "server/verdict/disclosure.h"
#include "server/http/answers.h"
#include "server/http/handlers.h"
#include "server/http/running_keys.h"

/*
 * Theory of operation. A request of a foreign format becomes one job of one or
 * more samples. Each sample is submitted under an idempotency key (idempotency.c)
 * made of all that decides its verdict; where the format has a name for it, of
 * that name. A key that is known leads to the submission that is there already:
 * so ten equal posts at once are judged once, and a client that tries again after
 * a timeout, or after a restart, finds the work that it gave up waiting for.
 *
 * These clients stack numbers and cannot take null. So a verdict without a
 * reward makes the client come again (503 or 504, as it understands it), and the
 * next try has a key of its own and is judged anew; after TRIES_NULL of them the
 * answer is the filler. A timing that was inconclusive is tried once more in the
 * same way, and then counts as it stands.
 */

#define TRIES_NULL 2
#define TRIES_INCONCLUSIVE 1

static const struct compat_format *
format_of(const struct route *route)
{
    for (size_t i = 0; route && i < compat_formats_count; i++)
        if (strncmp(route->path, compat_formats[i].prefix, strlen(compat_formats[i].prefix)) == 0)
            return &compat_formats[i];
    return NULL;
}

bool
compat_is(const struct route *route)
{
    return format_of(route) != NULL;
}

/* --- jobs --- */

static void
item_release(struct compat_item *item)
{
    json_decref(item->body);
    json_decref(item->aside);
    json_decref(item->verdict);
}

static void
job_free(struct compat_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->n; i++)
        item_release(&job->items[i]);
    free(job->items);
    json_decref(job->policy);
    json_decref(job->reward);
    json_decref(job->run);
    json_decref(job->request);
    free(job);
}

static void
release(struct exchange *x)
{
    job_free(ptr_take(&x->compat));
}

struct compat_item *
compat_add(struct compat_job *job, json_t *body, json_t *aside, struct json_fault *fault)
{
    bool is_room = body && job->n < GROUP_MAX;
    struct compat_item *items = is_room ? reallocarray(job->items, job->n + 1, sizeof(*job->items)) : NULL;

    if (!items) {
        json_refuse(fault, "", "has more than %d samples, or there is no memory for them", GROUP_MAX);
        json_decref(body);
        json_decref(aside);
        return NULL;
    }
    job->items = items;
    struct compat_item *item = &job->items[job->n++];
    *item = (struct compat_item){ .body = body, .aside = aside };
    return item;
}

double
compat_component(const struct compat_item *item, const char *name)
{
    return number_or_nan(json_object_get(item->verdict, "components"), name);
}

double
compat_speedup(const struct compat_item *item)
{
    double speedup = compat_component(item, "speedup");

    if (compat_component(item, "correct") != 1 || compat_component(item, "timed") != 1)
        return 0;
    return isfinite(speedup) ? speedup : 0;
}

/* --- parameters of the address --- */

/* A name, or a JSON object. NULL: the object cannot be read. Given. */
static json_t *
name_or_object(const char *text)
{
    struct json_fault fault;

    return *text == '{' ? json_parse(text, strlen(text), &fault) : json_string(text);
}

/* A reward of one sample, from one sample. */
static bool
is_reward_alone(struct exchange *x, json_t *reward)
{
    struct reward_spec spec;
    struct json_fault fault;
    AUTO_JSON json_t *object =
        json_is_string(reward) ? json_pack("{s:O}", "kind", reward) : json_incref(reward);

    if (reward_spec_read(object, "", &spec, &fault) != 0)
        return exchange_bad_parameter(x, "reward", fault.text);
    if (!reward_needs_rank(&spec))
        return true;
    return exchange_bad_parameter(x, "reward", "needs a rank, which only a whole group has: post /v1/groups");
}

/* False: the refusal is sent. */
static bool
read_options(struct exchange *x, struct compat_job *job)
{
    const char *policy = target_value(&x->target, "policy"), *reward = target_value(&x->target, "reward"),
               *fill = target_value(&x->target, "fill"), *reply = target_value(&x->target, "reply"),
               *run = target_value(&x->target, "run");
    char *end, text[sizeof(struct json_fault) + 2];
    struct policy rules;
    struct json_fault fault;

    if (policy && !(job->policy = name_or_object(policy)))
        return exchange_bad_parameter(x, "policy", "is neither a name nor a JSON object");
    if (job->policy && policy_read(job->policy, "", &rules, &fault) != 0) {
        snprintf(text, sizeof(text), "%s%s%s", fault.pointer, *fault.pointer ? ": " : "", fault.text);
        return exchange_bad_parameter(x, "policy", text);
    }
    if (reward && !(job->reward = name_or_object(reward)))
        return exchange_bad_parameter(x, "reward", "is neither a name nor a JSON object");
    if (job->reward && !is_reward_alone(x, job->reward))
        return false;
    if (fill) {
        job->fill = strtod(fill, &end);
        if (end == fill || *end || !isfinite(job->fill))
            return exchange_bad_parameter(x, "fill", "is a number");
    }
    if (reply && strcmp(reply, "object") != 0 && strcmp(reply, "number") != 0)
        return exchange_bad_parameter(x, "reply", "is one of number, object");
    if (run && !(job->run = json_string(run)))
        return exchange_bad_parameter(x, "run", "is not UTF-8");
    job->is_asked = reply && strcmp(reply, "object") == 0;
    return true;
}

/* --- refusals in the format's manner --- */

void
compat_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra)
{
    const struct compat_format *format = format_of(x->route);
    json_t *first = json_array_get(json_object_get(extra, "errors"), 0);
    const char *pointer = json_string_value(json_object_get(first, "pointer"));
    unsigned status = problem_kinds[problem].status;

    /* Its client does not come again for 429 or 503, say, but for 504. */
    if (problem_kinds[problem].is_retryable && (status == 429 || status >= 500) && format->again == 504)
        status = 504;
    json_t *document = format->refuse(problem, pointer ? pointer : "", detail, &status);
    exchange_set_json(x, document ? status : 500, document);
    if (status >= 500)
        exchange_header(x, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    json_decref(extra);
}

/* The same fault in the words of the format. */
static void
translate(const struct compat_format *format, size_t index, bool is_one, struct json_fault *fault)
{
    for (size_t i = 0; i < ARRAY_LEN(format->names) && format->names[i].ours; i++) {
        const struct compat_name *name = &format->names[i];
        size_t size = strlen(name->ours);
        char rest[JSON_POINTER_SIZE], at[24] = "";
        if (strncmp(fault->pointer, name->ours, size) != 0 ||
            (fault->pointer[size] && fault->pointer[size] != '/'))
            continue;
        if (!is_one)
            snprintf(at, sizeof(at), "/%zu", index);
        snprintf(rest, sizeof(rest), "%s", fault->pointer + size);
        snprintf(fault->pointer, sizeof(fault->pointer), "%.40s%.20s%.60s", name->theirs, at, rest);
        return;
    }
}

/* --- the answer --- */

/* The verdict as a submitter may see it, for every caller: a trainer shows it to its policy. 0, or err's code. */
static int
load(const struct compat_job *job, struct compat_item *item, struct store_reader *r, struct error *err)
{
    AUTO_FREE char *client = NULL, *verdict = NULL;

    item->state = COMPAT_UNFINISHED;
    int rc = reader_get_answer(r, item->id, &client, &verdict, err);
    AUTO_JSON json_t *whole = json_of(verdict);
    json_decref(item->verdict);
    item->verdict = whole ? disclosure_view(whole) : NULL;
    if (!item->verdict)
        return rc;
    json_t *reward = json_object_get(item->verdict, "reward");
    item->state = COMPAT_JUDGED;
    item->is_filled = !json_is_number(reward);
    item->reward = item->is_filled ? job->fill : json_number_value(reward);
    return 0;
}

static bool
is_inconclusive(const struct compat_item *item)
{
    return text_is(json_object_get(item->verdict, "timing"), "outcome", "inconclusive");
}

/* True: the client is to come again, and the next try is judged anew. */
static bool
is_sent_back(const struct compat_item *item)
{
    int most = item->is_filled ? TRIES_NULL : is_inconclusive(item) ? TRIES_INCONCLUSIVE : 0;

    return item->state == COMPAT_JUDGED && item->tries < most;
}

/* The verdicts of a job. It is the reading's meanwhile, as the exchange may end before it. */
struct job_read {
    struct exchange_read call;
    struct compat_job *job;
};

static int
read_verdicts(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct compat_job *job = ((struct job_read *)call)->job;

    for (size_t i = 0; i < job->n; i++) {
        struct compat_item *item = &job->items[i];
        if (*item->id && item->state != COMPAT_JUDGED && load(job, item, r, err) != 0)
            log_error(item->id, "%s", err->text);
    }
    return 0;
}

static void
free_job_read(struct exchange_read *call)
{
    job_free(((struct job_read *)call)->job);
    exchange_read_free(call);
}

static void
answer_job(struct exchange *x, struct exchange_read *call)
{
    struct compat_job *job = x->compat = ptr_take(&((struct job_read *)call)->job);
    bool is_late = false, is_again = false;

    for (size_t i = 0; i < job->n; i++) {
        is_late |= job->items[i].state == COMPAT_UNFINISHED;
        is_again |= is_sent_back(&job->items[i]);
    }
    if (is_again || (is_late && !job->format->takes_progress)) {
        unsigned status = job->format->again;
        /* A verdict that is late gives 504 for every caller, unless the daemon stops. */
        if (!is_again && !x->http->is_draining)
            status = 504;
        json_t *document =
            job->format->refuse(PROBLEM_UNAVAILABLE, "",
                                is_again ? "the verdict has no reward yet; ask again and it is judged anew"
                                         : "not judged yet; ask again and the same work is waited for",
                                &status);
        exchange_set_json(x, status, document);
        exchange_header(x, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        exchange_send(x);
        return;
    }
    exchange_json(x, 200, job->format->write(job));
}

static void
answer(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_verdicts,
                                               .answer = answer_job,
                                               .free = free_job_read };
    struct job_read *q = exchange_read_new(x, &call, sizeof(*q));

    if (!q)
        return;
    q->job = ptr_take(&x->compat);
    exchange_read(x, &q->call);
}

/* Waits for one sample after the other; they are judged side by side. */
static void
go_on(struct exchange *x)
{
    struct compat_job *job = x->compat;

    while (job->at < job->n) {
        const struct compat_item *item = &job->items[job->at++];
        double left_s = (double)(job->deadline_ns - clock_monotonic_ns()) / 1e9;
        if (!*item->id || item->state == COMPAT_JUDGED)
            continue;
        x->wait_s = left_s;
        if (left_s <= 0 || exchange_hold_s(x) <= 0)
            break;
        snprintf(x->id, sizeof(x->id), "%s", item->id);
        exchange_hold(x, go_on);
        return;
    }
    answer(x);
}

static void
submitted(struct exchange *x, const struct funnel_answer *refused)
{
    if (refused->refusal != FUNNEL_OK)
        exchange_refused(x, refused);
    else
        go_on(x);
}

/* --- submitting --- */

/* Whether one sample's refusal refuses them all. */
static bool
is_for_all(const struct compat_job *job, const struct funnel_answer *refused)
{
    bool is_later = refused->refusal == FUNNEL_FULL || refused->refusal == FUNNEL_UNAVAILABLE ||
                    refused->refusal == FUNNEL_QUOTA_RATE || refused->refusal == FUNNEL_QUOTA_QUEUED ||
                    refused->refusal == FUNNEL_QUOTA_GPU;
    return job->n == 1 || is_later || !job->format->takes_progress;
}

/* One answer less is awaited; the last one lets the exchange go on. */
static void
job_answered(struct compat_job *job)
{
    struct funnel_answer ok = { .refusal = FUNNEL_OK };
    const struct funnel_answer *first = &ok;

    if (--job->awaited > 0)
        return;
    struct pending *p = job->pending;
    if (!p->exchange) {
        free(p);
        job_free(job);
        return;
    }
    for (size_t i = 0; i < job->n && first == &ok; i++)
        if (!*job->items[i].id && is_for_all(job, &job->items[i].answer))
            first = &job->items[i].answer;
    job->pending = NULL;
    p->exchange->compat = job;
    exchange_pending_cb(p, first);
}

static void find_items(struct compat_item *items, size_t n);

static void
submission_answered_cb(void *arg, const struct funnel_answer *told)
{
    struct running_key *k = arg;
    struct compat_item *item, *askers = k->askers;

    running_key_end(k);
    while ((item = askers)) {
        struct compat_job *job = item->job;
        LL_DELETE(askers, item);
        if (told->refusal == FUNNEL_KEY_TAKEN) { /* the submissions made under the key are in the store now */
            find_items(item, 1);
            continue;
        }
        if (told->refusal == FUNNEL_OK) {
            snprintf(item->id, sizeof(item->id), "%.*s", ID_SIZE - 1, told->id);
        } else {
            item->answer = *told;
            item->answer.detail = NULL; /* lives for the call only */
            translate(job->format, (size_t)(item - job->items), job->n == 1, &item->answer.fault);
        }
        job_answered(job);
    }
}

/* All that decides the verdict. */
static int
hash_sample(struct compat_item *item)
{
    json_t *whole = json_copy(item->body);

    json_object_del(whole, "metadata");
    json_hash(whole, item->hash);
    return *item->hash ? 0 : ERR_NOMEM;
}

/* No client can send such a key: it has blanks. name: its client's own for the sample, or NULL. */
static void
make_key(const struct compat_item *item, const char *name, char out[STORE_KEY_SIZE])
{
    char hash[HASH_TEXT_SIZE];

    if (name)
        hash_text(name, strlen(name), hash);
    snprintf(out, STORE_KEY_SIZE, "%s %s %d", name ? "name" : "sample", name ? hash : item->hash,
             item->tries);
}

static const char *
name_of(const struct compat_job *job, const struct compat_item *item)
{
    return job->format->has_names ? json_string_value(item->aside) : NULL;
}

/* Whether the name of the sample's task leads to another one by now than to that of its submission. */
static int
leads_elsewhere(const struct compat_item *item, const char *id, struct store_reader *r, bool *out,
                struct error *err)
{
    const char *name = json_string_value(json_object_get(item->body, "task"));
    const char *client = json_string_value(json_object_get(item->body, "client"));
    struct submission_row row = { 0 };
    char task[HASH_TEXT_SIZE] = "";
    bool is_own;

    *out = false;
    if (!name)
        return 0;
    int rc = reader_get_submission(r, id, &row, err);
    if (rc == 0 && strcmp(name, row.task_id) != 0) {
        rc = reader_find_task(r, client, name, task, &is_own, err);
        *out = rc == ERR_NOTFOUND || (rc == 0 && strcmp(task, row.task_id) != 0);
    }
    submission_row_release(&row);
    return *out ? 0 : rc;
}

/*
 * Finds the try that counts: the last submission of the sample, as item->id, or the first unused key ("" then). A key
 * whose name stood for another sample is ignored, as is one of before its task's name led to another. A thread of the
 * store.
 */
static int
find_try(const struct compat_job *job, struct compat_item *item, const char *client, struct store_reader *r,
         struct error *err)
{
    struct key_row row;
    char key[STORE_KEY_SIZE];
    int rc = ERR_NOTFOUND;

    item->replaces = item->must_renew;
    for (item->tries = 0; !item->must_renew; item->tries++) {
        make_key(item, name_of(job, item), key);
        rc = reader_get_key(r, client, key, clock_wall_ms(), &row, err);
        item->replaces = rc == 0 && strcmp(row.request_hash, item->hash) != 0;
        if (rc == 0 && !item->replaces)
            rc = leads_elsewhere(item, row.id, r, &item->replaces, err);
        if (rc != 0 || item->replaces)
            break;
        memcpy(item->id, row.id, sizeof(item->id));
        rc = load(job, item, r, err);
        if (rc != 0)
            break;
        if (!is_sent_back(item))
            return 0;
    }
    item->id[0] = '\0';
    item->state = COMPAT_REFUSED;
    return rc == ERR_NOTFOUND ? 0 : rc;
}

static void
refuse_item(struct compat_item *item, enum funnel_refusal refusal, const char *why)
{
    item->answer = (struct funnel_answer){ .refusal = refusal, .retry_after_s = 1 };
    json_refuse(&item->answer.fault, "", "%s", why);
    job_answered(item->job);
}

static bool
is_asked_by(const struct running_key *k, const struct compat_job *job)
{
    for (const struct compat_item *item = k->askers; item; item = item->next)
        if (item->job == job)
            return true;
    return false;
}

/* The key of a try that is under way, and which that is; NULL: none is, and key is the next to use. */
static struct running_key *
running_try(struct compat_item *item, char key[STORE_KEY_SIZE])
{
    const struct compat_job *job = item->job;
    int last = item->tries;

    for (item->tries = 0;; item->tries++) {
        make_key(item, name_of(job, item), key);
        struct running_key *k = running_key_find(job->http, job->client, key);
        if (k || item->tries == last)
            return k;
    }
}

/* The store has reported its tries. One in progress comes first: the store may have it before the funnel answers. */
static void
submit_item(struct compat_item *item)
{
    struct compat_job *job = item->job;
    char key[STORE_KEY_SIZE];
    struct running_key *k = running_try(item, key);
    bool is_first = !k;

    if (!k && *item->id) {
        job_answered(job);
        return;
    }
    item->id[0] = '\0';
    item->state = COMPAT_REFUSED;
    if (item->must_renew)
        json_object_set_new(item->body, "cache", json_false());
    if (is_first)
        k = running_key_add(job->http, job->client, key, item->hash);
    if (!k) {
        refuse_item(item, FUNNEL_UNAVAILABLE, "no memory");
        return;
    }
    if (strcmp(k->row.request_hash, item->hash) != 0) {
        if (is_asked_by(k, job))
            refuse_item(item, FUNNEL_BAD, "another sample of this request has the same name");
        else
            refuse_item(item, FUNNEL_UNAVAILABLE, "another sample of this name is being submitted");
        return;
    }
    LL_APPEND(k->askers, item);
    k->row.replaces = item->replaces;
    if (is_first)
        funnel_submit(job->http->funnel, item->body, &k->row, submission_answered_cb, k);
}

/* The tries of samples, one behind the other; their job waits for them, and so outlives the reading. */
struct tries_read {
    struct compat_item *items;
    size_t n;
    int rc;
    struct error err;
};

static void
tries_read_cb(void *arg, struct store_reader *r)
{
    struct tries_read *q = arg;
    const struct compat_job *job = q->items->job;

    for (size_t i = 0; i < q->n && q->rc == 0; i++)
        q->rc = find_try(job, &q->items[i], job->client, r, &q->err);
}

static void
tries_done_cb(void *arg)
{
    struct tries_read *q = arg;

    for (size_t i = 0; i < q->n; i++) {
        struct compat_item *item = &q->items[i];
        if (q->rc == 0)
            submit_item(item);
        else
            refuse_item(item, FUNNEL_UNAVAILABLE,
                        q->rc == ERR_NOMEM ? "no memory" : log_for_client(item->job->request_id, &q->err));
    }
    free(q);
}

static void
find_items(struct compat_item *items, size_t n)
{
    struct tries_read *q = calloc(1, sizeof(*q));

    for (size_t i = 0; !q && i < n; i++)
        refuse_item(&items[i], FUNNEL_UNAVAILABLE, "no memory");
    if (!q)
        return;
    q->items = items;
    q->n = n;
    if (store_read(items->job->http->store, tries_read_cb, tries_done_cb, q, &q->err) != 0) {
        q->rc = q->err.code;
        tries_done_cb(q);
    }
}

struct name_read {
    struct exchange_read call;
    struct compat_job job;
    struct compat_item item;
    struct seen seen; /* of what has not ended */
    bool is_known;
    compat_found_cb *found;
};

static int
read_name(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct name_read *q = (struct name_read *)call;
    struct key_row row;
    char key[STORE_KEY_SIZE];

    make_key(&q->item, json_string_value(q->item.aside), key);
    int rc = reader_get_key(r, call->client, key, clock_wall_ms(), &row, err);
    q->is_known = rc == 0;
    if (rc == 0) {
        memcpy(q->item.hash, row.request_hash, sizeof(q->item.hash));
        rc = find_try(&q->job, &q->item, call->client, r, err);
    }
    if (rc == 0 && q->item.state == COMPAT_UNFINISHED)
        rc = seen_read(r, q->item.id, &q->seen, err);
    return q->is_known ? rc : rc == ERR_NOTFOUND ? 0 : rc;
}

static void
name_found(struct exchange *x, struct exchange_read *call)
{
    struct name_read *q = (struct name_read *)call;
    struct error err = { 0 };

    if (!q->is_known) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "Task %.100s not found", json_string_value(q->item.aside));
        return;
    }
    AUTO_JSON json_t *shown =
        q->seen.n > 0 ? funnel_show_submission(x->http->funnel, &q->seen.rows[0], q->seen.task_name, &err)
                      : NULL;
    q->found(x, &q->item, text_or(shown, "state", "queued"));
}

static void
free_name_read(struct exchange_read *call)
{
    struct name_read *q = (struct name_read *)call;

    item_release(&q->item);
    seen_release(&q->seen);
    exchange_read_free(call);
}

void
compat_look_up(struct exchange *x, const char *name, compat_found_cb *found)
{
    static const struct exchange_read call = {
        .read = read_name, .answer = name_found, .free = free_name_read, .what = "such task"
    };
    struct name_read *q = exchange_read_new(x, &call, sizeof(*q));

    if (!q)
        return;
    q->job = (struct compat_job){ .http = x->http, .format = format_of(x->route) };
    q->item = (struct compat_item){ .aside = json_string(name), .state = COMPAT_UNFINISHED };
    q->found = found;
    exchange_read(x, &q->call);
}

static void
complete(const struct exchange *x, const struct compat_job *job, struct compat_item *item)
{
    json_t *metadata = json_object_get(item->body, "metadata");

    if (job->policy && !json_object_get(item->body, "policy"))
        json_object_set(item->body, "policy", job->policy);
    if (job->reward && !json_object_get(item->body, "reward"))
        json_object_set(item->body, "reward", job->reward);
    if (!json_object_get(item->body, "priority"))
        json_object_set_new(item->body, "priority", json_string("batch"));
    json_object_set_new(item->body, "client",
                        json_string(*x->caller.client ? x->caller.client : job->format->name));
    if (!metadata) {
        metadata = json_object();
        json_object_set_new(item->body, "metadata", metadata);
    }
    if (job->run)
        json_object_set(metadata, "run", job->run);
    json_object_set_new(metadata, "compat", json_string(job->format->name));
}

void
compat_evaluate(struct exchange *x)
{
    struct json_fault fault = { .pointer = "" };
    struct compat_job *job = calloc(1, sizeof(*job));

    if (!job) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
        return;
    }
    x->release = release;
    job->http = x->http;
    job->format = format_of(x->route);
    snprintf(job->client, sizeof(job->client), "%s", x->caller.client);
    memcpy(job->request_id, x->request_id, sizeof(job->request_id));
    job->request = json_incref(x->document);
    job->is_batch = x->target.segments_count == 4;
    int64_t began_ns = clock_monotonic_ns();
    job->deadline_ns = began_ns + (int64_t)job->format->hold_s * 1000000000;
    bool is_refused = !read_options(x, job);
    if (!is_refused && job->format->read(job, &fault) != 0) {
        exchange_problem_at(x, PROBLEM_BODY, "pointer", fault.pointer, fault.text);
        is_refused = true;
    }
    struct pending *p = is_refused ? NULL : exchange_begin(x, NULL, submitted);
    if (!p) {
        job_free(job);
        return;
    }
    int64_t longest_ns = (int64_t)x->http->config->wait_limit_s * 1000000000;
    if (job->deadline_ns - began_ns > longest_ns)
        job->deadline_ns = began_ns + longest_ns;
    job->pending = p;
    job->awaited = job->n + 1; /* one is ours, so that nothing is answered before all are asked */
    bool is_short = false;
    for (size_t i = 0; i < job->n; i++) {
        struct compat_item *item = &job->items[i];
        complete(x, job, item);
        item->job = job;
        is_short |= hash_sample(item) != 0;
    }
    if (!is_short && job->n > 0)
        find_items(job->items, job->n);
    for (size_t i = 0; is_short && i < job->n; i++)
        refuse_item(&job->items[i], FUNNEL_UNAVAILABLE, "no memory");
    job_answered(job);
}
