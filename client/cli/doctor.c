/*
 * verifier doctor: checks the daemon and this machine, and says how to fix each problem.
 *
 * Theory of operation. Each check adds findings, and never ends the others: if
 * the daemon does not answer, the checks of this machine remain. A finding is
 * ok, warn (works, and could be better) or fail (does not work); the latter two
 * say what to do.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/program.h"
#include "common/utf8.h"
#include "common/words.h"

#define SKEW_WARN_S 2.0
#define DISK_WARN_BYTES (5e9)
#define DISK_FAIL_BYTES (2e8)
#define COMMIT_WARN_MS 200.0
#define PROBE_LIMIT_S 10.0

enum level { OK, WARN, FAIL, LEVELS };
static const char *const level_names[LEVELS] = { "ok", "warn", "fail" };

struct doctor {
    struct cli *cli;
    const char *config, *python; /* as they would be given to verifierd; NULL: not */
    json_t *findings;            /* [{"check","level","text","mend"}] */
    int counts[LEVELS];
    int code; /* of the worst finding: CLI_OK, or why the daemon could not be asked */
};

/* --- findings --- */

static void add(struct doctor *d, const char *check, enum level level, const char *mend, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

static void
add(struct doctor *d, const char *check, enum level level, const char *mend, const char *format, ...)
{
    AUTO_FREE char *text = NULL;
    va_list args;

    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        text = NULL;
    else
        utf8_clean(text);
    d->counts[level]++;
    json_array_append_new(d->findings,
                          json_pack("{s:s, s:s, s:s, s:s?}", "check", check, "level", level_names[level],
                                    "text", text ? text : "out of memory", "mend", mend));
}

/* --- reaching it --- */

static bool
is_loopback_url(const char *url)
{
    static const char *const hosts[] = { "://127.", "://localhost", "://[::1]" };
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        if (strstr(url, hosts[i]))
            return true;
    return false;
}

/* Ask, and say nothing. The status, or 0 with err filled. */
static long
ask(struct doctor *d, const char *path, json_t **out, struct error *err)
{
    struct http_answer answer = { 0, -1, BUFFER_INIT };

    *out = NULL;
    if (!d->cli->http && http_client_new(d->cli->url, d->cli->token, &d->cli->http, err) < 0)
        return 0;
    if (http_client_call(d->cli->http, "GET", path, NULL, NULL, 0, PROBE_LIMIT_S, &answer, err) < 0)
        return 0;
    long status = answer.status;
    *out = json_loadb(answer.body.data ? answer.body.data : "", answer.body.size, 0, NULL);
    http_answer_release(&answer);
    return status;
}

static bool
check_reach(struct doctor *d)
{
    AUTO_JSON json_t *answer = NULL;
    struct error err = { 0 };
    long status = ask(d, "/healthz", &answer, &err);

    if (status == 200 && text_is(answer, "status", "ok")) {
        add(d, "reach", OK, NULL, "verifierd answers at %s", d->cli->url);
        return true;
    }
    d->code = CLI_NETWORK;
    if (err.code == ERR_INPUT)
        add(d, "reach", FAIL, "give its address: --url http://HOST:PORT, or VERIFIERD_URL", "%s", err.text);
    else if (status == 0)
        add(d, "reach", FAIL,
            "start it (`verifierd`, or `systemctl start verifierd`), or say where it is: --url or "
            "VERIFIERD_URL",
            "nothing answers: %s", err.text);
    else
        add(d, "reach", FAIL, "say where verifierd is: --url or VERIFIERD_URL",
            "%s answers, with status %ld, and is not verifierd", d->cli->url, status);
    return false;
}

/* The daemon's status, whole or as far as the token's scope shows it; NULL: it was refused. */
static json_t *
check_access(struct doctor *d)
{
    struct error err = { 0 };
    json_t *status = NULL;
    long answer = ask(d, "/v1/status", &status, &err);

    if (answer == 200 && json_is_object(status)) {
        if (d->cli->token && !text_member(status, "access"))
            add(d, "access", WARN, "use a token with the scope read to have the rest checked",
                "the token is taken, and does not show queues, workers, disks and the sandbox");
        else if (text_is(status, "access", "open") && !is_loopback_url(d->cli->url))
            add(d, "access", FAIL, "make tokens: verifierd token new --name NAME --scope submit",
                "there are no tokens: whoever reaches %s may have code run there", d->cli->url);
        else
            add(d, "access", OK, NULL, "%s",
                text_is(status, "access", "open") ? "no tokens are needed: loopback only"
                                                  : "the token is taken");
        return status;
    }
    if (answer == 401 || answer == 403) {
        d->code = CLI_AUTH;
        add(d, "access", FAIL,
            "have one made where verifierd runs (`verifierd token new --name NAME --scope read`) and give it "
            "in "
            "VERIFIERD_TOKEN",
            d->cli->token ? "the token is not taken" : "a token is needed");
    } else {
        d->code = CLI_NETWORK;
        add(d, "access", FAIL, "look at verifierd's log", "/v1/status answers %ld%s%s", answer,
            err.text[0] ? ": " : "", err.text);
    }
    json_decref(status);
    return NULL;
}

/* --- the daemon's report on itself --- */

static const char *
mend_for_why(const char *why)
{
    static const struct {
        const char *word, *mend;
    } rows[] = {
        { "paused", "set paused = false and reload (SIGHUP)" },
        { "quarantined", "see the finding of the device" },
        { "starting", "wait some seconds; where it stays so, its log has the traceback of the Python that "
                      "cannot import torch or triton" },
        { "is full", "make room on that disk: it goes on by itself" },
        { "drain", "it stops: start it again" },
        { "stop", "it stops: start it again" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strstr(why, rows[i].word))
            return rows[i].mend;
    return "look at verifierd's log";
}

static void
check_ready(struct doctor *d, json_t *status)
{
    if (json_is_true(json_object_get(status, "ready")))
        add(d, "ready", OK, NULL, "it can judge now");
    else
        add(d, "ready", FAIL, mend_for_why(text_or(status, "why", "")), "it cannot judge now: %s",
            text_or(status, "why", "no reason told"));
}

static void
check_versions(struct doctor *d, json_t *status)
{
    json_t *env = json_object_get(status, "env");
    const char *torch = text_member(env, "torch"), *triton = text_member(env, "triton");

    if (text_is(status, "version", VERIFIERD_VERSION))
        add(d, "versions", OK, NULL, "verifierd and verifier are %s", VERIFIERD_VERSION);
    else
        add(d, "versions", WARN, "install both from the same build", "verifierd is %s, verifier is %s",
            text_or(status, "version", "unknown"), VERIFIERD_VERSION);
    if (torch && triton)
        add(d, "versions", OK, NULL, "Python %s, torch %s, triton %s", text_or(env, "python", "?"), torch,
            triton);
    else
        add(d, "versions", FAIL,
            "`PYTHON -c 'import torch, triton'` with the daemon's python says what is wrong",
            "its workers have not said which torch and triton they have");
}

static double
wall_of(const char *text)
{
    struct tm t = { 0 };
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &t) : NULL;
    return rest ? (double)timegm(&t) + (*rest == '.' ? strtod(rest, NULL) : 0) : NAN;
}

/* Ours and the daemon's, and whether ours is kept right. */
static void
check_clock(struct doctor *d, json_t *status, double asked_s, double answered_s)
{
    struct timex t = { .modes = 0 };
    double theirs = wall_of(text_member(status, "time"));

    if (isfinite(theirs)) {
        /* It was read at some moment between asking and answering. */
        double skew = theirs < asked_s ? theirs - asked_s : theirs > answered_s ? theirs - answered_s : 0;
        if (fabs(skew) > SKEW_WARN_S)
            add(d, "clock", WARN, "set both by NTP: `timedatectl set-ntp true`",
                "verifierd's clock is %.1f s %s this machine's: dates and the expiry of tokens are off by "
                "that",
                fabs(skew), skew > 0 ? "ahead of" : "behind");
        else
            add(d, "clock", OK, NULL, "verifierd's clock and this machine's agree within %.1f s",
                SKEW_WARN_S);
    }
    if (adjtimex(&t) == TIME_ERROR && (t.status & STA_UNSYNC))
        add(d, "clock", WARN,
            "`timedatectl set-ntp true`; where the host keeps the time (a container), this can be left",
            "nothing keeps this machine's clock right");
}

/* For each layer: the meaning of its absence, and how to get it. */
static const struct {
    const char *name, *mend;
} layer_mends[] = {
    { "cgroup", "run it by systemd with Delegate=yes, or give it an empty cgroup v2: cgroup = PATH" },
    { "landlock", "boot with Landlock (lsm=landlock,... on the kernel's command line)" },
    { "landlock_tcp", "a kernel from 6.7 on; until then seccomp and the network namespace hold it" },
    { "landlock_scopes", "a kernel from 6.12 on; until then the PID namespace and seccomp hold it" },
    { "user_namespace", "start it as root, or on Ubuntu load the AppArmor profile (docs/sandbox.md)" },
    { "uid", "start it as root; otherwise its user namespace stands in" },
    { "seccomp", "a kernel with seccomp filters" },
};

static const char *
layer_mend(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(layer_mends); i++)
        if (strcmp(layer_mends[i].name, name) == 0)
            return layer_mends[i].mend;
    return "let it make namespaces: start it as root outside a container, or give the container "
           "CAP_SYS_ADMIN";
}

static bool
is_absent_in_earnest(const char *state)
{
    return state && strcmp(state, "on") != 0 && !strstr(state, "not needed");
}

static void
check_layers(struct doctor *d, json_t *layers, const char *require)
{
    const char *name;
    json_t *value;
    int on = 0, absent = 0;
    bool has_users = text_is(layers, "user_namespace", "on");

    json_object_foreach(layers, name, value)
    {
        const char *state = json_string_value(value);
        on += state && strcmp(state, "on") == 0;
        if (!is_absent_in_earnest(state) || (has_users && strcmp(name, "uid") == 0))
            continue;
        absent++;
        add(d, "sandbox", words_have(require, ", ", name, strlen(name)) ? FAIL : WARN, layer_mend(name),
            "layer %s is %s", name, state);
    }
    if (on > 0)
        add(d, "sandbox", OK, NULL, "%d layers are on%s", on, absent ? "" : ", and none is missing");
    else
        add(d, "sandbox", FAIL, "wait until it is ready; its log has the reason", "no layer is known yet");
}

static void
check_workers(struct doctor *d, json_t *status)
{
    json_t *worker;
    size_t i;

    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        const char *name = text_member(worker, "name"), *state = text_member(worker, "state"),
                   *why = text_member(worker, "why");
        const char *failed = text_member(json_object_get(worker, "canary"), "failed");
        json_int_t starts = json_integer_value(json_object_get(worker, "starts"));
        if (!name || !state)
            continue;
        if (text_is(worker, "lane", "quarantined"))
            add(d, "gpu", FAIL,
                "`nvidia-smi -q` shows what slows it, dmesg Xid errors; one that is slow and nothing else is "
                "looked at again by itself; otherwise a restart of the daemon takes the GPU in again",
                "%s: the device is quarantined%s%s%s", name, failed || why ? ": " : "",
                failed ? "its canary fails, " : "",
                failed ? failed
                : why  ? why
                       : "");
        else if (strcmp(state, "ready") != 0)
            add(d, "workers", FAIL, "look at verifierd's log", "%s is %s%s%s", name, state, why ? ": " : "",
                why ? why : "");
        else if (starts > 3)
            add(d, "workers", WARN, "its log says why it ended each time", "%s was started %lld times", name,
                (long long)starts);
        else
            add(d, "workers", OK, NULL, "%s is ready", name);
    }
}

static void
check_calibration(struct doctor *d, json_t *gpus)
{
    AUTO_JSON json_t *answer = NULL;
    struct error err = { 0 };

    if (json_array_size(gpus) > 0 && ask(d, "/v1/calibrations", &answer, &err) == 200 &&
        json_array_size(json_object_get(answer, "items")) == 0)
        add(d, "gpu", WARN, "run `verifier calibrate` while nothing else is judged",
            "it was never found out how far this GPU's times are off");
}

static void
check_gpus(struct doctor *d, json_t *status)
{
    json_t *gpus = json_object_get(status, "gpus"), *gpu;
    size_t i;

    json_array_foreach(gpus, i, gpu)
    {
        add(d, "gpu", OK, NULL, "%s is a %s, driver %s", text_or(gpu, "device", "?"),
            text_or(gpu, "name", "?"), text_or(gpu, "driver", "?"));
    }
    if (json_array_size(gpus) > 0)
        check_calibration(d, gpus);
    else if (is_loopback_url(d->cli->url) && access("/dev/nvidiactl", F_OK) == 0)
        add(d, "gpu", FAIL,
            "set device = cuda: its start then says what is wrong (a torch built without CUDA, a driver that "
            "is too old)",
            "this machine has an NVIDIA device, and verifierd judges without one");
    else
        add(d, "gpu", WARN, "run it on a machine with an NVIDIA GPU to have speed judged",
            "no GPU: kernels run in Triton's interpreter, and nothing is timed");
}

#define MEND_HOLDER "end it (pg_terminate_backend): claims become slow meanwhile"

static void
judge_disk(struct doctor *d, const char *what, double free_bytes, double total_bytes)
{
    enum level level = free_bytes < DISK_FAIL_BYTES ? FAIL : free_bytes < DISK_WARN_BYTES ? WARN : OK;
    add(d, "disk", level,
        level == OK                    ? NULL
        : strcmp(what, "scratch") == 0 ? "make room there, or set scratch to a larger file system"
                                       : "make room there, or keep less: retention_days, then "
                                         "`verifier retention --vacuum`",
        "%s: %.1f of %.1f GB are free", what, free_bytes / 1e9, total_bytes / 1e9);
}

static void
check_disks(struct doctor *d, json_t *status)
{
    json_t *disk;
    size_t i;

    json_array_foreach(json_object_get(status, "disks"), i, disk)
    {
        judge_disk(d, text_or(disk, "what", "?"), number_under(disk, "free_bytes", NULL),
                   number_under(disk, "total_bytes", NULL));
    }
    json_t *store = json_object_get(status, "store");
    double commit_ms = number_under(store, "commit_ms_last", NULL);
    const char *holder = text_or(store, "holder", "");
    if (*holder)
        add(d, "database", WARN, MEND_HOLDER, "%s", holder);
    if (commit_ms > COMMIT_WARN_MS)
        add(d, "disk", WARN, "put the store on a local disk", "the last commit took %.0f ms", commit_ms);
}

static void
check_load(struct doctor *d, json_t *status)
{
    double waiting = number_under(status, "queues", "waiting"),
           limit = number_under(status, "queues", "limit");

    if (limit > 0 && waiting >= limit)
        add(d, "load", WARN, "send less, or have more GPUs; queue_limit bounds what may wait",
            "the queue is full: %.0f wait, and new submissions get 429", waiting);
    else if (limit > 0)
        add(d, "load", OK, NULL, "%.0f submissions wait, of %.0f that may", waiting, limit);
}

static void
check_daemon(struct doctor *d)
{
    double asked_s = (double)clock_wall_ms() / 1000;
    AUTO_JSON json_t *status = check_access(d);
    double answered_s = (double)clock_wall_ms() / 1000;

    if (!status)
        return;
    json_t *sandbox = json_object_get(status, "sandbox");
    check_ready(d, status);
    check_versions(d, status);
    check_clock(d, status, asked_s, answered_s);
    if (!json_object_get(status, "workers"))
        return; /* the token shows no more */
    check_workers(d, status);
    check_gpus(d, status);
    check_layers(d, json_object_get(sandbox, "layers"), text_or(sandbox, "require", ""));
    check_disks(d, status);
    check_load(d, status);
}

/* --- checks of this machine, without a daemon --- */

static void
run_check(const struct doctor *d, const char *program)
{
    AUTO_FREE char *config = NULL, *python = NULL;
    const char *args[5] = { program, "--check-config" };
    size_t n = 2;

    if (d->config && asprintf(&config, "--config=%s", d->config) >= 0)
        args[n++] = config;
    if (d->python && asprintf(&python, "--python=%s", d->python) >= 0)
        args[n++] = python;
    dup2(STDOUT_FILENO, STDERR_FILENO);
    execvp(program, (char *const *)(uintptr_t)args);
    printf("%s cannot be started", program);
    fflush(stdout);
    _exit(127);
}

/* Runs `verifierd --check-config`: its lines in out, its exit status returned; -1: it could not be. */
static int
check_settings(const struct doctor *d, const char *program, struct buffer *out)
{
    int ends[2], status = -1;
    char bytes[4096];
    ssize_t n;

    fflush(stdout);
    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        run_check(d, program);
    }
    close(ends[1]);
    while (pid > 0 && (n = read(ends[0], bytes, sizeof(bytes))) > 0)
        buffer_append(out, bytes, (size_t)n);
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static void
read_check_line(struct doctor *d, char *line, json_t *layers)
{
    struct statvfs fs;
    char *colon = strstr(line, ": ");

    if (!colon)
        return;
    *colon = '\0';
    const char *value = colon + 2;
    if (strncmp(line, "layer ", 6) == 0)
        json_object_set_new(layers, line + 6, json_string(value));
    else if (strcmp(line, "database") == 0)
        add(d, "database", OK, NULL,
            "%s answers, has this program's schema or none, and keeps what it commits", value);
    else if (strcmp(line, "holder") == 0)
        add(d, "database", WARN, MEND_HOLDER, "%s", value);
    else if (strcmp(line, "node") == 0)
        add(d, "database", WARN,
            "where that is not the daemon of this host, give one of them another name (setting node)",
            "a daemon works there as node %s", value);
    else if (strcmp(line, "store") == 0) {
        AUTO_FREE char *directory = strdup(value);
        char *slash = directory ? strrchr(directory, '/') : NULL;
        if (slash)
            slash[slash == directory] = '\0';
        if (statvfs(slash ? directory : ".", &fs) == 0)
            judge_disk(d, "store", (double)fs.f_bavail * (double)fs.f_frsize,
                       (double)fs.f_blocks * (double)fs.f_frsize);
        else
            add(d, "disk", FAIL, "make the directory, or set store", "the store's directory is not there: %s",
                value);
    }
}

static void
check_here(struct doctor *d)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_JSON json_t *layers = json_object();
    char program[PATH_MAX];

    if (!d->config && access("/etc/verifierd.conf", R_OK) == 0)
        d->config = "/etc/verifierd.conf";
    if (!program_beside("verifierd", program) || access(program, X_OK) != 0)
        snprintf(program, sizeof(program), "verifierd"); /* by $PATH */
    int status = check_settings(d, program, &out);
    buffer_append(&out, "", 1);
    char *rest = out.data, *line = strsep(&rest, "\n");
    if (status == 127)
        add(d, "program", FAIL, "install it here, or ask on the machine where it is", "%s", line);
    else if (status != 0)
        add(d, "program", FAIL, "mend the setting that it names, then try again",
            "`%s --check-config` would not start: %.400s", program, line ? line : "it said nothing");
    else
        add(d, "program", OK, NULL, "%s would start with %s", program,
            d->config ? d->config : "its defaults");
    while (status == 0 && (line = strsep(&rest, "\n")))
        read_check_line(d, line, layers);
    if (status == 0)
        check_layers(d, layers, "");
    if (access("/dev/nvidiactl", F_OK) == 0)
        add(d, "gpu", OK, NULL, "this machine has an NVIDIA device");
    else
        add(d, "gpu", WARN, "run it on a machine with an NVIDIA GPU to have speed judged",
            "this machine has no NVIDIA device (/dev/nvidiactl)");
    check_clock(d, NULL, 0, 0);
}

/* --- telling --- */

static void
print(const struct doctor *d)
{
    json_t *finding;
    size_t i;

    json_array_foreach(d->findings, i, finding)
    {
        const char *mend = text_member(finding, "mend");
        printf("%-5s %-9s ", text_member(finding, "level"), text_member(finding, "check"));
        text_print(stdout, text_member(finding, "text"));
        putchar('\n');
        if (mend) {
            printf("%-16s", "");
            text_print(stdout, mend);
            putchar('\n');
        }
    }
    printf("%d fine, %d to look at, %d wrong\n", d->counts[OK], d->counts[WARN], d->counts[FAIL]);
}

enum { OPT_CONFIG = 256, OPT_PYTHON };

static const struct argp_option options[] = {
    { "config", OPT_CONFIG, "FILE", 0,
      "The daemon's settings, for when it does not run (default /etc/verifierd.conf where there is one)", 0 },
    { "python", OPT_PYTHON, "PROGRAM", 0, "As verifierd's --python, for when it does not run", 0 },
    { 0 },
};
const struct argp doctor_argp =
    CLI_ARGP(options, NULL,
             "Look whether all is well, and say how to mend what is not.\vExit status: 0 nothing is wrong, 1 "
             "something is, 4 a token is missing or not taken, 7 no verifierd answers.");

int
doctor_command(struct cli *cli, int argc, char **argv)
{
    AUTO_JSON json_t *findings = json_array();
    struct doctor d = { .cli = cli, .findings = findings };

    CLI_TAKE(cli, &doctor_argp, argc, argv, TAKE_TEXT(OPT_CONFIG, &d.config),
             TAKE_TEXT(OPT_PYTHON, &d.python));
    if (check_reach(&d))
        check_daemon(&d);
    else if (is_loopback_url(cli->url))
        check_here(&d);
    int code = d.code != CLI_OK ? d.code : d.counts[FAIL] > 0 ? CLI_FAILED : CLI_OK;
    if (cli->is_json) {
        AUTO_JSON json_t *out =
            json_pack("{s:b, s:i, s:O}", "ok", d.counts[FAIL] == 0, "exit", code, "findings", findings);
        text_json(out);
    } else {
        print(&d);
    }
    return code;
}
