#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/ask.h"
#include "client/cli/cli.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"
#include "common/limits.h"

struct group {
    struct ask ask;
    const char *files[GROUP_MAX];
    size_t n;
    int64_t time_top_k; /* 0: all */
    int64_t stop;       /* correct ones that are enough; 0: all are judged */
    double deadline_s;  /* 0: none */
    const char *notify_url;
};

enum { OPT_TOP = 256, OPT_STOP, OPT_DEADLINE, OPT_NOTIFY };

static const struct argp_option options[] = {
    { "time-top", OPT_TOP, "K", 0, "Time the best K only", 0 },
    { "stop-correct", OPT_STOP, "N", 0, "Cancel the rest once N are correct", 0 },
    { "deadline", OPT_DEADLINE, "SECONDS", 0, "Cancel what is not done by then", 0 },
    { "notify-url", OPT_NOTIFY, "URL", 0, "Where its end is posted", 0 },
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
        state->child_inputs[0] = &g->ask;
        return 0;
    case OPT_TOP:
        g->time_top_k = how_many(state, "--time-top", arg);
        return 0;
    case OPT_STOP:
        g->stop = how_many(state, "--stop-correct", arg);
        return 0;
    case OPT_DEADLINE:
        if (input_seconds(arg, &g->deadline_s) != CLI_OK)
            exit(CLI_USAGE);
        return 0;
    case OPT_NOTIFY:
        g->notify_url = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (g->n == GROUP_MAX)
            argp_error(state, "a group has at most %d candidates", GROUP_MAX);
        g->files[g->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (g->n == 0)
            argp_error(state, "which FILEs?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &ask_argp, 0, NULL, 0 }, { 0 } };
const struct argp group_argp = {
    options, parse, "FILE...", "Have the candidates of one prompt judged together.", children, NULL, NULL
};

static int
put_candidates(struct group *g, json_t *body)
{
    json_t *list = json_array();
    json_object_set_new(body, "candidates", list);
    for (size_t i = 0; i < g->n; i++) {
        json_t *candidate;
        int code = ask_candidate(&g->ask, g->files[i], &candidate);
        if (code != CLI_OK)
            return code;
        json_array_append_new(list, candidate);
    }
    return CLI_OK;
}

static int
make_body(struct group *g, json_t *body)
{
    int code = put_candidates(g, body);
    if (code == CLI_OK)
        code = ask_put(&g->ask, body);
    if (g->time_top_k > 0)
        json_object_set_new(body, "time_top_k", json_integer(g->time_top_k));
    if (g->stop > 0)
        json_object_set_new(body, "stop", json_pack("{s:I}", "correct", (json_int_t)g->stop));
    if (g->deadline_s > 0)
        json_object_set_new(body, "deadline_s", json_real(g->deadline_s));
    if (g->notify_url)
        json_object_set_new(body, "notify_url", json_string(g->notify_url));
    return code;
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
    if (!g->ask.cli->is_json)
        fprintf(stderr, "verifier: submitted group %s\n", id);
    api_path_add(&path, "/v1/groups/", id);
    int code = api_follow(g->ask.cli, path.data, g->ask.limit_s, &group);
    if (group && g->ask.cli->is_json)
        text_json(group);
    else if (group)
        view_group(group, json_array_size(json_object_get(group, "items")) == g->n ? g->files : NULL);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "not finished after %g s; it goes on: verifier show %s", g->ask.limit_s,
                            id);
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
        code = api_call(g->ask.cli, "POST", "/v1/groups", body, &answer);
    if (code != CLI_OK)
        return code;
    const char *id = text_member(answer, "id");
    if (!id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    if (g->ask.is_waiting)
        return follow(g, id);
    if (g->ask.cli->is_json)
        text_json(answer);
    else
        puts(id);
    return CLI_OK;
}

int
group_command(struct cli *cli, int argc, char **argv)
{
    struct group g = { .ask = { .cli = cli, .limit_s = -1 } };

    argp_parse(&group_argp, argc, argv, 0, NULL, &g);
    int code = submit_group(&g);
    ask_release(&g.ask);
    return code;
}
