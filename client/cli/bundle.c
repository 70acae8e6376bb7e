/*
 * verifier bundle: all inputs of a verdict, as one file. verifier replay: does another daemon reach the same verdict?
 */
#include <stdio.h>
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

enum { OPT_WAIT = 'w', OPT_OUTPUT = 'o', OPT_ALL = 'a' };

/* --- bundle --- */

static const struct argp_option bundle_options[] = {
    { "output", OPT_OUTPUT, "FILE", 0, "Write to FILE (default: ID.bundle.json; - is standard output)", 0 },
    { 0 },
};
const struct argp bundle_argp = CLI_ARGP(
    bundle_options, "ID",
    "Put all that a verdict came from into one file: task, source, seed, rules, versions, the verdict.");

int
bundle_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, name = BUFFER_INIT;
    AUTO_JSON json_t *bundle = NULL;
    AUTO_FREE char *whole = NULL;
    const char *given = NULL, *output = NULL;
    struct outfile file;

    CLI_TAKE(cli, &bundle_argp, argc, argv, TAKE_ARGUMENT(&given, "which ID?"),
             TAKE_TEXT(OPT_OUTPUT, &output));
    int code = find_id(cli, given, FIND_SUBMISSION, &whole);
    if (code != CLI_OK)
        return code;
    api_path_add(&path, "/v1/submissions/", whole);
    buffer_add(&path, "/bundle");
    code = api_call(cli, "GET", path.data, NULL, &bundle);
    if (code != CLI_OK)
        return code;
    if (!json_object_get(bundle, "verdict"))
        return cli_complain(CLI_NETWORK, "the answer is no bundle: is this verifierd?");
    if (buffer_printf(&name, "%.80s.bundle.json",
                      text_or(json_object_get(bundle, "verdict"), "id", "verdict")) != 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    if (!output && strchr(name.data, '/'))
        return cli_complain(CLI_NETWORK, "the answer is no bundle: is this verifierd?");
    code = outfile_open(&file, output ? output : name.data);
    if (code != CLI_OK)
        return code;
    bool is_written =
        json_dumpf(bundle, file.to, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17)) == 0 &&
        fputc('\n', file.to) != EOF;
    code = outfile_close(&file, is_written);
    if (code == CLI_OK && !is_written)
        code = cli_complain(CLI_CONFIG, "the bundle cannot be written");
    if (code == CLI_OK && !output)
        puts(name.data);
    return code;
}

/* --- replay --- */

static const struct argp_option replay_options[] = {
    { "all", OPT_ALL, NULL, 0, "Show what differs and may, too", 0 },
    { "wait", OPT_WAIT, "SECONDS", 0, "For the verdict, at most", 0 },
    { 0 },
};
const struct argp replay_argp = CLI_ARGP(
    replay_options, "FILE",
    "Judge a bundle's candidate again and compare the two verdicts.\v"
    "The seed and the rules are the bundle's; the verdicts are compared field by field. "
    "Needs the scope admin: who chooses a seed knows the inputs. Exit status: 0 what must be the same is, 1 "
    "something differs.");

static int
read_bundle(const char *path, json_t **out)
{
    AUTO_JSON json_t *text = NULL;
    json_error_t why;
    int code = input_text(path, &text);

    if (code != CLI_OK)
        return code;
    *out = json_loadb(json_string_value(text), json_string_length(text),
                      JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
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
print(json_t *result, bool shows_all)
{
    static const char *const titles[] = { "FIELD", "BUNDLE", "HERE", "", "WHY" };
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    json_t *differ = json_object_get(result, "differ"), *may_differ = json_object_get(result, "may_differ");

    add_rows(t, differ, "differs");
    if (shows_all)
        add_rows(t, may_differ, "may differ");
    if (json_array_size(differ) > 0 || shows_all)
        table_print(t);
    printf("%s: %lld fields are the same, %zu differ, %zu differ and may; the machines %s\n",
           json_is_true(json_object_get(result, "same")) ? "the same verdict" : "ANOTHER VERDICT",
           (long long)json_integer_value(json_object_get(result, "fields")), json_array_size(differ),
           json_array_size(may_differ), text_is(result, "machines", "alike") ? "are alike" : "differ");
}

static int
judge_again(struct cli *cli, double limit_s, json_t *bundle, json_t **verdict)
{
    AUTO_JSON json_t *answer = NULL;
    const char *id = NULL;
    int code = api_make(cli, "/v1/replays", bundle, &answer, &id);

    if (code != CLI_OK)
        return code;
    cli_note_id(id);
    return api_follow(cli, "/v1/submissions", id, limit_s, verdict);
}

int
replay_command(struct cli *cli, int argc, char **argv)
{
    AUTO_JSON json_t *bundle = NULL, *verdict = NULL;
    const char *file = NULL;
    double limit_s = -1;
    bool shows_all = false;

    CLI_TAKE(cli, &replay_argp, argc, argv, TAKE_ARGUMENT(&file, "which FILE?"),
             TAKE_FLAG(OPT_ALL, &shows_all), TAKE_SECONDS(OPT_WAIT, &limit_s, 0, 1e7));
    int code = read_bundle(file, &bundle);
    if (code == CLI_OK)
        code = judge_again(cli, limit_s, bundle, &verdict);
    if (code != CLI_OK)
        return code;
    AUTO_JSON json_t *result = replay_compare(json_object_get(bundle, "verdict"), verdict);
    json_object_set(result, "id", json_object_get(verdict, "id"));
    if (cli->is_json)
        text_json(result);
    else
        print(result, shows_all);
    return json_is_true(json_object_get(result, "same")) ? CLI_OK : CLI_FAILED;
}
