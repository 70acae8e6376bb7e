/*
 * dashboard_store.c FILE N [SECONDS] - fill a store with N ended submissions in groups of 16, as a training run of
 * SECONDS (30 days by default) that ended now would have left them: made up, for measuring pages and for looking at
 * them. The same arguments make the same verdicts.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/store.h"

#define GROUP 16
#define TASKS 24
#define WRITES_MAX 250
#define SAMPLES 50

static uint64_t seed = 88172645463325252u;

static double
uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static double
normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

static void
die(const char *what, const struct error *err)
{
    fprintf(stderr, "dashboard_store: %s: %s\n", what, err->text);
    exit(1);
}

static void
on_done(void *arg, int code, const struct error *err)
{
    (void)arg;
    if (code < 0)
        die("write", err);
}

static const char *const stages[] = { "ast", "compile", "tiny", "full", "timing" };

static const struct kind {
    const char *class_, *type, *text; /* text has one %d, for a figure that varies */
    int failed;                       /* stage */
    double early, late;               /* how often, at the beginning and at the end */
} kinds[] = {
    { "syntax", "SyntaxError", "candidate.py, line %d: SyntaxError: '(' was never closed", 0, 12, 2 },
    { "policy", "PolicyError",
      "candidate.py, line %d: torch.nn.functional is not allowed in ModelNew.forward", 0, 8, 5 },
    { "import", "NameError", "candidate.py, line %d: NameError: name 'triton_helpers' is not defined", 1, 6,
      2 },
    { "compile", "CompilationError",
      "at %d:15: cannot make_shape_compatible: incompatible dimensions at index 0", 1, 22, 12 },
    { "launch", "RuntimeError", "Triton Error [CUDA]: out of resources: shared memory, required: %d", 2, 5,
      4 },
    { "mismatch", "mismatch", "output 0[0, %d]: expected 0.0, got 1.5; 511 of 4096 elements differ", 2, 18,
      14 },
    { "mismatch", "mismatch", "output 0[47, %d]: expected 0.813, got 0.0; 456 of 48000 elements differ", 3, 6,
      7 },
    { "nonfinite", "nonfinite", "output 0 has %d values that are not finite", 3, 3, 2 },
    { "timeout", "timeout", "it did not finish within %d s and was stopped", 2, 3, 1 },
    { "hack", "hack", "output 0 lies in memory that is not the candidate's to answer in (%d)", 2, 1, 6 },
    { "hack", "hack", "the answer of call %d was not computed by the candidate's kernels", 3, 1, 5 },
    { "infra", "infra", "the referee ended during job %d", 3, 0.4, 0.1 },
    { "ok", NULL, NULL, 5, 14, 40 },
};

static const struct kind *
draw(double progress)
{
    double sum = 0, at;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        sum += kinds[i].early + (kinds[i].late - kinds[i].early) * progress;
    at = uniform() * sum;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        at -= kinds[i].early + (kinds[i].late - kinds[i].early) * progress;
        if (at < 0)
            return &kinds[i];
    }
    return &kinds[ARRAY_LEN(kinds) - 1];
}

static const char source[] = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
                             "@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n"
                             "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
                             "    tl.store(y + at, tl.load(x + at, at < n), at < n)  # %ld\n";

struct made {
    char id[ID_SIZE], group[ID_SIZE], task[HASH_TEXT_SIZE], task_name[32], hash[HASH_TEXT_SIZE];
    int index;
    int64_t created_ms, finished_ms;
    const struct kind *kind;
    double reward, speedup;
};

static void
make_id(char out[ID_SIZE], int64_t ms, unsigned long n, const char *kind)
{
    snprintf(out, ID_SIZE, "%08x-%04x-7%03x-8%.3s-%012x", (unsigned)(ms >> 16), (unsigned)(ms & 0xffff),
             (unsigned)(n >> 20) & 0xfff, kind, (unsigned)n & 0xfffff);
}

static json_t *
when(int64_t ms)
{
    char text[CLOCK_TEXT_SIZE];
    clock_text(ms, text);
    return json_string(text);
}

static json_t *
timing_json(const struct made *m)
{
    if (strcmp(m->kind->class_, "ok") != 0)
        return json_pack("{s:s, s:s}", "outcome", "skipped", "why", "it failed before");
    json_t *reference = json_array(), *candidate = json_array();
    double ms = 0.4 + 2 * uniform();
    for (int i = 0; i < SAMPLES; i++) {
        double drift = 1 + 0.004 * sin(i / 6.0);
        json_array_append_new(reference, json_real(round(ms * 1e6 * drift * (1 + 0.004 * normal()))));
        json_array_append_new(candidate,
                              json_real(round(ms * 1e6 / m->speedup * drift * (1 + 0.005 * normal()))));
    }
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:{s:[f,f], s:[f,f], s:[f,f], s:i, "
        "s:i}}",
        "outcome", "measured", "method", "doorbell_paired", "warmup", 10, "trials", SAMPLES, "reference_ms",
        ms, "candidate_ms", ms / m->speedup, "speedup", m->speedup, "speedup_lo", m->speedup * 0.985,
        "speedup_hi", m->speedup * 1.015, "reference_ns", reference, "candidate_ns", candidate, "gpu",
        "sm_mhz", 1965.0, 1980.0, "temp_c", 41.0, 44.0, "power_w", 310.0, 342.5, "blocks", 8, "throttled", 0);
}

static char *
verdict_text(const struct made *m, const char *client)
{
    bool is_ok = m->kind->failed == 5, is_masked = strcmp(m->kind->class_, "infra") == 0;
    json_t *records = json_array(), *error = json_null();
    char text[256] = "Correct in all 5 cases.";

    for (int i = 0; i <= m->kind->failed && i < 5; i++)
        json_array_append_new(records,
                              json_pack("{s:s, s:s, s:f, s:f, s:i, s:i}", "stage", stages[i], "outcome",
                                        i == m->kind->failed ? "fail" : "pass", "wait_ms", 100 * uniform(),
                                        "run_ms", 80 + 900 * uniform(), "done", 1, "of", 1));
    if (!is_ok) {
        snprintf(text, sizeof(text), m->kind->text, (int)(4000 * uniform()));
        error = json_pack("{s:s, s:s, s:i}", "type", m->kind->type, "text", text, "line", 8);
    }
    json_t *v =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:o, s:{s:s, s:i}, s:[]}", "id", m->id,
                  "group", m->group, "group_index", m->index, "task", m->task, "task_name", m->task_name,
                  "state", "done", "stage", stages[is_ok ? 4 : m->kind->failed], "passed_stage",
                  m->kind->failed > 0 ? json_string(stages[m->kind->failed - 1]) : json_null(), "failed_at",
                  is_ok ? json_null() : json_string(stages[m->kind->failed]), "class", m->kind->class_,
                  "reward", is_masked ? json_null() : json_real(m->reward), "reward_spec", "kind", "staged",
                  "version", 2, "flags");
    json_object_set_new(v, "components",
                        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "extracted", 1, "valid",
                                  m->kind->failed > 0, "compiled", m->kind->failed > 1, "correct", is_ok,
                                  "hack", strcmp(m->kind->class_, "hack") == 0, "timed", is_ok, "speedup",
                                  is_ok ? json_real(m->speedup) : json_null(), "speedup_lo",
                                  is_ok ? json_real(m->speedup * 0.985) : json_null(), "speedup_hi",
                                  is_ok ? json_real(m->speedup * 1.015) : json_null()));
    json_object_set_new(v, "timing", timing_json(m));
    json_object_set_new(v, "stages", records);
    json_object_set_new(v, "error", error);
    json_object_set_new(v, "feedback", json_pack("{s:s, s:s}", "class", m->kind->class_, "text", text));
    json_object_set_new(
        v, "env", json_pack("{s:s, s:s, s:s}", "gpu", "NVIDIA H200", "torch", "2.11.0", "triton", "3.6.0"));
    json_object_set_new(v, "policy", json_string("strict"));
    json_object_set_new(v, "source", json_string(m->hash));
    json_object_set_new(v, "client", json_string(client));
    json_object_set_new(v, "priority", json_string("batch"));
    json_object_set_new(v, "cache", json_string("miss"));
    json_object_set_new(v, "attempts", json_integer(1));
    json_object_set_new(v, "created", when(m->created_ms));
    json_object_set_new(v, "finished", when(m->finished_ms));
    char *out = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    return out;
}

/* The tasks differ in a constant, and in how fast they can be made. */
static void
add_tasks(struct store *s, uv_loop_t *loop, char ids[TASKS][HASH_TEXT_SIZE])
{
    static const char *const names[] = { "softmax", "rms_norm", "gelu", "swiglu", "attention", "layer_norm" };
    struct error err;

    for (int i = 0; i < TASKS; i++) {
        char text[128], name[32];
        snprintf(text, sizeof(text), "import torch\nSIZE = %d\nclass Model(torch.nn.Module):\n    pass\n",
                 256 << (i / 6));
        snprintf(name, sizeof(name), "%s_%d", names[i % 6], 256 << (i / 6));
        hash_text(text, strlen(text) + (size_t)(i % 6), ids[i]);
        struct task_row row = { .name = name,
                                .entry_point = (char *)"Model",
                                .level = 1 + i % 3,
                                .reference = text,
                                .reference_size = strlen(text),
                                .spec = (char *)"{\"cases\":[]}",
                                .created_ms = clock_wall_ms() };
        memcpy(row.id, ids[i], HASH_TEXT_SIZE);
        if (store_add_task(s, &row, on_done, NULL, &err) < 0)
            die("add a task", &err);
        uv_run(loop, UV_RUN_DEFAULT);
    }
}

static void
add_group(struct store *s, char tasks[TASKS][HASH_TEXT_SIZE], long n, double progress, int64_t at_ms)
{
    static const char *const names[] = { "softmax", "rms_norm", "gelu", "swiglu", "attention", "layer_norm" };
    static const char *const clients[] = { "grpo-7b", "bestofn", "alice" };
    struct submission_row rows[GROUP] = { 0 };
    struct store_source sources[GROUP];
    char text[GROUP][sizeof(source) + 24];
    int task = (int)(n * 7 % TASKS);
    const char *client = clients[n % 5 < 3 ? 0 : n % 5 - 2];
    struct group_row group = { .size = GROUP, .request = (char *)"{}", .created_ms = at_ms };
    struct error err;

    make_id(group.id, at_ms, (unsigned long)n, "aaa");
    memcpy(group.task_id, tasks[task], HASH_TEXT_SIZE);
    for (int i = 0; i < GROUP; i++) {
        struct made m = { .index = i, .kind = draw(progress) };
        m.created_ms = at_ms;
        m.finished_ms = at_ms + 800 + (int64_t)(4000 * uniform());
        m.speedup = exp(0.9 * progress * (1 + task % 5 / 4.0) - 0.25 + 0.3 * normal());
        static const double worth[] = { 0, 0, 0.3, 0.5, 0.7 };
        m.reward = m.kind->failed == 5                   ? 0.7 + 0.3 * fmin(m.speedup / 2, 1)
                   : strcmp(m.kind->class_, "hack") == 0 ? 0
                                                         : worth[m.kind->failed];
        make_id(m.id, at_ms, (unsigned long)(n * GROUP + i), "bbb");
        memcpy(m.group, group.id, ID_SIZE);
        memcpy(m.task, tasks[task], HASH_TEXT_SIZE);
        snprintf(m.task_name, sizeof(m.task_name), "%s_%d", names[task % 6], 256 << (task / 6));
        sources[i].text = text[i];
        sources[i].size = (size_t)snprintf(text[i], sizeof(text[i]), source, n * GROUP + i);
        hash_text(text[i], sources[i].size, m.hash);
        struct submission_row *row = &rows[i];
        memcpy(row->id, m.id, ID_SIZE);
        memcpy(row->group_id, group.id, ID_SIZE);
        memcpy(row->task_id, m.task, HASH_TEXT_SIZE);
        memcpy(row->source_hash, m.hash, HASH_TEXT_SIZE);
        row->group_index = i;
        row->state = SUBMISSION_DONE;
        row->priority = 1;
        row->client = (char *)client;
        row->request = (char *)"{\"policy\":\"strict\",\"reward\":{\"kind\":\"staged\"}}";
        row->attempts = 1;
        row->created_ms = m.created_ms;
        row->finished_ms = m.finished_ms;
        row->stage = (char *)stages[m.kind->failed == 5 ? 4 : m.kind->failed];
        row->class_ = (char *)m.kind->class_;
        row->reward = strcmp(m.kind->class_, "infra") == 0 ? (double)NAN : m.reward;
        row->verdict = verdict_text(&m, client);
    }
    if (store_add_submissions(s, &group, NULL, rows, sources, GROUP, on_done, NULL, &err) < 0)
        die("add a group", &err);
    for (int i = 0; i < GROUP; i++)
        free(rows[i].verdict);
}

int
main(int argc, char **argv)
{
    char tasks[TASKS][HASH_TEXT_SIZE];
    struct store *s;
    struct error err;
    uv_loop_t loop;

    long n = argc > 2 ? strtol(argv[2], NULL, 10) / GROUP : 0;
    long seconds = argc > 3 ? strtol(argv[3], NULL, 10) : 30L * 86400;
    if (argc < 3 || argc > 4 || n < 1 || seconds < 1) {
        fprintf(stderr, "usage: dashboard_store FILE N [SECONDS]\n");
        return 2;
    }
    uv_loop_init(&loop);
    if (store_open(&loop, argv[1], NULL, 100000, &s, &err) < 0)
        die("open", &err);
    add_tasks(s, &loop, tasks);
    int64_t start_ms = clock_wall_ms() - seconds * 1000;
    for (long i = 0; i < n; i++) {
        double progress = (double)i / (double)n;
        add_group(s, tasks, i, progress, start_ms + (int64_t)((double)seconds * 1000 * progress));
        if (i % WRITES_MAX == WRITES_MAX - 1)
            uv_run(&loop, UV_RUN_DEFAULT);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    store_close(s);
    uv_loop_close(&loop);
    return 0;
}
