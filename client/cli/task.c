#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/input.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

enum { OPT_ENTRY = 256, OPT_LEVEL, OPT_DYNAMIC, OPT_REFERENCE, OPT_LIMIT, OPT_CURSOR };

/* --- task add --- */

static const struct argp_option add_options[] = {
    { "name", 'n', "NAME", 0, "What to call it (default: the file's name without .py)", 0 },
    { "entry-point", OPT_ENTRY, "NAME", 0, "The reference's class (default Model)", 0 },
    { "level", OPT_LEVEL, "N", 0, "Its level, for lists and reports", 0 },
    { "dynamic-shapes", OPT_DYNAMIC, NULL, 0, "Candidates must work at other sizes than the task's own", 0 },
    { 0 },
};
const struct argp task_add_argp = CLI_ARGP(
    add_options, "FILE|DIR",
    "Register a task: its reference is run and its cases are found.\vOf a directory each *.py is one.");

/* What is said of a new task. */
struct task {
    struct cli *cli;
    const char *subject, *name, *entry_point;
    int level; /* 0: not given */
    bool is_dynamic;
};

static int
put_members(const struct task *t, const char *path, json_t *body)
{
    AUTO_FREE char *name = t->name ? strdup(t->name) : input_name(path);
    if (strcmp(path, "-") == 0 && !t->name)
        return cli_complain(CLI_USAGE, "a task from standard input needs --name");
    if (json_object_set_new(body, "name", json_string(name)) < 0)
        return cli_complain(CLI_USAGE, "the name is not UTF-8 text");
    if (t->entry_point)
        json_object_set_new(body, "entry_point", json_string(t->entry_point));
    if (t->level)
        json_object_set_new(body, "level", json_integer(t->level));
    if (t->is_dynamic)
        json_object_set_new(body, "dynamic_shapes", json_true());
    return CLI_OK;
}

/*
 * A task shows the values of its first registration, also if it is named otherwise later: ids are shared by all
 * clients. Each client finds it by its own name.
 */
static void
tell_what_stays(json_t *body, json_t *task)
{
    json_t *name = json_object_get(task, "name"), *level = json_object_get(task, "level");
    json_t *asked = json_object_get(body, "level");

    if (json_is_string(name) && !json_equal(name, json_object_get(body, "name"))) {
        fputs("verifier: the task is there already; it has this name, too, and is shown as \"", stderr);
        text_print(stderr, json_string_value(name));
        fputs("\"\n", stderr);
    }
    if (asked && !json_equal(asked, level)) {
        AUTO_FREE char *has = json_dumps(level, JSON_ENCODE_ANY);
        fprintf(stderr, "verifier: the task is there already and keeps its level, %s\n",
                json_is_integer(level) && has ? has : "none");
    }
}

static int
add_file(const struct task *t, const char *path)
{
    AUTO_JSON json_t *body = json_object(), *answer = NULL;
    json_t *source;

    int code = put_members(t, path, body);
    if (code == CLI_OK)
        code = input_text(path, &source);
    if (code != CLI_OK)
        return code;
    json_object_set_new(body, "reference", source);
    code = api_call(t->cli, "POST", "/v1/tasks", body, &answer);
    if (code != CLI_OK)
        return code;
    tell_what_stays(body, answer);
    if (t->cli->is_json)
        text_json(answer);
    else
        puts(text_or(answer, "id", "-"));
    fflush(stdout);
    return CLI_OK;
}

static int
is_source(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && strcmp(dot, ".py") == 0;
}

/* One that is refused does not keep the others out; the first one's status is that of all. */
static int
add_directory(const struct task *t)
{
    struct dirent **files = NULL;
    int code = CLI_OK, n_bad = 0;
    int n = scandir(t->subject, &files, is_source, alphasort);

    if (n < 0)
        return cli_complain(CLI_USAGE, "%s: %s", t->subject, strerror(errno));
    for (int i = 0; i < n; i++) {
        AUTO_BUFFER struct buffer path = BUFFER_INIT;
        buffer_printf(&path, "%s/%s", t->subject, files[i]->d_name);
        int one = code == CLI_NETWORK || code == CLI_AUTH ? code : add_file(t, path.data);
        if (one != CLI_OK && n_bad++ == 0)
            code = one;
        if (one != CLI_OK)
            fprintf(stderr, "verifier: %s is not registered\n", path.data);
        free(files[i]);
    }
    free(files);
    if (n == 0)
        return cli_complain(CLI_USAGE, "%s has no *.py", t->subject);
    if (n_bad > 0)
        cli_complain(code, "%d of %d are not registered", n_bad, n);
    return code;
}

int
task_add_command(struct cli *cli, int argc, char **argv)
{
    struct task t = { .cli = cli, .subject = "" };
    struct stat status;

    CLI_TAKE(cli, &task_add_argp, argc, argv, TAKE_ARGUMENT(&t.subject, "which FILE or DIR?"),
             TAKE_TEXT('n', &t.name), TAKE_TEXT(OPT_ENTRY, &t.entry_point),
             TAKE_INT(OPT_LEVEL, &t.level, 1, 1000), TAKE_FLAG(OPT_DYNAMIC, &t.is_dynamic));
    if (stat(t.subject, &status) != 0 || !S_ISDIR(status.st_mode))
        return add_file(&t, t.subject);
    if (t.name)
        return cli_complain(CLI_USAGE, "--name is of one task, and %s is a directory", t.subject);
    return add_directory(&t);
}

/* --- task list --- */

static const struct argp_option list_options[] = {
    { "name", 'n', "NAME", 0, "Only tasks of this name", 0 },
    { "limit", OPT_LIMIT, "N", 0, "How many, 200 at most (the default)", 0 },
    { "cursor", OPT_CURSOR, "CURSOR", 0, "Go on where the last page ended", 0 },
    { 0 },
};
const struct argp task_list_argp = CLI_ARGP(list_options, NULL, "List the tasks.");

int
task_list_command(struct cli *cli, int argc, char **argv)
{
    static const struct view_column columns[] = { { "NAME", "name" },         { ">LEVEL", "level" },
                                                  { "ENTRY", "entry_point" }, { "DYNAMIC", "dynamic_shapes" },
                                                  { "CREATED", "created" },   { "ID", "id" } };
    const char *name = NULL, *limit = "200", *cursor = NULL;
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *page = NULL;

    CLI_TAKE(cli, &task_list_argp, argc, argv, TAKE_TEXT('n', &name), TAKE_TEXT(OPT_LIMIT, &limit),
             TAKE_TEXT(OPT_CURSOR, &cursor));
    api_query(&path, "/v1/tasks",
              (const struct api_pair[]){
                  { "limit", limit }, { "name", name }, { "cursor", cursor }, { NULL, NULL } });
    int code = api_call(cli, "GET", path.data, NULL, &page);
    if (code != CLI_OK)
        return code;
    if (cli->is_json) {
        text_json(page);
        return CLI_OK;
    }
    view_rows(page, columns, ARRAY_LEN(columns));
    view_more(page);
    return CLI_OK;
}

/* --- task show --- */

static int
put_path(struct cli *cli, const char *name, struct buffer *path)
{
    AUTO_FREE char *id = NULL;
    int code = find_task_id(cli, name, &id);

    if (code == CLI_OK)
        api_path_add(path, "/v1/tasks/", id);
    return code;
}

static const struct argp_option show_options[] = {
    { "reference", OPT_REFERENCE, NULL, 0, "Print the reference's source and nothing else", 0 },
    { 0 },
};
const struct argp task_show_argp = CLI_ARGP(show_options, "ID|NAME", "Show one task.");

int
task_show_command(struct cli *cli, int argc, char **argv)
{
    const char *name = NULL;
    bool wants_reference = false;
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *task = NULL;

    CLI_TAKE(cli, &task_show_argp, argc, argv, TAKE_ARGUMENT(&name, "which ID or NAME?"),
             TAKE_FLAG(OPT_REFERENCE, &wants_reference));
    int code = put_path(cli, name, &path);
    if (code == CLI_OK)
        code = api_call(cli, "GET", path.data, NULL, &task);
    if (code != CLI_OK)
        return code;
    json_t *reference = json_object_get(task, "reference");
    if (wants_reference)
        text_dump(stdout, json_string_value(reference), json_string_length(reference));
    else if (cli->is_json)
        text_json(task);
    else
        view_task(task);
    return CLI_OK;
}

/* --- task rename, task rm --- */

const struct argp task_rename_argp = CLI_ARGP(NULL, "ID|NAME NEWNAME", "Call a task otherwise.");
const struct argp task_rm_argp =
    CLI_ARGP(NULL, "ID|NAME", "Delete a task: it goes with the last client that has a name for it.");

int
task_rename_command(struct cli *cli, int argc, char **argv)
{
    const char *name = NULL, *new_name = NULL;
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *task = NULL;

    CLI_TAKE(cli, &task_rename_argp, argc, argv, TAKE_ARGUMENT(&name, "which ID or NAME?"),
             TAKE_ARGUMENT(&new_name, "what is it to be called?"));
    AUTO_JSON json_t *body = json_pack("{s:s}", "name", new_name);
    if (!body)
        return cli_complain(CLI_USAGE, "the name is not UTF-8 text");
    int code = put_path(cli, name, &path);
    if (code == CLI_OK)
        code = api_call(cli, "PATCH", path.data, body, &task);
    if (code != CLI_OK)
        return code;
    if (cli->is_json)
        text_json(task);
    else
        puts(text_or(task, "id", "-"));
    return CLI_OK;
}

int
task_rm_command(struct cli *cli, int argc, char **argv)
{
    const char *name = NULL;
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *answer = NULL;

    CLI_TAKE(cli, &task_rm_argp, argc, argv, TAKE_ARGUMENT(&name, "which ID or NAME?"));
    int code = put_path(cli, name, &path);
    if (code == CLI_OK)
        code = api_call(cli, "DELETE", path.data, NULL, &answer);
    if (code != CLI_OK)
        return code;
    if (cli->is_json)
        text_json(answer);
    else if (!json_is_true(json_object_get(answer, "deleted")))
        fputs("verifier: other clients have names for the task: it stays for them\n", stderr);
    return CLI_OK;
}
