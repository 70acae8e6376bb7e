/*
 * verifier bundle: all inputs of a verdict, as one file. verifier replay: does another daemon reach the same verdict?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/input.h"
#include "client/cli/outfile.h"
#include "client/cli/replay.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"

#define BUNDLE_MAX (8 * 1024 * 1024) /* bytes: what a body may have */

struct arguments {
    struct cli *cli;
    const char *what; /* an id, or a file */
    const char *output;
    double limit_s; /* < 0: none */
    bool shows_all;
    int bad; /* the error code of an option's value */
};

enum { OPT_WAIT = 'w', OPT_OUTPUT = 'o', OPT_ALL = 'a' };

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a->cli;
        return 0;
    case OPT_OUTPUT:
        a->output = arg;
        return 0;
    case OPT_ALL:
        a->shows_all = true;
        return 0;
    case OPT_WAIT:
        if (a->bad == CLI_OK)
            a->bad = input_seconds(arg, &a->limit_s);
        return 0;
    case ARGP_KEY_ARG:
        if (a->what)
            argp_error(state, "unexpected argument \"%s\"", arg);
        a->what = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->what)
            argp_error(state, "of what? one argument is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- bundle --- */

static const struct argp_option bundle_options[] = {
    { "output", OPT_OUTPUT, "FILE", 0, "Write to FILE (default: ID.bundle.json; - is standard output)", 0 },
    { 0 },
};
const struct argp bundle_argp = {
    bundle_options,
    parse,
    "ID",
    "Put all that a verdict came from into one file: task, source, seed, rules, versions, the verdict.",
    cli_children,
    NULL,
    NULL
};

int
bundle_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, name = BUFFER_INIT;
    AUTO_JSON json_t *bundle = NULL;
    AUTO_FREE char *whole = NULL;
    struct arguments a = { .cli = cli };
    struct outfile file;

    argp_parse(&bundle_argp, argc, argv, 0, NULL, &a);
    int code = find_id(cli, a.what, FIND_SUBMISSION, &whole);
    if (code != CLI_OK)
        return code;
    api_path_add(&path, "/v1/submissions/", whole);
    buffer_add(&path, "/bundle");
    code = api_call(cli, "GET", path.data, NULL, &bundle);
    if (code != CLI_OK)
        return code;
    if (!json_object_get(bundle, "verdict"))
        return cli_complain(CLI_NETWORK, "the answer is no bundle: is this verifierd?");
    const char *id = text_member(json_object_get(bundle, "verdict"), "id");
    buffer_printf(&name, "%.80s.bundle.json", id ? id : "verdict");
    if (!a.output && strchr(name.data, '/'))
        return cli_complain(CLI_NETWORK, "the answer is no bundle: is this verifierd?");
    code = outfile_open(&file, a.output ? a.output : name.data);
    if (code != CLI_OK)
        return code;
    bool is_written =
        json_dumpf(bundle, file.to, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17)) == 0 &&
        fputc('\n', file.to) != EOF;
    code = outfile_close(&file, is_written);
    if (code == CLI_OK && !is_written)
        code = cli_complain(CLI_CONFIG, "the bundle cannot be written");
    if (code == CLI_OK && !a.output)
        puts(name.data);
    return code;
}

/* --- replay --- */

static const struct argp_option replay_options[] = {
    { "all", OPT_ALL, NULL, 0, "Show what differs and may, too", 0 },
    { "wait", OPT_WAIT, "SECONDS", 0, "For the verdict, at most", 0 },
    { 0 },
};
const struct argp replay_argp = {
    replay_options,
    parse,
    "FILE",
    "Judge a bundle's candidate again and compare the two verdicts.\v"
    "The seed and the rules are the bundle's; the verdicts are compared field by field. "
    "Needs the scope admin: who chooses a seed knows the inputs. Exit status: 0 what must be the same is, 1 "
    "something differs.",
    cli_children,
    NULL,
    NULL
};

static int
read_bundle(const char *path, json_t **out)
{
    json_error_t why;
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");

    if (!f)
        return cli_complain(CLI_USAGE, "%s cannot be opened", path);
    char *bytes = malloc(BUNDLE_MAX + 1);
    size_t size = bytes ? fread(bytes, 1, BUNDLE_MAX + 1, f) : 0;
    if (f != stdin)
        fclose(f);
    *out = size <= BUNDLE_MAX
               ? json_loadb(bytes ? bytes : "", size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why)
               : NULL;
    free(bytes);
    if (size > BUNDLE_MAX)
        return cli_complain(CLI_USAGE, "%s has more than %d bytes: it is no bundle", path, BUNDLE_MAX);
    if (!*out)
        return cli_complain(CLI_USAGE, "%s is no bundle: line %d: %s", path, why.line, why.text);
    if (!json_is_object(json_object_get(*out, "verdict")))
        return cli_complain(CLI_USAGE, "%s is no bundle: it has no verdict", path);
    return CLI_OK;
}

static void
add_rows(struct table *t, json_t *list, const char *how)
{
    json_t *row;
    size_t i;

    json_array_foreach(list, i, row)
    {
        AUTO_BUFFER struct buffer there = BUFFER_INIT, here = BUFFER_INIT;
        text_value(&there, json_object_get(row, "bundle"));
        text_value(&here, json_object_get(row, "here"));
        const char *cells[] = { text_member(row, "field"), there.data, here.data, how,
                                text_member(row, "why") };
        table_row(t, cells);
    }
}

static void
print(const struct arguments *a, json_t *result)
{
    static const char *const titles[] = { "FIELD", "BUNDLE", "HERE", "", "WHY" };
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    json_t *differ = json_object_get(result, "differ"), *may_differ = json_object_get(result, "may_differ");

    add_rows(t, differ, "differs");
    if (a->shows_all)
        add_rows(t, may_differ, "may differ");
    if (json_array_size(differ) > 0 || a->shows_all)
        table_print(t);
    printf("%s: %lld fields are the same, %zu differ, %zu differ and may; the machines %s\n",
           json_is_true(json_object_get(result, "same")) ? "the same verdict" : "ANOTHER VERDICT",
           (long long)json_integer_value(json_object_get(result, "fields")), json_array_size(differ),
           json_array_size(may_differ),
           strcmp(text_member(result, "machines"), "alike") == 0 ? "are alike" : "differ");
}

static int
judge_again(struct arguments *a, json_t *bundle, json_t **verdict)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *answer = NULL;

    int code = api_call(a->cli, "POST", "/v1/replays", bundle, &answer);
    const char *id = text_member(answer, "id");
    if (code != CLI_OK)
        return code;
    if (!id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    cli_note_id(id);
    api_path_add(&path, "/v1/submissions/", id);
    code = api_follow(a->cli, path.data, a->limit_s, verdict);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "no verdict after %g s; it goes on: verifier show %s", a->limit_s, id);
    return code;
}

int
replay_command(struct cli *cli, int argc, char **argv)
{
    AUTO_JSON json_t *bundle = NULL, *verdict = NULL;
    struct arguments a = { .cli = cli, .limit_s = -1 };

    argp_parse(&replay_argp, argc, argv, 0, NULL, &a);
    int code = a.bad != CLI_OK ? a.bad : read_bundle(a.what, &bundle);
    if (code == CLI_OK)
        code = judge_again(&a, bundle, &verdict);
    if (code != CLI_OK)
        return code;
    AUTO_JSON json_t *result = replay_compare(json_object_get(bundle, "verdict"), verdict);
    json_object_set(result, "id", json_object_get(verdict, "id"));
    if (cli->is_json)
        text_json(result);
    else
        print(&a, result);
    return json_is_true(json_object_get(result, "same")) ? CLI_OK : CLI_FAILED;
}
