#include "client/cli/ask.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

static const struct argp_child children[] = { { &ask_argp, 0, NULL, 0 }, { 0 } };
const struct argp submit_argp = {
    NULL,     cli_parse, "FILE", "Have one candidate judged.\vFILE is Python source; - is standard input.",
    children, NULL,      NULL
};

static void
take_another(struct argp_state *state, const char *name, char *arg, void *out)
{
    (void)name, (void)arg, (void)out;
    argp_error(state, "one FILE at a time; `verifier group` takes several");
}

static int
submit(const struct ask *ask, const char *file)
{
    AUTO_JSON json_t *body = NULL, *verdict = NULL;
    int code = ask_candidate(ask, file, &body);

    if (code == CLI_OK)
        code = ask_post(ask, "/v1/submissions", body, &verdict);
    if (code != CLI_OK || !verdict)
        return code;
    if (!ask->cli->is_json)
        view_submission(verdict);
    return text_is(verdict, "class", "ok") ? CLI_OK : CLI_FAILED;
}

int
submit_command(struct cli *cli, int argc, char **argv)
{
    struct ask ask = { .cli = cli, .limit_s = -1 };
    const char *file = NULL;

    CLI_TAKE(&ask, &submit_argp, argc, argv, TAKE_ARGUMENT(&file, "which FILE?"),
             TAKE_CALL(ARGP_KEY_ARG, take_another, NULL));
    int code = submit(&ask, file);
    ask_release(&ask);
    return code;
}
