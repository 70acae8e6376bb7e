/* verifier failures, verifier leaderboard: what verifierd adds up of all verdicts. */
#include <stdio.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

struct sums {
    struct cli *cli;
    const char *window, *task, *run, *class, *limit, *cursor;
};

enum { OPT_WINDOW = 256, OPT_RUN, OPT_CLASS, OPT_LIMIT, OPT_CURSOR };

#define LIMIT_OPTION                                                             \
    {                                                                            \
        "limit", OPT_LIMIT, "N", 0, "How many rows, 200 at most (default 50)", 0 \
    }

static const struct argp_option failure_options[] = {
    { "window", OPT_WINDOW, "TIME", 0, "24h (default), 7d or 30d", 0 },
    { "task", 'T', "ID|NAME", 0, "Only those for this task", 0 },
    { "run", OPT_RUN, "NAME", 0, "Only those of this run", 0 },
    { "class", OPT_CLASS, "CLASS", 0, "Only those of this class", 0 },
    LIMIT_OPTION,
    { 0 },
};

static const struct argp_option leader_options[] = {
    LIMIT_OPTION,
    { "cursor", OPT_CURSOR, "CURSOR", 0, "Go on where the last page ended", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct sums *s = state->input;
    const char **text = key == OPT_WINDOW   ? &s->window
                        : key == 'T'        ? &s->task
                        : key == OPT_RUN    ? &s->run
                        : key == OPT_CLASS  ? &s->class
                        : key == OPT_LIMIT  ? &s->limit
                        : key == OPT_CURSOR ? &s->cursor
                                            : NULL;

    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = s->cli;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument \"%s\"", arg);
    else if (text)
        *text = arg;
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

const struct argp failures_argp = {
    failure_options, parse, NULL, "Show why candidates fail, most frequent first.", cli_children, NULL, NULL
};
const struct argp leaderboard_argp = {
    leader_options, parse, NULL, "Show the tasks with their best, most recently active first.",
    cli_children,   NULL,  NULL
};

static int
fetch(struct sums *s, const char *path, json_t **page)
{
    const struct {
        const char *prefix, *value;
    } parts[] = { { "?limit=", s->limit ? s->limit : "50" },
                  { "&window=", s->window },
                  { "&task=", s->task },
                  { "&run=", s->run },
                  { "&class=", s->class },
                  { "&cursor=", s->cursor } };
    AUTO_BUFFER struct buffer full = BUFFER_INIT;

    buffer_add(&full, path);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].value)
            api_path_add(&full, parts[i].prefix, parts[i].value);
    int code = api_call(s->cli, "GET", full.data, NULL, page);
    if (code == CLI_OK && s->cli->is_json)
        text_json(*page);
    return code;
}

int
failures_command(struct cli *cli, int argc, char **argv)
{
    static const struct view_column columns[] = { { ">N", "n" },
                                                  { "CLASS", "class" },
                                                  { "STAGE", "failed_at" },
                                                  { "LAST", "example" },
                                                  { "CAUSE", "message" } };
    struct sums s = { .cli = cli };
    AUTO_JSON json_t *page = NULL;

    argp_parse(&failures_argp, argc, argv, 0, NULL, &s);
    int code = fetch(&s, "/v1/failures", &page);
    if (code != CLI_OK || cli->is_json)
        return code;
    view_rows(page, columns, ARRAY_LEN(columns));
    fflush(stdout);
    json_int_t kinds = json_integer_value(json_object_get(page, "kinds"));
    size_t shown = json_array_size(json_object_get(page, "items"));
    if (kinds > (json_int_t)shown)
        fprintf(stderr, "verifier: %zu of %lld kinds; --limit shows more\n", shown, (long long)kinds);
    return code;
}

int
leaderboard_command(struct cli *cli, int argc, char **argv)
{
    static const struct view_column columns[] = {
        { "TASK", "task_name" }, { ">LEVEL", "level" }, { ">SPEED-UP", "speedup" },
        { ">REWARD", "reward" }, { ">VERDICTS", "n" },  { ">CORRECT", "ok" },
        { ">CHEATS", "cheats" }, { "LAST", "last" },    { "ID", "task" }
    };
    struct sums s = { .cli = cli };
    AUTO_JSON json_t *page = NULL;

    argp_parse(&leaderboard_argp, argc, argv, 0, NULL, &s);
    int code = fetch(&s, "/v1/leaderboard", &page);
    if (code != CLI_OK || cli->is_json)
        return code;
    view_rows(page, columns, ARRAY_LEN(columns));
    view_more(page);
    return code;
}
