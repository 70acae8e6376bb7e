#include "client/cli/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "common/auto.h"

enum {
    OPT_REFERENCE = 512,
    OPT_ENTRY,
    OPT_POLICY,
    OPT_SANITIZE,
    OPT_REWARD,
    OPT_UNTIL,
    OPT_GPU,
    OPT_PRIORITY,
    OPT_COMPLETION,
    OPT_METADATA,
    OPT_CLIENT,
    OPT_NO_CACHE
};

static const struct argp_option options[] = {
    { "task", 'T', "ID|NAME", 0, "The task that the candidate claims to do", 0 },
    { "reference", OPT_REFERENCE, "FILE", 0, "Instead of a task: the reference itself", 0 },
    { "entry-point", OPT_ENTRY, "NAME", 0, "The candidate's class (default ModelNew)", 0 },
    { "policy", OPT_POLICY, "FILE|NAME,KEY=VALUE,...", 0,
      "What is judged and how, as hybrid,shapes=require (default strict): `verifier policies`", 0 },
    { "sanitize", OPT_SANITIZE, NULL, 0,
      "Have a run of the plan under compute-sanitizer in the end, which decides nothing", 0 },
    { "reward", OPT_REWARD, "KIND|JSON", 0, "What a verdict is worth, as staged or {\"kind\": …}", 0 },
    { "until", OPT_UNTIL, "STAGE", 0, "Stop after ast, compile, tiny, full or timing", 0 },
    { "gpu", OPT_GPU, "NAME", 0, "Judge it on a GPU with this in its name, as H100", 0 },
    { "priority", OPT_PRIORITY, "WHICH", 0, "interactive or batch", 0 },
    { "completion", OPT_COMPLETION, NULL, 0, "A FILE is a model's answer: take the code out of it", 0 },
    { "metadata", OPT_METADATA, "KEY=VALUE", 0, "Kept with it: run, step, … (may be given again)", 0 },
    { "client", OPT_CLIENT, "NAME", 0, "Who asks, for fair shares and lists", 0 },
    { "no-cache", OPT_NO_CACHE, NULL, 0, "Judge it even if an identical one was judged before", 0 },
    { "wait", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "Follow it until its end, for SECONDS at most", 0 },
    { 0 },
};

static void
take_reward(struct argp_state *state, const char *name, char *arg, void *out)
{
    json_t **reward = out;

    json_decref(*reward);
    *reward = *arg == '{' ? json_loads(arg, 0, NULL) : json_string(arg);
    if (!*reward)
        argp_error(state, "%s: \"%s\" is neither a kind nor a JSON object", name, arg);
}

static void
take_policy(struct argp_state *state, const char *name, char *arg, void *out)
{
    json_t **policy = out;

    (void)name;
    json_decref(*policy);
    *policy = cli_policy(state, arg);
}

static void
take_pair(struct argp_state *state, const char *name, char *arg, void *out)
{
    json_t **metadata = out;

    (void)state, (void)name;
    if (!*metadata)
        *metadata = json_object();
    if (input_pair(arg, *metadata) != CLI_OK)
        exit(CLI_USAGE);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct ask *a = state->input;
    const struct take rows[] = {
        TAKE_INPUT(a->cli),
        TAKE_TEXT('T', &a->task),
        TAKE_TEXT(OPT_REFERENCE, &a->reference),
        TAKE_TEXT(OPT_ENTRY, &a->entry_point),
        TAKE_CALL(OPT_POLICY, take_policy, &a->policy),
        TAKE_FLAG(OPT_SANITIZE, &a->is_sanitized),
        TAKE_CALL(OPT_REWARD, take_reward, &a->reward),
        TAKE_TEXT(OPT_UNTIL, &a->until),
        TAKE_TEXT(OPT_GPU, &a->gpu),
        TAKE_TEXT(OPT_PRIORITY, &a->priority),
        TAKE_FLAG(OPT_COMPLETION, &a->is_completion),
        TAKE_CALL(OPT_METADATA, take_pair, &a->metadata),
        TAKE_TEXT(OPT_CLIENT, &a->client),
        TAKE_FLAG(OPT_NO_CACHE, &a->is_uncached),
        TAKE_FLAG('w', &a->is_waiting),
        TAKE_SECONDS('w', &a->limit_s, 0, 1e7),
    };

    if (key == ARGP_KEY_END && !a->task == !a->reference)
        argp_error(state, "give either --task or --reference");
    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

const struct argp ask_argp = { options, parse, NULL, NULL, cli_children, NULL, NULL };

void
ask_release(struct ask *a)
{
    json_decref(a->policy);
    json_decref(a->reward);
    json_decref(a->metadata);
}

static void
set_text(json_t *object, const char *key, const char *value)
{
    if (value)
        json_object_set_new(object, key, json_string(value));
}

static int
put_task(const struct ask *a, json_t *body)
{
    if (a->reference) {
        json_t *text;
        int code = input_text(a->reference, &text);
        if (code == CLI_OK)
            json_object_set_new(body, "reference", text);
        return code;
    }
    AUTO_FREE char *id = NULL;
    int code = api_find_task(a->cli, a->task, &id);
    set_text(body, "task", id);
    return code;
}

/* The policy with one more key. Given; NULL: no policy was given. */
static json_t *
policy_of(const struct ask *a)
{
    if (!a->is_sanitized)
        return a->policy ? json_incref(a->policy) : NULL;
    json_t *policy = json_is_object(a->policy) ? json_copy(a->policy) : json_object();
    if (json_is_string(a->policy))
        json_object_set(policy, "name", a->policy);
    json_object_set_new(policy, "sanitize", json_true());
    return policy;
}

/* All that was asked; the task is looked up. */
static int
put(const struct ask *a, json_t *body)
{
    set_text(body, "entry_point", a->entry_point);
    set_text(body, "until", a->until);
    set_text(body, "gpu", a->gpu);
    set_text(body, "priority", a->priority);
    set_text(body, "client", a->client);
    AUTO_JSON json_t *policy = policy_of(a);
    if (policy)
        json_object_set(body, "policy", policy);
    if (a->reward)
        json_object_set(body, "reward", a->reward);
    if (a->metadata)
        json_object_set(body, "metadata", a->metadata);
    if (a->is_uncached)
        json_object_set_new(body, "cache", json_false());
    return put_task(a, body);
}

int
ask_post(const struct ask *a, const char *path, json_t *body, json_t **out)
{
    AUTO_JSON json_t *answer = NULL;
    const char *id = NULL;
    int code = put(a, body);

    *out = NULL;
    if (code == CLI_OK)
        code = api_make(a->cli, path, body, &answer, &id);
    if (code != CLI_OK)
        return code;
    if (!a->is_waiting) {
        if (a->cli->is_json)
            text_json(answer);
        else
            puts(id);
        return CLI_OK;
    }
    if (!a->cli->is_alone)
        cli_note_id(id);
    if (!a->cli->is_json && !a->cli->is_alone)
        fprintf(stderr, "verifier: submitted %s\n", id);
    code = api_follow(a->cli, path, id, a->limit_s, out);
    if (*out && a->cli->is_json)
        text_json(*out);
    return code;
}

int
ask_candidate(const struct ask *a, const char *file, json_t **out)
{
    json_t *text;
    int code = input_text(file, &text);

    *out = code == CLI_OK ? json_pack("{s:o}", a->is_completion ? "completion" : "candidate", text) : NULL;
    return code;
}
