/* verifier retention: the retention times of verifierd; --run removes what is older now. */
#include <time.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

#define POLL_MS 200

enum { OPT_RUN = 256, OPT_VACUUM };

static const struct argp_option options[] = {
    { "run", OPT_RUN, NULL, 0, "Remove what is not to be kept, and wait until that is done", 0 },
    { "vacuum", OPT_VACUUM, NULL, 0, "That, and give all free room in the file back to the disk", 0 },
    { 0 },
};
const struct argp retention_argp =
    CLI_ARGP(options, NULL, "Show what verifierd keeps, how long, and what it last removed.");

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
    bool runs = false, vacuums = false;
    AUTO_JSON json_t *state = NULL;

    CLI_TAKE(cli, &retention_argp, argc, argv, TAKE_FLAG(OPT_RUN, &runs), TAKE_FLAG(OPT_VACUUM, &runs),
             TAKE_FLAG(OPT_VACUUM, &vacuums));
    AUTO_JSON json_t *body = runs ? json_pack("{s:b}", "vacuum", (int)vacuums) : NULL;
    int code = api_call(cli, runs ? "POST" : "GET", "/v1/retention", body, &state);
    if (code == CLI_OK)
        code = follow(cli, &state);
    if (code != CLI_OK)
        return code;
    const char *error = text_member(json_object_get(state, "last"), "error");
    if (cli->is_json)
        text_json(state);
    else
        view_document(state);
    return runs && error ? cli_complain(CLI_REFUSED, "it ended early: %s", error) : CLI_OK;
}
