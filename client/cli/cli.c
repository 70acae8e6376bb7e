#include "client/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/profile.h"

/* The signal handler's output: made beforehand, since the handler may call nothing that allocates or formats. */
static char interrupt_note[256];
static volatile sig_atomic_t interrupt_note_size;

int
cli_complain(enum cli_exit code, const char *format, ...)
{
    va_list args;

    fputs("verifier: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return (int)code;
}

int
cli_misuse(const char *command, const char *text)
{
    fprintf(stderr, "%s: %s\nTry `%s --help' or `%s --usage' for more information.\n", command, text, command,
            command);
    return CLI_USAGE;
}

static void
interrupted(int signal_number)
{
    (void)signal_number;
    ssize_t n = write(STDERR_FILENO, interrupt_note, (size_t)interrupt_note_size);
    (void)n;
    _exit(CLI_INTERRUPTED);
}

void
cli_note_id(const char *id)
{
    struct sigaction action = { .sa_handler = interrupted };
    sigset_t block, before;

    /* The handler must not see a half-written note. */
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigprocmask(SIG_BLOCK, &block, &before);
    interrupt_note[0] = '\0';
    if (id && id[0])
        snprintf(interrupt_note, sizeof(interrupt_note),
                 "\nverifier: interrupted; judging goes on: verifier show %.80s, or verifier cancel %.80s\n",
                 id, id);
    interrupt_note_size = (sig_atomic_t)strlen(interrupt_note);
    sigaction(SIGINT, &action, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

enum { OPT_CACERT = 1024 };

static error_t
parse_common(int key, char *arg, struct argp_state *state)
{
    struct cli *cli = state->input;
    struct error err = { 0 };

    switch (key) {
    case 'u':
        cli->url = arg;
        cli->token = cli->is_profile ? NULL : cli->token; /* a token goes to the server that it is for */
        cli->is_profile = false;
        return 0;
    case 's':
        if (profile_use(cli, arg) != CLI_OK)
            exit(CLI_CONFIG);
        cli->is_profile = !cli->is_token_given;
        return 0;
    case 't':
        cli->token = arg;
        cli->is_profile = false;
        cli->is_token_given = true;
        return 0;
    case OPT_CACERT:
        if (http_client_cacert(arg, &err) != 0)
            argp_error(state, "%s", err.text);
        return 0;
    case 'j':
        cli->is_json = true;
        return 0;
    case 'h': /* argp has -? */
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option common_options[] = {
    { "url", 'u', "URL", 0, "Address of verifierd (or VERIFIERD_URL; default http://127.0.0.1:8080)", -2 },
    { "server", 's', "NAME", 0, "The server of this name in ~/.config/verifier.conf (or VERIFIERD_SERVER)",
      -2 },
    { "token", 't', "TOKEN", 0,
      "Bearer token (or VERIFIERD_TOKEN, which other users of the machine cannot see)", -2 },
    { "cacert", OPT_CACERT, "FILE", 0,
      "The certificates to believe, PEM (or CURL_CA_BUNDLE, SSL_CERT_FILE; default: the system's)", -2 },
    { "json", 'j', NULL, 0, "Print what verifierd answered, for programs", -2 },
    { NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 },
    { 0 },
};

const struct argp cli_common_argp = { common_options, parse_common, NULL, NULL, NULL, NULL, NULL };
const struct argp_child cli_children[] = { { &cli_common_argp, 0, NULL, -1 }, { 0 } };

/* The input of a command's argp. */
struct line {
    void *child;
    const struct take *rows;
    size_t n;
};

error_t
cli_parse(int key, char *arg, struct argp_state *state)
{
    const struct line *line = state->input;

    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = line->child;
    error_t rc = take(line->rows, line->n, key, arg, state);
    if (rc == ARGP_ERR_UNKNOWN && key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument \"%s\"", arg);
    return key == ARGP_KEY_INIT ? 0 : rc;
}

void
cli_take(void *child, const struct argp *argp, int argc, char **argv, const struct take *rows, size_t n)
{
    struct line line = { child, rows, n };

    argp_parse(argp, argc, argv, 0, NULL, &line);
}
