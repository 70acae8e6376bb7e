/*
 * commands.c - the table of commands. Dispatch, help and the shells' completions come from it, and from each command's
 * own argp.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/auto.h"
#include "common/buffer.h"

#define ROW(words, symbol) { words, &symbol##_argp, symbol##_command },
const struct command commands[] = { COMMANDS(ROW) };
#undef ROW
const size_t commands_count = ARRAY_LEN(commands);

/* --- what the program itself takes --- */

struct start {
    struct cli *cli;
    int command_at; /* index into argv */
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
        /* The following arguments are the command's own. */
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

char *
command_summary(const struct argp *argp)
{
    return strndup(argp->doc, strcspn(argp->doc, ".:\v"));
}

static char *
list_commands(int key, const char *text, void *input)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    buffer_add(&out, "Commands, each with its own --help:\n");
    for (size_t i = 0; i < commands_count; i++) {
        AUTO_FREE char *summary = command_summary(commands[i].argp);
        buffer_printf(&out, "  %-12s  %s\n", commands[i].name, summary ? summary : "");
    }
    buffer_printf(&out, "\n%s", text);
    return buffer_take(&out, NULL);
}

static const char program_doc[] =
    "Have GPU kernels judged by verifierd.\v"
    "Exit status: 0 well, 1 the candidate or the selftest failed, 2 usage, 3 configuration, 4 not allowed, "
    "5 not found, 6 refused by verifierd, 7 network, 8 timeout, 77 skipped, 130 interrupted.";
static const struct argp program_argp = { NULL,        parse,        "COMMAND [ARGUMENT...]",
                                          program_doc, cli_children, list_commands,
                                          NULL };

/* --- finding one --- */

/* How many words of argv are the command's name; 0: it is another. */
static int
count_matching(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');
    size_t size = space ? (size_t)(space - name) : strlen(name);

    if (argc < 1 || strlen(argv[0]) != size || strncmp(argv[0], name, size) != 0)
        return 0;
    if (!space)
        return 1;
    return argc > 1 && strcmp(argv[1], space + 1) == 0 ? 2 : 0;
}

static bool
is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-?") == 0 || strcmp(word, "-h") == 0;
}

/* Lists the words that can follow a first word that alone is not a command. */
static int
list_family(int argc, char **argv)
{
    bool is_asked = argc > 1 && is_help(argv[1]);
    FILE *to = is_asked ? stdout : stderr;
    size_t size = strlen(argv[0]), n = 0;

    for (size_t i = 0; i < commands_count; i++) {
        if (strncmp(commands[i].name, argv[0], size) != 0 || commands[i].name[size] != ' ')
            continue;
        fprintf(to, "%s verifier %s [OPTION...]%s%s\n", n++ == 0 ? "Usage:" : "      ", commands[i].name,
                commands[i].argp->args_doc ? " " : "",
                commands[i].argp->args_doc ? commands[i].argp->args_doc : "");
    }
    if (n == 0)
        return cli_complain(CLI_USAGE, "there is no command \"%s\"; try `verifier --help`", argv[0]);
    fputs("Each has its own --help.\n", to);
    return is_asked ? CLI_OK : CLI_USAGE;
}

static int
run(struct cli *cli, int argc, char **argv)
{
    for (size_t i = 0; i < commands_count; i++) {
        int words = count_matching(commands[i].name, argc, argv);
        if (words == 0)
            continue;
        AUTO_BUFFER struct buffer full_name = BUFFER_INIT;
        if (buffer_printf(&full_name, "verifier %s", commands[i].name) < 0)
            return cli_complain(CLI_CONFIG, "out of memory");
        argv[words - 1] = full_name.data; /* argp puts it before its messages */
        return commands[i].run(cli, argc - words + 1, argv + words - 1);
    }
    return list_family(argc, argv);
}

int
command_main(struct cli *cli, int argc, char **argv)
{
    static char name[] = "verifier";
    struct start start = { cli, 0 };

    argv[0] = name; /* messages begin with it, whatever the path of the program */
    argp_parse(&program_argp, argc, argv, ARGP_IN_ORDER, NULL, &start);
    return run(cli, argc - start.command_at, argv + start.command_at);
}

/* --- help, version --- */

struct words {
    char *word[2];
    int n;
};

static void
take_word(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct words *w = out;

    (void)name;
    if ((size_t)w->n == ARRAY_LEN(w->word))
        argp_error(state, "unexpected argument \"%s\"", arg);
    w->word[w->n++] = arg;
}

const struct argp help_argp = CLI_ARGP(NULL, "[COMMAND]", "Say what a command does.");

int
help_command(struct cli *cli, int argc, char **argv)
{
    static char help[] = "--help", name[] = "verifier";
    struct words w = { 0 };

    CLI_TAKE(cli, &help_argp, argc, argv, TAKE_CALL(ARGP_KEY_ARG, take_word, &w));
    char *asked[] = { name, help, NULL, NULL };
    if (w.n == 0)
        return command_main(cli, 2, asked);
    memcpy(asked, w.word, (size_t)w.n * sizeof(*asked));
    asked[w.n] = help;
    return run(cli, w.n + 1, asked);
}

const struct argp version_argp = CLI_ARGP(NULL, NULL, "Print the version.");

int
version_command(struct cli *cli, int argc, char **argv)
{
    CLI_TAKE(cli, &version_argp, argc, argv);
    puts(argp_program_version);
    return CLI_OK;
}
