/* timing: one submission's samples, drawn. */
#include <stdio.h>

#include "client/cli/api.h"
#include "client/cli/chart.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/text.h"
#include "common/auto.h"

const struct argp timing_argp =
    CLI_ARGP(NULL, "ID", "Draw a timing's samples, its interval and the GPU's state.");

int
timing_command(struct cli *cli, int argc, char **argv)
{
    const char *given = NULL;
    AUTO_BUFFER struct buffer path = BUFFER_INIT, text = BUFFER_INIT;
    AUTO_JSON json_t *document = NULL;
    AUTO_FREE char *id = NULL;

    CLI_TAKE(cli, &timing_argp, argc, argv, TAKE_ARGUMENT(&given, "which ID?"));
    int code = find_id(cli, given, FIND_SUBMISSION, &id);
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
