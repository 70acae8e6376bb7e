/* verifier retention: the retention times of verifierd; --run removes what is older now. */
#include <time.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

#define POLL_MS 200

struct arguments {
    struct cli *cli;
    bool runs, vacuums;
};

enum { OPT_RUN = 256, OPT_VACUUM };

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a->cli;
        return 0;
    case OPT_RUN:
        a->runs = true;
        return 0;
    case OPT_VACUUM:
        a->runs = a->vacuums = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    { "run", OPT_RUN, NULL, 0, "Remove what is not to be kept, and wait until that is done", 0 },
    { "vacuum", OPT_VACUUM, NULL, 0, "That, and give all free room in the file back to the disk", 0 },
    { 0 },
};
const struct argp retention_argp = {
    options,      parse, NULL, "Show what verifierd keeps, how long, and what it last removed.",
    cli_children, NULL,  NULL
};

/* Until the requested sweep has ended. */
static int
follow(struct cli *cli, json_t **state)
{
    const struct timespec pause = { 0, POLL_MS * 1000000L };

    while (json_is_true(json_object_get(*state, "running"))) {
        nanosleep(&pause, NULL);
        json_decref(*state);
        int code = api_call(cli, "GET", "/v1/retention", NULL, state);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

int
retention_command(struct cli *cli, int argc, char **argv)
{
    struct arguments a = { .cli = cli };
    AUTO_JSON json_t *state = NULL;

    argp_parse(&retention_argp, argc, argv, 0, NULL, &a);
    AUTO_JSON json_t *body = a.runs ? json_pack("{s:b}", "vacuum", (int)a.vacuums) : NULL;
    int code = api_call(cli, a.runs ? "POST" : "GET", "/v1/retention", body, &state);
    if (code == CLI_OK)
        code = follow(cli, &state);
    if (code != CLI_OK)
        return code;
    const char *error = text_member(json_object_get(state, "last"), "error");
    if (cli->is_json)
        text_json(state);
    else
        view_document(state);
    return a.runs && error ? cli_complain(CLI_REFUSED, "it ended early") : CLI_OK;
}
