#include "server/http/handlers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/log.h"
#include "server/http/rowtext.h"
#include "server/http/answers.h"

/*
 * Theory of operation. libmicrohttpd asks for the next bytes when the client
 * has taken the last ones; then, and only then, the next rows are read on a thread
 * of the store, a page at a time and over the store's own cursor, while the
 * connection is suspended: an export of everything costs one buffer. New submissions do not shift it: it goes from the
 * newest at its beginning to the oldest. A client that does not take a buffer within the time limit of a response is
 * disconnected, and so is an export that takes hours.
 */

#define EXPORTS_MAX 8
#define PAGE_ROWS 50
#define PAGE_BYTES (64 * 1024) /* no more rows are added beyond it */
#define BLOCK_BYTES (32 * 1024)
#define EXPORT_LIMIT_MS (6 * 60 * 60 * 1000)

struct export
{
    struct exchange_read call; /* of the first rows */
    struct http *http;
    struct exchange *exchange; /* alive whenever MHD asks for bytes */
    enum rowtext_table table;
    bool has_source, is_at_end;
    bool is_begun;               /* the response has it */
    struct store_reader *reader; /* while rows are read */
    struct buffer text;          /* rows that are to be sent */
    size_t sent;                 /* of text */
    int64_t begun_ms;            /* by the loop's clock */
    struct submission_filter filter;
    char task_id[HASH_TEXT_SIZE], group_id[ID_SIZE], before[ID_SIZE], since[ID_SIZE];
    struct error err; /* of a row that could not be written */
};

/* --- rows --- */

/* Of a submission that has no verdict: what was asked, and how far it is. */
static json_t *
unfinished(const struct submission_row *row)
{
    AUTO_JSON json_t *request = json_of(row->request);
    const char *const as_asked[] = { "until", "entry_point", "metadata", "flags" };

    json_t *out = json_pack("{s:s, s:s?, s:s, s:s?, s:s, s:s, s:s, s:i, s:o, s:O?}", "id", row->id, "group",
                            *row->group_id ? row->group_id : NULL, "task", row->task_id, "client",
                            row->client, "priority", row->priority ? "batch" : "interactive", "state",
                            submission_state_name(row->state), "source", row->source_hash, "attempts",
                            row->attempts, "created", time_json(row->created_ms), "policy",
                            json_object_get(json_object_get(request, "policy"), "name"));
    if (*row->group_id)
        json_object_set_new(out, "group_index", json_integer(row->group_index));
    for (size_t i = 0; i < ARRAY_LEN(as_asked); i++)
        json_object_set(out, as_asked[i], json_object_get(request, as_asked[i]));
    return out;
}

static int
add_source(struct export *e, const struct submission_row *row, json_t *out)
{
    AUTO_BUFFER struct buffer source = BUFFER_INIT;

    int rc = reader_get_source(e->reader, row->source_hash, &source, &e->err);
    if (rc == 0 &&
        json_object_set_new(out, "candidate", json_stringn(source.data ? source.data : "", source.size)) != 0)
        rc = error_set(&e->err, ERR_NOMEM, "no memory for a row");
    return rc;
}

static int
add_row(struct export *e, const struct submission_row *row)
{
    AUTO_JSON json_t *document = row->verdict ? json_of(row->verdict) : unfinished(row);

    if (!document)
        return error_set(&e->err, ERR_STORE, "the verdict of %s cannot be read", row->id);
    AUTO_JSON json_t *picked = rowtext_pick(e->table, document);
    int rc = picked ? 0 : ERR_NOMEM;
    if (rc == 0 && e->has_source)
        rc = add_source(e, row, picked);
    return rc == 0 ? rowtext_json(&e->text, picked) : rc;
}

static bool
row_cb(void *arg, const struct submission_row *row)
{
    struct export *e = arg;

    if (*e->since && strcmp(row->id, e->since) < 0) {
        e->is_at_end = true;
        return false;
    }
    int rc = add_row(e, row);
    if (rc != 0 && e->err.code == ERR_NONE)
        error_set(&e->err, (enum err_code)rc, "no memory for a row");
    memcpy(e->before, row->id, sizeof(e->before));
    return rc == 0 && e->text.size < PAGE_BYTES;
}

/* One page of rows. 0, or err's code. */
static int
fill(struct export *e, struct store_reader *r)
{
    char last[ID_SIZE];

    buffer_clear(&e->text);
    e->sent = 0;
    if (e->is_at_end)
        return 0;
    memcpy(last, e->before, sizeof(last));
    /* The filter's cursor is a copy: the rows move e->before on. */
    e->filter.before = *last ? last : NULL;
    e->reader = r;
    int rc = reader_list_submissions(r, &e->filter, row_cb, e, &e->err);
    e->filter.before = NULL;
    if (rc == 0 && strcmp(last, e->before) == 0)
        e->is_at_end = true;
    return rc != 0 ? rc : (int)e->err.code;
}

/* --- sending --- */

static void
read_rows_cb(void *arg, struct store_reader *r)
{
    fill(arg, r);
}

/* A suspended connection is not ended before it is resumed, so its export is there. */
static void
rows_read_cb(void *arg)
{
    struct export *e = arg;

    e->http->suspended--;
    e->http->must_run = true;
    connection_arm(e->exchange->connection, DEADLINE_ANSWER, e->http->config->body_limit_ms);
    MHD_resume_connection(e->exchange->mhd);
}

/* True: rows are being read, and the connection is suspended until they are there. */
static bool
begin_reading(struct export *e)
{
    if (store_read(e->http->store, read_rows_cb, rows_read_cb, e, &e->err) != 0)
        return false;
    e->http->suspended++;
    connection_disarm(e->exchange->connection);
    MHD_suspend_connection(e->exchange->mhd);
    return true;
}

static ssize_t
read_cb(void *cls, uint64_t position, char *to, size_t most)
{
    struct export *e = cls;
    int64_t left_ms = e->begun_ms + EXPORT_LIMIT_MS - (int64_t)uv_now(e->http->loop);

    (void)position;
    if (e->sent == e->text.size && !e->is_at_end && e->err.code == ERR_NONE && begin_reading(e))
        return 0;
    if (e->err.code != ERR_NONE) {
        /* The connection is aborted: a client can distinguish that from a normal end. */
        log_error(e->exchange->request_id, "an export ends early: %s", e->err.text);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (e->sent == e->text.size)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (left_ms <= 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = e->text.size - e->sent < most ? e->text.size - e->sent : most;
    memcpy(to, e->text.data + e->sent, n);
    e->sent += n;
    connection_arm(e->exchange->connection, DEADLINE_ANSWER, e->http->config->body_limit_ms);
    return (ssize_t)n;
}

static void
free_cb(void *cls)
{
    struct export *e = cls;

    e->http->exports--;
    buffer_release(&e->text);
    exchange_read_free(&e->call);
}

/* --- the query --- */

/* "2026-11-21", "2026-11-21T11:36:17Z", with a fraction or without; milliseconds since 1970, or -1. */
static int64_t
wall_ms(const char *text)
{
    struct tm t = { 0 };
    const char *rest = strptime(text, "%Y-%m-%d", &t);
    int64_t ms = 0;

    if (rest && *rest == 'T') {
        rest = strptime(rest, "T%H:%M:%S", &t);
        if (rest && *rest == '.') {
            int scale = 100;
            while (isdigit((unsigned char)*++rest)) {
                ms += (int64_t)scale * (*rest - '0');
                scale /= 10;
            }
        }
        rest = rest && *rest == 'Z' ? rest + 1 : NULL;
    }
    return rest && !*rest && t.tm_year >= 70 ? (int64_t)timegm(&t) * 1000 + ms : -1;
}

/* The first id of a moment. False: the problem is sent. */
static bool
read_moment(struct exchange *x, const char *name, char out[ID_SIZE])
{
    const char *text = target_value(&x->target, name);
    int64_t ms = text ? wall_ms(text) : 0;

    if (ms < 0)
        return exchange_bad_parameter(x, name,
                                      "is a date or a time in UTC: 2026-11-21, 2026-11-21T11:36:17Z");
    if (text)
        snprintf(out, ID_SIZE, "%08x-%04x-7000-8000-000000000000",
                 (unsigned)((uint64_t)ms >> 16 & 0xffffffff), (unsigned)((uint64_t)ms & 0xffff));
    return true;
}

static bool
read_filter(struct exchange *x, struct export *e)
{
    const char *state = target_value(&x->target, "state");
    const char *group = target_value(&x->target, "group");
    struct submission_filter *f = &e->filter;

    f->limit = PAGE_ROWS;
    f->state = e->table == ROWTEXT_SUBMISSIONS ? -1 : SUBMISSION_DONE;
    if (state && (f->state = submission_state_find(state)) < 0)
        return exchange_bad_parameter(x, "state", "is one of queued, running, done, cancelled");
    if (state && e->table != ROWTEXT_SUBMISSIONS)
        return exchange_bad_parameter(x, "state",
                                      "goes with what=submissions: the others are of those that are done");
    if (group && !id_is_valid(group))
        return exchange_bad_parameter(x, "group", "is not an id");
    if (!read_moment(x, "since", e->since) || !read_moment(x, "before", e->before))
        return false;
    const char *run, *version, *class_, *own = exchange_client(x);
    if (!exchange_run(x, &run, &f->step) || !exchange_policy_version(x, &version) ||
        !exchange_class(x, &class_))
        return false;
    f->run = exchange_read_keep(&e->call, run);
    f->policy_version = exchange_read_keep(&e->call, version);
    f->class_ = exchange_read_keep(&e->call, class_);
    f->client = exchange_read_keep(&e->call, own ? own : target_value(&x->target, "client"));
    snprintf(e->group_id, sizeof(e->group_id), "%s", group ? group : "");
    f->group_id = group ? e->group_id : NULL;
    /* Another client's are none. */
    const char *asked = target_value(&x->target, "client");
    e->is_at_end = own && asked && strcmp(own, asked) != 0;
    return true;
}

static bool
read_query(struct exchange *x, struct export *e)
{
    const char *format = target_value(&x->target, "format"), *what = target_value(&x->target, "what");
    const char *source = target_value(&x->target, "source");
    int table = rowtext_find(what ? what : "verdicts");

    if (format && strcmp(format, "jsonl") != 0)
        return exchange_bad_parameter(x, "format", "is jsonl; verifier export --format=csv writes CSV");
    if (table < 0)
        return exchange_bad_parameter(x, "what", "is one of submissions, verdicts, rewards");
    e->table = (enum rowtext_table)table;
    if (source && strcmp(source, "true") != 0 && strcmp(source, "false") != 0)
        return exchange_bad_parameter(x, "source", "is true or false");
    e->has_source = source && strcmp(source, "true") == 0;
    return read_filter(x, e);
}

static int
read_first(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct export *e = (struct export *)call;

    if (call->task) {
        memcpy(e->task_id, call->task_id, sizeof(e->task_id));
        e->filter.task_id = e->task_id;
    }
    int rc = fill(e, r);
    if (rc != 0)
        *err = e->err;
    return rc;
}

static void
answer_first(struct exchange *x, struct exchange_read *call)
{
    struct export *e = (struct export *)call;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_cb, e, free_cb);

    e->is_begun = response != NULL;
    exchange_set_response(x, 200, "application/jsonl", response);
    exchange_header(x, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    exchange_header(x, "Content-Disposition", "attachment; filename=\"verifierd.jsonl\"");
    exchange_send(x);
}

static void
free_first(struct exchange_read *call)
{
    struct export *e = (struct export *)call;

    if (!e->is_begun)
        free_cb(e);
}

void
export_rows(struct exchange *x)
{
    static const struct exchange_read call = {
        .read = read_first, .answer = answer_first, .free = free_first, .what = "submission"
    };
    struct http *h = x->http;

    if (h->exports >= EXPORTS_MAX) {
        exchange_problem(x, PROBLEM_UNAVAILABLE, "%d exports are under way already", EXPORTS_MAX);
        return;
    }
    struct export *e = exchange_read_new(x, &call, sizeof(*e));
    if (!e)
        return;
    e->http = h;
    e->exchange = x;
    e->begun_ms = (int64_t)uv_now(h->loop);
    h->exports++;
    if (read_query(x, e))
        exchange_read_of_task(x, &e->call, target_value(&x->target, "task"));
    else
        free_cb(e);
}
