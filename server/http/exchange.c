#include "server/http/exchange.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/http/running_keys.h"

#define CANCEL_WAIT_S 10

/*
 * Theory of operation. An exchange is made when MHD has the request line and
 * freed when MHD is done with the answer. Between the body's end and the
 * answer it belongs to a handler, which sends an answer at once, or leaves it
 * with the funnel (pending) or as a long poll (held); MHD has the connection
 * suspended then. A callback that comes after that finds the pending record
 * without an exchange and does nothing.
 */

/* --- answers --- */

void
exchange_set_response(struct exchange *x, unsigned status, const char *type, struct MHD_Response *response)
{
    if (x->response)
        MHD_destroy_response(x->response);
    x->status = status;
    x->response = response;
    x->bytes = NULL;
    if (type)
        exchange_header(x, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    exchange_header(x, "X-Content-Type-Options", "nosniff");
    exchange_header(x, "X-Request-Id", x->request_id);
}

void
exchange_set_bytes(struct exchange *x, unsigned status, const char *type, char *bytes, size_t size)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(bytes);
    exchange_set_response(x, status, type, response);
    exchange_header(x, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    x->bytes = response ? bytes : NULL;
    x->bytes_size = size;
}

void
exchange_set_static(struct exchange *x, unsigned status, const char *type, const void *bytes, size_t size)
{
    exchange_set_response(
        x, status, type,
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT));
}

char *
exchange_text_of(json_t *document)
{
    char *text =
        document ? json_dumps(document, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(document);
    return text;
}

static void
set_failed(struct exchange *x)
{
    static const char failed[] =
        "{\"type\":\"urn:verifierd:problem:internal\",\"status\":500,\"code\":\"internal\","
        "\"title\":\"The daemon failed\",\"detail\":\"no memory for the answer\","
        "\"retryable\":true}";

    exchange_set_static(x, 500, "application/problem+json", failed, sizeof(failed) - 1);
}

static void
set_document(struct exchange *x, unsigned status, const char *type, json_t *document)
{
    char *text = exchange_text_of(document);

    if (text)
        exchange_set_bytes(x, status, type, text, strlen(text));
    else
        set_failed(x);
}

void
exchange_set_text(struct exchange *x, const char *type, struct buffer *text)
{
    size_t size;
    char *bytes = text ? buffer_take(text, &size) : NULL;

    if (bytes)
        exchange_set_bytes(x, 200, type, bytes, size);
    else
        set_failed(x);
}

void
exchange_set_json(struct exchange *x, unsigned status, json_t *document)
{
    set_document(x, status, "application/json", document);
}

void
exchange_header(struct exchange *x, const char *name, const char *value)
{
    if (x->response)
        MHD_add_response_header(x->response, name, value);
}

void
exchange_tag(struct exchange *x)
{
    char hash[HASH_TAG_SIZE], tag[HASH_TAG_SIZE + 2];

    if (x->status != 200 || !x->bytes)
        return;
    hash_tag(x->bytes, x->bytes_size, hash);
    snprintf(tag, sizeof(tag), "\"%s\"", hash);
    const char *known = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
    if (known && is_tag_known(known, tag)) {
        exchange_set_response(x, 304, NULL, MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT));
    } else {
        MHD_del_response_header(x->response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    }
    exchange_header(x, MHD_HTTP_HEADER_ETAG, tag);
    /* Only the caller may cache it, and must revalidate: the content depends on its token. */
    exchange_header(x, MHD_HTTP_HEADER_CACHE_CONTROL, "private, no-cache");
    exchange_header(x, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_AUTHORIZATION);
}

void
exchange_send(struct exchange *x)
{
    struct http *h = x->http;

    x->phase = EXCHANGE_ANSWERED;
    h->requests++;
    h->asked[x->route_number] = x->route;
    histogram_add(&h->durations[x->route_number], &histogram_seconds,
                  (double)(clock_monotonic_ns() - x->begun_ns) / 1e9);
    if (x->status < ARRAY_LEN(h->answers))
        h->answers[x->status]++;
    if (!x->is_suspended)
        return; /* inside exchange_access_cb(), which queues it */
    x->is_suspended = false;
    h->suspended--;
    connection_disarm(x->connection);
    MHD_resume_connection(x->mhd);
    h->must_run = true;
}

void
exchange_json(struct exchange *x, unsigned status, json_t *document)
{
    exchange_set_json(x, status, document);
    exchange_send(x);
}

void
exchange_problem_set(struct exchange *x, enum problem problem, const char *detail, json_t *extra)
{
    if (x->refuse) {
        x->refuse(x, problem, detail, extra);
        return;
    }
    const struct problem_kind *kind = &problem_kinds[problem];
    AUTO_FREE char *instance = strdup(x->uri);
    json_t *document = NULL;

    if (instance) {
        utf8_clean(instance);
        document = problem_document(problem, instance, x->request_id, detail);
    }
    if (document && extra)
        json_object_update_new(document, extra);
    else
        json_decref(extra);
    set_document(x, kind->status, "application/problem+json", document);
    if (kind->status == 503)
        exchange_header(x, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

void
exchange_problem(struct exchange *x, enum problem problem, const char *format, ...)
{
    char detail[512];
    va_list args;

    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    utf8_clean(detail);
    exchange_problem_set(x, problem, detail, NULL);
    exchange_send(x);
}

void
exchange_problem_at(struct exchange *x, enum problem problem, const char *member, const char *where,
                    const char *text)
{
    json_t *extra = json_pack("{s:[{s:s, s:s}]}", "errors", member, where, "detail", text);
    char detail[512];

    snprintf(detail, sizeof(detail), "%s%s%s", where, *where ? ": " : "", text);
    exchange_problem_set(x, problem, detail, extra);
    exchange_send(x);
}

bool
exchange_bad_parameter(struct exchange *x, const char *name, const char *text)
{
    exchange_problem_at(x, PROBLEM_PARAMETER, "parameter", name, text);
    return false;
}

void
exchange_error(struct exchange *x, const struct error *err, const char *name)
{
    switch (err->code) {
    case ERR_NOTFOUND:
        exchange_problem(x, PROBLEM_NOT_FOUND, "there is no %s", name);
        break;
    case ERR_CONFLICT:
        log_info(x->request_id, "%s: %s", x->uri, err->text); /* as below, it may be the database's */
        exchange_problem(x, PROBLEM_FINISHED, "%s is finished", x->id);
        break;
    case ERR_UNAVAILABLE:
    case ERR_FULL:
        exchange_problem(x, PROBLEM_UNAVAILABLE, "%s", err->text);
        break;
    default:
        /* The text of a system call or of SQLite names paths and tables of the host. */
        log_error(x->request_id, "%s: %s", x->uri, err->text);
        exchange_problem(x, PROBLEM_INTERNAL, "the daemon's log has the reason under this request_id");
    }
}

static enum MHD_Result
header_cb(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct header_found *found = cls;

    (void)kind;
    if (strcasecmp(name, found->name) == 0) {
        found->value = value;
        found->n++;
    }
    return MHD_YES;
}

struct header_found
exchange_find_header(const struct exchange *x, const char *name)
{
    struct header_found found = { .name = name };

    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, header_cb, &found);
    return found;
}

/* --- what comes back later --- */

struct pending *
exchange_begin(struct exchange *x, struct running_key *key, exchange_answer_cb *then)
{
    struct pending *p = calloc(1, sizeof(*p));
    if (!p) {
        running_key_end(key);
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
        return NULL;
    }
    p->exchange = x;
    p->then = then;
    p->key = key;
    x->pending = p;
    return p;
}

void
exchange_pending_cb(void *arg, const struct funnel_answer *answer)
{
    struct pending *p = arg;
    struct exchange *x = p->exchange;
    exchange_answer_cb *then = p->then;

    running_key_end(p->key);
    free(p);
    if (!x)
        return;
    x->pending = NULL;
    then(x, answer);
}

const char *
exchange_client(const struct exchange *x)
{
    return x->caller.scopes & SCOPE_ADMIN ? NULL : x->caller.client;
}

void *
exchange_read_new(struct exchange *x, const struct exchange_read *call, size_t size)
{
    struct exchange_read *c = calloc(1, size);

    if (c)
        *c = *call;
    if (c && (c->items = json_array()))
        return c;
    free(c);
    exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
    return NULL;
}

void
exchange_read_free(struct exchange_read *c)
{
    json_decref(c->items);
    json_decref(c->document);
    for (size_t i = 0; i < ARRAY_LEN(c->kept); i++)
        free(c->kept[i]);
    free(c);
}

static void
read_release(struct exchange_read *c)
{
    if (c->free)
        c->free(c);
    else
        exchange_read_free(c);
}

const char *
exchange_read_keep(struct exchange_read *c, const char *text)
{
    size_t i = 0;

    if (!text)
        return NULL;
    while (i < ARRAY_LEN(c->kept) - 1 && c->kept[i])
        i++;
    if (c->kept[i] || !(c->kept[i] = strdup(text))) {
        c->is_short = true;
        return NULL;
    }
    return c->kept[i];
}

static int
read_task_id(struct exchange_read *c, struct store_reader *r)
{
    bool is_own;

    if (strncmp(c->task, "sha256:", 7) != 0 || strlen(c->task) >= sizeof(c->task_id))
        return reader_find_task(r, c->client, c->task, c->task_id, &is_own, &c->err);
    snprintf(c->task_id, sizeof(c->task_id), "%s", c->task);
    return 0;
}

static void
read_cb(void *arg, struct store_reader *r)
{
    struct exchange_read *c = arg;

    c->rc = c->task ? read_task_id(c, r) : 0;
    if (c->rc == 0)
        c->rc = c->read(c, r, &c->err);
}

static void
read_done_cb(void *arg)
{
    struct exchange_read *c = arg;
    struct exchange *x = c->pending.exchange;

    if (x) {
        x->pending = NULL;
        x->is_reading = false;
    }
    if (x && c->rc == 0)
        c->answer(x, c);
    else if (x && c->rc == ERR_NOTFOUND && c->task)
        exchange_problem(x, PROBLEM_UNKNOWN_TASK, "there is no task \"%.100s\"", c->task);
    else if (x)
        exchange_error(x, &c->err, c->what);
    read_release(c);
}

void
exchange_read(struct exchange *x, struct exchange_read *c)
{
    if (c->is_short) {
        read_release(c);
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
        return;
    }
    c->sees_all = !exchange_client(x);
    snprintf(c->client, sizeof(c->client), "%s", x->caller.client);
    c->pending.exchange = x;
    x->pending = &c->pending;
    x->is_reading = true;
    connection_arm(x->connection, DEADLINE_WORK, HTTP_WORK_LOOK_MS);
    if (store_read(x->http->store, read_cb, read_done_cb, c, &c->err) != 0) {
        c->rc = c->err.code;
        read_done_cb(c);
    }
}

void
exchange_read_of_task(struct exchange *x, struct exchange_read *c, const char *task)
{
    c->task = exchange_read_keep(c, task);
    exchange_read(x, c);
}

bool
exchange_read_sees(const struct exchange_read *c, const char *client)
{
    return c->sees_all || (client && strcmp(client, c->client) == 0);
}

static void
forget_pending(struct exchange *x)
{
    if (x->pending)
        x->pending->exchange = NULL;
    x->pending = NULL;
    x->is_reading = false;
}

void
exchange_give_up(struct exchange *x)
{
    if (x->phase != EXCHANGE_WORKING)
        return;
    forget_pending(x);
    exchange_problem(x, PROBLEM_UNAVAILABLE, x->http->is_draining ? "the daemon stops" : "no answer in time");
}

void
exchange_overdue(struct exchange *x)
{
    const char *trouble = store_trouble(x->http->store);
    int64_t most_ms = HTTP_WORK_LIMIT_MS + (int64_t)x->http->config->wait_limit_s * 1000;

    if (!trouble && store_writing_ms(x->http->store) > HTTP_STORE_LIMIT_MS)
        trouble = "the store takes too long";
    if (trouble && x->phase == EXCHANGE_WORKING) {
        bool is_reading = x->is_reading;
        forget_pending(x);
        exchange_problem(
            x, PROBLEM_UNAVAILABLE, "%s%s", trouble,
            is_reading ? ""
                       : ": what was sent may be taken yet; send it again with the same Idempotency-Key");
    } else if (clock_monotonic_ns() - x->begun_ns > most_ms * 1000000) {
        log_error(x->request_id, "no answer to the request in %d s", HTTP_WORK_LIMIT_MS / 1000);
        exchange_give_up(x);
    } else {
        connection_arm(x->connection, DEADLINE_WORK, HTTP_WORK_LOOK_MS);
    }
}

/* --- holding --- */

double
exchange_hold_s(const struct exchange *x)
{
    double limit_s = (double)x->http->config->wait_limit_s;
    if (x->http->is_draining || x->wait_s <= 0)
        return 0;
    return fmin(x->wait_s, limit_s);
}

static void
held_finished_cb(void *arg)
{
    struct exchange *x = arg;
    x->wait = NULL;
    exchange_hold_end(x);
}

void
exchange_hold(struct exchange *x, exchange_cb *cb)
{
    double hold_s = exchange_hold_s(x);

    x->wait = hold_s > 0 ? funnel_wait(x->http->funnel, x->id, held_finished_cb, x) : NULL;
    if (!x->wait) {
        cb(x);
        return;
    }
    x->phase = EXCHANGE_HELD;
    x->held_cb = cb;
    x->http->held++;
    connection_watch(x->connection);
    connection_arm(x->connection, DEADLINE_HOLD, (int64_t)ceil(hold_s * 1000));
}

void
exchange_hold_cancelled(struct exchange *x, exchange_cb *cb)
{
    x->wait_s = CANCEL_WAIT_S;
    exchange_hold(x, cb);
}

void
exchange_hold_end(struct exchange *x)
{
    if (x->wait)
        funnel_wait_end(x->wait);
    x->wait = NULL;
    x->http->held--;
    connection_unwatch(x->connection);
    x->phase = EXCHANGE_WORKING;
    x->held_cb(x);
}

/* --- life --- */

void *
exchange_uri_cb(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http *h = cls;
    struct connection *connection = connection_of(mhd);
    struct exchange *x = connection ? calloc(1, sizeof(*x)) : NULL;

    if (!x)
        return NULL;
    x->uri = strdup(uri);
    if (!x->uri) {
        free(x);
        return NULL;
    }
    x->uri_start = (uintptr_t)uri;
    x->uri_end = (uintptr_t)uri + strlen(uri);
    x->http = h;
    x->mhd = mhd;
    x->connection = connection;
    x->wait_s = -1;
    x->route_number = HTTP_ROUTES_REST;
    x->begun_ns = clock_monotonic_ns();
    id_new(x->request_id);
    connection->exchange = x;
    connection->uri = x->uri;
    connection->request_id = x->request_id;
    DL_APPEND(h->exchanges, x);
    h->exchanges_count++;
    return x;
}

static void
exchange_free(struct exchange *x)
{
    forget_pending(x);
    if (x->wait)
        funnel_wait_end(x->wait);
    if (x->phase == EXCHANGE_HELD)
        x->http->held--;
    if (x->release)
        x->release(x);
    DL_DELETE(x->http->exchanges, x);
    x->http->exchanges_count--;
    x->connection->exchange = NULL;
    x->connection->uri = x->connection->request_id = NULL;
    if (x->response)
        MHD_destroy_response(x->response);
    json_decref(x->document);
    buffer_release(&x->body);
    target_release(&x->target);
    free(x->uri);
    free(x);
}

void
exchange_completed_cb(void *cls, struct MHD_Connection *mhd, void **con_cls,
                      enum MHD_RequestTerminationCode why)
{
    struct exchange *x = *con_cls;

    (void)cls;
    (void)mhd;
    (void)why;
    if (!x)
        return;
    *con_cls = NULL;
    struct connection *c = x->connection;
    exchange_free(x);
    if (!c->is_dead)
        connection_arm(c, DEADLINE_IDLE, HTTP_IDLE_MS);
}
