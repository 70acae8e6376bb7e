#include "server/workers/referee.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

#define REFEREE_START_MS 180000
#define SPEC_MAX (8 << 20)

struct referee {
    const struct config *config;
    char device[32];
    struct process *process;
    const struct referee_ops *ops;
    void *arg;
    json_t *seen;     /* of the GPU, when something was last timed on it; NULL: nothing was */
    int64_t recalled; /* right answers that were given again, since the start */
};

/* --- asking --- */

/* body and the descriptors are taken. */
static void
tell(struct referee *r, json_t *body, const struct channel_fd *fds, size_t n)
{
    struct error err = { 0 };
    if (process_send(r->process, body, fds, n, &err) != 0)
        log_debug(r->device, "%s", err.text);
}

/* Descriptors for the message. False: there is no memory for them, and the referee is killed. */
static bool
can_send(struct referee *r, struct channel_fd *fds, const char *const *bytes, const size_t *sizes, size_t n)
{
    struct error err = { 0 };

    for (size_t i = 0; i < n; i++) {
        fds[i].fd = memfd_make(fds[i].name, bytes[i], sizes[i], &err);
        if (fds[i].fd >= 0)
            continue;
        while (i-- > 0)
            close(fds[i].fd);
        log_error(r->device, "%s", err.text);
        process_kill(r->process, "no memory for its messages");
        return false;
    }
    return true;
}

bool
referee_register(struct referee *r, const char *job, const char *child, const struct job_registration *what)
{
    struct channel_fd fds[] = { { "source", -1 } };
    const char *bytes[] = { what->source };
    size_t sizes[] = { what->source_size };

    if (!can_send(r, fds, bytes, sizes, ARRAY_LEN(fds)))
        return false;
    tell(r,
         json_pack("{s:s, s:s, s:s, s:s?, s:b, s:O?}", "op", "register", "job", job, "child", child, "entry",
                   what->entry, "dynamic_shapes", (int)what->dynamic_shapes, "cases", what->cases),
         fds, ARRAY_LEN(fds));
    return true;
}

bool
referee_open(struct referee *r, const char *job, const char *reference, const char *candidate,
             const struct job_submission *what)
{
    struct channel_fd fds[] = {
        { "source", -1 }, { "spec", -1 }, { "reference_source", -1 }, { "images", -1 }
    };
    const char *bytes[] = { what->source, what->spec, what->reference };
    size_t sizes[] = { what->source_size, what->spec_size, what->reference_size };
    bool has_images = what->images_fd >= 0;
    char seed[17];

    if (!can_send(r, fds, bytes, sizes, ARRAY_LEN(bytes)))
        return false;
    if (has_images)
        fds[ARRAY_LEN(bytes)].fd = fcntl(what->images_fd, F_DUPFD_CLOEXEC, 0);
    snprintf(seed, sizeof(seed), "%016llx", (unsigned long long)what->seed);
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:s, s:s?, s:I}", "op", "open", "job", job,
                             "reference", reference, "candidate", candidate, "entry", what->entry,
                             "task_entry", what->task_entry, "policy", what->policy, "seed", seed, "cache",
                             what->cache, "call_limit_ms", (json_int_t)r->config->tiny_limit_ms);
    if (what->is_compiled)
        json_object_set_new(body, "compile", json_true());
    if (what->is_grouped)
        json_object_set_new(body, "grouped", json_true());
    tell(r, body, fds, ARRAY_LEN(bytes) + has_images);
    return true;
}

void
referee_stage(struct referee *r, const char *job, const char *stage, const char *tool)
{
    tell(r, json_pack("{s:s, s:s, s:s, s:s*}", "op", "stage", "job", job, "stage", stage, "child", tool),
         NULL, 0);
}

void
referee_close(struct referee *r, const char *job, bool is_kept)
{
    tell(r, json_pack("{s:s, s:s, s:b}", "op", "close", "job", job, "keep", (int)is_kept), NULL, 0);
}

void
referee_canary(struct referee *r)
{
    tell(r, json_pack("{s:s}", "op", "canary"), NULL, 0);
}

void
referee_child(struct referee *r, const char *child, int channel, int pidfd)
{
    const struct channel_fd fds[] = { { "channel", channel }, { "pidfd", pidfd } };

    tell(r, json_pack("{s:s, s:s}", "op", "child", "child", child), fds, ARRAY_LEN(fds));
}

void
referee_drop(struct referee *r, const char *child)
{
    tell(r, json_pack("{s:s, s:s}", "op", "drop", "child", child), NULL, 0);
}

/* --- its answers --- */

static json_t *
read_detail(const struct referee *r, struct message *m)
{
    AUTO_FD int fd = message_take_fd(m, "detail");
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct error err = { 0 };

    if (fd < 0)
        return NULL;
    json_t *detail = NULL;
    if (memfd_read(fd, WORKER_DETAIL_MAX, &text, &err) == 0)
        detail = json_loadb(text.data, text.size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(detail)) {
        log_warn(r->device, "a report's detail cannot be read: %s", err.code ? err.text : "no JSON object");
        json_decref(detail);
        return NULL;
    }
    return detail;
}

/* 0, or ERR_PROTOCOL. */
static int
read_report(const struct message *m, struct stage_report *out)
{
    const char *outcome = message_text(m, "outcome"), *class_ = message_text(m, "class");
    static const char *const names[] = { "pass", "fail", "skip" };
    size_t i = 0;

    while (outcome && i < ARRAY_LEN(names) && strcmp(outcome, names[i]) != 0)
        i++;
    out->stage = message_text(m, "stage");
    if (!outcome || i == ARRAY_LEN(names) || !out->stage || (i == REPORT_FAIL && !class_))
        return ERR_PROTOCOL;
    out->class_ = class_find(class_) != CLASS_NONE ? class_find(class_) : CLASS_CRASH;
    out->outcome = (enum report_outcome)i;
    out->rule = message_text(m, "rule");
    if (out->outcome != REPORT_FAIL) {
        out->class_ = CLASS_NONE;
        out->rule = NULL;
    }
    out->done = (int)json_integer_value(json_object_get(m->body, "done"));
    out->of = (int)json_integer_value(json_object_get(m->body, "of"));
    json_t *error = json_object_get(m->body, "error");
    out->error = json_is_object(error) ? error : NULL;
    out->generality = message_text(m, "generality");
    json_t *free_bytes = json_object_get(m->body, "free_bytes");
    out->free_bytes = json_is_integer(free_bytes) ? json_integer_value(free_bytes) : -1;
    out->stolen_ms = -1;
    out->is_reopen = json_is_true(json_object_get(m->body, "reopen"));
    out->is_reference = strcmp(out->stage, "reference") == 0;
    return 0;
}

/*
 * Clocks, temperature and the like after the newest block of a timing: asking NVML at other times would disturb one
 * that is under way.
 */
static void
note_seen(struct referee *r, json_t *detail)
{
    static const char *const figures[] = { "sm_mhz", "mem_mhz", "temp_c", "power_w" };
    json_t *blocks = json_object_get(json_object_get(detail, "clocks"), "blocks");
    json_t *block = json_array_get(blocks, json_array_size(blocks) - 1);
    char at[CLOCK_TEXT_SIZE];

    if (!json_is_object(block))
        return;
    clock_text(clock_wall_ms(), at);
    json_t *seen =
        json_pack("{s:s, s:b}", "at", at, "throttled",
                  (json_integer_value(json_object_get(block, "throttle")) & DEVICE_THROTTLES) != 0);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        json_t *after = json_array_get(json_object_get(block, figures[i]), 1); /* [before, after] */
        json_object_set_new(seen, figures[i], json_is_number(after) ? json_incref(after) : json_null());
    }
    json_decref(r->seen);
    r->seen = seen;
}

static void
read_stage(struct referee *r, struct message *m)
{
    struct stage_report report = { 0 };
    const char *job = message_text(m, "job");

    if (!job || read_report(m, &report) != 0) {
        process_kill(r->process, "it broke the protocol");
        return;
    }
    AUTO_JSON json_t *detail = read_detail(r, m);
    report.detail = detail;
    note_seen(r, detail);
    r->recalled += json_integer_value(json_object_get(detail, "recalled"));
    r->ops->report(r->arg, job, &report);
}

static void
read_registered(struct referee *r, struct message *m, bool is_refused)
{
    AUTO_BUFFER struct buffer spec = BUFFER_INIT;
    AUTO_FD int fd = message_take_fd(m, "spec");
    AUTO_JSON json_t *error = json_incref(json_object_get(m->body, "error"));
    const char *job = message_text(m, "job");
    struct error err = { 0 };

    if (!job || (!is_refused && (fd < 0 || memfd_read(fd, SPEC_MAX, &spec, &err) != 0)))
        process_kill(r->process, "it broke the protocol");
    else
        r->ops->registered(r->arg, job, is_refused ? NULL : &spec, error);
}

static void
message_cb(void *arg, struct message *m)
{
    struct referee *r = arg;
    const char *event = message_text(m, "ev"), *child = message_text(m, "child");

    if (strcmp(event, "child_ready") == 0 && child)
        r->ops->child_ready(r->arg, child);
    else if (strcmp(event, "child_gone") == 0 && child)
        r->ops->child_gone(r->arg, child);
    else if (strcmp(event, "stage") == 0)
        read_stage(r, m);
    else if (strcmp(event, "registered") == 0)
        read_registered(r, m, false);
    else if (strcmp(event, "refused") == 0)
        read_registered(r, m, true);
    else if (strcmp(event, "canary") == 0)
        r->ops->canary(r->arg, m->body);
    /* "dropped": nothing depends on it. */
}

static void
ready_cb(void *arg, json_t *message)
{
    struct referee *r = arg;

    (void)message;
    r->ops->ready(r->arg);
}

static void
down_cb(void *arg, const char *why)
{
    struct referee *r = arg;

    r->ops->down(r->arg, why);
}

static const struct process_ops process_ops = { ready_cb, message_cb, down_cb };

/* --- its life --- */

int
referee_new(uv_loop_t *loop, const struct config *config, const struct device *device,
            const struct referee_ops *ops, void *arg, struct referee **out, struct error *err)
{
    struct referee *r = calloc(1, sizeof(*r));
    AUTO_FREE char *script = NULL;
    char name[64], elements[24];

    *out = NULL;
    snprintf(elements, sizeof(elements), "%lld", (long long)config->interpreter_elements);
    if (!r || asprintf(&script, "%s/referee.py", config->harness) < 0) {
        script = NULL;
        free(r);
        return error_set(err, ERR_NOMEM, "no memory for the referee");
    }
    snprintf(r->device, sizeof(r->device), "%s", device->name);
    snprintf(name, sizeof(name), "referee %s", device->name);
    r->config = config;
    r->ops = ops;
    r->arg = arg;
    const char *args[] = { config->python, script,        "--device", device->name, "--cores",
                           device->cores,  "--fd",        "3",        "--elements", elements,
                           "--peaks",      config->peaks, NULL };
    int rc = process_new(loop, name, args, REFEREE_START_MS, &process_ops, r, &r->process, err);
    if (rc != 0)
        free(r);
    else
        *out = r;
    return rc;
}

void
referee_free(struct referee *r)
{
    if (!r)
        return;
    process_free(r->process);
    json_decref(r->seen);
    free(r);
}

struct process *
referee_process(const struct referee *r)
{
    return r->process;
}

void
referee_kill(struct referee *r, const char *why)
{
    process_kill(r->process, why);
}

json_t *
referee_gpu(const struct referee *r)
{
    json_t *gpu = json_object_get(process_ready_message(r->process), "gpu");
    return json_is_object(gpu) ? gpu : NULL;
}

json_t *
referee_seen(const struct referee *r)
{
    return r->seen;
}

int64_t
referee_recalled(const struct referee *r)
{
    return r->recalled;
}
