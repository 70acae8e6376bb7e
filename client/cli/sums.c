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

const struct argp failures_argp =
    CLI_ARGP(failure_options, NULL, "Show why candidates fail, most frequent first.");
const struct argp leaderboard_argp =
    CLI_ARGP(leader_options, NULL, "Show the tasks with their best, most recently active first.");

static int
fetch(struct sums *s, const char *path, json_t **page)
{
    AUTO_BUFFER struct buffer full = BUFFER_INIT;
    AUTO_FREE char *task = NULL;
    int code = s->task ? api_find_task(s->cli, s->task, &task) : CLI_OK;

    if (code != CLI_OK)
        return code;
    api_query(&full, path,
              (const struct api_pair[]){ { "limit", s->limit },
                                         { "window", s->window },
                                         { "task", task },
                                         { "run", s->run },
                                         { "class", s->class },
                                         { "cursor", s->cursor },
                                         { NULL, NULL } });
    code = api_call(s->cli, "GET", full.data, NULL, page);
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
    struct sums s = { .cli = cli, .limit = "50" };
    AUTO_JSON json_t *page = NULL;

    CLI_TAKE(cli, &failures_argp, argc, argv, TAKE_TEXT(OPT_WINDOW, &s.window), TAKE_TEXT('T', &s.task),
             TAKE_TEXT(OPT_RUN, &s.run), TAKE_TEXT(OPT_CLASS, &s.class), TAKE_TEXT(OPT_LIMIT, &s.limit));
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
    struct sums s = { .cli = cli, .limit = "50" };
    AUTO_JSON json_t *page = NULL;

    CLI_TAKE(cli, &leaderboard_argp, argc, argv, TAKE_TEXT(OPT_LIMIT, &s.limit),
             TAKE_TEXT(OPT_CURSOR, &s.cursor));
    int code = fetch(&s, "/v1/leaderboard", &page);
    if (code != CLI_OK || cli->is_json)
        return code;
    view_rows(page, columns, ARRAY_LEN(columns));
    view_more(page);
    return code;
}
