#include "client/trainer/runs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/output.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/hash.h"

enum { KERNEL_MAX = 1024 * 1024 };

struct kernel {
    int level, problem, sample;
};

struct runs {
    char *directory;
    struct kernel *kernels; /* sorted */
    size_t n;
};

static const char kernel_name[] = "level_%d_problem_%d_sample_%d_kernel.py";

static int
compare(const void *left, const void *right)
{
    const struct kernel *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->problem != b->problem)
        return a->problem < b->problem ? -1 : 1;
    return (a->sample > b->sample) - (a->sample < b->sample);
}

/* The three numbers of a kernel's name, which is exactly that. */
static bool
read_name(const char *name, struct kernel *k)
{
    char again[96];
    if (sscanf(name, "level_%5d_problem_%8d_sample_%8d_kernel.py", &k->level, &k->problem, &k->sample) != 3)
        return false;
    snprintf(again, sizeof(again), kernel_name, k->level, k->problem, k->sample);
    return strcmp(again, name) == 0 && k->level >= 0 && k->problem >= 0 && k->sample >= 0;
}

static int
scan(struct runs *r, DIR *directory, struct error *err)
{
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        struct kernel k;
        if (!read_name(entry->d_name, &k))
            continue;
        struct kernel *grown = realloc(r->kernels, (r->n + 1) * sizeof(*grown));
        if (!grown)
            return error_set(err, ERR_NOMEM, "out of memory");
        r->kernels = grown;
        r->kernels[r->n++] = k;
    }
    if (r->n == 0)
        return error_set(err, ERR_INPUT, "%s has no level_L_problem_P_sample_S_kernel.py", r->directory);
    qsort(r->kernels, r->n, sizeof(*r->kernels), compare);
    return 0;
}

int
runs_open(const char *path, struct runs **out, struct error *err)
{
    struct runs *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r || !(r->directory = strdup(path))) {
        free(r);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) /* the same directory is the same run */
        r->directory[n - 1] = '\0';
    DIR *directory = opendir(path);
    int rc =
        directory ? scan(r, directory, err) : error_set(err, ERR_SYS, "cannot read the directory %s", path);
    if (directory)
        closedir(directory);
    if (rc != 0) {
        runs_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void
runs_free(struct runs *r)
{
    if (!r)
        return;
    free(r->directory);
    free(r->kernels);
    free(r);
}

bool
runs_has_level(const struct runs *r, int level)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->kernels[i].level == level)
            return true;
    return false;
}

void
runs_tell_unknown(const struct runs *r, const struct task_set *set)
{
    const struct kernel *first = NULL;
    size_t unknown = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct kernel *k = &r->kernels[i];
        size_t t = 0;
        while (t < set->n && (set->tasks[t].level != k->level || set->tasks[t].problem != k->problem))
            t++;
        if (t < set->n)
            continue;
        first = first ? first : k;
        unknown++;
    }
    if (first)
        fprintf(
            stderr,
            "trainer: %zu of the %zu kernels of %s are of no task, and not judged; level %d, problem %d\n",
            unknown, r->n, r->directory, first->level, first->problem);
}

size_t
runs_samples(const struct runs *r)
{
    size_t most = 0, run = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct kernel *k = &r->kernels[i];
        run = i > 0 && k->level == k[-1].level && k->problem == k[-1].problem ? run + 1 : 1;
        most = run > most ? run : most;
    }
    return most;
}

static int
read_kernel(const struct runs *r, const struct kernel *k, struct buffer *out, struct error *err)
{
    char path[OUTPUT_PATH_MAX], name[96];

    snprintf(name, sizeof(name), kernel_name, k->level, k->problem, k->sample);
    snprintf(path, sizeof(path), "%s/%s", r->directory, name);
    int rc = buffer_read_file(out, path, KERNEL_MAX, err);
    return rc == ERR_INPUT ? 0 : rc; /* the caller finds a file that is too large by its size */
}

json_t *
runs_provenance(const struct runs *r)
{
    char digest[HASH_TEXT_SIZE];
    struct error err;
    AUTO_BUFFER struct buffer all = BUFFER_INIT;

    for (size_t i = 0; i < r->n; i++) {
        char one[HASH_TEXT_SIZE];
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        if (read_kernel(r, &r->kernels[i], &text, &err) != 0)
            return NULL;
        hash_text(text.data ? text.data : "", text.size, one);
        if (buffer_printf(&all, "%d %d %d %s\n", r->kernels[i].level, r->kernels[i].problem,
                          r->kernels[i].sample, one) != 0)
            return NULL;
    }
    hash_text(all.data, all.size, digest);
    return json_pack("{s:s, s:s}", "runs", r->directory, "digest", digest);
}

/* A kernel as an answer. A file that cannot be sent as source is an answer without code, and its verdict says so. */
static json_t *
answer_of(const struct kernel *k, const struct buffer *text)
{
    json_t *code = text->size > 0 && text->size <= KERNEL_MAX && !memchr(text->data, 0, text->size)
                       ? json_stringn(text->data, text->size)
                       : NULL;
    json_t *answer =
        json_pack("{s:i, s:s, s:s}", "sample_id", k->sample, "text", "", "finish_reason", "file");
    if (code)
        json_object_set_new(answer, "code", code);
    else
        json_object_set_new(answer, "fault", json_string("empty, binary, or longer than 1 MiB"));
    return answer;
}

int
runs_sample(void *arg, const struct task *task, json_t *messages, int n, uint64_t seed, json_t **answers,
            struct error *err)
{
    const struct runs *r = arg;
    AUTO_JSON json_t *found = json_array();

    (void)messages;
    (void)seed;
    *answers = NULL;
    for (size_t i = 0; i < r->n && (int)json_array_size(found) < n; i++) {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        if (r->kernels[i].level != task->level || r->kernels[i].problem != task->problem)
            continue;
        int rc = read_kernel(r, &r->kernels[i], &text, err);
        if (rc != 0)
            return rc;
        json_array_append_new(found, answer_of(&r->kernels[i], &text));
    }
    if (json_array_size(found) == 0)
        return error_set(err, ERR_INPUT, "%s has no kernel of level %d, problem %d", r->directory,
                         task->level, task->problem);
    *answers = ptr_take(&found);
    return 0;
}

/* --- for KernelBench's scripts --- */

static double
component(json_t *verdict, const char *name)
{
    return json_number_value(json_object_get(json_object_get(verdict, "components"), name));
}

/* One sample of eval_results.json. */
static json_t *
result_json(json_t *answer, int sample_id)
{
    json_t *verdict = json_object_get(answer, "verdict"), *timing = json_object_get(verdict, "timing");
    json_t *gpu = json_object_get(json_object_get(verdict, "env"), "gpu");
    json_t *median = json_object_get(timing, "candidate_ms");
    json_t *stats = json_copy(json_object_get(timing, "candidate_stats"));
    bool is_timed = component(verdict, "timed") == 1 && json_is_number(median);
    json_t *ours = json_object();
    static const char *const copied[] = { "id", "class", "stage", "passed_stage", "reward", "policy" };

    for (size_t i = 0; i < ARRAY_LEN(copied); i++)
        if (json_object_get(verdict, copied[i]))
            json_object_set(ours, copied[i], json_object_get(verdict, copied[i]));
    json_object_set(ours, "speedup", json_object_get(json_object_get(verdict, "components"), "speedup"));
    if (is_timed && stats) { /* without a time there are no statistics of it */
        json_object_set(stats, "hardware", gpu ? gpu : json_null());
        json_object_set_new(stats, "device", json_string("cuda"));
    }
    json_t *runtime = json_object_get(stats, "mean");
    bool has_stats = is_timed && stats;
    json_t *out =
        json_pack("{s:i, s:b, s:b, s:{s:O?, s:s, s:o}, s:f, s:o}", "sample_id", sample_id, "compiled",
                  component(verdict, "compiled") == 1, "correctness", answer_is_correct(answer), "metadata",
                  "hardware", gpu, "device", is_timed ? "cuda" : "cpu", "verifierd", ours, "runtime",
                  is_timed ? json_number_value(runtime ? runtime : median) : -1.0, "runtime_stats",
                  has_stats ? stats : json_object());
    if (!has_stats)
        json_decref(stats);
    return out;
}

static int
write_kernel(const char *workdir, const char *sub, const struct task *task, int sample_id, json_t *answer,
             struct error *err)
{
    char name[96], path[OUTPUT_PATH_MAX];
    AUTO_BUFFER struct buffer code = BUFFER_INIT;
    struct output o;

    if (answer_code(answer, task, &code) != 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    snprintf(name, sizeof(name), kernel_name, task->level, task->problem, sample_id);
    int rc = output_path(workdir, sub, name, path, err);
    rc = rc == 0 ? output_begin(&o, path, err) : rc;
    if (rc != 0)
        return rc;
    o.is_bad = fwrite(code.data, 1, code.size, o.file) != code.size;
    return output_end(&o, err);
}

/* One problem's samples, by their last turn: KernelBench knows one answer of each. */
static int
write_problem(const char *workdir, const char *sub, const struct round_result *result, json_t *out,
              struct error *err)
{
    size_t i;
    json_t *answer, *list = json_array();
    char key[16];

    snprintf(key, sizeof(key), "%d", result->task->problem);
    json_object_set_new(out, key, list);
    json_array_foreach(result->answers, i, answer)
    {
        json_t *id = json_object_get(answer, "sample_id");
        int sample_id = (int)json_integer_value(id ? id : json_object_get(answer, "sample"));
        if (!answer_is_last(result->answers, answer))
            continue;
        int rc = write_kernel(workdir, sub, result->task, sample_id, answer, err);
        if (rc != 0)
            return rc;
        json_array_append_new(list, result_json(answer, sample_id));
    }
    return 0;
}

int
runs_write(const char *workdir, const char *sub, const char *name, const struct round_result *results,
           size_t n, struct error *err)
{
    for (int level = 1; level <= 4; level++) {
        AUTO_JSON json_t *out = json_object(); /* results are sorted by problem, and so are the keys */
        char below[OUTPUT_PATH_MAX], path[OUTPUT_PATH_MAX];
        int rc = 0;
        snprintf(below, sizeof(below), "%.300s/%.300s_level%d", sub, name, level);
        for (size_t i = 0; rc == 0 && i < n; i++)
            if (results[i].task->level == level && results[i].task->problem > 0 && !results[i].failure)
                rc = write_problem(workdir, below, &results[i], out, err);
        if (rc == 0 && json_object_size(out) > 0) {
            rc = output_path(workdir, below, "eval_results.json", path, err);
            rc = rc == 0 ? output_document(path, out, err) : rc;
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}
