/* main.c - verifier: the command line of verifierd. Finds the command, leaves the rest to it. */
#include <argp.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/auto.h"

#ifndef VERIFIERD_VERSION
#define VERIFIERD_VERSION "unknown"
#endif

static const struct {
    const char *name, *full_name;
    int (*run)(struct cli *cli, int argc, char **argv);
} commands[] = {
    { "submit", "verifier submit", submit_command },
    { "group", "verifier group", group_command },
    { "task", "verifier task", task_command },
    { "show", "verifier show", show_command },
    { "list", "verifier list", list_command },
    { "status", "verifier status", status_command },
    { "top", "verifier top", top_command },
    { "timing", "verifier timing", timing_command },
    { "calibrate", "verifier calibrate", calibrate_command },
    { "cancel", "verifier cancel", cancel_command },
    { "rescore", "verifier rescore", rescore_command },
    { "selftest", "verifier selftest", selftest_command },
    { "export", "verifier export", export_command },
    { "bundle", "verifier bundle", bundle_command },
    { "replay", "verifier replay", replay_command },
    { "retention", "verifier retention", retention_command },
    { "policies", "verifier policies", policies_command },
    { "doctor", "verifier doctor", doctor_command },
};

static const char doc[] =
    "Have GPU kernels judged by verifierd.\v"
    "Commands, each with its own --help:\n"
    "  submit FILE --task T   have one candidate judged\n"
    "  group FILE... --task T have the candidates of one prompt judged together\n"
    "  task add FILE          register a task; also: task list, task show ID\n"
    "  show ID                show a submission or group\n"
    "  timing ID              draw the samples of a submission's timing\n"
    "  list                   list submissions\n"
    "  calibrate              find out how far the machine's times are off\n"
    "  status                 show what verifierd is doing\n"
    "  top                    where work and time go, drawn anew every second\n"
    "  cancel ID              cancel a submission or group\n"
    "  rescore ID...          another reward for verdicts that are stored\n"
    "  selftest               does verifierd tell cheats from honest kernels? --quick: under a minute\n"
    "  export                 submissions, verdicts or rewards as JSON Lines or CSV\n"
    "  bundle ID              all that a verdict came from, as one file\n"
    "  replay FILE            judge a bundle again and compare\n"
    "  retention              what is kept; --run removes what is not to be\n"
    "  policies               the keys of a policy, and what each policy has there\n"
    "  doctor                 is verifierd well, and what mends what is not\n"
    "\n"
    "Exit status: 0 well, 1 the candidate or the selftest failed, 2 usage, 3 configuration, 4 not allowed, "
    "5 not found, 6 refused by verifierd, 7 network, 8 timeout, 77 skipped, 130 interrupted.";

struct start {
    struct cli *cli;
    int command_at; /* index into argv; 0: none */
};

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct start *start = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = start->cli;
        return 0;
    case ARGP_KEY_ARG:
        /* What follows is the command's own. */
        start->command_at = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { NULL, parse, "COMMAND [ARGUMENT...]", doc, children, NULL, NULL };

static const char *
environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

static int
run_command(struct cli *cli, int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[0], commands[i].name) != 0)
            continue;
        AUTO_FREE char *full_name = strdup(commands[i].full_name);
        if (!full_name)
            return cli_complain(CLI_CONFIG, "out of memory");
        argv[0] = full_name; /* argp puts it before its messages */
        return commands[i].run(cli, argc, argv);
    }
    return cli_complain(CLI_USAGE, "there is no command \"%s\"; try `verifier --help`", argv[0]);
}

int
main(int argc, char **argv)
{
    struct cli cli = { environment("VERIFIERD_URL", "http://127.0.0.1:8080"),
                       environment("VERIFIERD_TOKEN", NULL), false, NULL };
    static char name[] = "verifier";
    struct start start = { &cli, 0 };

    setlocale(LC_CTYPE, "");
    argv[0] = name; /* what messages begin with, wherever it was started from */
    argp_err_exit_status = CLI_USAGE;
    argp_program_version = "verifier " VERIFIERD_VERSION;
    cli_note_id(NULL);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &start);
    int code = run_command(&cli, argc - start.command_at, argv + start.command_at);
    http_client_free(cli.http);
    if (fflush(stdout) != 0 && code == CLI_OK)
        code = cli_complain(CLI_CONFIG, "cannot write to standard output");
    return code;
}
