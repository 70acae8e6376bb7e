/*
 * selftest.c - the options of `verifier selftest`. The Python package `selftest`, in ../lib/verifierd of this program's
 * directory, has the corpus judged.
 */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "common/auto.h"

#define WIDTH_MAX 64

struct selftest {
    struct cli *cli;
    const char **words; /* the arguments of the package: views, NULL after the last */
    size_t n;
    bool is_quick, is_part;
};

enum { OPT_CORPUS = 256, OPT_QUICK, OPT_POLICY, OPT_ONLY };

static const struct argp_option options[] = {
    { "quick", OPT_QUICK, NULL, 0, "Under a minute: one line for each thing to rely on", 0 },
    { "corpus", OPT_CORPUS, "DIR", 0,
      "The corpus (default ../share/verifierd/corpus, seen from this program)", 0 },
    { "policy", OPT_POLICY, "POLICY", 0,
      "Judge everything under this policy as well, and show what it accepts beside the rest", 0 },
    { "only", OPT_ONLY, "PATTERN", 0,
      "Only candidates whose TASK/NAME match this shell pattern (may be given again)", 0 },
    { "in-flight", 'n', "N", 0, "Submissions at a time (default 8, with a GPU 16)", 0 },
    { 0 },
};

static void
pass_on(struct selftest *s, const char *name, const char *value)
{
    s->words[s->n++] = name;
    if (value)
        s->words[s->n++] = value;
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct selftest *s = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = s->cli;
        return 0;
    case OPT_QUICK:
        s->is_quick = true;
        pass_on(s, "--quick", NULL);
        return 0;
    case OPT_CORPUS:
        pass_on(s, "--corpus", arg);
        return 0;
    case OPT_POLICY:
        s->is_part = true;
        pass_on(s, "--policy", arg);
        return 0;
    case OPT_ONLY:
        s->is_part = true;
        pass_on(s, "--only", arg);
        return 0;
    case 'n': {
        unsigned long width = strtoul(arg, &end, 10);
        if (end == arg || *end || width < 1 || width > WIDTH_MAX)
            argp_error(state, "--in-flight: \"%s\" is not a number from 1 to %d", arg, WIDTH_MAX);
        pass_on(s, "--in-flight", arg);
        return 0;
    }
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\": selftest takes no arguments but options", arg);
        return 0;
    case ARGP_KEY_END:
        if (s->is_quick && s->is_part)
            argp_error(state, "--quick goes with neither --policy nor --only");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp selftest_argp = {
    options,
    parse,
    "",
    "Have candidates with known verdicts judged: does this verifierd tell cheats from "
    "honest kernels?\vThe last line is JSON. Exit status 0: every cheat was killed, no "
    "honest kernel was refused, nothing was left behind for the next one.",
    cli_children,
    NULL,
    NULL
};

/* lib/verifierd of where this program is installed, or was built. */
static int
find_packages(char path[PATH_MAX])
{
    static const char packages[] = "lib/verifierd";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(packages));
    char *slash = NULL;

    for (int i = 0; n > 0 && i < 2 && (i == 0 || slash); i++) {
        path[n] = '\0';
        slash = strrchr(path, '/');
        n = slash ? slash - path : 0;
    }
    if (!slash)
        return cli_complain(CLI_CONFIG, "cannot find this program's own directory");
    memcpy(slash + 1, packages, sizeof(packages));
    return CLI_OK;
}

/* Of what the user has in the environment or in the working directory, no Python. */
static const char start[] = "import sys\n"
                            "sys.path.insert(0, sys.argv.pop(1))\n"
                            "from selftest.__main__ import leave\n"
                            "leave()\n";

int
selftest_command(struct cli *cli, int argc, char **argv)
{
    char packages[PATH_MAX];
    /* No option becomes more than two words. */
    AUTO_FREE const char **words = calloc(2 * (size_t)argc + 8, sizeof(*words));
    struct selftest s = { .cli = cli, .words = words };

    if (!words)
        return cli_complain(CLI_CONFIG, "out of memory");
    int code = find_packages(packages);
    if (code != CLI_OK)
        return code;
    const char *head[] = { "python3", "-I", "-B", "-c", start, packages };
    memcpy(words, head, sizeof(head));
    s.n = ARRAY_LEN(head);
    argp_parse(&selftest_argp, argc, argv, 0, NULL, &s);
    if (cli->is_json)
        pass_on(&s, "--json", NULL);
    int rc = setenv("VERIFIERD_URL", cli->url, 1) |
             (cli->token ? setenv("VERIFIERD_TOKEN", cli->token, 1) : unsetenv("VERIFIERD_TOKEN"));
    if (rc == 0)
        execvp(words[0], (char *const *)(uintptr_t)words);
    return cli_complain(CLI_CONFIG, "cannot start %s: %s", words[0], strerror(errno));
}
