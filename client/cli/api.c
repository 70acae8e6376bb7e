#include "client/cli/api.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/cli/find.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/clock.h"

#define CALL_LIMIT_S 600.0 /* registering a task runs its reference, maybe behind others */
#define POLL_S 20.0        /* shorter than what proxies cut */
#define POLL_TOLD_S 1.0    /* while progress is printed */
#define POLL_GRACE_S 30.0
#define POLL_SHORTEST_S 0.2 /* a daemon that does not hold polls is polled at most this often */
#define LOST_LIMIT_S 60.0   /* how long a daemon may be away while we follow */

struct exchange {
    struct http_answer answer;
    struct error err;
    int code; /* enum cli_exit */
};

static void
exchange_release(struct exchange *x)
{
    http_answer_release(&x->answer);
}

#define AUTO_EXCHANGE __attribute__((cleanup(exchange_release)))
#define EXCHANGE_INIT                                       \
    {                                                       \
        { 0, -1, BUFFER_INIT }, { ERR_NONE, 0, "" }, CLI_OK \
    }

static int
exit_of_error(const struct error *err)
{
    switch (err->code) {
    case ERR_TIMEOUT:
        return CLI_TIMEOUT;
    case ERR_INPUT:
        return CLI_CONFIG;
    default:
        return CLI_NETWORK;
    }
}

static int
exit_of_status(long status)
{
    if (status >= 200 && status < 300)
        return CLI_OK;
    switch (status) {
    case 401:
    case 403:
        return CLI_AUTH;
    case 404:
    case 410:
        return CLI_NOT_FOUND;
    case 408:
    case 504:
        return CLI_TIMEOUT;
    default:
        return CLI_REFUSED;
    }
}

/* Call and classify; prints nothing. */
static void
exchange(struct cli *cli, const char *method, const char *path, const char *body, size_t size, double limit_s,
         struct exchange *x)
{
    exchange_release(x);
    if (!cli->http && http_client_new(cli->url, cli->token, &cli->http, &x->err) < 0)
        x->code = CLI_CONFIG;
    else if (http_client_call(cli->http, method, path, NULL, body, size, limit_s, &x->answer, &x->err) < 0)
        x->code = exit_of_error(&x->err);
    else
        x->code = exit_of_status(x->answer.status);
}

/*
 * Each fault is in the document (pointer) or in the query (parameter). The text of the problem's detail is not
 * repeated.
 */
static void
print_faults(json_t *problem)
{
    const char *said = text_member(problem, "detail");
    json_t *fault;
    size_t i;

    json_array_foreach(json_object_get(problem, "errors"), i, fault)
    {
        const char *pointer = text_member(fault, "pointer"), *parameter = text_member(fault, "parameter");
        const char *where = parameter ? parameter : pointer && pointer[0] ? pointer : "the document";
        const char *detail = text_member(fault, "detail");
        if (said && detail && strstr(said, where) && strstr(said, detail))
            continue;
        fputs("  ", stderr);
        text_print(stderr, where);
        fputs(": ", stderr);
        text_print(stderr, detail ? detail : "refused");
        fputc('\n', stderr);
    }
}

/* application/problem+json (RFC 9457), or the body in its place. */
static void
print_problem(const struct http_answer *a)
{
    AUTO_JSON json_t *problem = json_loadb(a->body.data ? a->body.data : "", a->body.size, 0, NULL);
    const char *title = text_member(problem, "title"), *detail = text_member(problem, "detail");

    fprintf(stderr, "verifier: verifierd answered %ld", a->status);
    if (title) {
        fputs(" ", stderr);
        text_print(stderr, title);
    }
    if (detail) {
        fputs(": ", stderr);
        text_print(stderr, detail);
    }
    fputc('\n', stderr);
    print_faults(problem);
    if (text_member(problem, "traceback")) {
        text_print(stderr, text_member(problem, "traceback"));
        fputc('\n', stderr);
    }
    if (a->retry_after_s >= 0)
        fprintf(stderr, "  try again in %.0f s\n", a->retry_after_s);
}

static int
report(const struct cli *cli, const struct exchange *x)
{
    if (x->code == CLI_OK)
        return CLI_OK;
    if (x->answer.status != 0)
        print_problem(&x->answer);
    else if (x->code == CLI_CONFIG)
        cli_complain(CLI_CONFIG, "%s", x->err.text);
    else
        cli_complain(CLI_NETWORK, "cannot talk to %s", x->err.text);
    if (x->code == CLI_NETWORK && x->answer.status == 0)
        fputs("  is verifierd running there? --url or VERIFIERD_URL names another\n", stderr);
    if (x->code == CLI_AUTH && !cli->token)
        fputs("  give a token with --token or VERIFIERD_TOKEN\n", stderr);
    return x->code;
}

static int
decode(const struct exchange *x, json_t **out)
{
    const struct buffer *body = &x->answer.body;
    json_error_t why;

    if (!out)
        return CLI_OK;
    *out = NULL;
    if (body->size == 0)
        return CLI_OK;
    *out = json_loadb(body->data, body->size, JSON_ALLOW_NUL, &why);
    if (!*out)
        return cli_complain(CLI_NETWORK, "the answer is not JSON (line %d: %s): is this verifierd?", why.line,
                            why.text);
    return CLI_OK;
}

int
api_call(struct cli *cli, const char *method, const char *path, json_t *body, json_t **out)
{
    AUTO_EXCHANGE struct exchange x = EXCHANGE_INIT;
    AUTO_FREE char *text = NULL;

    if (out)
        *out = NULL;
    if (body && !(text = json_dumps(body, JSON_COMPACT)))
        return cli_complain(CLI_CONFIG, "out of memory");
    exchange(cli, method, path, text, text ? strlen(text) : 0, CALL_LIMIT_S, &x);
    int code = report(cli, &x);
    return code == CLI_OK ? decode(&x, out) : code;
}

int
api_make(struct cli *cli, const char *path, json_t *body, json_t **answer, const char **id)
{
    int code = api_call(cli, "POST", path, body, answer);

    *id = text_member(*answer, "id");
    if (code == CLI_OK && !*id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    return code;
}

int
api_find(struct cli *cli, const char *path, json_t **out)
{
    AUTO_EXCHANGE struct exchange x = EXCHANGE_INIT;

    *out = NULL;
    exchange(cli, "GET", path, NULL, 0, CALL_LIMIT_S, &x);
    if (x.code == CLI_NOT_FOUND)
        return CLI_NOT_FOUND;
    int code = report(cli, &x);
    return code == CLI_OK ? decode(&x, out) : code;
}

int
api_get_text(struct cli *cli, const char *path, struct buffer *out)
{
    AUTO_EXCHANGE struct exchange x = EXCHANGE_INIT;

    exchange(cli, "GET", path, NULL, 0, CALL_LIMIT_S, &x);
    int code = report(cli, &x);
    if (code == CLI_OK && buffer_append(out, x.answer.body.data, x.answer.body.size) < 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    return code;
}

int
api_download(struct cli *cli, const char *path, int stall_s, http_sink_cb *sink, void *arg)
{
    AUTO_EXCHANGE struct exchange x = EXCHANGE_INIT;

    if (!cli->http && http_client_new(cli->url, cli->token, &cli->http, &x.err) < 0)
        x.code = CLI_CONFIG;
    else if (http_client_download(cli->http, path, stall_s, sink, arg, &x.answer, &x.err) < 0)
        x.code = x.err.code == ERR_SYS ? CLI_CONFIG : exit_of_error(&x.err);
    else
        x.code = exit_of_status(x.answer.status);
    return report(cli, &x);
}

bool
api_lines_cb(void *lines, const char *bytes, size_t size)
{
    struct api_lines *l = lines;

    for (const char *end; (end = memchr(bytes, '\n', size)) != NULL; bytes = end + 1) {
        if (buffer_append(&l->line, bytes, (size_t)(end - bytes)) < 0 ||
            !l->take(l->arg, l->line.data, l->line.size))
            return false;
        buffer_clear(&l->line);
        size -= (size_t)(end - bytes) + 1;
    }
    return size <= l->most - l->line.size && buffer_append(&l->line, bytes, size) == 0;
}

bool
api_is_finished(const json_t *document)
{
    return text_is(document, "state", "done") || text_is(document, "state", "cancelled");
}

static double
seconds_since(int64_t start_ns)
{
    return (double)(clock_monotonic_ns() - start_ns) / 1e9;
}

/* May this be a daemon that restarts? 503 is one that drains or starts, 502 and 504 are a proxy without it. */
static bool
is_passing(const struct exchange *x)
{
    return x->code == CLI_NETWORK || (x->answer.status >= 502 && x->answer.status <= 504);
}

static void
pause_s(double seconds)
{
    const struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

/* Wait for the daemon to come back, at most until limit_s of being away; false: give up. */
static bool
is_worth_waiting(const struct exchange *x, int64_t *lost_ns)
{
    if (!is_passing(x))
        return false;
    if (*lost_ns == 0) {
        *lost_ns = clock_monotonic_ns();
        fputs("verifier: verifierd is away; waiting for it to come back\n", stderr);
    }
    if (seconds_since(*lost_ns) > LOST_LIMIT_S)
        return false;
    pause_s(0.5);
    return true;
}

static double
poll_length(const struct cli *cli, double limit_s, int64_t start_ns)
{
    double left = limit_s - seconds_since(start_ns), most = cli->is_json ? POLL_S : POLL_TOLD_S;
    return limit_s < 0 || left > most ? most : left;
}

/* Prints the progress of an unfinished submission or group, if it differs from the last one printed. */
static void
tell_progress(const struct cli *cli, json_t *document, char told[64])
{
    json_t *items = json_object_get(document, "items"), *item;
    const char *stage = text_member(document, "stage");
    char now[64] = "";
    size_t i, n_done = 0;

    json_array_foreach(items, i, item) n_done += api_is_finished(item);
    if (items)
        snprintf(now, sizeof(now), "%zu of %zu done", n_done, json_array_size(items));
    else
        snprintf(now, sizeof(now), "%s%s%s", text_or(document, "state", ""), stage ? ": " : "",
                 stage ? stage : "");
    if (cli->is_json || strcmp(now, told) == 0)
        return;
    memcpy(told, now, sizeof(now));
    fputs("verifier: ", stderr);
    text_print(stderr, now);
    fputc('\n', stderr);
}

int
api_follow(struct cli *cli, const char *path, const char *id, double limit_s, json_t **out)
{
    const int64_t start_ns = clock_monotonic_ns();
    int64_t lost_ns = 0;
    char told[64] = "";
    bool is_asked = false;

    *out = NULL;
    for (;;) {
        AUTO_EXCHANGE struct exchange x = EXCHANGE_INIT;
        AUTO_BUFFER struct buffer poll = BUFFER_INIT;
        double wait_s = poll_length(cli, limit_s, start_ns);
        if (wait_s < 0 && is_asked)
            return cli_complain(CLI_TIMEOUT, "not finished after %g s; it goes on: verifier show %s", limit_s,
                                id);
        is_asked = true;
        wait_s = fmax(0, wait_s);
        buffer_add(&poll, path);
        api_path_add(&poll, "/", id);
        /* Whole seconds: rounded up, so that the last poll is not a run of empty ones. */
        if (buffer_printf(&poll, "?wait=%d", (int)(wait_s + 0.999)) < 0)
            return cli_complain(CLI_CONFIG, "out of memory");
        const int64_t asked_ns = clock_monotonic_ns();
        exchange(cli, "GET", poll.data, NULL, 0, wait_s + POLL_GRACE_S, &x);
        if (x.code != CLI_OK && is_worth_waiting(&x, &lost_ns))
            continue;
        int code = report(cli, &x);
        if (code != CLI_OK)
            return code;
        lost_ns = 0;
        json_decref(*out);
        code = decode(&x, out);
        if (code != CLI_OK || api_is_finished(*out))
            return code;
        tell_progress(cli, *out, told);
        if (seconds_since(asked_ns) < POLL_SHORTEST_S)
            pause_s(POLL_SHORTEST_S);
    }
}

void
api_path_add(struct buffer *path, const char *prefix, const char *text)
{
    buffer_add(path, prefix);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isascii(c) && (isalnum(c) || strchr("-._~", c)))
            buffer_append(path, text, 1);
        else
            buffer_printf(path, "%%%02X", c);
    }
}

void
api_query(struct buffer *out, const char *path, const struct api_pair *pairs)
{
    const char *before = "?";

    buffer_add(out, path);
    for (; pairs->name; pairs++) {
        if (!pairs->value)
            continue;
        buffer_printf(out, "%s%s", before, pairs->name);
        api_path_add(out, "=", pairs->value);
        before = "&";
    }
}

int
api_find_task(struct cli *cli, const char *name, char **id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *task = NULL;

    *id = NULL;
    if (strncmp(name, "sha256:", 7) == 0)
        return find_task_id(cli, name, id);
    api_path_add(&path, "/v1/tasks/", name);
    int code = api_find(cli, path.data, &task);
    if (code == CLI_NOT_FOUND)
        return cli_complain(code, "no task is called \"%s\"; `verifier task list` shows those there are",
                            name);
    const char *found = text_member(task, "id");
    if (code == CLI_OK && !found)
        return cli_complain(CLI_NETWORK, "the answer names no task: is this verifierd?");
    if (code == CLI_OK && !(*id = strdup(found)))
        return cli_complain(CLI_CONFIG, "out of memory");
    return code;
}
