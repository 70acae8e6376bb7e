/* timing: one submission's samples, drawn. */
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/api.h"
#include "client/cli/chart.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/text.h"
#include "common/auto.h"

struct timing {
    struct cli *cli;
    const char *id;
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct timing *t = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = t->cli;
        return 0;
    case ARGP_KEY_ARG:
        if (t->id)
            argp_error(state, "one ID at a time");
        t->id = arg;
        return 0;
    case ARGP_KEY_END:
        if (!t->id)
            argp_error(state, "which ID?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp timing_argp = {
    NULL, parse, "ID", "Draw a timing's samples, its interval and the GPU's state.", cli_children, NULL, NULL
};

int
timing_command(struct cli *cli, int argc, char **argv)
{
    struct timing t = { .cli = cli };
    AUTO_BUFFER struct buffer path = BUFFER_INIT, text = BUFFER_INIT;
    AUTO_JSON json_t *document = NULL;
    AUTO_FREE char *id = NULL;

    argp_parse(&timing_argp, argc, argv, 0, NULL, &t);
    int code = find_id(cli, t.id, FIND_SUBMISSION, &id);
    if (code != CLI_OK)
        return code;
    api_path_add(&path, "/v1/submissions/", id);
    buffer_add(&path, "/timing");
    code = api_call(cli, "GET", path.data, NULL, &document);
    if (code != CLI_OK)
        return code;
    if (cli->is_json) {
        text_json(document);
        return CLI_OK;
    }
    chart_timing(&text, document);
    text_print(stdout, text.data ? text.data : "");
    return CLI_OK;
}
