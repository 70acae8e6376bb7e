/*
 * Commands in Python: the packages `prepare` and `pipeline` parse their own options. Parsed here are those that our own
 * code needs: the interpreter, and the policy of prepare's --verify, whose grammar is common/policy.c's.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/prompt.h"
#include "client/trainer/rules.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/policy.h"
#include "common/program.h"

/* The value of the last --NAME=VALUE, --NAME VALUE or -L VALUE; NULL: there is none. */
static const char *
option_in(int argc, char **argv, const char *name, char letter)
{
    const size_t size = strlen(name);
    const char *found = NULL;

    for (int i = 1; i < argc; i++) {
        const char *one = argv[i];
        bool is_long = strncmp(one, "--", 2) == 0 && strncmp(one + 2, name, size) == 0;
        bool is_short = letter && one[0] == '-' && one[1] == letter;
        if (is_long && one[2 + size] == '=')
            found = one + 3 + size;
        else if (is_short && one[2])
            found = one + 2;
        else if ((is_short || (is_long && !one[2 + size])) && i + 1 < argc)
            found = argv[i + 1];
    }
    return found;
}

/* The policy of the judging, at level 1 and above, and whether the prompt mentions other sizes. Given. */
static int
parse_policy(const char *text, char **out, struct error *err)
{
    AUTO_JSON json_t *low = NULL, *high = NULL;
    char plain[HASH_TEXT_SIZE], digest[HASH_TEXT_SIZE];
    int rc = rules_of(text, 1, NULL, &low, err);

    rc = rc == 0 ? rules_of(text, 2, NULL, &high, err) : rc;
    if (rc != 0)
        return rc;
    prompt_digest(NULL, plain);
    prompt_digest(text, digest);
    AUTO_JSON json_t *all =
        json_pack("{s:O, s:O, s:b}", "1", low, "2", high, "sizes", strcmp(plain, digest) != 0);
    AUTO_FREE char *parsed = all ? json_dumps(all, JSON_COMPACT) : NULL;
    return parsed && asprintf(out, "--parsed-policy=%s", parsed) > 0
               ? 0
               : error_set(err, ERR_NOMEM, "out of memory");
}

/* Not -m, by which a directory named "pipeline" where the user is would be taken for ours. */
static const char pipeline[] = "import sys\n"
                               "sys.path[:] = [path for path in sys.path if path]\n"
                               "from pipeline.__main__ import main\n"
                               "sys.exit(main())\n";

/* The interpreter that has the libraries. */
static const char *
python_of(int argc, char **argv)
{
    const char *named = option_in(argc, argv, "python", 0);
    return named ? named : program_environment("TRAINER_PYTHON", "python3");
}

/* Become a Python program; it finds this one by TRAINER_PROGRAM. Returns only where that cannot be. */
static int
start(const char *python, const char *how, const char *what, const char *policy, int argc, char **argv)
{
    AUTO_FREE const char **all = calloc((size_t)argc + 6, sizeof(*all));
    AUTO_FREE char *program = realpath("/proc/self/exe", NULL);
    struct error err = { 0 };
    int n = 0;

    if (!all || !program || setenv("TRAINER_PROGRAM", program, 1) != 0)
        return trainer_complain(TRAINER_CONFIG, "out of memory");
    if (finetune_environment(&err) != 0)
        return trainer_complain(TRAINER_CONFIG, "%s", err.text);
    all[n++] = python;
    all[n++] = how;
    all[n++] = what;
    all[n++] = argv[0] + strlen("trainer ");
    for (int i = 1; i < argc; i++)
        all[n++] = argv[i];
    if (policy)
        all[n++] = policy;
    signal(SIGUSR1, SIG_IGN); /* one that comes before sync has a handler of its own */
    execvp(python, (char *const *)(uintptr_t)all);
    return trainer_complain(TRAINER_CONFIG, "cannot start %s: %s", python, strerror(errno));
}

int
prepare_command(struct trainer *t, int argc, char **argv)
{
    const char *policy = option_in(argc, argv, "policy", 'p');
    AUTO_FREE char *parsed = NULL;
    struct error err = { 0 };

    (void)t;
    if (policy && parse_policy(policy, &parsed, &err) != 0)
        return trainer_complain(TRAINER_USAGE, "--policy: %s", err.text);
    return start(python_of(argc, argv), "-m", "prepare", parsed, argc, argv);
}

int
pipeline_command(struct trainer *t, int argc, char **argv)
{
    (void)t;
    return start(python_of(argc, argv), "-c", pipeline, NULL, argc, argv);
}
