/*
 * selftest.c - has a corpus with known verdicts judged by the live daemon, and says how many cheats it killed, how
 * many honest kernels it refused, and whether a cheat left anything behind for those that came after it.
 *
 * First each task's honest kernel is judged, while nothing hostile has run: the baseline. Then come all other
 * rows, several in flight, as in use. After the hostile rows of a task its honest kernel is judged again, before
 * anything else that waits, with a comment that makes its bytes new, since a stored verdict would prove nothing.
 * Most tasks are so short that a GPU's timing of them may be inconclusive; so that a cheat which spoils the clock is
 * seen all the same, one that is long enough is judged again after every few hostile rows of any task.
 */
#include "client/cli/selftest.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/score.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/hash.h"

#define WIDTH_DEFAULT 8
#define WIDTH_GPU 16 /* so that compiling on many cores keeps ahead of the GPU */
#define WIDTH_MAX 64
#define READY_LIMIT_S 180.0 /* workers import torch */
#define CALL_LIMIT_S 300.0  /* a full queue, a daemon that drains */
#define VERDICT_LIMIT_S 600.0
#define LOOK_S 0.25
/* Hostile rows of one task, at most, until its honest kernel is judged again: a timing takes the GPU for itself. */
#define PROBE_EVERY 1
#define PROBE_EVERY_GPU 2
#define PROBE_TRIES 3
#define CLOCK_EVERY \
    6 /* hostile rows of any task until a kernel that is long enough to be timed is judged again */

enum job_kind { JOB_ROW, JOB_OTHER, JOB_BASELINE, JOB_PROBE };

static const char *const job_names[] = { "row", "other_policy", "baseline", "probe" };

struct job {
    enum job_kind kind;
    size_t candidate;
    int tries;    /* JOB_PROBE: those before it that had no time */
    int followed; /* JOB_PROBE: hostile rows that it comes after */
    char *id;     /* NULL: not submitted */
    int64_t start_ns;
};

struct task_state {
    char *id; /* NULL: not registered */
    bool is_refused;
    struct score_baseline baseline;
    int hostile_left; /* rows whose verdicts are still to come */
    int since_probe;
};

struct selftest {
    struct cli *cli;
    const char *directory, *policy;
    const char **only; /* patterns, borrowed from argv; NULL: all */
    size_t n_only;
    bool is_quick;
    size_t width;

    struct bench bench;
    char *place; /* of the corpus */
    struct corpus *corpus;
    struct task_state *tasks;
    ptrdiff_t clock_task; /* < 0: none, or no GPU */
    int hostile_left, since_clock;
    struct score score;
    struct job *waiting; /* a stack: the next one is the last */
    size_t n_waiting, waiting_size;
    struct job flying[WIDTH_MAX];
    size_t n_flying, done, planned;
    int64_t start_ns;
};

/* --- talking to the daemon --- */

void
bench_nonce(struct bench *b, char *out, size_t size)
{
    snprintf(out, size, "%s.%d", b->run, b->nonces++);
}

static int
take_id(json_t *answer, char **id)
{
    const char *found = text_member(answer, "id");
    if (!found)
        return cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
    *id = strdup(found);
    return *id ? CLI_OK : cli_complain(CLI_CONFIG, "out of memory");
}

int
bench_add_task(struct bench *b, json_t *registration, char **id)
{
    AUTO_FREE char *text = json_dumps(registration, JSON_COMPACT);
    AUTO_JSON json_t *body = json_copy(registration), *answer = NULL;
    char tag[HASH_TAG_SIZE];

    *id = NULL;
    if (!body || !text)
        return cli_complain(CLI_CONFIG, "out of memory");
    /* A name is one task's: users have names like ours, and other versions of this program have other tasks. */
    hash_tag(text, strlen(text), tag);
    json_object_set_new(body, "name", json_sprintf("%s %.12s", text_member(registration, "name"), tag));
    int code = api_call_patiently(b->cli, "POST", "/v1/tasks", body, CALL_LIMIT_S, &answer);
    return code == CLI_OK ? take_id(answer, id) : code;
}

int
bench_submit(struct bench *b, const struct corpus_candidate *candidate, const char *task_id,
             const char *policy, const char *until, char **id)
{
    char nonce[64];
    AUTO_JSON json_t *answer = NULL;

    *id = NULL;
    bench_nonce(b, nonce, sizeof(nonce));
    AUTO_JSON json_t *body = corpus_fresh_body(candidate, nonce);
    if (!body)
        return cli_complain(CLI_CONFIG, "out of memory");
    json_object_set_new(body, "task", json_string(task_id));
    json_object_set_new(body, "client", json_string("selftest"));
    json_object_set_new(body, "cache", json_false()); /* the same again has to be judged again */
    if (policy)
        json_object_set_new(body, "policy", json_string(policy));
    if (until)
        json_object_set_new(body, "until", json_string(until));
    int code = api_call_patiently(b->cli, "POST", "/v1/submissions", body, CALL_LIMIT_S, &answer);
    return code == CLI_OK ? take_id(answer, id) : code;
}

int
bench_look(struct bench *b, const char *id, double wait_s, json_t **out, bool *is_finished)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;

    *out = NULL;
    *is_finished = false;
    api_path_add(&path, "/v1/submissions/", id);
    if (wait_s > 0)
        buffer_printf(&path, "?wait=%g", wait_s);
    if (!path.data)
        return cli_complain(CLI_CONFIG, "out of memory");
    int code = api_call_patiently(b->cli, "GET", path.data, NULL, CALL_LIMIT_S, out);
    if (code != CLI_OK)
        return code;
    const char *state = text_member(*out, "state");
    if (!state)
        return cli_complain(CLI_NETWORK, "the answer has no state: is this verifierd?");
    *is_finished = strcmp(state, "done") == 0 || strcmp(state, "cancelled") == 0;
    return CLI_OK;
}

static void
cancel(struct bench *b, const char *id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    api_path_add(&path, "/v1/submissions/", id);
    if (path.data)
        api_call(b->cli, "DELETE", path.data, NULL, NULL);
}

static int
open_bench(struct selftest *s)
{
    struct bench *b = &s->bench;
    AUTO_JSON json_t *ready = NULL;

    b->cli = s->cli;
    snprintf(b->run, sizeof(b->run), "selftest %llx.%d", (unsigned long long)clock_wall_ms(), (int)getpid());
    int code = api_call_patiently(s->cli, "GET", "/readyz", NULL, READY_LIMIT_S, &ready);
    if (code == CLI_OK)
        code = api_call(s->cli, "GET", "/v1/status", NULL, &b->status);
    if (code != CLI_OK)
        return code;
    json_t *gpus = json_object_get(b->status, "gpus");
    if (!json_is_array(gpus))
        return cli_complain(CLI_NETWORK, "its status names no GPUs: is this verifierd?");
    b->has_gpu = json_array_size(gpus) > 0;
    if (s->width == 0)
        s->width = b->has_gpu ? WIDTH_GPU : WIDTH_DEFAULT;
    return CLI_OK;
}

/* --- jobs --- */

static const struct corpus_candidate *
candidate_of(const struct selftest *s, const struct job *job)
{
    return &s->corpus->candidates[job->candidate];
}

static const char *
work_of(const struct selftest *s, const struct job *job)
{
    return s->corpus->tasks[candidate_of(s, job)->task].kind;
}

static bool
is_hostile(const struct corpus_candidate *k)
{
    return k->expected.kind == CORPUS_CHEAT || k->expected.kind == CORPUS_ROBUSTNESS;
}

static bool
is_selected(const struct selftest *s, size_t candidate)
{
    for (size_t i = 0; i < s->n_only; i++)
        if (fnmatch(s->only[i], s->corpus->candidates[candidate].label, 0) == 0)
            return true;
    return s->n_only == 0;
}

static const char needs_gpu[] = "needs a GPU";

static bool
may_run(const struct selftest *s, size_t candidate)
{
    const struct corpus_candidate *k = &s->corpus->candidates[candidate];
    return s->bench.has_gpu || !(k->expected.needs_gpu || s->corpus->tasks[k->task].needs_gpu);
}

static int
push(struct selftest *s, enum job_kind kind, size_t candidate, int followed)
{
    if (s->n_waiting == s->waiting_size) {
        size_t size = s->waiting_size ? 2 * s->waiting_size : 64;
        struct job *more = realloc(s->waiting, size * sizeof(*more));
        if (!more)
            return cli_complain(CLI_CONFIG, "out of memory");
        s->waiting = more;
        s->waiting_size = size;
    }
    s->waiting[s->n_waiting++] = (struct job){ .kind = kind, .candidate = candidate, .followed = followed };
    s->planned++;
    return CLI_OK;
}

static void
print_progress(const struct selftest *s)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%zu of %zu judged, %.0f s ", s->done, s->planned,
                (double)(clock_monotonic_ns() - s->start_ns) / 1e9);
}

/* What a row came to, when it was not as it must be: one line. */
static void
print_surprise(const struct selftest *s, const struct job *job, const char *why)
{
    const struct corpus_candidate *k = candidate_of(s, job);
    if (s->cli->is_json)
        return;
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    printf("%s %s: %s", job->kind == JOB_PROBE ? "CONTAMINATED" : "SURPRISE", k->label, why);
    if (k->what[0] && job->kind == JOB_ROW) {
        fputs(" (", stdout);
        text_print(stdout, k->what);
        putchar(')');
    }
    if (job->id)
        printf(" [%s]", job->id);
    putchar('\n');
}

static void
print_line(const struct selftest *s, const struct job *job, const json_t *verdict, const char *why)
{
    if (!s->cli->is_json)
        return;
    const struct corpus_candidate *k = candidate_of(s, job);
    AUTO_FREE char *expected = corpus_class_names(k->expected.classes);
    const json_t *timing = json_object_get(verdict, "timing"),
                 *components = json_object_get(verdict, "components");
    AUTO_JSON json_t *line = json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:s?, s:s?, s:O?, s:O?, s:s?, s:b, s:s?}", job_names[job->kind], k->label,
        "kind", corpus_kind_name(k->expected.kind), "expected", expected ? expected : "", "what", k->what,
        "id", job->id, "class", text_member(verdict, "class"), "failed_at", text_member(verdict, "failed_at"),
        "reward", json_object_get(verdict, "reward"), "speedup", json_object_get(components, "speedup"),
        "timing", text_member(timing, "outcome"), "right", why[0] == '\0', "why", why[0] ? why : NULL);
    if (line)
        text_json_line(line);
}

/* A row that no verdict will come for. */
static void
give_up(struct selftest *s, struct job *job, const char *why)
{
    print_surprise(s, job, why);
    print_line(s, job, NULL, why);
    if (job->kind == JOB_ROW)
        score_add(&s->score, work_of(s, job), &candidate_of(s, job)->expected, NULL);
    else if (job->kind == JOB_PROBE)
        s->score.contaminated++;
    s->done++;
}

static int
push_clock(struct selftest *s)
{
    s->since_clock++;
    s->hostile_left--;
    if (s->clock_task < 0 || (s->since_clock < CLOCK_EVERY && s->hostile_left > 0))
        return CLI_OK;
    s->since_clock = 0;
    /* The rows before it are counted by the probes of their own tasks. */
    return push(s, JOB_PROBE, (size_t)corpus_probe_of(s->corpus, (size_t)s->clock_task), 0);
}

/* After a hostile row: is it time for the task's honest kernel? */
static int
follow_hostile(struct selftest *s, size_t task)
{
    int code = push_clock(s);
    if (code != CLI_OK)
        return code;
    struct task_state *t = &s->tasks[task];
    ptrdiff_t probe = corpus_probe_of(s->corpus, task);

    t->hostile_left--;
    t->since_probe++;
    if (t->since_probe < (s->bench.has_gpu ? PROBE_EVERY_GPU : PROBE_EVERY) && t->hostile_left > 0)
        return CLI_OK;
    int followed = t->since_probe;
    t->since_probe = 0;
    return t->baseline.class[0] ? push(s, JOB_PROBE, (size_t)probe, followed) : CLI_OK;
}

/* One that is timed is timed once more, so that its interval holds what lies between two children, too. */
static int
add_baseline(struct selftest *s, const struct job *job, const json_t *verdict)
{
    struct score_baseline *b = &s->tasks[candidate_of(s, job)->task].baseline;
    score_baseline_add(b, verdict);
    return b->n == 1 && score_is_timed(b) ? push(s, JOB_BASELINE, job->candidate, 0) : CLI_OK;
}

/* A host that is busy for a second leaves a short kernel's time inconclusive; what a cheat left behind stays. */
static int
repeat_probe(struct selftest *s, const struct job *job)
{
    int code = push(s, JOB_PROBE, job->candidate, job->followed);
    if (code == CLI_OK)
        s->waiting[s->n_waiting - 1].tries = job->tries + 1;
    return code;
}

static int
finish_job(struct selftest *s, struct job *job, const json_t *verdict)
{
    const struct corpus_candidate *k = candidate_of(s, job);
    struct task_state *t = &s->tasks[k->task];
    char why[SCORE_WHY_SIZE] = "";
    int code = CLI_OK;

    s->done++;
    switch (job->kind) {
    case JOB_ROW:
        if (!score_is_right(&k->expected, verdict, why))
            print_surprise(s, job, why);
        score_add(&s->score, work_of(s, job), &k->expected, verdict);
        if ((ptrdiff_t)job->candidate == corpus_probe_of(s->corpus, k->task))
            code = add_baseline(s, job, verdict);
        break;
    case JOB_OTHER:
        score_add_other(&s->score, &k->expected, verdict);
        break;
    case JOB_BASELINE:
        code = add_baseline(s, job, verdict);
        break;
    case JOB_PROBE:
        if (job->tries + 1 < PROBE_TRIES && score_is_timed(&t->baseline) &&
            !score_has_time(&t->baseline, verdict) && strcmp(score_class(verdict), t->baseline.class) == 0)
            return repeat_probe(s, job);
        if (score_is_contaminated(&t->baseline, verdict, why))
            print_surprise(s, job, why);
        score_add_probe(&s->score, &t->baseline, verdict, job->followed);
        break;
    }
    print_line(s, job, verdict, why);
    return code == CLI_OK && job->kind == JOB_ROW && is_hostile(k) ? follow_hostile(s, k->task) : code;
}

/* Takes the job over: it is in flight, or given up. */
static int
start_job(struct selftest *s, struct job job)
{
    const struct corpus_candidate *k = candidate_of(s, &job);
    struct task_state *t = &s->tasks[k->task];
    int code = CLI_OK;

    if (!t->id && !t->is_refused) {
        code = bench_add_task(&s->bench, s->corpus->tasks[k->task].registration, &t->id);
        t->is_refused = code == CLI_REFUSED;
    }
    /* Where there is no time to compare with, a probe need not take the GPU for itself. */
    bool is_untimed = job.kind == JOB_PROBE && !score_is_timed(&t->baseline);
    if (code == CLI_OK && t->id)
        code = bench_submit(&s->bench, k, t->id, job.kind == JOB_OTHER ? s->policy : NULL,
                            is_untimed ? "full" : NULL, &job.id);
    if (t->is_refused || code == CLI_REFUSED) {
        give_up(s, &job, t->is_refused ? "its task was refused" : "the submission was refused");
        return job.kind == JOB_ROW && is_hostile(k) ? follow_hostile(s, k->task) : CLI_OK;
    }
    if (code != CLI_OK)
        return code;
    job.start_ns = clock_monotonic_ns();
    s->flying[s->n_flying++] = job;
    return CLI_OK;
}

/* Look at one in flight; where it is over, it leaves its place. */
static int
look(struct selftest *s, size_t i, double wait_s, bool *is_over)
{
    struct job *job = &s->flying[i];
    AUTO_JSON json_t *verdict = NULL;

    int code = bench_look(&s->bench, job->id, wait_s, &verdict, is_over);
    if (code != CLI_OK)
        return code;
    if (*is_over) {
        code = finish_job(s, job, verdict);
    } else if ((double)(clock_monotonic_ns() - job->start_ns) / 1e9 > VERDICT_LIMIT_S) {
        *is_over = true;
        cancel(&s->bench, job->id);
        give_up(s, job, "no verdict within 600 s");
        const struct corpus_candidate *k = candidate_of(s, job);
        code = job->kind == JOB_ROW && is_hostile(k) ? follow_hostile(s, k->task) : CLI_OK;
    }
    if (*is_over) {
        free(job->id);
        /* The order stays: the first is the oldest. */
        memmove(job, job + 1, (s->n_flying - i - 1) * sizeof(*job));
        s->n_flying--;
    }
    return code;
}

static int
look_at_all(struct selftest *s)
{
    bool is_over = false, was_any = false;
    int code = CLI_OK;

    for (size_t i = 0; code == CLI_OK && i < s->n_flying; i += !is_over) {
        code = look(s, i, 0, &is_over);
        was_any |= is_over;
    }
    if (code == CLI_OK && !was_any && s->n_flying > 0)
        code = look(s, 0, LOOK_S, &is_over);
    return code;
}

/* Until nothing waits and nothing is in flight. */
static int
run_jobs(struct selftest *s)
{
    int code = CLI_OK;
    while (code == CLI_OK && (s->n_waiting > 0 || s->n_flying > 0)) {
        print_progress(s);
        while (code == CLI_OK && s->n_waiting > 0 && s->n_flying < s->width)
            code = start_job(s, s->waiting[--s->n_waiting]);
        if (code == CLI_OK)
            code = look_at_all(s);
    }
    return code;
}

/* --- what is to be done --- */

/* The honest kernels that stand for tasks with hostile rows. */
static int
plan_baselines(struct selftest *s, bool *is_planned)
{
    for (size_t task = s->corpus->n_tasks; task-- > 0;) {
        ptrdiff_t probe = corpus_probe_of(s->corpus, task);
        if (s->tasks[task].hostile_left == 0 && (ptrdiff_t)task != s->clock_task)
            continue;
        if (probe < 0)
            return cli_complain(CLI_USAGE,
                                "the corpus has no honest candidate for the task %s, which has cheats",
                                s->corpus->tasks[task].name);
        if (!may_run(s, (size_t)probe)) {
            printf("SKIP %s: %s, so nothing is judged after the cheats of this task\n",
                   s->corpus->candidates[probe].label, needs_gpu);
            continue;
        }
        is_planned[probe] = is_selected(s, (size_t)probe);
        int code = push(s, is_planned[probe] ? JOB_ROW : JOB_BASELINE, (size_t)probe, 0);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

static void
skip_row(struct selftest *s, const struct corpus_candidate *k)
{
    score_skip(&s->score, &k->expected);
    if (!s->cli->is_json) {
        printf("SKIP %s: %s\n", k->label, needs_gpu);
        return;
    }
    AUTO_JSON json_t *line = json_pack("{s:s, s:s, s:s}", "skipped", k->label, "kind",
                                       corpus_kind_name(k->expected.kind), "why", needs_gpu);
    text_json_line(line);
}

static int
run_corpus(struct selftest *s)
{
    const size_t n = s->corpus->n_candidates;
    AUTO_FREE bool *is_planned = calloc(n, sizeof(bool));
    size_t selected = 0;

    s->tasks = calloc(s->corpus->n_tasks, sizeof(*s->tasks));
    if (!is_planned || !s->tasks)
        return cli_complain(CLI_CONFIG, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const struct corpus_candidate *k = &s->corpus->candidates[i];
        if (!is_selected(s, i))
            continue;
        selected++;
        if (!may_run(s, i))
            skip_row(s, k);
        else
            s->tasks[k->task].hostile_left += is_hostile(k);
        s->hostile_left += may_run(s, i) && is_hostile(k);
    }
    s->clock_task = s->bench.has_gpu && s->hostile_left > 0 ? corpus_timed_task(s->corpus) : -1;
    if (selected == 0)
        return cli_complain(CLI_USAGE, "--only %s: no candidate is called so", s->only[0]);
    int code = plan_baselines(s, is_planned);
    if (code == CLI_OK)
        code = run_jobs(s);
    for (size_t i = n; code == CLI_OK && i-- > 0;)
        if (is_selected(s, i) && may_run(s, i) && !is_planned[i])
            code = push(s, JOB_ROW, i, 0);
    if (code == CLI_OK)
        code = run_jobs(s);
    for (size_t i = n; code == CLI_OK && s->policy && i-- > 0;)
        if (is_selected(s, i) && may_run(s, i))
            code = push(s, JOB_OTHER, i, 0);
    return code == CLI_OK ? run_jobs(s) : code;
}

/* --- what it came to --- */

static void
number_cell(char *out, size_t size, int n)
{
    snprintf(out, size, "%d", n);
}

static void
print_table(const struct selftest *s)
{
    AUTO_BUFFER struct buffer title = BUFFER_INIT;
    buffer_printf(&title, ">ACCEPTED BY %s", s->policy ? s->policy : "");
    const char *const titles[] = { "KIND", ">ROWS", ">SKIPPED", ">JUDGED", ">RIGHT", ">REFUSED", title.data };
    const size_t n = s->policy ? 7 : 6;
    AUTO_TABLE struct table *table = table_new(titles, n);

    for (int i = 0; i < CORPUS_KINDS; i++) {
        const struct score_kind *k = &s->score.kinds[i];
        const int figures[] = { k->rows, k->skipped, k->ran, k->right, k->refused, k->other_accepted };
        char cells[6][16];
        const char *row[7] = { corpus_kind_name((enum corpus_kind)i) };
        for (size_t c = 0; c + 1 < n; c++) {
            number_cell(cells[c], sizeof(cells[c]), figures[c]);
            row[c + 1] = cells[c];
        }
        table_row(table, row);
        table_mark(table, 4, k->right == k->ran && k->ran + k->skipped == k->rows);
    }
    table_print(table);
}

static void
error_cells(char cells[2][48], int part, int whole)
{
    double low, high;

    score_wilson(part, whole, &low, &high);
    snprintf(cells[0], sizeof(cells[0]), "%d of %d", part, whole);
    if (whole > 0)
        snprintf(cells[1], sizeof(cells[1]), "%.1f%% [%.1f, %.1f]", 100.0 * part / whole, 100 * low,
                 100 * high);
    else
        snprintf(cells[1], sizeof(cells[1]), "-");
}

static void
print_work(struct table *table, const struct score_work *work)
{
    char accepts[2][48], rejects[2][48];

    error_cells(accepts, work->accepted, work->wrong);
    error_cells(rejects, work->refused, work->right);
    const char *row[] = { work->name, accepts[0], accepts[1], rejects[0], rejects[1] };
    table_row(table, row);
}

/* Both errors, each with Wilson's 95 % interval. */
static void
print_works(const struct score *s)
{
    const char *const titles[] = { "TASKS", ">FALSE ACCEPTS", ">RATE", ">FALSE REJECTS", ">RATE" };
    const struct score_work all = score_all_work(s);
    AUTO_TABLE struct table *table = table_new(titles, 5);

    for (size_t i = 0; i < s->n_works; i++)
        print_work(table, &s->works[i]);
    print_work(table, &all);
    table_print(table);
}

static void
print_rates(const struct score *s)
{
    const struct score_kind *cheat = &s->kinds[CORPUS_CHEAT], *honest = &s->kinds[CORPUS_HONEST];
    const struct score_kind *suspicious = &s->kinds[CORPUS_SUSPICIOUS];
    double kill = score_kill_rate(s), rejects = score_false_reject_rate(s);

    if (kill >= 0)
        printf("kill rate      %5.1f%%  %d of %d cheats\n", 100 * kill, cheat->expected, cheat->ran);
    if (rejects >= 0)
        printf("false rejects  %5.1f%%  %d of %d honest kernels\n", 100 * rejects,
               honest->refused + suspicious->refused, honest->ran + suspicious->ran);
    printf("contamination  %d of %d honest kernels judged after %d hostile rows; %d times compared\n",
           s->contaminated, s->probes, s->followed, s->times_compared);
}

static int
report(struct selftest *s)
{
    bool is_clean = score_is_clean(&s->score, s->n_only == 0);
    json_t *last = score_document(&s->score);

    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (!s->cli->is_json) {
        print_table(s);
        print_works(&s->score);
        print_rates(&s->score);
    }
    json_object_set_new(last, "selftest", json_string("corpus"));
    json_object_set_new(last, "ok", json_boolean(is_clean));
    json_object_set_new(last, "gpu", json_boolean(s->bench.has_gpu));
    json_object_set_new(last, "policy", s->policy ? json_string(s->policy) : json_null());
    json_object_set_new(last, "seconds", json_real((double)(clock_monotonic_ns() - s->start_ns) / 1e9));
    text_json_line(last);
    json_decref(last);
    return is_clean ? CLI_OK : CLI_FAILED;
}

/* --- the corpus' place --- */

/* share/verifierd/corpus of where this program is installed, or was built: given. */
static char *
default_directory(void)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(exe, '/');
        if (!slash)
            return NULL;
        *slash = '\0';
    }
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    if (buffer_printf(&path, "%s/share/verifierd/corpus", exe) < 0)
        return NULL;
    return buffer_take(&path, NULL);
}

static int
load_corpus(struct selftest *s)
{
    struct error err = { 0 };

    s->place = s->directory ? strdup(s->directory) : default_directory();
    if (!s->place)
        return cli_complain(CLI_USAGE, "where is the corpus? give --corpus DIR");
    if (corpus_load(s->place, &s->corpus, &err) < 0)
        return cli_complain(CLI_USAGE, "corpus: %s", err.text);
    return CLI_OK;
}

/* --- the command line --- */

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
        return 0;
    case OPT_CORPUS:
        s->directory = arg;
        return 0;
    case OPT_POLICY:
        s->policy = arg;
        return 0;
    case OPT_ONLY:
        s->only[s->n_only++] = arg;
        return 0;
    case 'n':
        s->width = strtoul(arg, &end, 10);
        if (end == arg || *end || s->width < 1 || s->width > WIDTH_MAX)
            argp_error(state, "--in-flight: \"%s\" is not a number from 1 to %d", arg, WIDTH_MAX);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\": selftest takes no arguments but options", arg);
        return 0;
    case ARGP_KEY_END:
        if (s->is_quick && (s->policy || s->n_only > 0))
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

static int
selftest(struct selftest *s)
{
    s->start_ns = clock_monotonic_ns();
    int code = load_corpus(s);
    if (code == CLI_OK)
        code = open_bench(s);
    if (code != CLI_OK)
        return code;
    if (s->is_quick)
        return selftest_quick(&s->bench, s->corpus, s->place);
    code = run_corpus(s);
    return code == CLI_OK ? report(s) : code;
}

int
selftest_command(struct cli *cli, int argc, char **argv)
{
    struct selftest s = { .cli = cli };

    /* No more patterns than words. */
    s.only = calloc((size_t)argc, sizeof(*s.only));
    if (!s.only)
        return cli_complain(CLI_CONFIG, "out of memory");
    argp_parse(&selftest_argp, argc, argv, 0, NULL, &s);
    int code = selftest(&s);
    for (size_t i = 0; i < s.n_flying; i++)
        free(s.flying[i].id);
    for (size_t i = 0; s.tasks && i < s.corpus->n_tasks; i++)
        free(s.tasks[i].id);
    free(s.tasks);
    free(s.waiting);
    free(s.place);
    free(s.only);
    corpus_free(s.corpus);
    json_decref(s.bench.status);
    return code;
}
