/* Looking: one submission or group, lists; and cancelling. */
#include <stdio.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

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

const struct argp show_argp = CLI_ARGP(show_options, "ID", "Show one submission or group.");
const struct argp list_argp = CLI_ARGP(list_options, NULL, "List submissions, newest first.");
const struct argp cancel_argp = CLI_ARGP(NULL, "ID", "Cancel one submission or group.");

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
has_failed(json_t *document)
{
    return api_is_finished(document) && !text_is(document, "class", "ok");
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
await(struct cli *cli, double limit_s, json_t **found, bool is_group)
{
    AUTO_JSON json_t *last = NULL;

    if (api_is_finished(*found))
        return CLI_OK;
    int code = api_follow(cli, is_group ? "/v1/groups" : "/v1/submissions", text_member(*found, "id"),
                          limit_s, &last);
    if (code == CLI_OK) {
        json_decref(*found);
        *found = ptr_take(&last);
    }
    return code;
}

int
show_command(struct cli *cli, int argc, char **argv)
{
    const char *id = NULL;
    bool source = false, answer = false, log = false, fails_on_verdict = false, is_waiting = false, is_group;
    double limit_s = -1;
    AUTO_JSON json_t *found = NULL;

    CLI_TAKE(cli, &show_argp, argc, argv, TAKE_ARGUMENT(&id, "which ID?"), TAKE_FLAG(OPT_SOURCE, &source),
             TAKE_FLAG(OPT_ANSWER, &answer), TAKE_FLAG(OPT_LOG, &log), TAKE_FLAG('w', &is_waiting),
             TAKE_SECONDS('w', &limit_s, 0, 1e7), TAKE_FLAG(OPT_FAIL, &fails_on_verdict));
    if (source + answer + log > 1)
        return cli_complain(CLI_USAGE, "--source, --answer and --log print one thing each");
    if (source || answer || log)
        return dump_part(cli, id, source ? "/source" : answer ? "/answer" : "/log");
    int code = find_document(cli, id, &found, &is_group);
    if (code == CLI_OK && is_waiting)
        code = await(cli, limit_s, &found, is_group);
    if (code != CLI_OK)
        return code;
    if (cli->is_json)
        text_json(found);
    else if (is_group)
        view_group(found, NULL);
    else
        view_submission(found);
    bool failed = is_group ? any_has_failed(found) : has_failed(found);
    return fails_on_verdict && failed ? CLI_FAILED : CLI_OK;
}

/* --- list --- */

struct list {
    const char *state, *class, *task, *client, *group, *run, *step, *policy_version, *limit, *cursor;
};

static int
list_path(struct cli *cli, const struct list *l, struct buffer *path)
{
    AUTO_FREE char *task_id = NULL, *group_id = NULL;
    int code = l->task ? api_find_task(cli, l->task, &task_id) : CLI_OK;
    if (code == CLI_OK && l->group)
        code = find_id(cli, l->group, FIND_GROUP, &group_id);
    if (code != CLI_OK)
        return code;
    api_query(path, "/v1/submissions",
              (const struct api_pair[]){ { "limit", l->limit },
                                         { "state", l->state },
                                         { "class", l->class },
                                         { "task", task_id },
                                         { "client", l->client },
                                         { "group", group_id },
                                         { "run", l->run },
                                         { "step", l->step },
                                         { "policy_version", l->policy_version },
                                         { "cursor", l->cursor },
                                         { NULL, NULL } });
    return CLI_OK;
}

int
list_command(struct cli *cli, int argc, char **argv)
{
    struct list l = { .limit = "50" };
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *page = NULL;

    CLI_TAKE(cli, &list_argp, argc, argv, TAKE_TEXT(OPT_STATE, &l.state), TAKE_TEXT(OPT_CLASS, &l.class),
             TAKE_TEXT('T', &l.task), TAKE_TEXT(OPT_CLIENT, &l.client), TAKE_TEXT(OPT_GROUP, &l.group),
             TAKE_TEXT(OPT_RUN, &l.run), TAKE_TEXT(OPT_STEP, &l.step),
             TAKE_TEXT(OPT_POLICY_VERSION, &l.policy_version), TAKE_TEXT(OPT_LIMIT, &l.limit),
             TAKE_TEXT(OPT_CURSOR, &l.cursor));
    int code = list_path(cli, &l, &path);
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
    if (text_is(answer, "state", "done"))
        return "it was finished first";
    if (text_is(answer, "state", "running") || text_is(answer, "state", "queued"))
        return "it will be cancelled as soon as its worker lets go of it";
    return "cancelled";
}

int
cancel_command(struct cli *cli, int argc, char **argv)
{
    const char *id = "";
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *found = NULL, *answer = NULL;
    bool is_group;

    CLI_TAKE(cli, &cancel_argp, argc, argv, TAKE_ARGUMENT(&id, "which ID?"));
    if (strcmp(id, "-") == 0) /* the newest may be another client's */
        return cli_complain(CLI_USAGE, "cancel takes an id, and no \"-\"");
    int code = find_document(cli, id, &found, &is_group);
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
