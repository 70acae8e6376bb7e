#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

struct submit {
    struct cli *cli;
    const char *file;
    const char *task, *reference; /* one of them */
    const char *entry_point, *until, *client;
    json_t *policy;
    json_t *metadata; /* NULL: none */
    bool is_completion, is_uncached;
    bool is_waiting;
    double limit_s; /* < 0: none */
    int bad;        /* what an option's value was refused with */
};

enum {
    OPT_REFERENCE = 256,
    OPT_ENTRY,
    OPT_POLICY,
    OPT_UNTIL,
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
    { "until", OPT_UNTIL, "STAGE", 0, "Stop after ast, compile, tiny, full or timing", 0 },
    { "completion", OPT_COMPLETION, NULL, 0, "FILE is a model's answer: take the code out of it", 0 },
    { "metadata", OPT_METADATA, "KEY=VALUE", 0, "Kept with the submission (may be given again)", 0 },
    { "client", OPT_CLIENT, "NAME", 0, "Who asks, for fair shares and lists", 0 },
    { "no-cache", OPT_NO_CACHE, NULL, 0, "Judge it even if an identical one was judged before", 0 },
    { "wait", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "Follow it until the verdict, for SECONDS at most", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct submit *s = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = s->cli;
        return 0;
    case 'T':
        s->task = arg;
        return 0;
    case OPT_REFERENCE:
        s->reference = arg;
        return 0;
    case OPT_ENTRY:
        s->entry_point = arg;
        return 0;
    case OPT_POLICY:
        json_decref(s->policy);
        s->policy = cli_policy(state, arg);
        return 0;
    case OPT_UNTIL:
        s->until = arg;
        return 0;
    case OPT_CLIENT:
        s->client = arg;
        return 0;
    case OPT_NO_CACHE:
        s->is_uncached = true;
        return 0;
    case OPT_COMPLETION:
        s->is_completion = true;
        return 0;
    case OPT_METADATA:
        if (!s->metadata)
            s->metadata = json_object();
        if (s->bad == CLI_OK)
            s->bad = input_pair(arg, s->metadata);
        return 0;
    case 'w':
        s->is_waiting = true;
        if (arg && s->bad == CLI_OK)
            s->bad = input_seconds(arg, &s->limit_s);
        return 0;
    case ARGP_KEY_ARG:
        if (s->file)
            argp_error(state, "one FILE at a time; `verifier group` takes several");
        s->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!s->file)
            argp_error(state, "which FILE?");
        if (!s->task == !s->reference)
            argp_error(state, "give either --task or --reference");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };
const struct argp submit_argp = {
    options,  parse, "FILE", "Have one candidate judged.\vFILE is Python source; - is standard input.",
    children, NULL,  NULL
};

/* Set a member where there is a value. */
static void
set_text(json_t *object, const char *key, const char *value)
{
    if (value)
        json_object_set_new(object, key, json_string(value));
}

static int
put_task(struct submit *s, json_t *body)
{
    if (s->reference) {
        json_t *text;
        int code = input_text(s->reference, &text);
        if (code == CLI_OK)
            json_object_set_new(body, "reference", text);
        return code;
    }
    AUTO_FREE char *id = NULL;
    int code = api_find_task(s->cli, s->task, &id);
    set_text(body, "task", id);
    return code;
}

static int
make_body(struct submit *s, json_t *body)
{
    json_t *source;
    int code = input_text(s->file, &source);
    if (code != CLI_OK)
        return code;
    json_object_set_new(body, s->is_completion ? "completion" : "candidate", source);
    set_text(body, "entry_point", s->entry_point);
    if (s->policy)
        json_object_set(body, "policy", s->policy);
    set_text(body, "until", s->until);
    set_text(body, "client", s->client);
    if (s->is_uncached)
        json_object_set_new(body, "cache", json_false());
    if (s->metadata)
        json_object_set(body, "metadata", s->metadata);
    return put_task(s, body);
}

static int
follow(struct submit *s, const char *id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *verdict = NULL;

    if (!s->cli->is_alone)
        cli_note_id(id);
    if (!s->cli->is_json && !s->cli->is_alone)
        fprintf(stderr, "verifier: submitted %s\n", id);
    api_path_add(&path, "/v1/submissions/", id);
    int code = api_follow(s->cli, path.data, s->limit_s, &verdict);
    if (verdict && s->cli->is_json)
        text_json(verdict);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "no verdict after %g s; it goes on: verifier show %s", s->limit_s, id);
    if (code != CLI_OK)
        return code;
    if (!s->cli->is_json)
        view_submission(verdict);
    const char *class = text_member(verdict, "class");
    return class && strcmp(class, "ok") == 0 ? CLI_OK : CLI_FAILED;
}

static int
submit(struct submit *s)
{
    AUTO_JSON json_t *body = json_object(), *answer = NULL;
    int code = make_body(s, body);
    if (code == CLI_OK)
        code = api_call(s->cli, "POST", "/v1/submissions", body, &answer);
    if (code != CLI_OK)
        return code;
    const char *id = text_member(answer, "id");
    if (!id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    if (s->is_waiting)
        return follow(s, id);
    if (s->cli->is_json)
        text_json(answer);
    else
        puts(id);
    return CLI_OK;
}

int
submit_command(struct cli *cli, int argc, char **argv)
{
    struct submit s = { .cli = cli, .limit_s = -1 };
    argp_parse(&submit_argp, argc, argv, 0, NULL, &s);
    int code = s.bad == CLI_OK ? submit(&s) : s.bad;
    json_decref(s.metadata);
    json_decref(s.policy);
    return code;
}
