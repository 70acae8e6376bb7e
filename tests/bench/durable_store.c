/*
 * durable_store.c - the store without HTTP, for durable.py.
 *
 *   durable_store task FILE             add a task, print its id
 *   durable_store fill FILE N           add N ended submissions, 1000 to a transaction or more
 *   durable_store add FILE TASK N UNDER_WAY FIRST
 *                                       add N submissions with UNDER_WAY writes at a time, print the rate
 *   durable_store pages FILE            time every kind of page and look-up; the slowest of each
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/store.h"
#include "tests/bench/durable_source.h"

#define WRITES_MAX 4000
#define REPEATS 20

static void
die(const char *what, const struct error *err)
{
    fprintf(stderr, "durable_store: %s: %s\n", what, err->text);
    exit(1);
}

static void
on_done(void *arg, int code, const struct error *err)
{
    (void)arg;
    if (code < 0)
        die("write", err);
}

/* --- a task --- */

static void
add_task(struct store *s, uv_loop_t *loop)
{
    static const char reference[] = "import torch\n"
                                    "SIZE = 1024\n"
                                    "class Model(torch.nn.Module):\n"
                                    "    def forward(self, x):\n"
                                    "        return torch.relu(x)\n"
                                    "def get_inputs():\n"
                                    "    return [torch.rand(SIZE)]\n"
                                    "def get_init_inputs():\n"
                                    "    return []\n";
    struct task_row row = {
        .name = (char *)"bench-durable",
        .entry_point = (char *)"Model",
        .reference = (char *)reference,
        .reference_size = sizeof reference - 1,
        .spec = (char *)"{\"cases\":[]}",
        .created_ms = clock_wall_ms(),
    };
    struct error err;

    hash_text(reference, sizeof reference - 1, row.id);
    if (store_add_task(s, &row, on_done, NULL, &err) < 0)
        die("add a task", &err);
    uv_run(loop, UV_RUN_DEFAULT);
    puts(row.id);
}

/* --- many submissions --- */

static const char *const classes[] = { "ok", "mismatch", "compile", "launch", "syntax" };

/* What makes a verdict long, and what no table shows: results, samples, settings. */
static const char *
verdict_rest(void)
{
    static struct buffer text;

    if (text.size > 0)
        return text.data;
    buffer_add(&text, "\"correctness\":{\"stage\":\"full\",\"cases\":5,\"passed\":5,\"results\":[");
    for (int i = 0; i < 5; i++)
        buffer_printf(&text,
                      "%s{\"name\":\"spikes\",\"outcome\":\"pass\",\"class\":null,\"note\":null,"
                      "\"max_abs\":2.4353517709407857e-09,\"max_rel\":4.438278169610944e-07,\"matched\":1.0,"
                      "\"against\":\"fp64\",\"call_ms\":0.%d}",
                      i ? "," : "", 171 + i);
    buffer_add(&text, "]},\"timing\":{\"outcome\":\"measured\",\"why\":null,\"estimator\":\"paired\","
                      "\"method\":\"doorbell_paired\",\"warmup\":10,\"trials\":50,\"reference_ns\":[");
    for (int i = 0; i < 50; i++)
        buffer_printf(&text, "%s%d.25", i ? "," : "", 1042000 + 977 * i);
    buffer_add(&text, "],\"candidate_ns\":[");
    for (int i = 0; i < 50; i++)
        buffer_printf(&text, "%s%d.5", i ? "," : "", 942000 + 971 * i);
    buffer_add(&text,
               "]},\"policy_on\":{\"staged\":true,\"skip_timing_on_failure\":true,\"tiny_first\":true,"
               "\"precision\":\"tf32\",\"foreign\":\"movement\",\"variations\":{\"count\":5,\"value\":true,"
               "\"shape\":true,\"dtype\":true}},\"policy\":\"strict\",\"seed\":\"f6b31100e32f371a\","
               "\"entry_point\":\"ModelNew\",\"metadata\":null,\"cached_from\":null");
    return text.data;
}

/* A verdict of what a real one has, about 4 KB. Given. */
static char *
verdict_text(const struct submission_row *row)
{
    static const char *const stages[] = { "ast", "compile", "tiny", "full", "timing" };
    const char *quote = row->class_ ? "\"" : "";
    struct buffer text = BUFFER_INIT;

    buffer_printf(
        &text,
        "{\"id\":\"%s\",\"group\":null,\"group_index\":null,\"task\":\"%s\",\"task_name\":\"softmax\","
        "\"client\":\"%s\",\"state\":\"%s\",\"stage\":\"full\",\"passed_stage\":\"tiny\",\"failed_at\":null,"
        "\"class\":%s%s%s,\"rule\":null,\"reward\":0.5,\"flags\":[],\"cache\":\"miss\",\"attempts\":1,"
        "\"created\":\"2026-11-22T01:11:13.079Z\",\"finished\":\"2026-11-22T01:11:14.091Z\","
        "\"components\":{\"extracted\":1,\"valid\":1,\"compiled\":1,\"correct\":1,\"hack\":0,\"timed\":0,"
        "\"speedup\":1.11,\"speedup_lo\":1.1,\"speedup_hi\":1.12,\"coverage\":1},"
        "\"feedback\":{\"text\":\"Correct in all 5 cases.\"},\"stages\":[",
        row->id, row->task_id, row->client, submission_state_name(row->state), quote,
        row->class_ ? row->class_ : "null", quote);
    for (size_t i = 0; i < ARRAY_LEN(stages); i++)
        buffer_printf(&text,
                      "%s{\"stage\":\"%s\",\"outcome\":\"pass\",\"class\":null,\"wait_ms\":0.097375,"
                      "\"run_ms\":175.511793,\"done\":1,\"of\":1}",
                      i ? "," : "", stages[i]);
    if (buffer_printf(&text, "],%s}", verdict_rest()) < 0)
        abort();
    return buffer_take(&text, NULL);
}

/*
 * The i-th of n: half of all rows are one client's, the other half of one
 * task, so that both together match nothing: the worst that a page can ask.
 */
static void
fill_row(struct submission_row *row, char *client, size_t client_size, long i, long n)
{
    memset(row, 0, sizeof *row);
    id_new(row->id);
    snprintf(row->task_id, sizeof row->task_id, "sha256:task-%ld", i < n / 2 ? 1 + i % 250 : 0L);
    snprintf(row->source_hash, sizeof row->source_hash, "sha256:source-%ld", i);
    snprintf(client, client_size, "client-%ld", i < n / 2 ? 0L : 1 + i % 10);
    row->client = client;
    row->state = i % 50 == 0 ? SUBMISSION_CANCELLED : SUBMISSION_DONE;
    row->class_ = i % 50 == 0 ? NULL : (char *)classes[i % 5];
    row->request =
        (char *)"{\"policy\":\"strict\",\"reward\":{\"kind\":\"staged\"},\"until\":null,\"metadata\":null}";
    row->stage = (char *)"full";
    row->reward = 0.5;
    row->created_ms = clock_wall_ms();
    row->finished_ms = row->created_ms;
    row->verdict = verdict_text(row);
}

static void
fill(struct store *s, uv_loop_t *loop, long n)
{
    struct submission_row row;
    char client[32], source[64];
    struct error err;

    for (long i = 0; i < n; i++) {
        struct store_source text = { .text = source, .size = 0 };

        fill_row(&row, client, sizeof client, i, n);
        text.size = (size_t)snprintf(source, sizeof source, "print(%ld)", i);
        if (store_add_submissions(s, NULL, NULL, &row, &text, 1, on_done, NULL, &err) < 0)
            die("add a submission", &err);
        free(row.verdict);
        if (i % WRITES_MAX == WRITES_MAX - 1)
            uv_run(loop, UV_RUN_DEFAULT);
    }
    uv_run(loop, UV_RUN_DEFAULT);
}

/* --- what the store does without HTTP --- */

struct adding {
    struct store *store;
    const char *task;
    struct buffer *sources;
    long next, n;
};

static void add_next(struct adding *a);

static void
on_added(void *arg, int code, const struct error *err)
{
    on_done(NULL, code, err);
    add_next(arg);
}

static void
add_next(struct adding *a)
{
    struct submission_row row = { .request = (char *)"{\"policy\":\"strict\"}", .client = (char *)"bench" };
    struct store_source source;
    struct error err;

    if (a->next == a->n)
        return;
    source = (struct store_source){ .text = a->sources[a->next].data, .size = a->sources[a->next].size };
    a->next++;
    id_new(row.id);
    snprintf(row.task_id, sizeof row.task_id, "%s", a->task);
    hash_text(source.text, source.size, row.source_hash);
    row.created_ms = clock_wall_ms();
    if (store_add_submissions(a->store, NULL, NULL, &row, &source, 1, on_added, a, &err) < 0)
        die("add a submission", &err);
}

static void
add(struct store *s, uv_loop_t *loop, char **argv)
{
    struct adding a = { .store = s, .task = argv[3], .n = strtol(argv[4], NULL, 10) };
    long under_way = strtol(argv[5], NULL, 10), first = strtol(argv[6], NULL, 10);
    int64_t began_ns;
    double seconds;

    a.sources = calloc((size_t)a.n, sizeof *a.sources);
    for (long i = 0; a.sources != NULL && i < a.n; i++)
        write_source(&a.sources[i], first + i, "\n");
    began_ns = clock_monotonic_ns();
    for (long i = 0; i < under_way; i++)
        add_next(&a);
    uv_run(loop, UV_RUN_DEFAULT);
    seconds = (double)(clock_monotonic_ns() - began_ns) / 1e9;
    printf("seconds %.3f\nrate %.0f\n", seconds, (double)a.n / seconds);
    for (long i = 0; i < a.n; i++)
        buffer_release(&a.sources[i]);
    free(a.sources);
}

/* --- pages --- */

struct seen {
    int n;
    char last[ID_SIZE];
};

static bool
see(void *arg, const struct submission_row *row)
{
    struct seen *seen = arg;

    seen->n++;
    memcpy(seen->last, row->id, ID_SIZE);
    return true;
}

/* Time a page from the newest, and from a cursor in the middle of the rows. */
static void
time_page(struct store *s, const char *name, struct submission_filter f, const char *middle)
{
    double worst_ms[2] = { 0, 0 };
    struct seen seen = { 0, "" };
    struct error err;

    f.limit = 50;
    for (int i = 0; i < 2 * REPEATS; i++) {
        int64_t began_ns = clock_monotonic_ns();
        double ms;

        f.before = i % 2 ? middle : NULL;
        seen.n = 0;
        if (reader_list_submissions(store_reader(s), &f, see, &seen, &err) < 0)
            die(name, &err);
        ms = (double)(clock_monotonic_ns() - began_ns) / 1e6;
        if (ms > worst_ms[i % 2])
            worst_ms[i % 2] = ms;
    }
    printf("%-44s %10.2f %10.2f\n", name, worst_ms[0], worst_ms[1]);
}

static void
time_counts(struct store *s)
{
    double worst_ms = 0;
    struct store_counts counts;
    struct error err;

    for (int i = 0; i < REPEATS; i++) {
        int64_t began_ns = clock_monotonic_ns();
        double ms;

        if (reader_count(store_reader(s), &counts, &err) < 0)
            die("count", &err);
        ms = (double)(clock_monotonic_ns() - began_ns) / 1e6;
        if (ms > worst_ms)
            worst_ms = ms;
    }
    printf("%-44s %10.2f\n", "counts", worst_ms);
}

static void
time_unfinished(struct store *s)
{
    int64_t began_ns = clock_monotonic_ns();
    struct seen seen = { 0, "" };
    struct error err;

    if (reader_each_unfinished(store_reader(s), see, &seen, &err) < 0)
        die("unfinished", &err);
    printf("%-44s %10.2f\n", "what a restart takes up (none here)",
           (double)(clock_monotonic_ns() - began_ns) / 1e6);
}

/* The id of the row that lies in the middle: walk there page by page. */
static void
find_middle(struct store *s, char middle[ID_SIZE])
{
    struct store_counts counts;
    struct submission_filter f = { .state = -1, .limit = 200 };
    struct seen seen = { 0, "" };
    struct error err;
    int64_t half;

    if (reader_count(store_reader(s), &counts, &err) < 0)
        die("count", &err);
    half = (counts.by_state[SUBMISSION_DONE] + counts.by_state[SUBMISSION_CANCELLED]) / 2;
    while (seen.n < half) {
        int before = seen.n;
        if (reader_list_submissions(store_reader(s), &f, see, &seen, &err) < 0)
            die("find the middle", &err);
        if (seen.n == before)
            break;
        f.before = seen.last;
    }
    memcpy(middle, seen.last, ID_SIZE);
}

static void
time_pages(struct store *s)
{
    static const struct {
        const char *name;
        struct submission_filter filter;
    } kinds[] = {
        { "all", { .state = -1 } },
        { "state=done", { .state = SUBMISSION_DONE } },
        { "state=cancelled", { .state = SUBMISSION_CANCELLED } },
        { "state=queued (none)", { .state = SUBMISSION_QUEUED } },
        { "class=ok", { .state = -1, .class_ = "ok" } },
        { "class that none has", { .state = -1, .class_ = "oom" } },
        { "task", { .state = -1, .task_id = "sha256:task-7" } },
        { "task, class", { .state = -1, .task_id = "sha256:task-7", .class_ = "ok" } },
        { "large task, class that none has", { .state = -1, .task_id = "sha256:task-0", .class_ = "oom" } },
        { "client", { .state = -1, .client = "client-3" } },
        { "large client, class that none has", { .state = -1, .client = "client-0", .class_ = "oom" } },
        { "large task, large client, none in both",
          { .state = -1, .task_id = "sha256:task-0", .client = "client-0" } },
        { "large task, state=cancelled", { .state = SUBMISSION_CANCELLED, .task_id = "sha256:task-0" } },
        { "state=cancelled, class (none in both)", { .state = SUBMISSION_CANCELLED, .class_ = "ok" } },
    };
    char middle[ID_SIZE];

    find_middle(s, middle);
    printf("%-44s %10s %10s\n", "page of 50, slowest of 20, ms", "newest", "middle");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        time_page(s, kinds[i].name, kinds[i].filter, middle);
    time_counts(s);
    time_unfinished(s);
}

int
main(int argc, char **argv)
{
    uv_loop_t *loop = uv_default_loop();
    struct store *s;
    struct error err;

    if (argc < 3) {
        fputs("usage: durable_store task FILE | fill FILE N | add FILE TASK N UNDER_WAY FIRST | pages FILE\n",
              stderr);
        return 2;
    }
    if (store_open(loop, argv[2], NULL, WRITES_MAX, &s, &err) < 0)
        die("open", &err);
    if (strcmp(argv[1], "task") == 0)
        add_task(s, loop);
    else if (strcmp(argv[1], "fill") == 0 && argc == 4)
        fill(s, loop, strtol(argv[3], NULL, 10));
    else if (strcmp(argv[1], "add") == 0 && argc == 7)
        add(s, loop, argv);
    else if (strcmp(argv[1], "pages") == 0)
        time_pages(s);
    store_close(s);
    return uv_loop_close(loop) == 0 ? 0 : 1;
}
