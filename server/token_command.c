#include "server/token_command.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/audit.h"
#include "server/config.h"
#include "server/token.h"

#define DAY_MS (24 * INT64_C(3600000))
#define DAYS_MAX 36500

enum { KEY_CONFIG = 1000, KEY_STORE, KEY_TOKENS };

struct arguments {
    const char *verb;
    const char *name, *scope, *client, *days;
    const char
        *settings[3]; /* --config, --store, --tokens: as they are given to config_load(); NULL: not given */
};

static const struct argp_option options[] = {
    { "name", 'n', "NAME", 0, "The token's name: 1 to 64 of A-Z a-z 0-9 . _ -", 0 },
    { "scope", 's', "SCOPE[,...]", 0, "new: what it may do: submit, read, admin", 0 },
    { "client", 'c', "NAME", 0, "new: whose submissions it makes and sees (default: the token's name)", 0 },
    { "days", 'd', "N", 0, "new: it expires after N days (default: never)", 0 },
    { "config", KEY_CONFIG, "FILE", 0, "The daemon's settings, which name the file of tokens", 1 },
    { "store", KEY_STORE, "FILE", 0, "The daemon's database, beside which the tokens lie", 1 },
    { "tokens", KEY_TOKENS, "FILE", 0, "The file of tokens itself", 1 },
    { NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 },
    { 0 },
};

static error_t
parse(int key, char *value, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case 'n':
        a->name = value;
        return 0;
    case 's':
        a->scope = value;
        return 0;
    case 'c':
        a->client = value;
        return 0;
    case 'd':
        a->days = value;
        return 0;
    case KEY_CONFIG:
    case KEY_STORE:
    case KEY_TOKENS:
        a->settings[key - KEY_CONFIG] = value;
        return 0;
    case 'h': /* argp has -? */
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        if (a->verb)
            argp_error(state, "one of new, list, revoke is expected, and no more: \"%s\"", value);
        a->verb = value;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "one of new, list, revoke is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int
complain(const struct error *err)
{
    fprintf(stderr, "verifierd: %s\n", err->text);
    return EXIT_FAILURE;
}

static int
make_new(const char *path, const struct arguments *a)
{
    struct token row = { 0 };
    struct error err = { 0 };
    char text[TOKEN_TEXT_SIZE], scopes[SCOPES_TEXT_SIZE], *end = "";
    const char *client = a->client ? a->client : a->name;
    long days = a->days ? strtol(a->days, &end, 10) : 0;

    if (!a->name || !a->scope)
        error_set(&err, ERR_INPUT, "token new: --name and --scope are needed");
    else if (!token_name_is_valid(a->name) || !token_name_is_valid(client))
        error_set(&err, ERR_INPUT, "token new: a name is 1 to 64 of A-Z a-z 0-9 . _ -, not \"%.80s\"",
                  token_name_is_valid(a->name) ? client : a->name);
    else if (a->days && (*end || days < 1 || days > DAYS_MAX))
        error_set(&err, ERR_INPUT, "token new: --days is 1 to %d, not \"%.40s\"", DAYS_MAX, a->days);
    else if (scopes_parse(a->scope, &row.scopes, &err) == 0) {
        snprintf(row.name, sizeof(row.name), "%s", a->name);
        snprintf(row.client, sizeof(row.client), "%s", client);
        row.expires_ms = days ? clock_wall_ms() + days * DAY_MS : 0;
        token_add(path, &row, text, &err);
    }
    if (err.code != ERR_NONE)
        return complain(&err);
    scopes_text(row.scopes, scopes);
    printf("%s\n", text);
    fprintf(stderr, "verifierd: token %s (%s) for client %s, in %s; this is the only time that it is shown\n",
            row.name, scopes, row.client, path);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const char *
when(int64_t wall_ms, char out[CLOCK_TEXT_SIZE])
{
    if (!wall_ms)
        return "never";
    clock_text(wall_ms, out);
    return out;
}

static int
list_all(const char *path)
{
    struct token_list list;
    struct error err = { 0 };

    if (token_list_load(path, &list, &err) != 0)
        return complain(&err);
    printf("%-24s %-24s %-18s %-25s %s\n", "NAME", "CLIENT", "SCOPES", "CREATED", "EXPIRES");
    for (size_t i = 0; i < list.n; i++) {
        char scopes[SCOPES_TEXT_SIZE], created[CLOCK_TEXT_SIZE], expires[CLOCK_TEXT_SIZE];
        scopes_text(list.rows[i].scopes, scopes);
        printf("%-24s %-24s %-18s %-25s %s\n", list.rows[i].name, list.rows[i].client, scopes,
               when(list.rows[i].created_ms, created), when(list.rows[i].expires_ms, expires));
    }
    token_list_release(&list);
    return EXIT_SUCCESS;
}

static int
revoke_named(const char *path, const struct arguments *a)
{
    struct error err = { 0 };

    if (!a->name)
        error_set(&err, ERR_INPUT, "token revoke: --name is needed");
    else
        token_revoke(path, a->name, &err);
    if (err.code != ERR_NONE)
        return complain(&err);
    fprintf(stderr, "verifierd: token %s is revoked\n", a->name);
    return EXIT_SUCCESS;
}

/* The settings say where the file is, by the daemon's own rules. Given: config_release(). */
static int
load_config(const struct arguments *a, struct config *out, struct error *err)
{
    static const char *const flags[] = { "--config", "--store", "--tokens" };
    char *argv[2 + ARRAY_LEN(flags)] = { "verifierd" };
    int argc = 1, rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(flags) && rc == 0; i++)
        if (a->settings[i] && asprintf(&argv[argc++], "%s=%s", flags[i], a->settings[i]) < 0)
            rc = error_set(err, ERR_NOMEM, "no memory for the settings");
    if (rc == 0)
        rc = config_load(argc, argv, out, err);
    while (argc > 1)
        free(argv[--argc]);
    return rc;
}

static int
note(const char *path, const struct arguments *a)
{
    char who[32], action[32];
    struct error err = { 0 };

    snprintf(who, sizeof(who), "uid %lu", (unsigned long)getuid());
    snprintf(action, sizeof(action), "token %s", a->verb);
    return audit_write(path, who, action, a->name, NULL, &err) == 0 ? EXIT_SUCCESS : complain(&err);
}

int
token_command(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "new|list|revoke",
        .doc = "Make, list or revoke the tokens that callers of verifierd show."
               "\vA running daemon sees the change with the next request. `new` prints the token, once.",
    };
    struct arguments a = { 0 };
    struct config config;
    struct error err = { 0 };
    int status = EXIT_FAILURE;

    argv[0] = "verifierd token";
    if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
        return EXIT_FAILURE;
    if (load_config(&a, &config, &err) != 0)
        return complain(&err);
    if (strcmp(a.verb, "new") == 0)
        status = make_new(config.tokens, &a);
    else if (strcmp(a.verb, "list") == 0)
        status = list_all(config.tokens);
    else if (strcmp(a.verb, "revoke") == 0)
        status = revoke_named(config.tokens, &a);
    else
        fprintf(stderr, "verifierd: token: one of new, list, revoke is expected, not \"%s\"\n", a.verb);
    if (status == EXIT_SUCCESS && strcmp(a.verb, "list") != 0)
        status = note(config.tokens, &a);
    config_release(&config);
    return status;
}
