/* verifier rescore: another reward over verdicts that are stored. Nothing is judged again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"

enum {
    OPT_GROUP = 'g',
    OPT_KIND = 'k',
    OPT_PARAM = 'p',
    OPT_EXPR = 'e',
    OPT_SPEED = 256,
    OPT_VERSION,
    OPT_HACK
};

static const struct argp_option options[] = {
    { "group", OPT_GROUP, "ID", 0, "Every item of this group", 0 },
    { "kind", OPT_KIND, "NAME", 0, "The reward (default staged)", 0 },
    { "version", OPT_VERSION, "N", 0, "Of that reward (default the newest)", 0 },
    { "param", OPT_PARAM, "NAME=NUMBER", 0, "One of its parameters; may be repeated", 0 },
    { "expr", OPT_EXPR, "TEXT", 0, "A formula of your own; implies --kind expr", 0 },
    { "speed", OPT_SPEED, "WHICH", 0, "point or conservative", 0 },
    { "hack-value", OPT_HACK, "NUMBER", 0, "The reward of a cheat, -1 to 0", 0 },
    { 0 },
};

/* A member of the reward that an option gives. */
static void
take_member(struct argp_state *state, const char *name, char *arg, void *out)
{
    (void)state;
    if (strcmp(name, "--expr") == 0)
        json_object_set_new(out, "kind", json_string("expr"));
    json_object_set_new(out, name + strlen("--"), json_string(arg));
}

static void
take_version(struct argp_state *state, const char *name, char *arg, void *out)
{
    json_object_set_new(out, "version", json_integer(take_int(state, name, arg, 1, 1000)));
}

static void
take_hack(struct argp_state *state, const char *name, char *arg, void *out)
{
    json_object_set_new(out, "hack_value", json_real(take_number(state, name, arg, "", -1, 0)));
}

static void
take_param(struct argp_state *state, const char *name, char *arg, void *out)
{
    char *equals = strchr(arg, '=');
    if (!equals) {
        argp_error(state, "%s takes NAME=NUMBER", name);
        return;
    }
    *equals = '\0';
    char *end;
    double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !isfinite(value)) {
        argp_error(state, "%s %s takes a number, not \"%s\"", name, arg, equals + 1);
        return;
    }
    json_object_set_new(out, arg, json_real(value));
}

static void
take_id(struct argp_state *state, const char *name, char *arg, void *out)
{
    (void)state, (void)name;
    json_array_append_new(out, json_string(arg));
}

const struct argp rescore_argp = CLI_ARGP(
    options, "[ID...]", "Compute another reward for verdicts that are stored. Nothing is judged again.");

static void
print(json_t *answer)
{
    static const char *const titles[] = { "submission", "class", ">stored", ">reward", "parts" };
    AUTO_TABLE struct table *table = table_new(titles, ARRAY_LEN(titles));
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(answer, "items"), i, item)
    {
        AUTO_BUFFER struct buffer stored = BUFFER_INIT, reward = BUFFER_INIT, parts = BUFFER_INIT;
        text_number(&stored, item, "stored_reward", 4);
        text_number(&reward, item, "reward", 4);
        text_value(&parts, json_object_get(item, "reward_parts"));
        const char *cells[] = { text_member(item, "id"), text_member(item, "class"), stored.data, reward.data,
                                parts.data };
        table_row(table, cells);
    }
    table_print(table);
}

static int
put_group(struct cli *cli, const char *group, json_t *body)
{
    AUTO_FREE char *id = NULL;
    int code = find_id(cli, group, FIND_GROUP, &id);

    if (code == CLI_OK)
        json_object_set_new(body, "group", json_string(id));
    return code;
}

static int
put_submissions(struct cli *cli, json_t *ids, json_t *body)
{
    json_t *whole = json_array(), *text;
    size_t i;
    int code = CLI_OK;

    json_object_set_new(body, "submissions", whole);
    json_array_foreach(ids, i, text)
    {
        AUTO_FREE char *id = NULL;
        if (code == CLI_OK)
            code = find_id(cli, json_string_value(text), FIND_SUBMISSION, &id);
        json_array_append_new(whole, json_string(id));
    }
    return code;
}

int
rescore_command(struct cli *cli, int argc, char **argv)
{
    AUTO_JSON json_t *reward = json_object();
    AUTO_JSON json_t *params = json_object();
    AUTO_JSON json_t *ids = json_array();
    AUTO_JSON json_t *answer = NULL;
    const char *group = NULL;

    CLI_TAKE(cli, &rescore_argp, argc, argv, TAKE_CALL(ARGP_KEY_ARG, take_id, ids),
             TAKE_TEXT(OPT_GROUP, &group), TAKE_CALL(OPT_KIND, take_member, reward),
             TAKE_CALL(OPT_VERSION, take_version, reward), TAKE_CALL(OPT_PARAM, take_param, params),
             TAKE_CALL(OPT_EXPR, take_member, reward), TAKE_CALL(OPT_SPEED, take_member, reward),
             TAKE_CALL(OPT_HACK, take_hack, reward));
    if ((group != NULL) == (json_array_size(ids) > 0))
        return cli_misuse(argv[0], "name submissions, or a --group");
    if (json_object_size(params) > 0)
        json_object_set(reward, "params", params);
    AUTO_JSON json_t *body = json_pack("{s:O}", "reward", reward);
    int code = group ? put_group(cli, group, body) : put_submissions(cli, ids, body);
    if (code == CLI_OK)
        code = api_call(cli, "POST", "/v1/rescore", body, &answer);
    if (code != CLI_OK)
        return code;
    if (cli->is_json)
        text_json(answer);
    else
        print(answer);
    return CLI_OK;
}
