#include "client/trainer/daemon.h"

#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/json.h"

#define CALL_LIMIT_S 600.0 /* registering runs the reference, maybe behind others */
#define POLL_S 20
#define AWAY_LIMIT_S 600.0 /* how long a daemon may be away */

int
daemon_open(const struct trainer *t, struct http_client **out, struct error *err)
{
    int rc = http_client_new(t->daemon_url, t->daemon_token, out, err);
    if (rc == 0)
        http_client_stop_when(*out, trainer_is_stopping);
    return rc;
}

/* A refused token or a failing daemon is not a failure of the task: the next task would fail in the same way. */
static enum err_code
code_of(long status)
{
    if (status == 401 || status == 403 || status >= 500)
        return ERR_UNAVAILABLE;
    return status == 404 ? ERR_NOTFOUND : status == 409 ? ERR_CONFLICT : ERR_INPUT;
}

/* The problem document in one line. */
static int
refused(const struct http_answer *a, struct error *err)
{
    AUTO_JSON json_t *problem = json_loadb(a->body.data ? a->body.data : "", a->body.size, 0, NULL);
    json_t *first = json_array_get(json_object_get(problem, "errors"), 0);
    const char *detail = text_or(problem, "detail", text_or(problem, "title", "no reason given"));
    const char *pointer = text_or(first, "pointer", ""), *why = text_or(first, "detail", "");
    bool is_said = !*why || strstr(detail, why); /* a single fault is in "detail" already */
    return error_set(err, code_of(a->status), "verifierd answered %ld: %.120s%s%.40s%s%.60s", a->status,
                     detail, is_said ? "" : "; ", is_said ? "" : pointer, is_said ? "" : ": ",
                     is_said ? "" : why);
}

/* Of the run and the body, so that another body never meets a key that was used. */
static int
make_key(const char *run, const char *text, char out[HASH_TEXT_SIZE], struct error *err)
{
    AUTO_BUFFER struct buffer all = BUFFER_INIT;

    if (buffer_printf(&all, "%s\n", run) < 0 || buffer_append(&all, text, strlen(text)) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    hash_text(all.data, all.size, out);
    return 0;
}

/* Ask until there is an answer that is not "not now". run: for an Idempotency-Key, NULL: none. */
static int
call(struct http_client *c, const char *method, const char *path, const char *run, json_t *body, json_t **out,
     struct error *err)
{
    AUTO_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    char key[HASH_TEXT_SIZE];
    const int64_t start_ns = clock_monotonic_ns();

    *out = NULL;
    if (body && !text)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (run && make_key(run, text, key, err) != 0)
        return ERR_NOMEM;
    for (;;) {
        struct http_answer a = { 0, -1, BUFFER_INIT };
        if (trainer_is_stopping())
            return error_set(err, ERR_UNAVAILABLE, "interrupted");
        int rc = http_client_call(c, method, path, run ? key : NULL, text, text ? strlen(text) : 0,
                                  CALL_LIMIT_S, &a, err);
        /* 409 for a key: the daemon is still at the same request, which had lost its connection. */
        bool is_busy = rc == 0 && (a.status == 429 || a.status == 503 || (run && a.status == 409));
        bool is_away = ((rc == ERR_UNAVAILABLE || rc == ERR_TIMEOUT) && !http_client_is_distrusted(c)) ||
                       (rc == 0 && a.status >= 502 && a.status <= 504); /* 502, 504: a proxy's */
        double away_s = (double)(clock_monotonic_ns() - start_ns) / 1e9;
        if (is_busy || (is_away && away_s < AWAY_LIMIT_S)) {
            double s = a.retry_after_s > 0 ? a.retry_after_s : 1;
            struct error why = *err;
            if (rc == 0)
                refused(&a, &why);
            if (!trainer_is_stopping())
                trainer_tell_wait("%s%s", why.text, is_busy ? "" : " (verifierd; for 10 minutes at most)");
            http_answer_release(&a);
            trainer_pause(s > 30 ? 30 : s);
            continue;
        }
        if (rc == 0 && (a.status < 200 || a.status > 299))
            rc = refused(&a, err);
        if (rc == 0 &&
            !(*out = json_loadb(a.body.data ? a.body.data : "", a.body.size, JSON_ALLOW_NUL, NULL)))
            rc = error_set(err, ERR_PROTOCOL, "the answer to %s %s is not JSON: is this verifierd?", method,
                           path);
        http_answer_release(&a);
        return rc;
    }
}

static int
take_id(json_t *answer, char id[DAEMON_ID_SIZE], struct error *err)
{
    const char *found = json_string_value(json_object_get(answer, "id"));
    if (!found || strlen(found) >= DAEMON_ID_SIZE)
        return error_set(err, ERR_PROTOCOL, "the answer has no id: is this verifierd?");
    snprintf(id, DAEMON_ID_SIZE, "%s", found);
    return 0;
}

/* Names are for people, and data sets share some: one that stands for another task gets a tag of this one behind it. */
static int
register_task(struct http_client *c, const struct task *task, json_t **out, struct error *err)
{
    char tag[HASH_TAG_SIZE];
    AUTO_JSON json_t *body = json_pack("{s:s, s:s, s:s}", "name", task->name, "reference", task->reference,
                                       "entry_point", task->entry_point);

    *out = NULL;
    if (!body)
        return error_set(err, ERR_INPUT, "the reference of %.100s is not UTF-8", task->name);
    if (task->level)
        json_object_set_new(body, "level", json_integer(task->level));
    int rc = call(c, "POST", "/v1/tasks", NULL, body, out, err);
    if (rc != ERR_CONFLICT)
        return rc;
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    hash_tag(text, strlen(text), tag);
    json_object_set_new(body, "name", json_sprintf("%s %.12s", task->name, tag));
    return call(c, "POST", "/v1/tasks", NULL, body, out, err);
}

int
daemon_add_task(struct http_client *c, const struct task *task, char id[DAEMON_ID_SIZE], struct error *err)
{
    AUTO_JSON json_t *answer = NULL;
    int rc = register_task(c, task, &answer, err);
    return rc == 0 ? take_id(answer, id, err) : rc;
}

int
daemon_add_group(struct http_client *c, const char *run, json_t *body, char id[DAEMON_ID_SIZE],
                 struct error *err)
{
    AUTO_JSON json_t *answer = NULL;
    int rc = call(c, "POST", "/v1/groups", run, body, &answer, err);
    return rc == 0 ? take_id(answer, id, err) : rc;
}

int
daemon_wait_group(struct http_client *c, const char *id, json_t **out, struct error *err)
{
    char path[160];

    snprintf(path, sizeof(path), "/v1/groups/%.80s?wait=%d", id, POLL_S);
    for (;;) {
        const int64_t asked_ns = clock_monotonic_ns();
        int rc = call(c, "GET", path, NULL, NULL, out, err);
        if (rc != 0)
            return rc;
        if (text_is(*out, "state", "done") || text_is(*out, "state", "cancelled"))
            return 0;
        json_decref(*out);
        *out = NULL;
        if (clock_monotonic_ns() - asked_ns < 200 * 1000000)
            trainer_pause(0.2); /* a daemon that does not hold polls is not asked more often */
    }
}
