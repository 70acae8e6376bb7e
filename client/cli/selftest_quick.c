/*
 * selftest_quick.c - what a user runs before a long job: PASS, FAIL or SKIP, a line for each thing that the job will
 * rely on. Everything is submitted at once and judged side by side.
 */
#include "client/cli/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/input.h"
#include "client/cli/score.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/clock.h"

#define VERDICT_LIMIT_S 120.0
#define LOOK_S 10.0
#define CASES_MIN 5
#define AA_SLACK 0.05
#define TRAINER_LIMIT_S 45.0
#define TRAINER_USAGE 2 /* it does not know the command */
#define WHY_SIZE 512

enum outcome { PASS, FAIL, SKIP };

static const char *const outcome_names[] = { "PASS", "FAIL", "SKIP" };

/* What is judged. The last two with a GPU only: a kernel that is long enough to be timed, and its reference. */
enum { HONEST, ONE_SIZE, DIES_EARLY, DIES_COMPILING, TIMED, ITSELF, PARTS };

static const char *const labels[] = { "relu/honest", "relu/first_block_only", "relu/syntax_error",
                                      "relu/unknown_tl_function" };

struct quick {
    struct bench *bench;
    const struct corpus *corpus;
    const char *directory;
    json_t *verdicts[PARTS]; /* NULL: not submitted */
    json_t *checks;          /* by name, for the last line */
    bool has_failed;
    int64_t start_ns;
};

static void
say(struct quick *q, const char *check, enum outcome outcome, const char *why)
{
    q->has_failed |= outcome == FAIL;
    json_object_set_new(q->checks, check,
                        json_pack("{s:s, s:s}", "outcome", outcome_names[outcome], "why", why));
    if (q->bench->cli->is_json)
        return;
    printf("%s %-11s ", outcome_names[outcome], check);
    text_print(stdout, why);
    putchar('\n');
    fflush(stdout);
}

/* --- judging --- */

static const struct corpus_candidate *
find_candidate(const struct corpus *c, const char *label)
{
    for (size_t i = 0; i < c->n_candidates; i++)
        if (strcmp(c->candidates[i].label, label) == 0)
            return &c->candidates[i];
    return NULL;
}

/* A task against itself: its reference, as a candidate. */
static int
submit_itself(struct quick *q, const struct corpus_task *task, const char *task_id, char **id)
{
    json_t *entry = json_object_get(task->registration, "entry_point");
    const struct corpus_candidate itself = {
        .body = json_pack("{s:O, s:s, s:s}", "candidate", json_object_get(task->registration, "reference"),
                          "entry_point", entry ? json_string_value(entry) : "Model", "policy", "kernelbench")
    };
    int code = bench_submit(q->bench, &itself, task_id, NULL, NULL, id);
    json_decref(itself.body);
    return code;
}

/* Both are to be timed, one after the other. */
static int
submit_timed(struct quick *q, char **ids)
{
    AUTO_FREE char *task_id = NULL;
    ptrdiff_t task = corpus_timed_task(q->corpus);

    if (!q->bench->has_gpu)
        return CLI_OK;
    if (task < 0)
        return cli_complain(CLI_USAGE, "the corpus has no task that needs a GPU and has an honest candidate");
    const struct corpus_candidate *honest = &q->corpus->candidates[corpus_probe_of(q->corpus, (size_t)task)];
    int code = bench_add_task(q->bench, q->corpus->tasks[task].registration, &task_id);
    if (code == CLI_OK)
        code = bench_submit(q->bench, honest, task_id, NULL, NULL, &ids[TIMED]);
    return code == CLI_OK ? submit_itself(q, &q->corpus->tasks[task], task_id, &ids[ITSELF]) : code;
}

static int
wait_for(struct quick *q, const char *id, json_t **out)
{
    const int64_t start_ns = clock_monotonic_ns();
    bool is_finished = false;
    int code = CLI_OK;

    while (code == CLI_OK && !is_finished) {
        json_decref(*out);
        code = bench_look(q->bench, id, LOOK_S, out, &is_finished);
        if (code == CLI_OK && !is_finished &&
            (double)(clock_monotonic_ns() - start_ns) / 1e9 > VERDICT_LIMIT_S)
            return cli_complain(CLI_TIMEOUT, "no verdict of %s within %.0f s", id, VERDICT_LIMIT_S);
    }
    return code;
}

static int
judge_all(struct quick *q)
{
    const struct corpus_candidate *honest = find_candidate(q->corpus, labels[HONEST]);
    AUTO_FREE char *task_id = NULL;
    char *ids[PARTS] = { NULL };

    if (!honest)
        return cli_complain(CLI_USAGE, "the corpus has no %s", labels[HONEST]);
    int code = bench_add_task(q->bench, q->corpus->tasks[honest->task].registration, &task_id);
    for (size_t i = 0; code == CLI_OK && i < ARRAY_LEN(labels); i++) {
        const struct corpus_candidate *k = find_candidate(q->corpus, labels[i]);
        if (!k)
            code = cli_complain(CLI_USAGE, "the corpus has no %s", labels[i]);
        else
            code = bench_submit(q->bench, k, task_id, NULL, NULL, &ids[i]);
    }
    if (code == CLI_OK)
        code = submit_timed(q, ids);
    for (int i = 0; code == CLI_OK && i < PARTS; i++)
        if (ids[i])
            code = wait_for(q, ids[i], &q->verdicts[i]);
    for (int i = 0; i < PARTS; i++)
        free(ids[i]);
    return code;
}

/* --- the checks --- */

/* Several inputs judge: the right kernel passes them all, one that is right for the smallest alone does not. */
static void
check_inputs(struct quick *q)
{
    const json_t *correctness = json_object_get(q->verdicts[HONEST], "correctness");
    const json_t *cases = json_object_get(correctness, "cases"),
                 *passed = json_object_get(correctness, "passed");
    const char *class = score_class(q->verdicts[ONE_SIZE]);
    char why[WHY_SIZE];

    if (strcmp(score_class(q->verdicts[HONEST]), "ok") != 0) {
        const char *text = text_member(json_object_get(q->verdicts[HONEST], "feedback"), "text");
        snprintf(why, sizeof(why), "%s is %s: %s", labels[HONEST], score_class(q->verdicts[HONEST]),
                 text ? text : "");
        say(q, "multi-input", FAIL, why);
    } else if (json_is_integer(cases) && (json_integer_value(cases) < CASES_MIN ||
                                          json_integer_value(passed) != json_integer_value(cases))) {
        snprintf(why, sizeof(why),
                 "an honest kernel passed %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                 " inputs, at least %d must judge",
                 json_integer_value(passed), json_integer_value(cases), CASES_MIN);
        say(q, "multi-input", FAIL, why);
    } else if (strcmp(class, "mismatch") != 0) {
        snprintf(why, sizeof(why), "%s, which is right for the smallest input alone, is %s, not mismatch",
                 labels[ONE_SIZE], class);
        say(q, "multi-input", FAIL, why);
    } else {
        snprintf(why, sizeof(why),
                 "an honest kernel passes %" JSON_INTEGER_FORMAT
                 " inputs; one that is right for the smallest alone is a mismatch",
                 json_integer_value(cases));
        say(q, "multi-input", PASS, why);
    }
}

/* The first stage that ran behind the one that failed; NULL: none. */
static const char *
stage_after(const json_t *verdict, const char *failed)
{
    const json_t *stage;
    bool is_behind = false;
    size_t i;

    json_array_foreach(json_object_get(verdict, "stages"), i, stage)
    {
        const char *name = text_member(stage, "stage"), *outcome = text_member(stage, "outcome");
        bool has_run = outcome && strcmp(outcome, "skip") != 0;
        if (is_behind && (has_run || json_number_value(json_object_get(stage, "run_ms")) > 0))
            return name ? name : "?";
        is_behind |= name && strcmp(name, failed) == 0;
    }
    return NULL;
}

static bool
dies_at(const json_t *verdict, const char *label, const char *stage, char why[WHY_SIZE])
{
    const char *failed = text_member(verdict, "failed_at"), *later = stage_after(verdict, stage);
    if (!failed || strcmp(failed, stage) != 0)
        snprintf(why, WHY_SIZE, "%s ended at %s (%s), not at %s", label, failed ? failed : "no stage",
                 score_class(verdict), stage);
    else if (later)
        snprintf(why, WHY_SIZE, "%s failed at %s, and %s ran all the same", label, stage, later);
    else
        return true;
    return false;
}

/* What is refused early costs nothing further. */
static void
check_funnel(struct quick *q)
{
    char why[WHY_SIZE];
    if (dies_at(q->verdicts[DIES_EARLY], labels[DIES_EARLY], "ast", why) &&
        dies_at(q->verdicts[DIES_COMPILING], labels[DIES_COMPILING], "compile", why))
        say(q, "funnel", PASS, "what fails at ast or compile runs no later stage");
    else
        say(q, "funnel", FAIL, why);
}

/* A reference against itself is as fast as itself, and a kernel's time has an interval. */
static void
check_timing(struct quick *q)
{
    const char *const names[] = { "an honest kernel", "the reference against itself" };
    const json_t *const verdicts[] = { q->verdicts[TIMED], q->verdicts[ITSELF] };
    double speedups[2] = { 0 };
    char why[WHY_SIZE];

    if (!q->bench->has_gpu) {
        say(q, "timing", SKIP, "no GPU: nothing is timed on this machine");
        return;
    }
    for (int i = 0; i < 2; i++) {
        const json_t *components = json_object_get(verdicts[i], "components");
        const char *outcome = text_member(json_object_get(verdicts[i], "timing"), "outcome");
        const json_t *speedup = json_object_get(components, "speedup");
        if (!outcome || strcmp(outcome, "measured") != 0 || !json_is_number(speedup)) {
            snprintf(why, sizeof(why), "%s was not measured: %s, class %s", names[i],
                     outcome ? outcome : "no timing", score_class(verdicts[i]));
            say(q, "timing", FAIL, why);
            return;
        }
        speedups[i] = json_number_value(speedup);
    }
    const json_t *components = json_object_get(verdicts[1], "components");
    double low = json_number_value(json_object_get(components, "speedup_lo"));
    double high = json_number_value(json_object_get(components, "speedup_hi"));
    bool is_one = (low <= 1 && high >= 1) || fabs(speedups[1] - 1) <= AA_SLACK;
    snprintf(why, sizeof(why), "the reference against itself %.3f [%.3f, %.3f], an honest kernel %.3f",
             speedups[1], low, high, speedups[0]);
    say(q, "timing", is_one ? PASS : FAIL, why);
}

static bool
is_on(const json_t *layers, const char *name)
{
    const char *state = text_member(layers, name);
    return state && strcmp(state, "on") == 0;
}

/* "24 layers on, not on: a, b"; false where one is missing that no sandbox goes without. */
static bool
describe_layers(const json_t *layers, struct buffer *out)
{
    struct buffer off = BUFFER_INIT;
    const char *name;
    json_t *state;
    int on = 0;

    json_object_foreach((json_t *)layers, name, state)
    {
        if (is_on(layers, name))
            on++;
        else
            buffer_printf(&off, "%s%s", off.size ? ", " : "", name);
    }
    buffer_printf(out, "%d layers on%s%s", on, off.size ? ", not: " : "", off.size ? off.data : "");
    buffer_release(&off);
    return is_on(layers, "no_new_privs") && is_on(layers, "seccomp") &&
           (is_on(layers, "uid") || is_on(layers, "user_namespace"));
}

/* The probe of the corpus, registered as a task: it is refused where it could do what it must not. */
static int
register_probe(struct quick *q)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, text = BUFFER_INIT;
    AUTO_JSON json_t *source = NULL, *registration = NULL;
    AUTO_FREE char *id = NULL;
    char nonce[64];

    bench_nonce(q->bench, nonce, sizeof(nonce));
    if (buffer_printf(&path, "%s/quick/sandbox.py", q->directory) < 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    int code = input_text(path.data, &source);
    if (code != CLI_OK)
        return code;
    /* New bytes: a task that is known already is not run again. */
    buffer_printf(&text, "%s\n# %s\n", json_string_value(source), nonce);
    registration =
        json_pack("{s:s, s:s}", "name", "selftest sandbox", "reference", text.data ? text.data : "");
    return bench_add_task(q->bench, registration, &id);
}

static int
check_sandbox(struct quick *q)
{
    const json_t *layers = json_object_get(json_object_get(q->bench->status, "sandbox"), "run_layers");
    AUTO_BUFFER struct buffer why = BUFFER_INIT;

    bool has_basics = describe_layers(layers, &why);
    int code = register_probe(q);
    if (code != CLI_OK && code != CLI_REFUSED)
        return code;
    buffer_add(&why, code == CLI_OK ? "; foreign files, network, processes and privileges are denied"
                                    : "; the sandbox's probe was refused: see above");
    if (!has_basics)
        buffer_add(&why, "; no_new_privs, seccomp and an own uid or user namespace have to be on");
    say(q, "sandbox", code == CLI_OK && has_basics ? PASS : FAIL, why.data ? why.data : "");
    return CLI_OK;
}

/* --- the trainer's own check, where there is a trainer --- */

/* The program's exit status, what it prints left out; -1 where it was not there to end. */
static int
run_program(char *const *arguments, double limit_s)
{
    extern char **environ;
    const int64_t start_ns = clock_monotonic_ns();
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    bool is_quiet =
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
        posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO) == 0;
    bool is_running = is_quiet && posix_spawn(&pid, arguments[0], &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    if (!is_running)
        return -1;
    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (ended < 0 && errno != EINTR)
            return -1;
        if ((double)(clock_monotonic_ns() - start_ns) / 1e9 > limit_s) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(20000);
    }
}

static void
check_curriculum(struct quick *q)
{
    char path[4096], why[WHY_SIZE];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("trainer"));
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;

    if (slash)
        strcpy(slash + 1, "trainer");
    if (!slash || access(path, X_OK) != 0) {
        say(q, "curriculum", SKIP, "there is no trainer program beside this one");
        return;
    }
    char selftest[] = "selftest", quick[] = "--quick";
    char *arguments[] = { path, selftest, quick, NULL };
    setenv("VERIFIERD_URL", q->bench->cli->url, 1);
    if (q->bench->cli->token)
        setenv("VERIFIERD_TOKEN", q->bench->cli->token, 1);
    fflush(stdout);
    int status = run_program(arguments, TRAINER_LIMIT_S);
    if (status == TRAINER_USAGE) {
        say(q, "curriculum", SKIP, "the trainer beside this program has no selftest");
        return;
    }
    snprintf(why, sizeof(why),
             status < 0 ? "trainer selftest --quick did not end as it should"
                        : "trainer selftest --quick ended with status %d",
             status);
    say(q, "curriculum", status == 0 ? PASS : FAIL, why);
}

int
selftest_quick(struct bench *b, const struct corpus *corpus, const char *directory)
{
    struct quick q = { .bench = b, .corpus = corpus, .directory = directory, .checks = json_object() };

    q.start_ns = clock_monotonic_ns();
    int code = judge_all(&q);
    if (code == CLI_OK) {
        check_inputs(&q);
        check_funnel(&q);
        check_timing(&q);
        code = check_sandbox(&q);
    }
    if (code == CLI_OK) {
        check_curriculum(&q);
        AUTO_JSON json_t *last = json_pack(
            "{s:s, s:b, s:b, s:f, s:O}", "selftest", "quick", "ok", !q.has_failed, "gpu", b->has_gpu,
            "seconds", (double)(clock_monotonic_ns() - q.start_ns) / 1e9, "checks", q.checks);
        text_json_line(last);
    }
    for (int i = 0; i < PARTS; i++)
        json_decref(q.verdicts[i]);
    json_decref(q.checks);
    return code == CLI_OK && q.has_failed ? CLI_FAILED : code;
}
