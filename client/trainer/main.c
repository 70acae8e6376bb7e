/* main.c - trainer: what a training run asks of verifierd. Finds the command, leaves the rest to it. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/program.h"

#ifndef VERIFIERD_VERSION
#define VERIFIERD_VERSION "unknown"
#endif

static const struct {
    const char *name;
    int (*run)(struct trainer *t, int argc, char **argv);
} commands[] = {
    { "prepare", prepare_command },
    { "fuse", prepare_command },
    { "bestofn", bestofn_command },
    { "evaluate", evaluate_command },
    { "sft", sft_command },
    { "weighted", weighted_command },
    { "reinforce", reinforce_command },
    { "run", pipeline_command },
    { "status", pipeline_command },
    { "report", pipeline_command },
    { "bucket", pipeline_command },
    { "sync", pipeline_command },
    { "resume", pipeline_command },
    { "watch", watch_command },
    { "grpo", grpo_command },
    { "compare", pipeline_command },
    { "selftest", selftest_command },
    { "extraction", extraction_command }, /* of `trainer run`, and not listed */
};

static const char doc[] =
    "Sample kernels from a model, have verifierd judge them, and learn from the rewards.\v"
    "Commands, each with its own --help:\n"
    "  prepare   the rows of a data set that are fit to be tasks, and to learn from\n"
    "  fuse      new tasks of level 2, composed of operations that are worth fusing\n"
    "  bestofn   sample N answers for each task and keep the best K for fine-tuning\n"
    "  sft       fine-tune on rows; with --preset bestofn on what Best-of-N kept\n"
    "  weighted  fine-tune on rows that weigh as much as their rewards\n"
    "  reinforce sample, have judged, and follow the reward's gradient\n"
    "  grpo      the same by TRL's GRPO\n"
    "  run       all of it, from data to a report, by one configuration file\n"
    "  status    where a run stands\n"
    "  report    one page and one document of what a run did\n"
    "  bucket    an encrypted, versioned S3 bucket for sync, and its policy\n"
    "  sync      a run's checkpoints and results to a remote\n"
    "  resume    restore a run from a remote\n"
    "  watch     end a run with a checkpoint when its machine is to be taken away\n"
    "  evaluate  how well a model does on a set of tasks\n"
    "  compare   evaluations side by side, with what lies between them\n"
    "  selftest  do the curricula draw what they are said to draw?\n"
    "\n"
    "Exit status: 0 well, 1 not reached, 2 usage, 3 configuration or disk, 5 nothing to resume, "
    "7 a service, 9 no code in any answer, 75 interrupted with a checkpoint (run it again), "
    "130 interrupted.";

static int
parse(int key, char *arg, struct argp_state *state)
{
    int *command_at = state->input;

    switch (key) {
    case 'h': /* argp has -? */
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG: /* the following arguments are the command's own */
        if (strcmp(arg, "help") == 0)
            argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        if (strcmp(arg, "version") == 0) {
            puts(argp_program_version);
            exit(TRAINER_OK);
        }
        *command_at = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = { { NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 }, { 0 } };
static const struct argp argp = { options, parse, "COMMAND [ARGUMENT...]", doc, NULL, NULL, NULL };

int
main(int argc, char **argv)
{
    static char name[] = "trainer";
    struct trainer t = {
        .daemon_url = program_environment("VERIFIERD_URL", "http://127.0.0.1:8080"),
        .daemon_token = program_environment("VERIFIERD_TOKEN", NULL),
        .run = program_environment("VERIFIERD_RUN", NULL),
        .endpoint_url = program_environment("TRAINER_ENDPOINT", NULL),
        .endpoint_key = program_environment("OPENAI_API_KEY", NULL),
        .temperature = 0.8,
        .top_p = 1,
        .max_tokens = 2048,
        .timeout_s = 600,
        .attempts = 6,
        .concurrency = 8,
        .workdir = ".",
    };
    int command_at = 0;

    setlocale(LC_CTYPE, "");
    setvbuf(stderr, NULL, _IOLBF, 0);
    trainer_catch_signals();
    argv[0] = name;
    argp_err_exit_status = TRAINER_USAGE;
    argp_program_version = "trainer " VERIFIERD_VERSION;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command_at);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[command_at], commands[i].name) != 0)
            continue;
        AUTO_FREE char *full_name = NULL;
        if (asprintf(&full_name, "trainer %s", commands[i].name) < 0)
            return trainer_complain(TRAINER_CONFIG, "out of memory");
        argv[command_at] = full_name; /* argp puts it before its messages */
        return commands[i].run(&t, argc - command_at, argv + command_at);
    }
    return trainer_complain(TRAINER_USAGE, "there is no command \"%s\"; try `trainer --help`",
                            argv[command_at]);
}
