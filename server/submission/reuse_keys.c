#include "server/submission/reuse_keys.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/classes.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/stages.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"
#include "server/verdict/verdict.h"
#include "server/workers/devices.h"
#include "server/workers/device_worker.h"
#include "server/workers/zygote.h"

#define FILE_BYTES_MAX (64 << 20) /* of the harness */

/* The environment of a device worker, as its processes reported it: references held, to detect a change. */
struct environment {
    json_t *versions, *run_versions, *gpu;
    char hash[HASH_TEXT_SIZE];
};

struct reuse_keys {
    char fingerprint[HASH_TEXT_SIZE];
    struct environment environments[DEVICES_MAX]; /* by device worker */
};

void
reuse_content(const struct submission_row *row, json_t *request, char out[HASH_TEXT_SIZE])
{
    out[0] = '\0';
    if (!request || json_is_false(json_object_get(request, "cache")))
        return;
    json_hash(json_pack("{s:s?, s:s, s:s, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?, s:O*}", "client", row->client,
                        "task", row->task_id, "source", row->source_hash, "entry_point",
                        json_object_get(request, "entry_point"), "policy", json_object_get(request, "policy"),
                        "until", json_object_get(request, "until"), "flags",
                        json_object_get(request, "flags"), "extract_fault",
                        json_object_get(request, "extract_fault"), "is_guess",
                        json_object_get(request, "is_guess"), "gpu", json_object_get(request, "gpu")),
              out);
}

int64_t
reuse_number(const char *content)
{
    char digits[17];

    snprintf(digits, sizeof(digits), "%s", *content ? content + strlen("sha256:") : "");
    return (int64_t)strtoull(digits, NULL, 16);
}

/* A path that is not a file, or cannot be read, is left out. */
static void
add_file(struct buffer *names, const char *directory, const char *name)
{
    AUTO_BUFFER struct buffer bytes = BUFFER_INIT;
    char path[4096], hash[HASH_TEXT_SIZE];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (buffer_read_file(&bytes, path, FILE_BYTES_MAX, NULL) != 0)
        return;
    hash_text(bytes.data ? bytes.data : "", bytes.size, hash);
    buffer_printf(names, "%s %s\n", name, hash);
}

static bool
is_judging(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".so") == 0);
}

static int
is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* under: a folder below the harness, with a slash at its end, or "". */
static void
add_files(struct buffer *names, const char *harness, const char *under)
{
    char path[4096], name[1024];
    struct dirent **entries = NULL;

    snprintf(path, sizeof(path), "%s/%s", harness, under);
    int n = scandir(path, &entries, is_visible, alphasort); /* a path that is not a folder has no entries */
    for (int i = 0; i < n; i++) {
        bool is_file = is_judging(entries[i]->d_name);
        int size = snprintf(name, sizeof(name), "%s%s%s", under, entries[i]->d_name, is_file ? "" : "/");
        if (size < (int)sizeof(name) && is_file)
            add_file(names, harness, name);
        else if (size < (int)sizeof(name))
            add_files(names, harness, name);
        free(entries[i]);
    }
    free(entries);
}

void
reuse_fingerprint(const char *harness, char out[HASH_TEXT_SIZE])
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    buffer_printf(&text, "%s\n", VERIFIERD_VERSION);
    add_files(&text, harness, "");
    add_file(&text, harness, "../libharness.so");
    hash_text(text.data ? text.data : "", text.size, out);
}

static void
forget_environment(struct environment *e)
{
    json_decref(e->versions);
    json_decref(e->run_versions);
    json_decref(e->gpu);
    *e = (struct environment){ .versions = NULL };
}

struct reuse_keys *
reuse_keys_new(const char *harness)
{
    struct reuse_keys *k = calloc(1, sizeof(*k));

    if (k)
        reuse_fingerprint(harness, k->fingerprint);
    return k;
}

void
reuse_keys_forget(struct reuse_keys *k)
{
    for (size_t i = 0; i < ARRAY_LEN(k->environments); i++)
        forget_environment(&k->environments[i]);
}

void
reuse_keys_free(struct reuse_keys *k)
{
    if (k)
        reuse_keys_forget(k);
    free(k);
}

/* The hash of the environment there, computed once for each report of the workers. */
static const char *
environment_hash(struct funnel *f, const struct device_worker *w, struct environment *e, json_t *versions,
                 json_t *gpu)
{
    if (e->versions == versions && e->run_versions == device_worker_versions(w) && e->gpu == gpu)
        return e->hash;
    forget_environment(e);
    json_hash(json_pack("{s:s, s:O, s:O, s:b, s:O?, s:O?, s:s, s:I, s:I, s:I}", "harness",
                        f->reuse_keys->fingerprint, "versions", versions, "run_versions",
                        device_worker_versions(w), "is_gpu", (int)device_worker_is_gpu(w), "gpu",
                        json_object_get(gpu, "name"), "driver", json_object_get(gpu, "driver"), "target",
                        f->config->target, "interpreter_elements",
                        (json_int_t)f->config->interpreter_elements, "memory_limit_bytes",
                        (json_int_t)f->config->memory_limit_bytes, "file_limit_bytes",
                        (json_int_t)f->config->file_limit_bytes),
              e->hash);
    if (!*e->hash)
        return "";
    e->versions = json_incref(versions);
    e->run_versions = json_incref(device_worker_versions(w));
    e->gpu = json_incref(gpu);
    return e->hash;
}

/* Of the content, of what judges on device worker i, and of the settings that decide how and with what it is judged. */
void
reuse_key_on(struct funnel *f, int i, const char *content, char out[HASH_TEXT_SIZE])
{
    const struct device_worker *w = f->device_workers[i];
    json_t *versions = json_object_get(zygote_ready_message(f->zygote), "versions");
    json_t *gpu = device_worker_gpu(w);
    char text[2 * HASH_TEXT_SIZE + 1];

    out[0] = '\0';
    if (!versions || !device_worker_versions(w) || (device_worker_is_gpu(w) && !gpu))
        return;
    const char *environment = environment_hash(f, w, &f->reuse_keys->environments[i], versions, gpu);
    if (!*environment)
        return;
    int n = snprintf(text, sizeof(text), "%s %s", content, environment);
    hash_text(text, (size_t)n, out);
}

/* The environment that `ast` and `compile` depend on, without the submission. */
void
reuse_compiled_key(const struct funnel *f, char out[HASH_TEXT_SIZE])
{
    json_t *versions = json_object_get(zygote_ready_message(f->zygote), "versions");
    json_hash(versions ? json_pack("{s:s, s:O, s:s}", "harness", f->reuse_keys->fingerprint, "versions",
                                   versions, "target", f->config->target)
                       : NULL,
              out);
}

/* --- what may be handed on --- */

/* By the findings; the node or device is checked separately. */
bool
reuse_is_reusable(const struct attempt *j)
{
    if (text_is(j->baseline, "outcome", "inconclusive") || text_is(j->baseline, "outcome", "lost"))
        return false;
    return j->row.state == SUBMISSION_DONE && j->row.verdict && j->row.class_ &&
           class_info(verdict_class_of(j))->is_reusable && !text_is(j->timing, "outcome", "inconclusive");
}

void
reuse_key(const struct submission *s, char out[HASH_TEXT_SIZE])
{
    struct funnel *f = s->funnel;
    const char *device = json_string_value(json_object_get(s->attempt->env, "device"));
    int judged = 0;

    out[0] = '\0';
    for (int i = 0; device && i < f->n_device_workers; i++)
        if (strcmp(device_worker_device(f->device_workers[i]), device) == 0)
            judged = i;
    /* That it was not among the fastest depends on its group alone. */
    bool is_passed_over = s->attempt->stages[STAGE_TIMING].why != NULL;
    if (*s->content && f->n_device_workers > 0 && !is_passed_over && reuse_is_reusable(s->attempt))
        reuse_key_on(f, judged, s->content, out);
}
