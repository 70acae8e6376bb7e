/*
 * verifier judge: one candidate, without a running daemon. It starts a verifierd from its own directory, with a store
 * in a new directory and a loopback port that it chooses; the candidate is judged as by any other; then both are
 * removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "common/clock.h"
#include "common/program.h"

#define READY_LIMIT_S 300 /* workers import torch and triton first */
#define LISTENING "verifierd: listening on "
#define LOG_SHOWN 4096
#define PASSED_MAX 8

struct judge {
    struct cli *cli;
    const char *file, *reference, *python, *config;
    char *passed[PASSED_MAX]; /* options of `verifier submit`, owned */
    size_t n_passed;
    char directory[32]; /* of the store and the log; "": not made */
    pid_t pid;          /* 0: not started */
    FILE *said;         /* its standard output */
    char url[96];
};

enum { OPT_PYTHON = 256, OPT_CONFIG, OPT_ENTRY, OPT_POLICY, OPT_UNTIL, OPT_COMPLETION, OPT_SANITIZE };

static const struct argp_option options[] = {
    { "task", 'T', "FILE", 0, "The reference: Python source with Model, get_inputs and get_init_inputs", 0 },
    { "entry-point", OPT_ENTRY, "NAME", 0, "The candidate's class (default ModelNew)", 0 },
    { "policy", OPT_POLICY, "FILE|NAME,KEY=VALUE,...", 0, "As of `verifier submit`", 0 },
    { "until", OPT_UNTIL, "STAGE", 0, "Stop after ast, compile, tiny, full or timing", 0 },
    { "completion", OPT_COMPLETION, NULL, 0, "FILE is a model's answer: take the code out of it", 0 },
    { "sanitize", OPT_SANITIZE, NULL, 0, "As of `verifier submit`", 0 },
    { "python", OPT_PYTHON, "PROGRAM", 0, "As verifierd's --python: a Python with torch and triton", 0 },
    { "config", OPT_CONFIG, "FILE", 0, "As verifierd's --config", 0 },
    { 0 },
};

/* An option of `verifier submit`, as it is. */
static void
pass_on(struct argp_state *state, const char *name, char *arg, void *out)
{
    struct judge *j = out;

    if (strcmp(name, "--policy") == 0)
        json_decref(cli_policy(state, arg)); /* refused before anything is started */
    if (j->n_passed == PASSED_MAX ||
        asprintf(&j->passed[j->n_passed], "%s%s%s", name, arg ? "=" : "", arg ? arg : "") < 0)
        argp_failure(state, CLI_USAGE, 0, "too many options");
    else
        j->n_passed++;
}

const struct argp judge_argp =
    CLI_ARGP(options, "FILE", "Judge one candidate by a verifierd started for it alone.");

/* --- its daemon --- */

/* In the child. */
static void __attribute__((noreturn))
run_daemon(const struct judge *j, const char *program, int out, pid_t parent)
{
    char store[64], scratch[64], log[64], python[PATH_MAX + 16], config[PATH_MAX + 16];
    /* Without the tokens of a --config, and not in the scratch directory of a daemon that has the same. */
    const char *argv[8] = { program, "--listen=127.0.0.1:0", "--tokens=", store, scratch };
    size_t n = 5;

    snprintf(store, sizeof(store), "--store=%s/store.db", j->directory);
    snprintf(scratch, sizeof(scratch), "--scratch=%s/scratch", j->directory);
    snprintf(log, sizeof(log), "%s/log", j->directory);
    if (j->python) {
        snprintf(python, sizeof(python), "--python=%s", j->python);
        argv[n++] = python;
    }
    if (j->config) {
        snprintf(config, sizeof(config), "--config=%s", j->config);
        argv[n++] = config;
    }
    int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* It ends when we do, however that comes about. */
    bool is_ready = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent && fd >= 0 && none >= 0 &&
                    dup2(none, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
                    dup2(fd, STDERR_FILENO) >= 0;
    if (is_ready)
        execv(program, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "verifier: %s: %s\n", program, strerror(errno));
    _exit(127);
}

static int
start(struct judge *j)
{
    char program[PATH_MAX];
    int ends[2];

    if (!program_beside("verifierd", program))
        return cli_complain(CLI_CONFIG, "verifierd is not where this program is: %s", strerror(errno));
    snprintf(j->directory, sizeof(j->directory), "/tmp/verifierd-judge-XXXXXX");
    if (!mkdtemp(j->directory)) {
        j->directory[0] = '\0';
        return cli_complain(CLI_CONFIG, "a directory in /tmp: %s", strerror(errno));
    }
    /* Children under other user ids pass through it. */
    if (chmod(j->directory, 0711) != 0 || pipe2(ends, O_CLOEXEC) != 0)
        return cli_complain(CLI_CONFIG, "%s: %s", j->directory, strerror(errno));
    pid_t self = getpid();
    j->pid = fork();
    if (j->pid == 0)
        run_daemon(j, program, ends[1], self);
    close(ends[1]);
    j->said = fdopen(ends[0], "r");
    if (j->pid < 0 || !j->said) {
        j->pid = j->pid < 0 ? 0 : j->pid;
        return cli_complain(CLI_CONFIG, "cannot start verifierd: %s", strerror(errno));
    }
    return CLI_OK;
}

/* Its own words, where it does not do what it should. */
static int
blame_daemon(const struct judge *j, const char *what)
{
    char path[64], text[LOG_SHOWN + 1];

    cli_complain(CLI_CONFIG, "verifierd %s; its log:", what);
    snprintf(path, sizeof(path), "%s/log", j->directory);
    FILE *log = fopen(path, "re");
    if (log) {
        if (fseek(log, -LOG_SHOWN, SEEK_END) != 0)
            rewind(log);
        text[fread(text, 1, LOG_SHOWN, log)] = '\0';
        text_print(stderr, text);
        fclose(log);
    }
    return CLI_CONFIG;
}

static int
read_url(struct judge *j)
{
    char line[160];

    if (!fgets(line, sizeof(line), j->said) || strncmp(line, LISTENING, sizeof(LISTENING) - 1) != 0)
        return blame_daemon(j, "does not start");
    line[strcspn(line, "\n")] = '\0';
    snprintf(j->url, sizeof(j->url), "%.90s", line + sizeof(LISTENING) - 1);
    j->cli->url = j->url;
    return CLI_OK;
}

static int
wait_until_ready(struct judge *j)
{
    const struct timespec pause = { 0, 100000000L };
    const int64_t end_ns = clock_monotonic_ns() + (int64_t)READY_LIMIT_S * 1000000000;
    struct error err = { 0 };

    if (http_client_new(j->url, NULL, &j->cli->http, &err) < 0)
        return cli_complain(CLI_CONFIG, "%s", err.text);
    for (;;) {
        struct http_answer answer = { 0, -1, BUFFER_INIT };
        int rc = http_client_call(j->cli->http, "GET", "/readyz", NULL, NULL, 0, 30, &answer, &err);
        long status = answer.status;
        http_answer_release(&answer);
        if (rc == 0 && status == 200)
            return CLI_OK;
        if (waitpid(j->pid, NULL, WNOHANG) != 0) {
            j->pid = 0;
            return blame_daemon(j, "ended");
        }
        if (clock_monotonic_ns() > end_ns)
            return blame_daemon(j, "does not become ready");
        nanosleep(&pause, NULL);
    }
}

static int
remove_cb(const char *path, const struct stat *s, int type, struct FTW *where)
{
    (void)s, (void)type, (void)where;
    return remove(path);
}

static void
stop(struct judge *j)
{
    if (j->pid > 0 && kill(j->pid, SIGTERM) == 0)
        waitpid(j->pid, NULL, 0);
    if (j->said)
        fclose(j->said);
    if (j->directory[0] && nftw(j->directory, remove_cb, 8, FTW_DEPTH | FTW_PHYS) != 0)
        cli_complain(CLI_CONFIG, "%s: %s", j->directory, strerror(errno));
    for (size_t i = 0; i < j->n_passed; i++)
        free(j->passed[i]);
}

static int
submit_to_it(struct judge *j)
{
    char *argv[PASSED_MAX + 7] = { (char[]){ "verifier judge" }, (char[]){ "--wait" },
                                   (char[]){ "--reference" } };
    int n = 3;

    argv[n++] = (char *)(uintptr_t)j->reference;
    for (size_t i = 0; i < j->n_passed; i++)
        argv[n++] = j->passed[i];
    argv[n++] = (char[]){ "--" };
    argv[n++] = (char *)(uintptr_t)j->file;
    return submit_command(j->cli, n, argv);
}

int
judge_command(struct cli *cli, int argc, char **argv)
{
    struct judge j = { .cli = cli };

    CLI_TAKE(cli, &judge_argp, argc, argv, TAKE_ARGUMENT(&j.file, "which FILE?"),
             TAKE_TEXT('T', &j.reference), TAKE_TEXT(OPT_PYTHON, &j.python), TAKE_TEXT(OPT_CONFIG, &j.config),
             TAKE_CALL(OPT_ENTRY, pass_on, &j), TAKE_CALL(OPT_POLICY, pass_on, &j),
             TAKE_CALL(OPT_UNTIL, pass_on, &j), TAKE_CALL(OPT_COMPLETION, pass_on, &j),
             TAKE_CALL(OPT_SANITIZE, pass_on, &j));
    if (!j.reference)
        return cli_misuse(argv[0], "which --task?");
    cli->is_alone = true;
    cli->token = NULL;
    int code = start(&j);
    if (code == CLI_OK)
        code = read_url(&j);
    if (code == CLI_OK)
        code = wait_until_ready(&j);
    if (code == CLI_OK)
        code = submit_to_it(&j);
    http_client_free(cli->http); /* its connection would hold the daemon up */
    cli->http = NULL;
    stop(&j);
    return code;
}
