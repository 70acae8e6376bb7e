#include "server/http/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/log.h"
#include "server/store/labels.h"

/* Parts that several handlers share. */

#define LIMIT_DEFAULT 50

static void
refuse_with(struct exchange *x, const struct funnel_answer *answer, enum problem problem)
{
    const char *text = answer->fault.text;
    json_t *extra = NULL;
    char detail[512], seconds[16];

    if (problem == PROBLEM_BODY || *answer->fault.pointer)
        extra = json_pack("{s:[{s:s, s:s}]}", "errors", "pointer", answer->fault.pointer, "detail", text);
    if (problem == PROBLEM_REFERENCE && answer->detail) {
        if (!extra)
            extra = json_object();
        json_object_set_new(extra, "traceback", json_string(answer->detail));
    }
    snprintf(detail, sizeof(detail), "%s%s%s", answer->fault.pointer, *answer->fault.pointer ? ": " : "",
             *text ? text : problem_kinds[problem].title);
    exchange_problem_set(x, problem, detail, extra);
    if (answer->retry_after_s > 0 && problem_kinds[problem].is_retryable) {
        snprintf(seconds, sizeof(seconds), "%d", answer->retry_after_s);
        if (x->response)
            MHD_del_response_header(x->response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        exchange_header(x, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    exchange_send(x);
}

bool
exchange_refused(struct exchange *x, const struct funnel_answer *answer)
{
    static const enum problem problem_of[] = {
        [FUNNEL_BAD] = PROBLEM_BODY,
        [FUNNEL_NO_TASK] = PROBLEM_UNKNOWN_TASK,
        [FUNNEL_TOO_LARGE] = PROBLEM_TOO_LARGE,
        [FUNNEL_FULL] = PROBLEM_FULL,
        [FUNNEL_QUOTA_RATE] = PROBLEM_QUOTA_RATE,
        [FUNNEL_QUOTA_QUEUED] = PROBLEM_QUOTA_QUEUED,
        [FUNNEL_QUOTA_GPU] = PROBLEM_QUOTA_GPU,
        [FUNNEL_UNAVAILABLE] = PROBLEM_UNAVAILABLE,
        [FUNNEL_NOT_YOURS] = PROBLEM_FORBIDDEN,
        [FUNNEL_NAME_TAKEN] = PROBLEM_NAME_TAKEN,
        [FUNNEL_IN_USE] = PROBLEM_IN_USE,
        [FUNNEL_KEY_TAKEN] = PROBLEM_KEY_RUNNING,
        [FUNNEL_UNRUNNABLE] = PROBLEM_REFERENCE,
    };

    if (answer->refusal == FUNNEL_OK)
        return false;
    refuse_with(x, answer, problem_of[answer->refusal]);
    return true;
}

static void
log_accepted(const struct exchange *x, const char *what)
{
    const char *header = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "traceparent");
    char trace[TRACE_SIZE];
    const struct log_field fields[] = {
        { "request", x->request_id },
        { "trace", header && traceparent_trace(header, trace) ? trace : NULL },
        { "client", *x->caller.client ? x->caller.client : NULL },
    };

    log_write_with(LOG_LEVEL_INFO, x->id, fields, ARRAY_LEN(fields), "%s accepted", what);
}

void
exchange_made(struct exchange *x, const struct funnel_answer *answer, const char *what, exchange_cb *again,
              exchange_cb *then)
{
    if (answer->refusal == FUNNEL_KEY_TAKEN) {
        again(x); /* the submissions made under the key are in the store now */
        return;
    }
    if (exchange_refused(x, answer))
        return;
    snprintf(x->id, sizeof(x->id), "%s", answer->id);
    x->warning = answer->warning;
    log_accepted(x, what);
    then(x);
}

void
exchange_accept_headers(struct exchange *x, const char *path)
{
    char text[128];

    snprintf(text, sizeof(text), "%s%s", path, x->id);
    if (x->status == 202)
        exchange_header(x, MHD_HTTP_HEADER_LOCATION, text);
    snprintf(text, sizeof(text), "wait=%.0f", exchange_hold_s(x));
    if (x->is_preferred)
        exchange_header(x, "Preference-Applied", text);
    if (x->is_replay)
        exchange_header(x, "Idempotency-Replayed", "true");
}

int
exchange_limit(struct exchange *x)
{
    const char *text = target_value(&x->target, "limit");
    char *end;

    if (!text)
        return LIMIT_DEFAULT;
    long n = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : 0;
    if (n >= 1 && n <= LIMIT_MAX && !*end)
        return (int)n;
    exchange_bad_parameter(x, "limit", "is a whole number, 1 to 200");
    return 0;
}

bool
exchange_cursor(struct exchange *x, int64_t *before_ms, const char **key)
{
    const char *text = target_value(&x->target, "cursor");
    size_t digits = text ? strspn(text, "0123456789") : 0;

    *before_ms = text ? strtoll(text, NULL, 10) : INT64_MAX;
    *key = text ? text + digits + 1 : "";
    if (!text || (digits >= 1 && digits <= 18 && text[digits] == '.'))
        return true;
    return exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
}

void *
page_read_new(struct exchange *x, const struct exchange_read *call, size_t size, int limit)
{
    struct page_read *p = limit > 0 ? exchange_read_new(x, call, size) : NULL;

    if (p) {
        p->limit = limit;
        store_scope(exchange_client(x), p->scope);
    }
    return p;
}

bool
page_is_full(struct page_read *p)
{
    p->has_more = (int)json_array_size(p->call.items) == p->limit;
    return p->has_more;
}

void
page_answer(struct exchange *x, struct exchange_read *call)
{
    struct page_read *p = (struct page_read *)call;

    exchange_page(x, ptr_take(&call->items), p->has_more ? p->last : NULL);
}

bool
exchange_run(struct exchange *x, const char **run, int64_t *step)
{
    const char *text = target_value(&x->target, "step");
    char *end;

    *run = target_value(&x->target, "run");
    *step = LABEL_STEP_NONE;
    if (!text)
        return true;
    if (!*run)
        return exchange_bad_parameter(x, "step", "goes with run");
    *step = *text >= '0' && *text <= '9' && strlen(text) <= 16 ? strtoll(text, &end, 10) : -1;
    if (*step >= 0 && !*end)
        return true;
    return exchange_bad_parameter(x, "step", "is a whole number, 0 or more");
}

bool
exchange_policy_version(struct exchange *x, const char **version)
{
    *version = target_value(&x->target, "policy_version");
    return !*version || target_value(&x->target, "run") ||
           exchange_bad_parameter(x, "policy_version", "goes with run");
}

bool
exchange_class(struct exchange *x, const char **class_)
{
    char detail[256] = "is one of";

    *class_ = target_value(&x->target, "class");
    if (!*class_ || class_find(*class_) != CLASS_NONE)
        return true;
    for (int i = CLASS_NONE + 1; i < CLASS_N; i++)
        snprintf(detail + strlen(detail), sizeof(detail) - strlen(detail), " %s", class_name(i));
    return exchange_bad_parameter(x, "class", detail);
}

/* The same query with another cursor. Everything that is not unreserved (RFC 3986) is escaped. */
static void
add_escaped(struct buffer *b, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("-._~:", c);
        buffer_printf(b, is_plain ? "%c" : "%%%02X", c);
    }
}

static void
next_link(const struct exchange *x, const char *next, struct buffer *out)
{
    buffer_printf(out, "<%.*s?", (int)strcspn(x->uri, "?"), x->uri);
    for (size_t i = 0; i < x->target.pairs_count; i++) {
        const struct target_pair *p = &x->target.pairs[i];
        if (strcmp(p->name, "cursor") == 0)
            continue;
        buffer_printf(out, "%s=", p->name);
        add_escaped(out, p->value);
        buffer_add(out, "&");
    }
    buffer_add(out, "cursor=");
    add_escaped(out, next);
    buffer_add(out, ">; rel=\"next\"");
}

static void
send_page(struct exchange *x, const char *next)
{
    AUTO_BUFFER struct buffer link = BUFFER_INIT;

    if (next)
        next_link(x, next, &link);
    if (next && !link.is_short)
        exchange_header(x, MHD_HTTP_HEADER_LINK, link.data);
    exchange_send(x);
}

void
exchange_page(struct exchange *x, json_t *items, const char *next)
{
    exchange_set_json(x, 200, json_pack("{s:o, s:s?}", "items", items, "next", next));
    send_page(x, next);
}

void
exchange_page_text(struct exchange *x, struct buffer *items, const char *next)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const char *quote = next ? "\"" : "";
    bool is_whole = !items->is_short;

    buffer_add(&text, "{\"items\":[");
    buffer_append(&text, items->data, items->size);
    buffer_printf(&text, "],\"next\":%s%s%s}", quote, next ? next : "null", quote);
    buffer_release(items);
    exchange_set_text(x, "application/json", is_whole ? &text : NULL);
    send_page(x, next);
}
