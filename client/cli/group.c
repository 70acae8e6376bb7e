#include "client/cli/ask.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"
#include "common/limits.h"

struct group {
    struct ask ask;
    const char *files[GROUP_MAX];
    size_t n;
    int time_top_k;    /* 0: all */
    int stop;          /* correct ones that are enough; 0: all are judged */
    double deadline_s; /* 0: none */
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

static void
take_file(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct group *g = out;

    (void)name;
    if (g->n == GROUP_MAX)
        argp_error(state, "a group has at most %d candidates", GROUP_MAX);
    g->files[g->n++] = arg;
}

static const struct argp_child children[] = { { &ask_argp, 0, NULL, 0 }, { 0 } };
const struct argp group_argp = {
    options, cli_parse, "FILE...", "Have the candidates of one prompt judged together.", children, NULL, NULL
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
    if (g->time_top_k > 0)
        json_object_set_new(body, "time_top_k", json_integer(g->time_top_k));
    if (g->stop > 0)
        json_object_set_new(body, "stop", json_pack("{s:i}", "correct", g->stop));
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
        if (!text_is(item, "class", "ok"))
            return false;
    }
    return true;
}

static int
submit_group(struct group *g)
{
    AUTO_JSON json_t *body = json_object(), *group = NULL;
    int code = make_body(g, body);

    if (code == CLI_OK)
        code = ask_post(&g->ask, "/v1/groups", body, &group);
    if (group && !g->ask.cli->is_json)
        view_group(group, json_array_size(json_object_get(group, "items")) == g->n ? g->files : NULL);
    return code != CLI_OK || !group || all_are_ok(group) ? code : CLI_FAILED;
}

int
group_command(struct cli *cli, int argc, char **argv)
{
    struct group g = { .ask = { .cli = cli, .limit_s = -1 } };

    CLI_TAKE(&g.ask, &group_argp, argc, argv, TAKE_CALL(ARGP_KEY_ARG, take_file, &g),
             TAKE_INT(OPT_TOP, &g.time_top_k, 1, GROUP_MAX), TAKE_INT(OPT_STOP, &g.stop, 1, GROUP_MAX),
             TAKE_SECONDS(OPT_DEADLINE, &g.deadline_s, 0.001, 1e7), TAKE_TEXT(OPT_NOTIFY, &g.notify_url));
    if (g.n == 0)
        return cli_misuse(argv[0], "which FILEs?");
    int code = submit_group(&g);
    ask_release(&g.ask);
    return code;
}
