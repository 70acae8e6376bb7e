/* verifier export: submissions, verdicts or rewards as JSON Lines, as verifierd sends them, or as CSV. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/csv.h"
#include "client/cli/find.h"
#include "client/cli/outfile.h"
#include "common/auto.h"

#define STALL_S 60

enum {
    OPT_WHAT = 256,
    OPT_FORMAT,
    OPT_STATE,
    OPT_CLASS,
    OPT_CLIENT,
    OPT_GROUP,
    OPT_RUN,
    OPT_STEP,
    OPT_POLICY_VERSION,
    OPT_SINCE,
    OPT_BEFORE,
    OPT_SOURCE
};

/* The options that are passed on as they are. */
static const struct {
    int key;
    const char *parameter;
} passed[] = {
    { OPT_STATE, "state" }, { OPT_CLASS, "class" },   { OPT_CLIENT, "client" },
    { OPT_GROUP, "group" }, { OPT_RUN, "run" },       { OPT_STEP, "step" },
    { OPT_SINCE, "since" }, { OPT_BEFORE, "before" }, { OPT_POLICY_VERSION, "policy_version" },
};

struct export
{
    struct cli *cli;
    const char *values[ARRAY_LEN(passed)], *what, *task, *output;
    bool is_csv, has_source;
};

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
    { "run", OPT_RUN, "NAME", 0, "Only those of this run", 1 },
    { "step", OPT_STEP, "N", 0, "Of the run, only this step", 1 },
    { "policy-version", OPT_POLICY_VERSION, "TEXT", 0, "Of the run, only what these weights wrote", 1 },
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
    case OPT_WHAT:
        e->what = arg;
        return 0;
    case OPT_FORMAT:
        e->is_csv = strcmp(arg, "csv") == 0;
        if (!e->is_csv && strcmp(arg, "jsonl") != 0)
            argp_error(state, "--format is jsonl or csv, not \"%s\"", arg);
        return 0;
    case OPT_SOURCE:
        e->has_source = true;
        return 0;
    case ARGP_KEY_END:
        if (e->is_csv && e->has_source)
            argp_error(state, "--source goes with --format=jsonl");
        if (e->what && csv_find(e->what) < 0)
            argp_error(state, "--what is submissions, verdicts or rewards, not \"%s\"", e->what);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp export_argp = {
    options,
    parse,
    NULL,
    "Export submissions, verdicts or rewards, newest first. Formulas and control characters are made inert.",
    cli_children,
    NULL,
    NULL
};

static bool
write_cb(void *arg, const char *bytes, size_t size)
{
    return fwrite(bytes, 1, size, arg) == size;
}

/* Rows on their way into a file of CSV. */
struct csv {
    FILE *to;
    enum csv_table table;
    struct buffer line; /* the part received of an unfinished line */
    struct buffer text;
};

static bool
write_row(struct csv *c)
{
    AUTO_JSON json_t *row = json_loadb(c->line.data, c->line.size, JSON_ALLOW_NUL, NULL);

    buffer_clear(&c->line);
    buffer_clear(&c->text);
    return row && csv_row(&c->text, c->table, row) == 0 && write_cb(c->to, c->text.data, c->text.size);
}

static bool
csv_cb(void *arg, const char *bytes, size_t size)
{
    struct csv *c = arg;

    for (const char *end; size > 0 && (end = memchr(bytes, '\n', size)); bytes = end + 1) {
        size_t n = (size_t)(end - bytes);
        if (buffer_append(&c->line, bytes, n) != 0 || !write_row(c))
            return false;
        size -= n + 1;
    }
    return buffer_append(&c->line, bytes, size) == 0;
}

static int
download_csv(struct cli *cli, const char *path, enum csv_table table, FILE *to)
{
    struct csv c = { .to = to, .table = table };
    bool is_begun = csv_titles(&c.text, c.table) == 0 && write_cb(to, c.text.data, c.text.size);
    int code = is_begun ? api_download(cli, path, STALL_S, csv_cb, &c) : CLI_CONFIG;

    buffer_release(&c.line);
    buffer_release(&c.text);
    return code;
}

static int
put_passed(struct export *e, size_t i, struct buffer *path)
{
    AUTO_FREE char *group = NULL;
    int code = passed[i].key == OPT_GROUP ? find_id(e->cli, e->values[i], FIND_GROUP, &group) : CLI_OK;

    buffer_printf(path, "&%s", passed[i].parameter);
    api_path_add(path, "=", group ? group : e->values[i]);
    return code;
}

int
export_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_FREE char *task_id = NULL;
    struct export e = { .cli = cli };
    struct outfile file;
    int code = CLI_OK;

    argp_parse(&export_argp, argc, argv, 0, NULL, &e);
    enum csv_table table = e.what ? (enum csv_table)csv_find(e.what) : CSV_VERDICTS;
    buffer_printf(&path, "/v1/export?source=%s", e.has_source ? "true" : "false");
    for (size_t i = 0; code == CLI_OK && i < ARRAY_LEN(passed); i++)
        code = e.values[i] ? put_passed(&e, i, &path) : CLI_OK;
    if (e.what)
        api_path_add(&path, "&what=", e.what);
    if (code == CLI_OK && e.task && (code = api_find_task(cli, e.task, &task_id)) == CLI_OK)
        api_path_add(&path, "&task=", task_id);
    if (code == CLI_OK)
        code = outfile_open(&file, e.output);
    if (code != CLI_OK)
        return code;
    code = e.is_csv ? download_csv(cli, path.data, table, file.to)
                    : api_download(cli, path.data, STALL_S, write_cb, file.to);
    int closed = outfile_close(&file, code == CLI_OK);
    return code == CLI_OK ? closed : code;
}
