/* policies: the keys of a policy, what each may be, and what it is in each policy. */
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/policy.h"

json_t *
cli_policy(struct argp_state *state, const char *text)
{
    struct error err = { 0 };
    json_t *policy = NULL;

    if (policy_parse(text, &policy, &err) != 0)
        argp_error(state, "--policy: %s", err.text);
    return policy;
}

/* {"key", "values", "help", "policies": {name: value}} */
static json_t *
key_json(const struct policy_key *key)
{
    char name[64], values[96];
    json_t *each = json_object();
    const struct policy *policy;

    snprintf(name, sizeof(name), "%s%s%s", key->section, *key->section ? "." : "", key->name);
    if (key->type == POLICY_INT)
        snprintf(values, sizeof(values), "%lld to %lld", (long long)key->least, (long long)key->most);
    else
        snprintf(values, sizeof(values), "%s", key->type == POLICY_BOOL ? "true,false" : key->words);
    for (size_t i = 0; (policy = policy_at(i)); i++)
        json_object_set_new(each, policy->name, policy_value(policy, key));
    return json_pack("{s:s, s:s, s:s, s:o}", "key", name, "values", values, "help", key->help, "policies",
                     each);
}

static json_t *
keys_json(void)
{
    json_t *out = json_array();
    size_t n;
    const struct policy_key *keys = policy_keys(&n);

    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, key_json(&keys[i]));
    return out;
}

static void
print(json_t *keys)
{
    const char *titles[16] = { "KEY", "VALUES" };
    size_t n = 2, i;
    const struct policy *policy;
    json_t *row;

    for (i = 0; (policy = policy_at(i)); i++)
        titles[n++] = policy->name;
    titles[n++] = "WHAT IT DOES";
    AUTO_TABLE struct table *table = table_new(titles, n);
    json_array_foreach(keys, i, row)
    {
        const char *cells[ARRAY_LEN(titles)] = { text_member(row, "key"), text_member(row, "values") };
        char *made[ARRAY_LEN(titles)] = { NULL };
        for (size_t k = 2; k + 1 < n; k++) {
            json_t *value = json_object_get(json_object_get(row, "policies"), titles[k]);
            made[k] = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
            cells[k] = made[k] ? made[k] : json_string_value(value);
        }
        cells[n - 1] = text_member(row, "help");
        table_row(table, cells);
        for (size_t k = 2; k + 1 < n; k++)
            free(made[k]);
    }
    table_print(table);
}

const struct argp policies_argp =
    CLI_ARGP(NULL, NULL, "Print the keys of policies, and what each policy has.");

int
policies_command(struct cli *cli, int argc, char **argv)
{
    AUTO_JSON json_t *keys = keys_json();

    CLI_TAKE(cli, &policies_argp, argc, argv);
    if (cli->is_json)
        text_json(keys);
    else
        print(keys);
    return CLI_OK;
}
