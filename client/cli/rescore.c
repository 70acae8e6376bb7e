/* verifier rescore: another reward over verdicts that are stored. Nothing is judged again. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"

struct rescore {
    struct cli *cli;
    const char *group;
    json_t *reward, *params, *ids; /* borrowed from rescore_command() */
};

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

/* A whole text as a number, or the end of the program. */
static double
number_of(const char *text, const char *what, struct argp_state *state)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end)
        argp_error(state, "%s: '%s' is not a number", what, text);
    return x;
}

static void
add_param(struct rescore *r, char *pair, struct argp_state *state)
{
    char *equals = strchr(pair, '=');
    if (!equals) {
        argp_error(state, "--param takes NAME=NUMBER");
        return;
    }
    *equals = '\0';
    json_object_set_new(r->params, pair, json_real(number_of(equals + 1, pair, state)));
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct rescore *r = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = r->cli;
        return 0;
    case OPT_GROUP:
        r->group = arg;
        return 0;
    case OPT_KIND:
        json_object_set_new(r->reward, "kind", json_string(arg));
        return 0;
    case OPT_VERSION:
        json_object_set_new(r->reward, "version",
                            json_integer((json_int_t)number_of(arg, "--version", state)));
        return 0;
    case OPT_PARAM:
        add_param(r, arg, state);
        return 0;
    case OPT_EXPR:
        json_object_set_new(r->reward, "kind", json_string("expr"));
        json_object_set_new(r->reward, "expr", json_string(arg));
        return 0;
    case OPT_SPEED:
        json_object_set_new(r->reward, "speed", json_string(arg));
        return 0;
    case OPT_HACK:
        json_object_set_new(r->reward, "hack_value", json_real(number_of(arg, "--hack-value", state)));
        return 0;
    case ARGP_KEY_ARG:
        json_array_append_new(r->ids, json_string(arg));
        return 0;
    case ARGP_KEY_END:
        if ((r->group != NULL) == (json_array_size(r->ids) > 0))
            argp_error(state, "name submissions, or a --group");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp rescore_argp = {
    options,      parse,
    "[ID...]",    "Compute another reward for verdicts that are stored. Nothing is judged again.",
    cli_children, NULL,
    NULL
};

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
put_group(struct rescore *r, json_t *body)
{
    AUTO_FREE char *id = NULL;
    int code = find_id(r->cli, r->group, FIND_GROUP, &id);

    if (code == CLI_OK)
        json_object_set_new(body, "group", json_string(id));
    return code;
}

static int
put_submissions(struct rescore *r, json_t *body)
{
    json_t *whole = json_array(), *text;
    size_t i;
    int code = CLI_OK;

    json_object_set_new(body, "submissions", whole);
    json_array_foreach(r->ids, i, text)
    {
        AUTO_FREE char *id = NULL;
        if (code == CLI_OK)
            code = find_id(r->cli, json_string_value(text), FIND_SUBMISSION, &id);
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
    struct rescore r = { cli, NULL, reward, params, ids };

    argp_parse(&rescore_argp, argc, argv, 0, NULL, &r);
    if (json_object_size(params) > 0)
        json_object_set(reward, "params", params);
    AUTO_JSON json_t *body = json_pack("{s:O}", "reward", reward);
    int code = r.group ? put_group(&r, body) : put_submissions(&r, body);
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
