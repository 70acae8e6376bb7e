/*
 * selftest.c - the options of `verifier selftest`. The Python package `selftest`, in ../lib/verifierd of this program's
 * directory, has the corpus judged.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "common/auto.h"
#include "common/program.h"

#define WIDTH_MAX 64

struct selftest {
    char **words; /* the arguments of the package, NULL after the last; kept until the program ends */
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

/* An option of the package's, as it is. */
static void
pass_on(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct selftest *s = out;

    if (strcmp(name, "--in-flight") == 0)
        take_int(state, name, arg, 1, WIDTH_MAX);
    s->is_quick |= strcmp(name, "--quick") == 0;
    s->is_part |= strcmp(name, "--policy") == 0 || strcmp(name, "--only") == 0;
    if (asprintf(&s->words[s->n++], "%s%s%s", name, arg ? "=" : "", arg ? arg : "") < 0)
        argp_failure(state, CLI_CONFIG, 0, "out of memory");
}

const struct argp selftest_argp =
    CLI_ARGP(options, "",
             "Have candidates with known verdicts judged: does this verifierd tell cheats from "
             "honest kernels?\vThe last line is JSON. Exit status 0: every cheat was killed, no "
             "honest kernel was refused, nothing was left behind for the next one.");

/* Of what the user has in the environment or in the working directory, no Python. */
static const char start[] = "import sys\n"
                            "sys.path.insert(0, sys.argv.pop(1))\n"
                            "from selftest.__main__ import leave\n"
                            "leave()\n";

int
selftest_command(struct cli *cli, int argc, char **argv)
{
    char packages[PATH_MAX];
    AUTO_FREE char **words = calloc((size_t)argc + 8, sizeof(*words));
    struct selftest s = { .words = words };

    if (!words)
        return cli_complain(CLI_CONFIG, "out of memory");
    if (!program_beside("../lib/verifierd", packages))
        return cli_complain(CLI_CONFIG, "../lib/verifierd is not there, seen from this program");
    char json[] = "--json";
    const char *head[] = { "python3", "-I", "-B", "-c", start, packages };
    memcpy(words, head, sizeof(head));
    s.n = ARRAY_LEN(head);
    CLI_TAKE(cli, &selftest_argp, argc, argv, TAKE_CALL(OPT_QUICK, pass_on, &s),
             TAKE_CALL(OPT_CORPUS, pass_on, &s), TAKE_CALL(OPT_POLICY, pass_on, &s),
             TAKE_CALL(OPT_ONLY, pass_on, &s), TAKE_CALL('n', pass_on, &s));
    if (s.is_quick && s.is_part)
        return cli_misuse(argv[0], "--quick goes with neither --policy nor --only");
    if (cli->is_json)
        words[s.n++] = json;
    int rc = setenv("VERIFIERD_URL", cli->url, 1) |
             (cli->token ? setenv("VERIFIERD_TOKEN", cli->token, 1) : unsetenv("VERIFIERD_TOKEN"));
    if (rc == 0)
        execvp(words[0], words);
    return cli_complain(CLI_CONFIG, "cannot start %s: %s", words[0], strerror(errno));
}
