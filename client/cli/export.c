/* verifier export: submissions, verdicts or rewards as JSON Lines or CSV, as verifierd writes them. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/outfile.h"
#include "common/auto.h"

enum {
    OPT_WHAT = 256,
    OPT_FORMAT,
    OPT_STATE,
    OPT_CLASS,
    OPT_CLIENT,
    OPT_GROUP,
    OPT_SINCE,
    OPT_BEFORE,
    OPT_SOURCE
};

/* The options that are passed on as they are. */
static const struct {
    int key;
    const char *parameter;
} passed[] = {
    { OPT_WHAT, "what" },     { OPT_FORMAT, "format" }, { OPT_STATE, "state" }, { OPT_CLASS, "class" },
    { OPT_CLIENT, "client" }, { OPT_GROUP, "group" },   { OPT_SINCE, "since" }, { OPT_BEFORE, "before" },
};

struct export
{
    struct cli *cli;
    const char *values[ARRAY_LEN(passed)], *task, *output;
    bool has_source;
};

static const struct argp_child children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };

static const struct argp_option options[] = {
    { "what", OPT_WHAT, "TABLE", 0, "submissions, verdicts (default) or rewards", 0 },
    { "format", OPT_FORMAT, "FORMAT", 0, "jsonl (default) or csv", 0 },
    { "output", 'o', "FILE", 0, "Write to FILE, which is there only once it is whole", 0 },
    { "source", OPT_SOURCE, NULL, 0, "With each candidate's source (jsonl)", 0 },
    { "since", OPT_SINCE, "TIME", 0, "Only those made at or after this date or time, UTC", 1 },
    { "before", OPT_BEFORE, "TIME", 0, "Only those made before", 1 },
    { "task", 'T', "ID|NAME", 0, "Only those for this task", 1 },
    { "class", OPT_CLASS, "CLASS", 0, "Only those of this class", 1 },
    { "client", OPT_CLIENT, "NAME", 0, "Only those of this client", 1 },
    { "group", OPT_GROUP, "ID", 0, "Only those of this group", 1 },
    { "state", OPT_STATE, "STATE", 0, "Only those queued, running, done or cancelled (submissions)", 1 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct export *e = state->input;

    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        if (passed[i].key == key) {
            e->values[i] = arg;
            return 0;
        }
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = e->cli;
        return 0;
    case 'T':
        e->task = arg;
        return 0;
    case 'o':
        e->output = arg;
        return 0;
    case OPT_SOURCE:
        e->has_source = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "what is \"%s\" for?", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Export submissions, verdicts or rewards, newest first. Formulas and control characters are made inert.",
    children,
    NULL,
    NULL
};

static bool
write_cb(void *arg, const char *bytes, size_t size)
{
    return fwrite(bytes, 1, size, arg) == size;
}

int
export_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_FREE char *task_id = NULL;
    struct export e = { .cli = cli };
    struct outfile file;
    int code = CLI_OK;

    argp_parse(&argp, argc, argv, 0, NULL, &e);
    buffer_printf(&path, "/v1/export?source=%s", e.has_source ? "true" : "false");
    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        if (!e.values[i])
            continue;
        buffer_printf(&path, "&%s", passed[i].parameter);
        api_path_add(&path, "=", e.values[i]);
    }
    if (e.task && (code = api_find_task(cli, e.task, &task_id)) == CLI_OK)
        api_path_add(&path, "&task=", task_id);
    if (code == CLI_OK)
        code = outfile_open(&file, e.output);
    if (code != CLI_OK)
        return code;
    code = api_download(cli, path.data, write_cb, file.to);
    int closed = outfile_close(&file, code == CLI_OK);
    return code == CLI_OK ? closed : code;
}
