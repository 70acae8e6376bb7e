#include "client/trainer/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/output.h"
#include "common/auto.h"
#include "common/hash.h"
#include "common/http_client.h"
#include "common/utf8.h"

enum { TEXT_MAX = 1024 * 1024 };

struct endpoint {
    const struct trainer *trainer;
    struct http_client *http;
};

int
endpoint_new(const struct trainer *t, struct endpoint **out, struct error *err)
{
    struct endpoint *e = calloc(1, sizeof(*e));

    *out = NULL;
    if (!e)
        return error_set(err, ERR_NOMEM, "out of memory");
    e->trainer = t;
    int rc = http_client_new(t->endpoint_url, t->endpoint_key, &e->http, err);
    if (rc != 0) {
        free(e);
        return rc;
    }
    http_client_stop_when(e->http, trainer_is_stopping);
    *out = e;
    return 0;
}

void
endpoint_free(struct endpoint *e)
{
    if (!e)
        return;
    http_client_free(e->http);
    free(e);
}

json_t *
endpoint_provenance(const struct trainer *t)
{
    return json_pack("{s:s, s:f, s:f, s:i, s:s, s:s, s:b, s:o*}", "model", t->model, "temperature",
                     t->temperature, "top_p", t->top_p, "max_tokens", t->max_tokens, "endpoint",
                     t->endpoint_name ? t->endpoint_name : t->endpoint_url, "api",
                     t->is_completions ? "completions" : "chat", "plain", (int)t->is_plain, "logprobs",
                     t->wants_logprobs ? json_true() : NULL);
}

/* --- one request --- */

/* A conversation as one text, for an endpoint without roles. */
static json_t *
as_text(json_t *messages)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        buffer_add(&text, json_string_value(json_object_get(message, "content")));
        buffer_add(&text, "\n\n");
    }
    return json_stringn(text.data ? text.data : "", text.size);
}

static json_t *
request_body(const struct trainer *t, json_t *messages, int n, uint64_t seed)
{
    json_t *body = json_pack("{s:s, s:i, s:f, s:f, s:i, s:I, s:b}", "model", t->model, "n", n, "temperature",
                             t->temperature, "top_p", t->top_p, "max_tokens", t->max_tokens, "seed",
                             (json_int_t)(seed & INT32_MAX), "stream", 0);
    if (!t->is_completions)
        json_object_set(body, "messages", messages);
    else
        json_object_set_new(body, "prompt", as_text(messages));
    if (!t->is_plain) { /* off: a model's generation_config, and llama.cpp, have others */
        json_object_set_new(body, "top_k", json_integer(-1));
        json_object_set_new(body, "min_p", json_real(0));
        json_object_set_new(body, "repetition_penalty", json_real(1));
    }
    if (t->wants_logprobs) {
        json_object_set_new(body, "logprobs", t->is_completions ? json_integer(1) : json_true());
        json_object_set_new(body, "return_token_ids", json_true()); /* vLLM and SGLang */
    }
    return body;
}

static bool
is_passing(int rc, long status)
{
    if (rc != 0)
        return rc == ERR_UNAVAILABLE || rc == ERR_TIMEOUT;
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

/*
 * Doubled each time, from half a second to a minute, half of it at random; or the server's Retry-After, if that is
 * longer.
 */
static double
pause_s(int attempt, double retry_after_s)
{
    double s = 0.5;
    for (int i = 1; i < attempt && s < 60; i++)
        s *= 2;
    s = (s > 60 ? 60 : s) * (0.5 + 0.5 * (double)(random_u64() >> 11) / 9007199254740992.0);
    if (retry_after_s > s)
        s = retry_after_s > 300 ? 300 : retry_after_s;
    return s;
}

/* What an answer says is wrong, in the words of OpenAI, vLLM, TGI or FastAPI; NULL: it says nothing. */
static const char *
reason_in(json_t *body)
{
    json_t *error = json_object_get(body, "error"), *detail = json_object_get(body, "detail");
    json_t *const places[] = { json_object_get(error, "message"), error, json_object_get(body, "message"),
                               detail, json_object_get(json_array_get(detail, 0), "msg") };
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (json_is_string(places[i]))
            return json_string_value(places[i]);
    return NULL;
}

/* The text of a refusal, in one line; of a body that is no JSON its first. */
static int
refused(const struct http_answer *a, struct error *err)
{
    const char *plain = a->body.data ? a->body.data : "", *text = "no reason given";
    AUTO_JSON json_t *body = json_loadb(plain, a->body.size, 0, NULL);
    if (reason_in(body))
        text = reason_in(body);
    else if (!body && *plain)
        text = plain;
    const size_t line = strcspn(text, "\r\n");
    return error_set(err, ERR_INPUT, "the endpoint answered %ld: %.*s", a->status,
                     line < 160 ? (int)line : 160, text);
}

/* The parsed answer, or an error; *status is 0 where none came. */
static int
request(struct endpoint *e, json_t *body, json_t **out, long *status, struct error *err)
{
    const struct trainer *t = e->trainer;
    const char *path = t->is_completions ? "/completions" : "/chat/completions";
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    for (int attempt = 1;; attempt++) {
        struct http_answer a = { 0, -1, BUFFER_INIT };
        int rc = http_client_call(e->http, "POST", path, NULL, text, strlen(text), t->timeout_s, &a, err);
        *status = rc == 0 ? a.status : 0;
        if (is_passing(rc, a.status) && attempt < t->attempts && !trainer_is_stopping()) {
            double s = pause_s(attempt, a.retry_after_s);
            struct error why = *err;
            if (rc == 0)
                refused(&a, &why);
            trainer_tell_wait("%s (attempt %d of %d, the next in %.1f s)", why.text, attempt, t->attempts, s);
            http_answer_release(&a);
            trainer_pause(s);
            continue;
        }
        if (rc == 0 && (a.status < 200 || a.status > 299))
            rc = refused(&a, err);
        if (rc == 0 &&
            !(*out = json_loadb(a.body.data ? a.body.data : "", a.body.size, JSON_ALLOW_NUL, NULL)))
            rc = error_set(err, ERR_PROTOCOL, "the endpoint's answer is not JSON");
        http_answer_release(&a);
        return rc;
    }
}

/* --- what came back --- */

static void
copy_known(json_t *to, const char *name, json_t *value)
{
    if (value && !json_is_null(value))
        json_object_set(to, name, value);
}

/* One choice as an answer; NULL: it is not an answer. */
static json_t *
read_choice(json_t *choice, uint64_t seed)
{
    json_t *message = json_object_get(choice, "message");
    json_t *text = message ? json_object_get(message, "content") : json_object_get(choice, "text");
    json_t *logprobs = json_object_get(choice, "logprobs");

    if (!json_is_string(text) && !(message && json_is_null(text)))
        return NULL;
    json_t *answer = json_pack("{s:I}", "seed", (json_int_t)(seed & INT32_MAX));
    /* An answer without an end would fill the disk; the cut is reported. */
    size_t size = json_is_string(text) ? json_string_length(text) : 0;
    size_t kept = size > TEXT_MAX ? utf8_cut(json_string_value(text), TEXT_MAX) : size;
    json_object_set_new(answer, "text", json_stringn(size ? json_string_value(text) : "", kept));
    if (size > TEXT_MAX)
        json_object_set_new(answer, "cut_bytes", json_integer((json_int_t)(size - kept)));
    copy_known(answer, "finish_reason", json_object_get(choice, "finish_reason"));
    copy_known(answer, "reasoning", json_object_get(message, "reasoning"));
    copy_known(answer, "reasoning", json_object_get(message, "reasoning_content"));
    copy_known(answer, "token_ids", json_object_get(choice, "token_ids"));
    json_t *of_tokens = json_object_get(logprobs, "token_logprobs");
    copy_known(answer, "logprobs", of_tokens ? of_tokens : json_object_get(logprobs, "content"));
    return answer;
}

static int
read_answer(json_t *document, uint64_t seed, json_t *answers, struct error *err)
{
    json_t *choice;
    size_t i;

    if (!json_is_array(json_object_get(document, "choices"))) {
        const char *why = reason_in(document);
        return error_set(err, ERR_PROTOCOL, "the endpoint's answer has no \"choices\"%s%.160s",
                         why ? ": " : "", why ? why : "");
    }
    json_array_foreach(json_object_get(document, "choices"), i, choice)
    {
        json_t *answer = read_choice(choice, seed);
        if (!answer)
            return error_set(err, ERR_PROTOCOL, "choice %zu of the endpoint's answer has no text", i);
        json_array_append_new(answers, answer);
    }
    return 0;
}

/* --- what was answered before --- */

/* Where the answer to this request is kept: by what was asked, of which model, how; not of which server. */
static int
cache_path(const struct trainer *t, json_t *body, char path[OUTPUT_PATH_MAX], struct error *err)
{
    char key[HASH_TEXT_SIZE], sub[8];
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    hash_text(text, strlen(text), key);
    const char *hex = strchr(key, ':') + 1;
    snprintf(sub, sizeof(sub), "%.2s", hex);
    return output_path(t->cache, sub, hex, path, err);
}

/* The answers that are kept, or NULL. A file that is not whole counts as none. */
static json_t *
cache_read(const char *path)
{
    json_t *kept = json_load_file(path, JSON_ALLOW_NUL, NULL);
    json_t *answers = json_incref(json_object_get(kept, "answers"));
    json_decref(kept);
    if (json_is_array(answers) && json_array_size(answers) > 0)
        return answers;
    json_decref(answers);
    return NULL;
}

/* Written first under a name that no other process or thread has, then renamed. */
static int
cache_write(const char *path, json_t *answers, struct error *err)
{
    char partial[OUTPUT_PATH_MAX + 40];
    AUTO_JSON json_t *document = json_pack("{s:O}", "answers", answers);

    snprintf(partial, sizeof(partial), "%s.%016llx.part", path, (unsigned long long)random_u64());
    FILE *file = fopen(partial, "w");
    bool is_whole = file && json_dumpf(document, file, JSON_COMPACT) == 0 && fflush(file) == 0 &&
                    fdatasync(fileno(file)) == 0;
    if (file)
        is_whole = fclose(file) == 0 && is_whole;
    if (is_whole && rename(partial, path) == 0)
        return 0;
    int rc = error_set(err, ERR_SYS, "cannot keep an answer as %s", path);
    unlink(partial);
    return rc;
}

/* Ask, or find what was answered. *answers is given. */
static int
ask(struct endpoint *e, json_t *body, uint64_t seed, json_t **answers, long *status, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    AUTO_JSON json_t *document = NULL;
    int rc = e->trainer->cache ? cache_path(e->trainer, body, path, err) : 0;

    *status = 0;
    *answers = NULL;
    if (rc == 0 && e->trainer->cache && (*answers = cache_read(path)) != NULL)
        return 0;
    rc = rc == 0 ? request(e, body, &document, status, err) : rc;
    if (rc != 0)
        return rc;
    *answers = json_array();
    rc = read_answer(document, seed, *answers, err);
    if (rc == 0 && json_array_size(*answers) == 0)
        rc = error_set(err, ERR_PROTOCOL, "the endpoint answered without a choice");
    return rc == 0 && e->trainer->cache ? cache_write(path, *answers, err) : rc;
}

int
endpoint_sample(struct endpoint *e, json_t *messages, int n, uint64_t seed, json_t **answers,
                struct error *err)
{
    AUTO_JSON json_t *found = NULL;
    long status = 0;
    int rc = 0;

    *answers = NULL;
    for (int want = n; want > 0; want = want > 1 ? 1 : 0) {
        AUTO_JSON json_t *body = request_body(e->trainer, messages, want, seed);
        if (trainer_is_stopping())
            return error_set(err, ERR_UNAVAILABLE, "interrupted");
        rc = ask(e, body, seed, &found, &status, err);
        /* llama.cpp refuses more than it has slots. */
        if (rc != ERR_INPUT || (status != 400 && status != 422))
            break;
    }
    while (rc == 0 && json_array_size(found) > (size_t)n)
        json_array_remove(found, json_array_size(found) - 1);
    if (rc == 0)
        *answers = ptr_take(&found);
    return rc;
}
