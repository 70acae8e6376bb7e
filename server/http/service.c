#include "server/http/handlers.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/json.h"
#include "server/audit.h"
#include "server/http/asset.h"
#include "server/http/host.h"
#include "server/http/metrics.h"
#include "server/http/notices.h"
#include "server/retention.h"
#include "server/http/access.h"
#include "server/http/answers.h"

#define HOST_EVERY_NS 1000000000
#define STATUS_KEPT_NS 100000000
#define COUNT_LATE_NS 1000000000

/* Nothing from elsewhere, no inline code: what a candidate wrote can only ever be text. */
#define PAGE_POLICY                                                                                       \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

void
calibration_list(struct exchange *x)
{
    exchange_json(x, 200, funnel_calibrations(x->http->funnel));
}

static void
calibration_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    access_note(x, "calibration", answer->id);
    exchange_json(x, 201, json_pack("{s:s}", "id", answer->id));
}

void
calibration_add(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, calibration_added);
    if (p)
        funnel_calibrate(x->http->funnel, x->document, exchange_pending_cb, p);
}

void
canary_list(struct exchange *x)
{
    exchange_json(x, 200, funnel_canaries(x->http->funnel));
}

static void
canary_forgotten(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    access_note(x, "forget canary", answer->id);
    canary_list(x);
}

void
canary_forget(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, canary_forgotten);
    if (p)
        funnel_forget_canary(x->http->funnel, x->document, exchange_pending_cb, p);
}

static void
print_figures(const struct http *h, struct buffer *out)
{
    const char *comma = "";
    struct notices_counts notices;

    notices_count(h->notices, &notices);
    buffer_printf(out,
                  "{\"connections\":%u,\"held\":%u,\"exports\":%u,\"streams\":%u,\"streams_dropped\":%llu,"
                  "\"connections_refused\":%llu,\"requests\":%llu,\"connections_limit\":%lld,"
                  "\"notices_delivered\":%llu,\"notices_failed\":%llu,\"notices_waiting\":%llu,"
                  "\"loop_turns_long\":%lld,\"loop_turn_longest_ms\":%.3f,\"answers\":{",
                  h->connections, h->held, h->exports, h->streams_count,
                  (unsigned long long)h->streams_dropped, (unsigned long long)h->connections_refused,
                  (unsigned long long)h->requests, (long long)h->config->connections,
                  (unsigned long long)notices.delivered, (unsigned long long)notices.failed,
                  (unsigned long long)notices.waiting, (long long)h->watchdog.n_long,
                  (double)h->watchdog.longest_ns / 1e6);
    for (unsigned i = 0; i < ARRAY_LEN(h->answers); i++) {
        if (!h->answers[i])
            continue;
        buffer_printf(out, "%s\"%u\":%llu", comma, i, (unsigned long long)h->answers[i]);
        comma = ",";
    }
    buffer_add(out, "}}");
}

/* Read from /proc and from the file systems, which costs more than all else in the status: once a second. */
static void
refresh_host(struct http *h)
{
    int64_t now_ns = clock_monotonic_ns();

    if (h->process && now_ns - h->host_ns < HOST_EVERY_NS)
        return;
    json_decref(h->process);
    json_decref(h->disks);
    h->process = host_process();
    h->disks = host_disks(h->config);
    h->host_ns = now_ns;
}

/*
 * The status has two parts. What is cheap, or changes with each request, is printed for each. The figures are kept as
 * text until anything that they count has changed, and STATUS_KEPT_NS at most, as workers and devices change without
 * a change of the generation. The generation is read first: a concurrent change is seen the next time.
 *
 * The store's counts are read for one request at a time, and concurrent requests get the previous counts; so do
 * scrapes after the first, which a slow database must not delay, and all requests once it has been slow.
 */
struct counting {
    struct exchange_read call;
    struct http *http;
    uint64_t generation;
    int64_t begun_ns;
    struct store_counts counts;
    bool is_counted;
    exchange_cb *then;
};

static bool
is_kept(const struct kept_status *k, uint64_t generation)
{
    return k->text && k->generation == generation && clock_monotonic_ns() - k->at_ns < STATUS_KEPT_NS;
}

/* Without memory it stays as it is. */
static void
make_figures(struct http *h, uint64_t generation)
{
    struct kept_status *k = &h->status;

    refresh_host(h);
    AUTO_JSON json_t *figures = funnel_figures(h->funnel, h->has_counts ? &h->counts : NULL);
    json_object_set(figures, "process", h->process);
    json_object_set(figures, "disks", h->disks);
    char *text = figures ? json_dumps(figures, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (!text)
        return;
    free(k->text);
    *k = (struct kept_status){ text, strlen(text), generation, clock_monotonic_ns() };
}

static void
count_cb(void *arg, struct store_reader *r)
{
    struct counting *c = arg;

    c->is_counted = reader_count(r, &c->counts, NULL) == 0;
}

static int
read_counts(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    (void)err; /* it is answered without them */
    count_cb(call, r);
    return 0;
}

/* The count has ended, also when the request that started it has left. */
static void
free_counting(struct exchange_read *call)
{
    struct counting *c = (struct counting *)call;
    struct http *h = c->http;

    h->counts = c->counts;
    h->has_counts = c->is_counted;
    h->is_counting = false;
    h->is_count_late = !c->is_counted || clock_monotonic_ns() - c->begun_ns > COUNT_LATE_NS;
    free(c);
}

static void
counted_cb(void *arg)
{
    free_counting(arg);
}

static void
counted(struct exchange *x, struct exchange_read *call)
{
    const struct counting *c = (struct counting *)call;

    x->http->counts = c->counts;
    x->http->has_counts = c->is_counted;
    make_figures(x->http, c->generation);
    c->then(x);
}

/* waits: then runs once that is over. */
static void
count(struct exchange *x, struct counting *c, bool waits)
{
    c->http->is_counting = true;
    if (waits)
        exchange_read(x, &c->call);
    else if (store_read(c->http->store, count_cb, counted_cb, c, NULL) != 0)
        free_counting(&c->call);
}

static void
with_figures(struct exchange *x, bool is_scrape, exchange_cb *then)
{
    struct http *h = x->http;
    uint64_t generation = funnel_generation(h->funnel);
    bool is_right = is_kept(&h->status, generation);
    struct counting *c = is_right || h->is_counting ? NULL : calloc(1, sizeof(*c));
    bool waits = c && !(is_scrape && h->has_counts) && !h->is_count_late;

    if (c) {
        *c = (struct counting){
            .call = { .read = read_counts, .answer = counted, .free = free_counting, .what = "status" },
            .http = h,
            .generation = generation,
            .begun_ns = clock_monotonic_ns(),
            .then = then
        };
        count(x, c, waits);
    }
    if (waits)
        return;
    if (!is_right && !is_kept(&h->status, h->status.generation))
        make_figures(h, h->status.generation);
    then(x);
}

/* False: no memory. */
static bool
print_status(struct http *h, struct buffer *out)
{
    const struct kept_status *kept = &h->status;
    int64_t uptime_ms = (clock_monotonic_ns() - h->started_ns) / 1000000;
    char now[CLOCK_TEXT_SIZE];

    /* Room for all of it: only the count of answers has no small bound, and it grows by itself. */
    if (!kept->text || buffer_reserve(out, kept->size + 2048) != 0)
        return false;
    clock_text(clock_wall_ms(), now);
    funnel_pulse(h->funnel, out);
    out->size--; /* its closing brace: all of it is one object */
    buffer_printf(out,
                  ",\"uptime_s\":%.3f,\"access\":\"%s\",\"time\":\"%s\",\"http\":", (double)uptime_ms / 1000,
                  keyring_is_on(h->keyring) ? "tokens" : "open", now);
    print_figures(h, out);
    buffer_add(out, ",");
    return buffer_append(out, kept->text + 1, kept->size - 1) == 0;
}

/* Given; NULL: no memory. */
static json_t *
status_document(struct http *h)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    return print_status(h, &text) ? json_loadb(text.data, text.size, 0, NULL) : NULL;
}

/* The numbers of submissions by stage and outcome would show a submitter the stages of its own candidate. */
static json_t *
status_view(struct http *h)
{
    static const char *const told[] = { "state", "ready", "why", "version", "uptime_s", "env", "time" };
    AUTO_JSON json_t *status = status_document(h);
    json_t *out = status ? json_object() : NULL;

    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        json_object_set(out, told[i], json_object_get(status, told[i]));
    return out;
}

static void
show_status(struct exchange *x)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    if (!access_sees_detail(x)) {
        exchange_json(x, 200, status_view(x->http));
        return;
    }
    exchange_set_text(x, "application/json", print_status(x->http, &text) ? &text : NULL);
    exchange_send(x);
}

void
service_status(struct exchange *x)
{
    with_figures(x, false, show_status);
}

void
service_stats(struct exchange *x)
{
    if (target_value(&x->target, "window"))
        exchange_bad_parameter(
            x, "window", "is not kept any more: the sums begin with the daemon; ask twice and subtract");
    else
        exchange_json(x, 200, funnel_stats(x->http->funnel));
}

/* [{"method","route","seconds":histogram}] of the routes that had at least one request. Given. */
static json_t *
durations(const struct http *h)
{
    json_t *out = json_array();

    for (size_t i = 0; i < HTTP_ROUTES_MAX; i++) {
        const struct route *route = i == HTTP_ROUTES_REST ? NULL : h->asked[i];
        uint64_t n = 0;
        for (size_t k = 0; k < ARRAY_LEN(h->durations[i].counts); k++)
            n += h->durations[i].counts[k];
        if (n > 0)
            json_array_append_new(out,
                                  json_pack("{s:s, s:s+, s:o}", "method", route ? route->method : "", "route",
                                            route ? "/" : "other", route ? route->path : "", "seconds",
                                            histogram_json(&h->durations[i], &histogram_seconds)));
    }
    return out;
}

static void
show_metrics(struct exchange *x)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    AUTO_JSON json_t *status = status_document(x->http);

    if (status)
        json_object_set_new(json_object_get(status, "http"), "durations", durations(x->http));
    bool is_whole = status && metrics_write(status, &text) == 0;
    exchange_set_text(x, METRICS_TYPE, is_whole ? &text : NULL);
    exchange_send(x);
}

void
service_metrics(struct exchange *x)
{
    with_figures(x, true, show_metrics);
}

void
audit_list(struct exchange *x)
{
    int limit = exchange_limit(x);
    struct error err = { 0 };

    if (limit == 0)
        return;
    json_t *items = audit_read(x->http->config->tokens, limit, &err);
    if (items)
        exchange_json(x, 200, json_pack("{s:o}", "items", items));
    else
        exchange_error(x, &err, "audit trail");
}

/* --- retention --- */

void
retention_show(struct exchange *x)
{
    exchange_json(x, 200, retention_json(x->http->retention));
}

void
retention_run(struct exchange *x)
{
    struct json_fault fault;
    bool vacuum = false;
    const struct json_field fields[] = { { "vacuum", JSON_WANT_BOOL, &vacuum, false, 0, 0 } };

    if (json_read(x->document, "", fields, ARRAY_LEN(fields), &fault) != 0)
        exchange_problem_at(x, PROBLEM_BODY, "pointer", fault.pointer, fault.text);
    else if (!retention_sweep(x->http->retention, vacuum))
        exchange_problem(x, PROBLEM_SWEEPING, "a sweep is under way already; GET shows when it is over");
    else {
        access_note(x, vacuum ? "retention vacuum" : "retention", NULL);
        exchange_json(x, 202, retention_json(x->http->retention));
    }
}

void
service_health(struct exchange *x)
{
    exchange_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

void
service_ready(struct exchange *x)
{
    char why[256] = "";

    if (x->http->is_draining)
        exchange_problem(x, PROBLEM_NOT_READY, "the daemon stops");
    else if (funnel_is_ready(x->http->funnel, why, sizeof(why)))
        exchange_json(x, 200, json_pack("{s:s}", "status", "ready"));
    else
        exchange_problem(x, PROBLEM_NOT_READY, "%s", why);
}

static const struct asset *
asset_find(const char *uri)
{
    for (size_t i = 0; i < assets_count; i++)
        if (strcmp(assets[i].path, uri) == 0)
            return &assets[i];
    return NULL;
}

void
service_asset(struct exchange *x)
{
    const char *known = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const struct asset *a = asset_find(x->uri);

    if (!a) {
        exchange_problem(x, PROBLEM_NOT_FOUND, "no such address; /openapi.yaml lists them");
        return;
    }
    if (known && is_tag_known(known, a->etag))
        exchange_set_static(x, 304, a->type, "", 0);
    else
        exchange_set_static(x, 200, a->type, a->bytes, a->size);
    exchange_header(x, MHD_HTTP_HEADER_ETAG, a->etag);
    exchange_header(x, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    exchange_header(x, "Content-Security-Policy", PAGE_POLICY);
    exchange_header(x, "Referrer-Policy", "no-referrer");
    exchange_send(x);
}
