#include "server/http/intake.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/limits.h"
#include "server/http/guard.h"
#include "server/http/answers.h"
#include "server/http/handlers.h"
#include "server/http/idempotency.h"
#include "server/http/routes.h"

/*
 * Theory of operation. MHD calls exchange_access_cb() once with the header,
 * then with each piece of the body, then once at the body's end, then after
 * each resume. Whatever depends on the header alone (framing, route, type,
 * length) is decided in the first call; a refusal is sent when the body has
 * been read and dropped, so that the connection stays usable and the client
 * reads the refusal, or at once where the body is not wanted at all.
 */

/* --- the header --- */

#define WAIT_MAX_S 86400

/*
 * Before 1.0 MHD gives C strings, takes a bare LF for a line's end and joins folded
 * lines, so a NUL hides what follows it, and a proxy may see other headers. But
 * the strings are views into its buffer, where both bytes of a CR LF have
 * become NULs and lines stand one behind the other: so look there. Since 1.0 it
 * refuses such lines by itself, and treats its buffer in another way.
 */
#define MHD_IS_LENIENT() (strncmp(MHD_get_version(), "0.", 2) == 0)

struct header_walk {
    struct guard guard;
    const char *line; /* where the next one has to begin */
    const char *end;  /* of the header */
    bool is_plain;    /* every line so far stands there as it was sent, and ends in CR LF */
};

/* text ends a line. */
static void
end_line(struct header_walk *w, const char *text, size_t size)
{
    bool is_inside = text >= w->line && text < w->end && size + 2 <= (size_t)(w->end - text);

    w->is_plain = w->is_plain && is_inside && text[size] == '\0' && text[size + 1] == '\0';
    w->line = w->is_plain ? text + size + 2 : w->line;
}

static enum MHD_Result
header_cb(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
          size_t value_size)
{
    struct header_walk *w = cls;

    (void)kind;
    guard_header(&w->guard, name, name_size, value, value_size);
    w->is_plain = w->is_plain && name == w->line && value;
    if (w->is_plain)
        end_line(w, value, value_size);
    return MHD_YES;
}

/* Returns true when the request may be read on. method and version are views into MHD's buffer. */
static bool
check_framing(struct exchange *x, const char *method, const char *version, struct guard *g)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct header_walk w = { .line = method, .end = method + info->header_size, .is_plain = true };
    const char *why;

    guard_init(&w.guard, method, x->uri, version);
    end_line(&w, version, strlen(version));
    MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, header_cb, &w);
    why = guard_verdict(&w.guard);
    *g = w.guard;
    if (!why && MHD_IS_LENIENT() &&
        ((uintptr_t)version != x->uri_end + 1 || (uintptr_t)method + strlen(method) + 1 != x->uri_start))
        why = "the address has a NUL or a space in it, or more than a space before it";
    if (!why && MHD_IS_LENIENT() && !(w.is_plain && w.line + 2 == w.end))
        why = "a line is folded, has a NUL in it, or does not end in CR LF";
    if (!why)
        return true;
    x->must_close = true;
    exchange_problem(x, PROBLEM_FRAMING, "%s", why);
    exchange_header(x, MHD_HTTP_HEADER_CONNECTION, "close");
    return false;
}

/*
 * An error that MHD 0.9.75 finds in a whole header (no Host, a malformed Content-Length) is answered by MHD with two
 * headers before one body, which a client reads as a response with another one in it. MHD calls its log first, without
 * the connection. The connection can still be found: its header is whole, and no handler was called for it. So we
 * answer, and end the connection, before MHD does.
 */
void
exchange_refused_by_mhd(struct http *h, unsigned status)
{
    struct exchange *x;

    DL_FOREACH(h->exchanges, x)
    {
        if (x->phase != EXCHANGE_NEW || x->connection->is_dead ||
            !MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE))
            continue;
        if (status == problem_kinds[PROBLEM_TOO_LARGE].status)
            connection_refuse(x->connection, PROBLEM_TOO_LARGE, "Content-Length is a number with no end");
        else
            connection_refuse(x->connection, PROBLEM_FRAMING,
                              "there is no Host, or Content-Length is not a number");
        return;
    }
}

/* "application/json", with no charset or utf-8. */
static bool
is_json_type(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof(json) - 1) != 0)
        return false;
    const char *rest = type + sizeof(json) - 1;
    rest += strspn(rest, " \t");
    if (!*rest)
        return true;
    if (*rest++ != ';')
        return false;
    rest += strspn(rest, " \t");
    return strcasecmp(rest, "charset=utf-8") == 0 || strcasecmp(rest, "charset=\"utf-8\"") == 0;
}

/*
 * A file as it is, for which no JSON has to be made. Only types that a page of another site cannot have its browser send
 * without asking first: that keeps out text/plain and what forms send, as it does for documents.
 */
static bool
is_source_type(const struct route *route, const char *type)
{
    static const char *const types[] = { "text/x-python", "application/octet-stream" };

    if (route->handle != submission_add || !type)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        size_t size = strlen(types[i]);
        const char *rest = type + size;
        if (strncasecmp(type, types[i], size) == 0 &&
            (!*rest || strcasecmp(rest, ";charset=utf-8") == 0 || strcasecmp(rest, "; charset=utf-8") == 0))
            return true;
    }
    return false;
}

/* The keys of a document that a raw source has in its address instead. */
static const char *const source_keys[] = { "task", "entry_point", "policy", "until", "client" };

/* False: the problem is sent. */
static bool
check_type(struct exchange *x)
{
    const char *type = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    const char *as = target_value(&x->target, "as");

    if (is_source_type(x->route, type)) {
        x->is_raw = true;
        if (!target_value(&x->target, "task"))
            return exchange_bad_parameter(x, "task", "is missing: a source has its task in the address");
        if (!as || strcmp(as, "candidate") == 0 || strcmp(as, "completion") == 0)
            return true;
        return exchange_bad_parameter(x, "as", "is one of candidate, completion");
    }
    if (!is_json_type(type)) {
        exchange_problem(x, PROBLEM_TYPE, "send the document with Content-Type: application/json%s",
                         x->route->handle == submission_add ? ", or a source with text/x-python" : "");
        return false;
    }
    if (x->route->handle != submission_add)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(source_keys); i++) {
        if (!target_value(&x->target, source_keys[i]))
            continue;
        exchange_bad_parameter(x, source_keys[i],
                               "belongs in the document; in the address it is for a source as text/x-python");
        return false;
    }
    if (as)
        exchange_bad_parameter(x, "as", "is for a source as text/x-python");
    return !as;
}

/* wait= in seconds, 0 to a day; the query wins over Prefer. */
static bool
read_wait(struct exchange *x)
{
    const char *text = target_value(&x->target, "wait");
    char *end;

    if (!text) {
        const char *prefer = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Prefer");
        long n = strstr(x->route->query, "wait") ? prefer_wait_s(prefer) : -1;
        if (n >= 0) {
            x->wait_s = n < WAIT_MAX_S ? (double)n : WAIT_MAX_S;
            x->is_preferred = true;
        }
        return true;
    }
    x->wait_s = strtod(text, &end);
    if (end != text && !*end && x->wait_s >= 0 && x->wait_s <= WAIT_MAX_S &&
        text[strspn(text, "0123456789.eE+-")] == '\0')
        return true;
    return exchange_bad_parameter(x, "wait", "is a number of seconds, 0 to 86400");
}

/* False: the problem is sent, with the encodings that are accepted (RFC 9110, section 15.5.16). */
static bool
check_encoding(struct exchange *x)
{
    const char *name = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);

    if (!name || strcasecmp(name, "identity") == 0)
        return true;
    exchange_problem_set(x, PROBLEM_TYPE,
                         "send the document without Content-Encoding: no compression is taken", NULL);
    exchange_header(x, MHD_HTTP_HEADER_ACCEPT_ENCODING, "identity");
    exchange_send(x);
    return false;
}

static void
check_header(struct exchange *x, const char *method, const struct guard *g)
{
    struct error err = { 0 };

    if (target_parse(x->uri, &x->target, &err) != 0) {
        exchange_problem(x, err.code == ERR_INPUT ? PROBLEM_ADDRESS : PROBLEM_INTERNAL, "%s", err.text);
        return;
    }
    x->route = route_find(x, method);
    if (!x->route || !read_wait(x) || (x->route->takes_key && !idempotency_read(x)))
        return;
    if (x->route->has_body && (!check_type(x) || !check_encoding(x)))
        return;
    if (g->length > HTTP_BODY_MAX) {
        x->must_close = true;
        exchange_problem(x, PROBLEM_TOO_LARGE, "the body has %llu bytes and at most %d are taken",
                         (unsigned long long)g->length, HTTP_BODY_MAX);
        return;
    }
    /* Overload: known before the body is read. A key may be one that was answered, and costs no room then. */
    struct funnel_answer answer;
    if (x->route->takes_key && !*x->key && !funnel_has_room(x->http->funnel, &answer))
        exchange_refused(x, &answer);
}

/* --- the answer goes to MHD --- */

static enum MHD_Result
queue_answer(struct exchange *x)
{
    struct connection *c = x->connection;

    if (!x->response)
        return MHD_NO;
    x->phase = EXCHANGE_QUEUED;
    c->must_linger = x->must_close;
    connection_arm(c, DEADLINE_ANSWER, x->http->config->body_limit_ms);
    return MHD_queue_response(x->mhd, x->status, x->response);
}

static enum MHD_Result
begin_request(struct exchange *x, const char *method, const char *version)
{
    struct guard guard;

    if (check_framing(x, method, version, &guard))
        check_header(x, method, &guard);
    x->is_refused = x->phase == EXCHANGE_ANSWERED;
    const char *expect = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
    if (x->is_refused && (x->must_close || expect)) {
        /* The body was not read, and MHD cannot find the beginning of the next request. */
        x->must_close = true;
        exchange_header(x, MHD_HTTP_HEADER_CONNECTION, "close");
        return queue_answer(x);
    }
    x->phase = EXCHANGE_BODY;
    x->is_chunked = guard.is_chunked;
    connection_arm(x->connection, DEADLINE_BODY, x->http->config->body_limit_ms);
    return MHD_YES;
}

/* --- the body --- */

static void
take_body(struct exchange *x, const char *bytes, size_t size)
{
    x->body_seen += size;
    if (x->connection->is_dead)
        return;
    if (x->body_seen > HTTP_BODY_MAX) {
        connection_refuse(x->connection, PROBLEM_TOO_LARGE, "the body has more than 8388608 bytes");
        return;
    }
    if (x->is_refused || !x->route->has_body)
        return;
    if (buffer_append(&x->body, bytes, size) != 0) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the body");
        x->is_refused = true;
        x->phase = EXCHANGE_BODY;
    }
}

struct parse {
    struct pending pending; /* pending.exchange NULL: given up; its then is not used */
    struct http *http;      /* http_stop() waits for the parse */
    uv_work_t work;
    struct buffer body;
    bool is_hashed;
    char hash[HASH_TEXT_SIZE];
    json_t *document;
    struct json_fault fault;
};

static void
handle_parsed(struct exchange *x, json_t *document, const struct json_fault *fault)
{
    if (!document) {
        exchange_problem_at(x, PROBLEM_BODY, "pointer", fault->pointer, fault->text);
        return;
    }
    x->document = document;
    x->route->handle(x);
}

static void
parse_work_cb(uv_work_t *work)
{
    struct parse *p = work->data;

    if (p->is_hashed)
        hash_text(p->body.data ? p->body.data : "", p->body.size, p->hash);
    p->document = json_parse(p->body.data ? p->body.data : "", p->body.size, &p->fault);
}

static void
parse_done_cb(uv_work_t *work, int status)
{
    struct parse *p = work->data;
    struct exchange *x = p->pending.exchange;

    p->http->parses--;
    if (x) {
        x->pending = NULL;
        memcpy(x->body_hash, p->hash, sizeof(x->body_hash));
        handle_parsed(x, status == 0 ? json_incref(p->document) : NULL, &p->fault);
    }
    json_decref(p->document);
    buffer_release(&p->body);
    free(p);
}

static void
parse_in_pool(struct exchange *x)
{
    struct parse *p = calloc(1, sizeof(*p));

    if (!p) {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the body");
        return;
    }
    p->pending.exchange = x;
    p->http = x->http;
    p->work.data = p;
    p->is_hashed = *x->key;
    p->body.data = buffer_take(&x->body, &p->body.size);
    x->pending = &p->pending;
    x->http->parses++;
    uv_queue_work(x->http->loop, &p->work, parse_work_cb, parse_done_cb);
}

/* The document that a source and its address amount to; given. NULL: the problem is sent. */
static json_t *
source_document(struct exchange *x)
{
    const char *as = target_value(&x->target, "as");
    json_t *source = json_stringn(x->body.data ? x->body.data : "", x->body.size);
    AUTO_JSON json_t *document = json_object();

    if (!source) {
        exchange_problem(x, PROBLEM_BODY, "the source is not text in UTF-8");
        return NULL;
    }
    json_object_set_new(document, as ? as : "candidate", source);
    for (size_t i = 0; i < ARRAY_LEN(source_keys); i++) {
        const char *value = target_value(&x->target, source_keys[i]);
        if (!value || json_object_set_new(document, source_keys[i], json_string(value)) == 0)
            continue;
        exchange_bad_parameter(x, source_keys[i], "is not text in UTF-8");
        return NULL;
    }
    return ptr_take(&document);
}

/* An Idempotency-Key is of the whole request: the source, and the parameters of the address. */
static void
hash_source(struct exchange *x)
{
    AUTO_BUFFER struct buffer whole = BUFFER_INIT;
    const char *as = target_value(&x->target, "as");
    char hash[HASH_TEXT_SIZE];

    hash_text(x->body.data ? x->body.data : "", x->body.size, hash);
    buffer_printf(&whole, "%s\n%s", hash, as ? as : "candidate");
    for (size_t i = 0; i < ARRAY_LEN(source_keys); i++) {
        const char *value = target_value(&x->target, source_keys[i]);
        buffer_printf(&whole, "\n%s", value ? value : "");
    }
    hash_text(whole.data ? whole.data : "", whole.size, x->body_hash);
}

static void
handle_source(struct exchange *x)
{
    if (*x->key)
        hash_source(x);
    x->document = source_document(x);
    buffer_release(&x->body);
    if (x->document)
        x->route->handle(x);
}

static bool
is_for_the_pool(const struct exchange *x)
{
    return x->body.size >
           (x->http->parses < HTTP_PARSE_BESIDE ? HTTP_PARSE_SMALL_MAX : HTTP_PARSE_INLINE_MAX);
}

static void
dispatch(struct exchange *x)
{
    struct json_fault fault = { 0 };

    if (!x->route->has_body) {
        x->route->handle(x);
    } else if (x->is_raw) {
        handle_source(x);
    } else if (is_for_the_pool(x)) {
        parse_in_pool(x);
    } else {
        if (*x->key)
            hash_text(x->body.data ? x->body.data : "", x->body.size, x->body_hash);
        json_t *document = json_parse(x->body.data, x->body.size, &fault);
        buffer_release(&x->body);
        handle_parsed(x, document, &fault);
    }
}

static enum MHD_Result
end_of_body(struct exchange *x)
{
    struct connection *c = x->connection;

    if (c->is_dead)
        return MHD_NO;
    if (x->is_refused)
        return queue_answer(x);
    x->phase = EXCHANGE_WORKING;
    connection_arm(c, DEADLINE_WORK, HTTP_WORK_LOOK_MS);
    dispatch(x);
    if (x->phase == EXCHANGE_ANSWERED)
        return queue_answer(x);
    x->is_suspended = true;
    x->http->suspended++;
    MHD_suspend_connection(x->mhd);
    return MHD_YES;
}

enum MHD_Result
exchange_access_cb(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                   const char *version, const char *upload, size_t *upload_size, void **con_cls)
{
    struct exchange *x = *con_cls;

    (void)cls;
    (void)mhd;
    (void)url;
    /* There was no memory for the exchange; or it began before its connection was refused. */
    if (!x || (x->phase == EXCHANGE_NEW && x->connection->is_dead))
        return MHD_NO;
    switch (x->phase) {
    case EXCHANGE_NEW:
        return begin_request(x, method, version);
    case EXCHANGE_BODY:
        if (*upload_size == 0)
            return end_of_body(x);
        take_body(x, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    case EXCHANGE_ANSWERED:
        return queue_answer(x);
    default:
        return MHD_YES;
    }
}
