#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/ask.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

struct submit {
    struct ask ask;
    const char *file;
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct submit *s = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &s->ask;
        return 0;
    case ARGP_KEY_ARG:
        if (s->file)
            argp_error(state, "one FILE at a time; `verifier group` takes several");
        s->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!s->file)
            argp_error(state, "which FILE?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &ask_argp, 0, NULL, 0 }, { 0 } };
const struct argp submit_argp = {
    NULL,     parse, "FILE", "Have one candidate judged.\vFILE is Python source; - is standard input.",
    children, NULL,  NULL
};

static int
follow(struct submit *s, const char *id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *verdict = NULL;

    if (!s->ask.cli->is_alone)
        cli_note_id(id);
    if (!s->ask.cli->is_json && !s->ask.cli->is_alone)
        fprintf(stderr, "verifier: submitted %s\n", id);
    api_path_add(&path, "/v1/submissions/", id);
    int code = api_follow(s->ask.cli, path.data, s->ask.limit_s, &verdict);
    if (verdict && s->ask.cli->is_json)
        text_json(verdict);
    if (code == CLI_TIMEOUT)
        return cli_complain(code, "no verdict after %g s; it goes on: verifier show %s", s->ask.limit_s, id);
    if (code != CLI_OK)
        return code;
    if (!s->ask.cli->is_json)
        view_submission(verdict);
    const char *class = text_member(verdict, "class");
    return class && strcmp(class, "ok") == 0 ? CLI_OK : CLI_FAILED;
}

static int
submit(struct submit *s)
{
    AUTO_JSON json_t *body = NULL, *answer = NULL;
    int code = ask_candidate(&s->ask, s->file, &body);
    if (code == CLI_OK)
        code = ask_put(&s->ask, body);
    if (code == CLI_OK)
        code = api_call(s->ask.cli, "POST", "/v1/submissions", body, &answer);
    if (code != CLI_OK)
        return code;
    const char *id = text_member(answer, "id");
    if (!id)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    if (s->ask.is_waiting)
        return follow(s, id);
    if (s->ask.cli->is_json)
        text_json(answer);
    else
        puts(id);
    return CLI_OK;
}

int
submit_command(struct cli *cli, int argc, char **argv)
{
    struct submit s = { .ask = { .cli = cli, .limit_s = -1 } };

    argp_parse(&submit_argp, argc, argv, 0, NULL, &s);
    int code = submit(&s);
    ask_release(&s.ask);
    return code;
}
