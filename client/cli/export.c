/* verifier export: submissions, verdicts or rewards as JSON Lines, as verifierd sends them, or as CSV. */
#include <stdint.h>
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

const struct argp export_argp = CLI_ARGP(
    options, NULL,
    "Export submissions, verdicts or rewards, newest first. Formulas and control characters are made inert.");

static bool
write_cb(void *arg, const char *bytes, size_t size)
{
    return fwrite(bytes, 1, size, arg) == size;
}

/* Rows on their way into a file of CSV. */
struct csv {
    FILE *to;
    enum csv_table table;
    struct buffer text;
};

static bool
write_row(void *arg, const char *line, size_t size)
{
    struct csv *c = arg;
    AUTO_JSON json_t *row = json_loadb(line, size, JSON_ALLOW_NUL, NULL);

    buffer_clear(&c->text);
    return row && csv_row(&c->text, c->table, row) == 0 && write_cb(c->to, c->text.data, c->text.size);
}

static int
download_csv(struct cli *cli, const char *path, enum csv_table table, FILE *to)
{
    struct csv c = { .to = to, .table = table };
    struct api_lines lines = { write_row, &c, SIZE_MAX, BUFFER_INIT };
    bool is_begun = csv_titles(&c.text, c.table) == 0 && write_cb(to, c.text.data, c.text.size);
    int code = is_begun ? api_download(cli, path, STALL_S, api_lines_cb, &lines) : CLI_CONFIG;

    buffer_release(&lines.line);
    buffer_release(&c.text);
    return code;
}

int
export_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_FREE char *task_id = NULL, *group_id = NULL;
    const char *state = NULL, *class = NULL, *client = NULL, *group = NULL, *run = NULL, *step = NULL,
               *policy_version = NULL, *since = NULL, *before = NULL, *task = NULL, *what = NULL,
               *format = "jsonl", *output = NULL;
    bool has_source = false;
    struct outfile file;
    int code = CLI_OK;

    CLI_TAKE(cli, &export_argp, argc, argv, TAKE_TEXT(OPT_WHAT, &what), TAKE_TEXT(OPT_FORMAT, &format),
             TAKE_TEXT('o', &output), TAKE_FLAG(OPT_SOURCE, &has_source), TAKE_TEXT(OPT_SINCE, &since),
             TAKE_TEXT(OPT_BEFORE, &before), TAKE_TEXT('T', &task), TAKE_TEXT(OPT_CLASS, &class),
             TAKE_TEXT(OPT_CLIENT, &client), TAKE_TEXT(OPT_GROUP, &group), TAKE_TEXT(OPT_RUN, &run),
             TAKE_TEXT(OPT_STEP, &step), TAKE_TEXT(OPT_POLICY_VERSION, &policy_version),
             TAKE_TEXT(OPT_STATE, &state));
    bool is_csv = strcmp(format, "csv") == 0;
    int table = what ? csv_find(what) : CSV_VERDICTS;
    if (!is_csv && strcmp(format, "jsonl") != 0)
        return cli_complain(CLI_USAGE, "--format is jsonl or csv, not \"%s\"", format);
    if (table < 0)
        return cli_complain(CLI_USAGE, "--what is submissions, verdicts or rewards, not \"%s\"", what);
    if (is_csv && has_source)
        return cli_complain(CLI_USAGE, "--source goes with --format=jsonl");
    if (group)
        code = find_id(cli, group, FIND_GROUP, &group_id);
    if (code == CLI_OK && task)
        code = api_find_task(cli, task, &task_id);
    if (code != CLI_OK)
        return code;
    api_query(&path, "/v1/export",
              (const struct api_pair[]){ { "source", has_source ? "true" : "false" },
                                         { "what", what },
                                         { "state", state },
                                         { "class", class },
                                         { "client", client },
                                         { "group", group_id },
                                         { "run", run },
                                         { "step", step },
                                         { "policy_version", policy_version },
                                         { "since", since },
                                         { "before", before },
                                         { "task", task_id },
                                         { NULL, NULL } });
    code = outfile_open(&file, output);
    if (code != CLI_OK)
        return code;
    code = is_csv ? download_csv(cli, path.data, (enum csv_table)table, file.to)
                  : api_download(cli, path.data, STALL_S, write_cb, file.to);
    int closed = outfile_close(&file, code == CLI_OK);
    return code == CLI_OK ? closed : code;
}
