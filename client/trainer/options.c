#include "client/trainer/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/round.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/http_client.h"
#include "common/policy.h"
#include "common/reward.h"

double
option_number(struct argp_state *state, const char *name, const char *text, double low, double high)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= low && x <= high))
        argp_error(state, "%s takes a number from %g to %g, not \"%s\"", name, low, high, text);
    return x;
}

int
option_int(struct argp_state *state, const char *name, const char *text, int low, int high)
{
    double x = option_number(state, name, text, low, high);
    if (x != floor(x))
        argp_error(state, "%s takes a whole number, not \"%s\"", name, text);
    return (int)x;
}

const char *
option_word(struct argp_state *state, const char *name, const char *text, const char *list)
{
    size_t size = strlen(text);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (size == strcspn(at, ",") && strncmp(at, text, size) == 0)
            return text;
    argp_error(state, "%s takes one of %s, not \"%s\"", name, list, text);
    return NULL;
}

const char *
option_policy(struct argp_state *state, const char *name, const char *text)
{
    AUTO_JSON json_t *value = NULL;
    struct error err = { 0 };

    if (policy_parse(text, &value, &err) != 0)
        argp_error(state, "%s: %s", name, err.text);
    return text;
}

const char *
option_name(struct argp_state *state, const char *name, const char *text)
{
    if (!*text || strchr(text, '/'))
        argp_error(state, "%s takes a name without slashes, not \"%s\"", name, text);
    return text;
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

static error_t
parse_common(int key, char *arg, struct argp_state *state)
{
    struct trainer *t = state->input;
    struct error err = { 0 };

    switch (key) {
    case OPT_CACERT:
        if (http_client_cacert(arg, &err) != 0)
            argp_error(state, "%s", err.text);
        return 0;
    case 'w':
        t->workdir = arg;
        return 0;
    case OPT_CHECK_ARGUMENTS:
        t->is_argument_check = true;
        return 0;
    case 'h': /* argp has -? */
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_SUCCESS: /* every parser has seen the end of the line */
        if (t->is_argument_check)
            exit(TRAINER_OK);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = t;
        return 0;
    case 'u':
        t->daemon_url = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option daemon_options[] = {
    { "url", 'u', "URL", 0, "verifierd (or VERIFIERD_URL; default http://127.0.0.1:8080)", -2 },
    { 0 },
};
static const struct argp_child common_child[] = { { &trainer_common_argp, 0, NULL, -2 }, { 0 } };

const struct argp trainer_daemon_argp = {
    daemon_options, parse_daemon, NULL, NULL, common_child, NULL, NULL
};

static error_t
parse_sampling(int key, char *arg, struct argp_state *state)
{
    struct trainer *t = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = t;
        return 0;
    case 'e':
        t->endpoint_url = arg;
        return 0;
    case OPT_KEY:
        t->endpoint_key = arg;
        return 0;
    case 'M':
        t->model = arg;
        return 0;
    case 'c':
        t->concurrency = option_int(state, "--concurrency", arg, 1, 64);
        return 0;
    case OPT_TEMPERATURE:
        t->temperature = option_number(state, "--temperature", arg, 0, 10);
        return 0;
    case OPT_TOP_P:
        t->top_p = option_number(state, "--top-p", arg, 0, 1);
        return 0;
    case OPT_MAX_TOKENS:
        t->max_tokens = option_int(state, "--max-tokens", arg, 1, 1000000);
        return 0;
    case OPT_TIMEOUT:
        t->timeout_s = option_number(state, "--timeout", arg, 1, 86400);
        return 0;
    case OPT_ATTEMPTS:
        t->attempts = option_int(state, "--attempts", arg, 1, 100);
        return 0;
    case OPT_SEED:
        t->seed = (uint64_t)option_number(state, "--seed", arg, 0, 9007199254740992.0);
        return 0;
    case OPT_PLAIN:
        t->is_plain = true;
        return 0;
    case OPT_LOGPROBS:
        t->wants_logprobs = true;
        return 0;
    case OPT_COMPLETIONS:
        t->is_chat = false;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
    switch (key) {
    case 't':
        o->path = arg;
        return 0;
    case 'l':
        o->level = option_int(state, "--level", arg, 0, 4);
        return 0;
    case 'm':
        o->most = option_int(state, "--max-tasks", arg, 0, 1000000);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
option_reward(struct argp_state *state, const char *name, const char *text, json_t *into)
{
    struct reward_spec spec;
    struct json_fault fault;
    AUTO_JSON json_t *given =
        text[0] == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : json_pack("{s:s}", "kind", text);

    if (!given)
        argp_error(state, "%s: \"%s\" is no JSON", name, text);
    else if (reward_spec_read(given, "", &spec, &fault) != 0)
        argp_error(state, "%s%s: %s", name, fault.pointer, fault.text);
    else
        json_object_update(into, given);
}

static error_t
parse_round(int key, char *arg, struct argp_state *state)
{
    struct round_options *o = state->input;
    switch (key) {
    case 'n':
        o->samples = option_int(state, "--samples", arg, 1, 256);
        return 0;
    case OPT_TURNS:
        o->turns = option_int(state, "--turns", arg, 1, 16);
        return 0;
    case OPT_POLICY:
        o->policy = option_policy(state, "--policy", arg);
        return 0;
    case OPT_UNTIL:
        o->until = option_word(state, "--until", arg, OPTION_STAGES);
        return 0;
    case 'r':
        option_reward(state, "--reward", arg, o->reward);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
