#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"
#include "common/limits.h"

struct group {
    struct cli *cli;
    const char *files[GROUP_MAX];
    size_t n;
    const char *task, *client;
    json_t *policy;
    bool is_completion;
    int64_t time_top_k; /* 0: all */
    int64_t stop;       /* correct ones that are enough; 0: all are judged */
    double deadline_s;  /* 0: none */
    bool is_waiting;
    double limit_s; /* < 0: none */
    int bad;
};

enum { OPT_POLICY = 256, OPT_COMPLETION, OPT_CLIENT, OPT_TOP, OPT_STOP, OPT_DEADLINE };

static const struct argp_option options[] = {
    { "task", 'T', "ID|NAME", 0, "The task that the candidates claim to do", 0 },
    { "policy", OPT_POLICY, "FILE|NAME,KEY=VALUE,...", 0,
      "What is judged and how, as hybrid,shapes=require (default strict): `verifier policies`", 0 },
    { "completion", OPT_COMPLETION, NULL, 0, "The files are a model's answers: take the code out of them",
      0 },
    { "client", OPT_CLIENT, "NAME", 0, "Who asks, for fair shares and lists", 0 },
    { "time-top", OPT_TOP, "K", 0, "Time the best K only", 0 },
    { "stop-correct", OPT_STOP, "N", 0, "Cancel the rest once N are correct", 0 },
    { "deadline", OPT_DEADLINE, "SECONDS", 0, "Cancel what is not done by then", 0 },
    { "wait", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "Follow them until the last verdict, for SECONDS at most",
      0 },
    { 0 },
};

static int64_t
how_many(const struct argp_state *state, const char *option, const char *arg)
{
    char *end;
    long n = strtol(arg, &end, 10);

    if (end == arg || *end || n < 1 || n > GROUP_MAX)
        argp_error(state, "%s is a number from 1 to %d, not \"%s\"", option, GROUP_MAX, arg);
    return n;
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct group *g = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = g->cli;
        return 0;
    case 'T':
        g->task = arg;
        return 0;
    case OPT_POLICY:
        json_decref(g->policy);
        g->policy = cli_policy(state, arg);
        return 0;
    case OPT_CLIENT:
        g->client = arg;
        return 0;
    case OPT_TOP:
        g->time_top_k = how_many(state, "--time-top", arg);
        return 0;
    case OPT_STOP:
        g->stop = how_many(state, "--stop-correct", arg);
        return 0;
    case OPT_DEADLINE:
        g->bad = input_seconds(arg, &g->deadline_s);
        return 0;
    case OPT_COMPLETION:
        g->is_completion = true;
        return 0;
    case 'w':
        g->is_waiting = true;
        if (arg)
            g->bad = input_seconds(arg, &g->limit_s);
        return 0;
    case ARGP_KEY_ARG:
        if (g->n == GROUP_MAX)
            argp_error(state, "a group has at most %d candidates", GROUP_MAX);
        g->files[g->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (!g->task)
            argp_error(state, "which --task?");
        if (g->n == 0)
            argp_error(state, "which FILEs?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };
const struct argp group_argp = {
    options, parse, "FILE...", "Have the candidates of one prompt judged together.", children, NULL, NULL
};

static int
put_candidates(struct group *g, json_t *body)
{
    json_t *list = json_array();
    json_object_set_new(body, "candidates", list);
    for (size_t i = 0; i < g->n; i++) {
        json_t *source;
        int code = input_text(g->files[i], &source);
        if (code != CLI_OK)
            return code;
        json_array_append_new(list,
                              json_pack("{s:o}", g->is_completion ? "completion" : "candidate", source));
    }
    return CLI_OK;
}

static int
make_body(struct group *g, json_t *body)
{
    AUTO_FREE char *id = NULL;
    int code = put_candidates(g, body);
    if (code == CLI_OK)
        code = api_find_task(g->cli, g->task, &id);
    if (code != CLI_OK)
        return code;
    json_object_set_new(body, "task", json_string(id));
    if (g->policy)
        json_object_set(body, "policy", g->policy);
    if (g->time_top_k > 0)
        json_object_set_new(body, "time_top_k", json_integer(g->time_top_k));
    if (g->stop > 0)
        json_object_set_new(body, "stop", json_pack("{s:I}", "correct", (json_int_t)g->stop));
    if (g->deadline_s > 0)
        json_object_set_new(body, "deadline_s", json_real(g->deadline_s));
    if (g->client)
        json_object_set_new(body, "client", json_string(g->client));
    return CLI_OK;
}

static bool
all_are_ok(json_t *group)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(group, "items"), i, item)
    {
        const char *class = text_member(item, "class");
        if (!class || strcmp(class, "ok") != 0)
            return false;
    }
    return true;
}

static int
follow(struct group *g, const char *id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *group = NULL;

    cli_note_id(id);
    if (!g->cli->is_json)
        fprintf(stderr, "verifier: submitted group %s\n", id);
    api_path_add(&path, "/v1/groups/", id);
    int code = api_follow(g->cli, path.data, g->limit_s, &group);
    if (group && g->cli->is_json)
        text_json(group);
    else if (group)
        view_group(group, json_array_size(json_object_get(group, "items")) == g->n ? g->files : NULL);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "not finished after %g s; it goes on: verifier show %s", g->limit_s, id);
    if (code != CLI_OK)
        return code;
    return all_are_ok(group) ? CLI_OK : CLI_FAILED;
}

static int
submit_group(struct group *g)
{
    AUTO_JSON json_t *body = json_object(), *answer = NULL;
    int code = make_body(g, body);
    if (code == CLI_OK)
        code = api_call(g->cli, "POST", "/v1/groups", body, &answer);
    if (code != CLI_OK)
        return code;
    const char *id = text_member(answer, "id");
    if (!id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    if (g->is_waiting)
        return follow(g, id);
    if (g->cli->is_json)
        text_json(answer);
    else
        puts(id);
    return CLI_OK;
}

int
group_command(struct cli *cli, int argc, char **argv)
{
    struct group g = { .cli = cli, .limit_s = -1 };
    argp_parse(&group_argp, argc, argv, 0, NULL, &g);
    int code = g.bad == CLI_OK ? submit_group(&g) : g.bad;
    json_decref(g.policy);
    return code;
}
