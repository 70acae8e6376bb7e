/* Looking: one submission or group, lists; and cancelling. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

struct look {
    struct cli *cli;
    const char *id;
    bool takes_id;
    const char *part; /* that is printed alone; NULL: a view of the whole */
    bool fails_on_verdict, is_waiting;
    double limit_s; /* of the wait; < 0: none */
    const char *state, *class, *task, *client, *group, *run, *step, *policy_version, *limit, *cursor;
};

enum {
    OPT_SOURCE = 256,
    OPT_LOG,
    OPT_FAIL,
    OPT_STATE,
    OPT_CLASS,
    OPT_CLIENT,
    OPT_GROUP,
    OPT_RUN,
    OPT_STEP,
    OPT_POLICY_VERSION,
    OPT_ANSWER,
    OPT_LIMIT,
    OPT_CURSOR,
};

static const struct argp_option show_options[] = {
    { "source", OPT_SOURCE, NULL, 0, "Print the candidate's source and nothing else", 0 },
    { "answer", OPT_ANSWER, NULL, 0, "Print the model's whole answer that it was found in, and nothing else",
      0 },
    { "log", OPT_LOG, NULL, 0, "Print what the candidate printed and nothing else", 0 },
    { "wait", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "Follow it until its end, for SECONDS at most", 0 },
    { "fail-on-verdict", OPT_FAIL, NULL, 0, "End with status 1 unless its class is ok", 0 },
    { 0 },
};

static const struct argp_option list_options[] = {
    { "state", OPT_STATE, "STATE", 0, "Only those queued, running, done or cancelled", 0 },
    { "class", OPT_CLASS, "CLASS", 0, "Only those of this class", 0 },
    { "task", 'T', "ID|NAME", 0, "Only those for this task", 0 },
    { "client", OPT_CLIENT, "NAME", 0, "Only those of this client", 0 },
    { "group", OPT_GROUP, "ID", 0, "Only those of this group", 0 },
    { "run", OPT_RUN, "NAME", 0, "Only those of this run", 0 },
    { "step", OPT_STEP, "N", 0, "Of the run, only this step", 0 },
    { "policy-version", OPT_POLICY_VERSION, "TEXT", 0, "Of the run, only what these weights wrote", 0 },
    { "limit", OPT_LIMIT, "N", 0, "How many, 200 at most (default 50)", 0 },
    { "cursor", OPT_CURSOR, "CURSOR", 0, "Go on where the last page ended", 0 },
    { 0 },
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct look *l = state->input;
    const char **text = key == OPT_STATE            ? &l->state
                        : key == OPT_CLASS          ? &l->class
                        : key == 'T'                ? &l->task
                        : key == OPT_CLIENT         ? &l->client
                        : key == OPT_GROUP          ? &l->group
                        : key == OPT_RUN            ? &l->run
                        : key == OPT_STEP           ? &l->step
                        : key == OPT_POLICY_VERSION ? &l->policy_version
                        : key == OPT_LIMIT          ? &l->limit
                        : key == OPT_CURSOR         ? &l->cursor
                                                    : NULL;
    if (text) {
        *text = arg;
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = l->cli;
        return 0;
    case OPT_SOURCE:
    case OPT_ANSWER:
    case OPT_LOG:
        if (l->part)
            argp_error(state, "--source, --answer and --log print one thing each");
        l->part = key == OPT_SOURCE ? "/source" : key == OPT_ANSWER ? "/answer" : "/log";
        return 0;
    case 'w':
        l->is_waiting = true;
        if (arg && input_seconds(arg, &l->limit_s) != CLI_OK)
            exit(CLI_USAGE);
        return 0;
    case OPT_FAIL:
        l->fails_on_verdict = true;
        return 0;
    case ARGP_KEY_ARG:
        if (l->id || !l->takes_id)
            argp_error(state, "unexpected argument \"%s\"", arg);
        l->id = arg;
        return 0;
    case ARGP_KEY_END:
        if (!l->id && l->takes_id)
            argp_error(state, "which ID?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp show_argp = { show_options, parse, "ID", "Show one submission or group.",
                                cli_children, NULL,  NULL };
const struct argp list_argp = { list_options, parse, NULL, "List submissions, newest first.",
                                cli_children, NULL,  NULL };
const struct argp cancel_argp = { NULL,         parse, "ID", "Cancel one submission or group.",
                                  cli_children, NULL,  NULL };

/* --- show --- */

static int
dump_part(struct cli *cli, const char *id, const char *part)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, text = BUFFER_INIT;
    AUTO_FREE char *whole = NULL;
    int code = find_id(cli, id, FIND_SUBMISSION, &whole);
    if (code != CLI_OK)
        return code;
    api_path_add(&path, "/v1/submissions/", whole);
    buffer_add(&path, part);
    code = api_get_text(cli, path.data, &text);
    if (code == CLI_OK && !text_dump(stdout, text.data, text.size))
        return cli_complain(CLI_CONFIG, "cannot write to standard output");
    return code;
}

static bool
is_finished(json_t *document)
{
    const char *state = text_member(document, "state");
    return state && (strcmp(state, "done") == 0 || strcmp(state, "cancelled") == 0);
}

static bool
has_failed(json_t *document)
{
    const char *class = text_member(document, "class");
    return is_finished(document) && !(class && strcmp(class, "ok") == 0);
}

static bool
any_has_failed(json_t *group)
{
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(group, "items"), i, item)
    {
        if (has_failed(item))
            return true;
    }
    return false;
}

/* Replace the submission or group found by its final state. */
static int
await(struct look *l, json_t **found, bool is_group)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *last = NULL;

    if (is_finished(*found))
        return CLI_OK;
    api_path_add(&path, is_group ? "/v1/groups/" : "/v1/submissions/", text_member(*found, "id"));
    int code = api_follow(l->cli, path.data, l->limit_s, &last);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "not finished after %g s; it goes on", l->limit_s);
    if (code == CLI_OK) {
        json_decref(*found);
        *found = ptr_take(&last);
    }
    return code;
}

int
show_command(struct cli *cli, int argc, char **argv)
{
    struct look l = { .cli = cli, .takes_id = true, .limit_s = -1 };
    AUTO_JSON json_t *found = NULL;
    bool is_group;

    argp_parse(&show_argp, argc, argv, 0, NULL, &l);
    if (l.part)
        return dump_part(cli, l.id, l.part);
    int code = find_document(cli, l.id, &found, &is_group);
    if (code == CLI_OK && l.is_waiting)
        code = await(&l, &found, is_group);
    if (code != CLI_OK)
        return code;
    if (cli->is_json)
        text_json(found);
    else if (is_group)
        view_group(found, NULL);
    else
        view_submission(found);
    bool failed = is_group ? any_has_failed(found) : has_failed(found);
    return l.fails_on_verdict && failed ? CLI_FAILED : CLI_OK;
}

/* --- list --- */

static int
list_path(struct look *l, struct buffer *path)
{
    AUTO_FREE char *task_id = NULL, *group_id = NULL;
    int code = l->task ? api_find_task(l->cli, l->task, &task_id) : CLI_OK;
    if (code == CLI_OK && l->group)
        code = find_id(l->cli, l->group, FIND_GROUP, &group_id);
    if (code != CLI_OK)
        return code;
    const struct {
        const char *prefix, *value;
    } parts[] = {
        { "?limit=", l->limit ? l->limit : "50" },
        { "&state=", l->state },
        { "&class=", l->class },
        { "&task=", task_id },
        { "&client=", l->client },
        { "&group=", group_id },
        { "&run=", l->run },
        { "&step=", l->step },
        { "&policy_version=", l->policy_version },
        { "&cursor=", l->cursor },
    };
    buffer_add(path, "/v1/submissions");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].value)
            api_path_add(path, parts[i].prefix, parts[i].value);
    return CLI_OK;
}

int
list_command(struct cli *cli, int argc, char **argv)
{
    struct look l = { .cli = cli };
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *page = NULL;

    argp_parse(&list_argp, argc, argv, 0, NULL, &l);
    int code = list_path(&l, &path);
    if (code == CLI_OK)
        code = api_call(cli, "GET", path.data, NULL, &page);
    if (code != CLI_OK)
        return code;
    if (cli->is_json) {
        text_json(page);
        return CLI_OK;
    }
    view_submissions(page);
    view_more(page);
    return CLI_OK;
}

/* --- cancel --- */

/* The answer comes when it is durable; until its worker has released it, the state is printed. */
static const char *
cancel_text(json_t *answer)
{
    const char *state = json_string_value(json_object_get(answer, "state"));

    if (state && strcmp(state, "done") == 0)
        return "it was finished first";
    if (state && (strcmp(state, "running") == 0 || strcmp(state, "queued") == 0))
        return "it will be cancelled as soon as its worker lets go of it";
    return "cancelled";
}

int
cancel_command(struct cli *cli, int argc, char **argv)
{
    struct look l = { .cli = cli, .takes_id = true };
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *found = NULL, *answer = NULL;
    bool is_group;

    argp_parse(&cancel_argp, argc, argv, 0, NULL, &l);
    if (strcmp(l.id, "-") == 0) /* the newest may be another client's */
        return cli_complain(CLI_USAGE, "cancel takes an id, and no \"-\"");
    int code = find_document(cli, l.id, &found, &is_group);
    if (code != CLI_OK)
        return code;
    api_path_add(&path, is_group ? "/v1/groups/" : "/v1/submissions/", text_member(found, "id"));
    code = api_call(cli, "DELETE", path.data, NULL, &answer);
    if (code == CLI_OK && cli->is_json && answer)
        text_json(answer);
    else if (code == CLI_OK)
        fprintf(stderr, "verifier: %s\n", cancel_text(answer));
    return code;
}
