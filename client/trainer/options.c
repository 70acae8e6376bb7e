#include "client/trainer/options.h"

#include <stdlib.h>
#include <string.h>

#include "client/trainer/round.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/http_client.h"
#include "common/policy.h"
#include "common/reward.h"
#include "common/stages.h"
#include "common/words.h"

void
option_until(struct argp_state *state, const char *name, char *arg, void *out)
{
    if (stage_find(arg) == STAGE_NONE)
        argp_error(state, "%s takes one of ast,compile,tiny,full,timing, not \"%s\"", name, arg);
    *(const char **)out = arg;
}

void
option_policy(struct argp_state *state, const char *name, char *arg, void *out)
{
    AUTO_JSON json_t *value = NULL;
    struct error err = { 0 };

    if (policy_parse(arg, &value, &err) != 0)
        argp_error(state, "%s: %s", name, err.text);
    *(const char **)out = arg;
}

void
option_some(struct argp_state *state, const char *name, const char *list, const char *all, void *out)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (!words_have(all, ",", at, strcspn(at, ",")))
            argp_error(state, "%s takes some of %s, not \"%s\"", name, all, list);
    }
    *(const char **)out = list;
}

void
option_name(struct argp_state *state, const char *name, char *arg, void *out)
{
    if (!*arg || strchr(arg, '/'))
        argp_error(state, "%s takes a name without slashes, not \"%s\"", name, arg);
    *(const char **)out = arg;
}

int
trainer_failed(const struct error *err)
{
    switch (err->code) {
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
        return trainer_complain(trainer_is_stopping() ? TRAINER_INTERRUPTED : TRAINER_SERVICE, "%s",
                                err->text);
    default:
        return trainer_complain(TRAINER_CONFIG, "%s", err->text);
    }
}

/* --- options of struct trainer --- */

enum {
    OPT_TEMPERATURE = 768,
    OPT_TOP_P,
    OPT_MAX_TOKENS,
    OPT_TIMEOUT,
    OPT_ATTEMPTS,
    OPT_SEED,
    OPT_COMPLETIONS,
    OPT_KEY,
    OPT_LOGPROBS,
    OPT_PLAIN,
    OPT_CACERT,
    OPT_CHECK_ARGUMENTS
};

static void
use_cacert(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct error err = { 0 };

    (void)name, (void)out;
    if (http_client_cacert(arg, &err) != 0)
        argp_error(state, "%s", err.text);
}

static void
show_help(struct argp_state *state, const char *name, char *arg, void *out)
{
    (void)name, (void)arg, (void)out;
    argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
}

static error_t
parse_common(int key, char *arg, struct argp_state *state)
{
    struct trainer *t = state->input;
    const struct take rows[] = {
        TAKE_CALL(OPT_CACERT, use_cacert, NULL), TAKE_TEXT('w', &t->workdir),
        TAKE_FLAG(OPT_CHECK_ARGUMENTS, &t->is_argument_check),
        TAKE_CALL('h', show_help, NULL), /* argp has -? */
    };

    if (key == ARGP_KEY_SUCCESS && t->is_argument_check) /* every parser has seen the end of the line */
        exit(TRAINER_OK);
    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option common_options[] = {
    { "cacert", OPT_CACERT, "FILE", 0,
      "The certificates to believe, PEM (or CURL_CA_BUNDLE, SSL_CERT_FILE; default: the system's)", -2 },
    { "check-arguments", OPT_CHECK_ARGUMENTS, NULL, OPTION_HIDDEN, "End well if the rest of the line is",
      -2 },
    { "workdir", 'w', "DIR", 0, "Where data, checkpoints and outputs go (default .)", -2 },
    { NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 },
    { 0 },
};

const struct argp trainer_common_argp = { common_options, parse_common, NULL, NULL, NULL, NULL, NULL };

static error_t
parse_daemon(int key, char *arg, struct argp_state *state)
{
    struct trainer *t = state->input;
    const struct take rows[] = { TAKE_INPUT(t), TAKE_TEXT('u', &t->daemon_url) };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option daemon_options[] = {
    { "url", 'u', "URL", 0, "verifierd (or VERIFIERD_URL; default http://127.0.0.1:8080)", -2 },
    { 0 },
};
static const struct argp_child common_child[] = { { &trainer_common_argp, 0, NULL, -2 }, { 0 } };

const struct argp trainer_daemon_argp = {
    daemon_options, parse_daemon, NULL, NULL, common_child, NULL, NULL
};

static void
take_seed(struct argp_state *state, const char *name, char *arg, void *out)
{
    *(uint64_t *)out = (uint64_t)take_int(state, name, arg, 0, 9007199254740992);
}

static error_t
parse_sampling(int key, char *arg, struct argp_state *state)
{
    struct trainer *t = state->input;
    const struct take rows[] = {
        TAKE_INPUT(t),
        TAKE_TEXT('e', &t->endpoint_url),
        TAKE_TEXT(OPT_KEY, &t->endpoint_key),
        TAKE_TEXT('M', &t->model),
        TAKE_INT('c', &t->concurrency, 1, 64),
        TAKE_NUMBER(OPT_TEMPERATURE, &t->temperature, 0, 10),
        TAKE_NUMBER(OPT_TOP_P, &t->top_p, 0, 1),
        TAKE_INT(OPT_MAX_TOKENS, &t->max_tokens, 1, 1000000),
        TAKE_SECONDS(OPT_TIMEOUT, &t->timeout_s, 1, 86400),
        TAKE_INT(OPT_ATTEMPTS, &t->attempts, 1, 100),
        TAKE_CALL(OPT_SEED, take_seed, &t->seed),
        TAKE_FLAG(OPT_PLAIN, &t->is_plain),
        TAKE_FLAG(OPT_LOGPROBS, &t->wants_logprobs),
        TAKE_FLAG(OPT_COMPLETIONS, &t->is_completions),
    };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option sampling_options[] = {
    { "endpoint", 'e', "URL", 0, "OpenAI-compatible endpoint, with its /v1 (or TRAINER_ENDPOINT)", -2 },
    { "key", OPT_KEY, "KEY", 0,
      "Of the endpoint (or OPENAI_API_KEY, which other users of the machine cannot see)", -2 },
    { "model", 'M', "NAME", 0, "What the endpoint calls the model", -2 },
    { "completions", OPT_COMPLETIONS, NULL, 0, "Ask /completions, not /chat/completions", -2 },
    { "temperature", OPT_TEMPERATURE, "T", 0, "Default 0.8", -2 },
    { "top-p", OPT_TOP_P, "P", 0, "Default 1", -2 },
    { "max-tokens", OPT_MAX_TOKENS, "N", 0, "Of one answer (default 2048)", -2 },
    { "plain", OPT_PLAIN, NULL, 0,
      "Do not send top_k, min_p and repetition_penalty, which OpenAI's own API refuses; then the server's "
      "defaults "
      "decide",
      -2 },
    { "logprobs", OPT_LOGPROBS, NULL, 0, "Ask for log-probabilities and token ids, and keep them", -2 },
    { "seed", OPT_SEED, "N", 0, "Of all draws (default 0)", -2 },
    { "timeout", OPT_TIMEOUT, "SECONDS", 0, "Of one request to the endpoint (default 600)", -2 },
    { "attempts", OPT_ATTEMPTS, "N", 0, "Of one request to the endpoint (default 6)", -2 },
    { "concurrency", 'c', "N", 0, "Tasks in flight (default 8)", -2 },
    { 0 },
};
static const struct argp_child daemon_child[] = { { &trainer_daemon_argp, 0, NULL, -2 }, { 0 } };

const struct argp trainer_sampling_argp = { sampling_options, parse_sampling, NULL, NULL,
                                            daemon_child,     NULL,           NULL };

/* --- tasks --- */

static error_t
parse_tasks(int key, char *arg, struct argp_state *state)
{
    struct task_options *o = state->input;
    const struct take rows[] = {
        TAKE_TEXT('t', &o->path),
        TAKE_INT('l', &o->level, 0, 4),
        TAKE_INT('m', &o->most, 0, 1000000),
    };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option task_option_table[] = {
    { "tasks", 't', "PATH", 0,
      "The tasks: a KernelBench checkout, a directory of modules, a .py, JSON or JSON Lines", 0 },
    { "level", 'l', "N", 0, "Only tasks of this level; 0: all", 0 },
    { "max-tasks", 'm', "N", 0, "So many at most, drawn by --seed; 0: all", 0 },
    { 0 },
};
const struct argp task_options_argp = { task_option_table, parse_tasks, NULL, NULL, NULL, NULL, NULL };

int
task_options_load(const struct task_options *o, uint64_t seed, struct task_set *set, struct error *err)
{
    if (!o->path)
        return error_set(err, ERR_INPUT, "which tasks? --tasks PATH");
    int rc = tasks_load(o->path, o->level, set, err);
    if (rc == 0 && o->most > 0)
        tasks_draw(set, (size_t)o->most, seed);
    return rc;
}

/* --- a round --- */

enum { OPT_POLICY = 640, OPT_UNTIL, OPT_TURNS };

void
option_reward(struct argp_state *state, const char *name, char *arg, void *into)
{
    struct reward_spec spec;
    struct json_fault fault;
    AUTO_JSON json_t *given =
        arg[0] == '{' ? json_loads(arg, JSON_REJECT_DUPLICATES, NULL) : json_pack("{s:s}", "kind", arg);

    if (!given)
        argp_error(state, "%s: \"%s\" is no JSON", name, arg);
    else if (reward_spec_read(given, "", &spec, &fault) != 0)
        argp_error(state, "%s%s: %s", name, fault.pointer, fault.text);
    else
        json_object_update(into, given);
}

static error_t
parse_round(int key, char *arg, struct argp_state *state)
{
    struct round_options *o = state->input;
    const struct take rows[] = {
        TAKE_INT('n', &o->samples, 1, 256),
        TAKE_INT(OPT_TURNS, &o->turns, 1, 16),
        TAKE_CALL(OPT_POLICY, option_policy, &o->policy),
        TAKE_CALL(OPT_UNTIL, option_until, &o->until),
        TAKE_CALL('r', option_reward, o->reward),
    };

    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_option round_option_table[] = {
    { "samples", 'n', "N", 0, "Answers for each task", 0 },
    { "turns", OPT_TURNS, "T", 0,
      "Give verifierd's feedback back to the model, T - 1 times (default 1: never)", 0 },
    { "policy", OPT_POLICY, "FILE|NAME,KEY=VALUE,...", 0,
      "What is judged and how, as hybrid,shapes=require (default: strict at level 1, hybrid above); "
      "`verifier policies` has "
      "all",
      0 },
    { "until", OPT_UNTIL, "STAGE", 0, "Stop judging after this stage", 0 },
    { "reward", 'r', "KIND|JSON", 0, "The reward (default staged)", 0 },
    { 0 },
};
const struct argp round_options_argp = { round_option_table, parse_round, NULL, NULL, NULL, NULL, NULL };
