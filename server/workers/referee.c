#include "server/workers/private.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

/* What a lane says to its referee, and what it hears: proto/worker.md. */

#define REFEREE_START_MS 180000
#define SPEC_MAX (8 << 20)

/* --- saying --- */

void
referee_tell(struct lane *l, json_t *body, const struct channel_fd *fds, size_t n)
{
    struct error err = { 0 };
    if (process_send(l->referee, body, fds, n, &err) != 0)
        log_debug(l->device.name, "%s", err.text);
}

/* Descriptors for the message, or false with those made closed again. */
static bool
make_memfds(struct channel_fd *fds, const char *const *bytes, const size_t *sizes, size_t n,
            struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        fds[i].fd = memfd_make(fds[i].name, bytes[i], sizes[i], err);
        if (fds[i].fd < 0) {
            while (i-- > 0)
                close(fds[i].fd);
            return false;
        }
    }
    return true;
}

/* With what is made of bytes beside it, or not at all: then the referee goes. */
static bool
can_send(struct lane *l, struct channel_fd *fds, const char *const *bytes, const size_t *sizes, size_t n)
{
    struct error err = { 0 };

    if (make_memfds(fds, bytes, sizes, n, &err))
        return true;
    log_error(l->device.name, "%s", err.text);
    process_kill(l->referee, "no memory for its messages");
    return false;
}

bool
referee_ask_register(struct lane *l)
{
    const struct job *j = l->job;
    struct channel_fd fds[] = { { "source", -1 } };
    const char *bytes[] = { j->source };
    size_t sizes[] = { j->source_size };

    if (!can_send(l, fds, bytes, sizes, ARRAY_LEN(fds)))
        return false;
    referee_tell(l,
                 json_pack("{s:s, s:s, s:s, s:s?, s:b, s:O?}", "op", "register", "job", j->id, "child",
                           child_name(j->reference->child), "entry", j->entry, "dynamic_shapes",
                           (int)j->dynamic_shapes, "cases", j->cases),
                 fds, ARRAY_LEN(fds));
    return true;
}

bool
referee_ask_open(struct lane *l)
{
    const struct job *j = l->job;
    struct channel_fd fds[] = {
        { "source", -1 }, { "spec", -1 }, { "reference_source", -1 }, { "kernels", -1 }, { "images", -1 }
    };
    const char *bytes[] = { j->source, j->spec, j->reference_source, j->kernels };
    size_t sizes[] = { j->source_size, j->spec_size, j->reference_size, strlen(j->kernels) };
    const char *entry = j->entry, *cache = j->cache;
    char seed[17];

    if (j->is_compiled) {
        bytes[0] = j->reference_source;
        sizes[0] = j->reference_size;
        bytes[3] = "{}";
        sizes[3] = 2;
        entry = j->task_entry;
        cache = NULL;
    }
    if (!can_send(l, fds, bytes, sizes, ARRAY_LEN(bytes)))
        return false;
    bool is_planned = j->images_fd >= 0 && !j->is_compiled;
    if (is_planned)
        fds[ARRAY_LEN(bytes)].fd = fcntl(j->images_fd, F_DUPFD_CLOEXEC, 0);
    snprintf(seed, sizeof(seed), "%016llx", (unsigned long long)j->seed);
    json_t *body =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:s, s:s?, s:I}", "op", "open", "job", j->id,
                  "reference", child_name(j->reference->child), "candidate", child_name(j->candidate->child),
                  "entry", entry, "task_entry", j->task_entry, "policy", j->policy, "seed", seed, "cache",
                  cache, "call_limit_ms", (json_int_t)l->config->tiny_limit_ms);
    if (j->is_compiled)
        json_object_set_new(body, "compile", json_true());
    if (j->is_grouped)
        json_object_set_new(body, "grouped", json_true());
    referee_tell(l, body, fds, ARRAY_LEN(bytes) + is_planned);
    return true;
}

void
referee_ask_stage(struct lane *l)
{
    const struct job *j = l->job;

    referee_tell(l,
                 json_pack("{s:s, s:s, s:s, s:b}", "op", "stage", "job", j->id, "stage", j->stage, "evidence",
                           (int)j->wants_evidence),
                 NULL, 0);
}

void
referee_drop(struct lane *l, const struct runner *r)
{
    referee_tell(l, json_pack("{s:s, s:s}", "op", "drop", "child", child_name(r->child)), NULL, 0);
}

/* --- hearing --- */

static json_t *
read_detail(struct lane *l, struct message *m)
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
        log_warn(l->device.name, "a report's detail cannot be read: %s",
                 err.code ? err.text : "no JSON object");
        json_decref(detail);
        return NULL;
    }
    return detail;
}

/* 0, or ERR_PROTOCOL. */
static int
read_report(const struct message *m, struct lane_report *out)
{
    const char *outcome = message_text(m, "outcome"), *class_ = message_text(m, "class");
    static const char *const names[] = { "pass", "fail", "skip" };
    size_t i = 0;

    while (outcome && i < ARRAY_LEN(names) && strcmp(outcome, names[i]) != 0)
        i++;
    out->stage = message_text(m, "stage");
    if (!outcome || i == ARRAY_LEN(names) || !out->stage || (i == LANE_FAIL && !class_))
        return ERR_PROTOCOL;
    out->class_ = class_find(class_) != CLASS_NONE ? class_find(class_) : CLASS_CRASH;
    out->outcome = (enum lane_outcome)i;
    out->rule = message_text(m, "rule");
    if (out->outcome != LANE_FAIL) {
        out->class_ = CLASS_NONE;
        out->rule = NULL;
    }
    out->run_ms = json_number_value(json_object_get(m->body, "run_ms"));
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
note_seen(struct lane *l, json_t *detail)
{
    static const char *const figures[] = { "sm_mhz", "mem_mhz", "temp_c", "power_w" };
    json_t *blocks = json_object_get(json_object_get(detail, "clocks"), "blocks");
    json_t *block = json_array_get(blocks, json_array_size(blocks) - 1);
    char at[CLOCK_TEXT_SIZE];

    if (!json_is_object(block))
        return;
    clock_text(clock_wall_ms(), at);
    json_t *seen = json_pack("{s:s, s:b}", "at", at, "throttled",
                             (json_integer_value(json_object_get(block, "throttle")) & LANE_THROTTLES) != 0);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        json_t *after = json_array_get(json_object_get(block, figures[i]), 1); /* [before, after] */
        json_object_set_new(seen, figures[i], json_is_number(after) ? json_incref(after) : json_null());
    }
    json_decref(l->seen);
    l->seen = seen;
}

static void
heard_stage(struct lane *l, struct message *m)
{
    struct lane_report report = { 0 };

    if (read_report(m, &report) != 0) {
        process_kill(l->referee, "it broke the protocol");
        return;
    }
    if (!job_answered(l, &report))
        return;
    AUTO_JSON json_t *detail = read_detail(l, m);
    report.detail = detail;
    note_seen(l, detail);
    l->references.recalled += json_integer_value(json_object_get(detail, "recalled"));
    job_report(l, &report);
}

static void
heard_registered(struct lane *l, struct message *m, bool is_refused)
{
    AUTO_BUFFER struct buffer spec = BUFFER_INIT;
    AUTO_FD int fd = message_take_fd(m, "spec");
    AUTO_JSON json_t *error = json_incref(json_object_get(m->body, "error"));
    struct error err = { 0 };

    uv_timer_stop(&l->job_timer);
    if (!is_refused && (fd < 0 || memfd_read(fd, SPEC_MAX, &spec, &err) != 0)) {
        process_kill(l->referee, "it broke the protocol");
        return;
    }
    job_registered(l, is_refused ? NULL : &spec, error);
}

static void
referee_message_cb(void *arg, struct message *m)
{
    struct lane *l = arg;
    const char *event = message_text(m, "ev"), *child = message_text(m, "child"),
               *job = message_text(m, "job");
    bool is_ours = l->job && job && strcmp(job, l->job->id) == 0 && l->job->is_asked;
    struct runner *r = child ? runner_find(l, child) : NULL;

    if (strcmp(event, "child_ready") == 0 && r) {
        runner_became_ready(l, r);
    } else if (strcmp(event, "child_gone") == 0 && r) {
        r->is_told = false;
        child_kill(r->child);
    } else if (strcmp(event, "stage") == 0 && is_ours) {
        heard_stage(l, m);
    } else if (strcmp(event, "registered") == 0 && is_ours) {
        heard_registered(l, m, false);
    } else if (strcmp(event, "refused") == 0 && is_ours) {
        heard_registered(l, m, true);
    } else if (strcmp(event, "canary") == 0) {
        canary_answered(l, m->body);
    }
    /* "closed", "dropped", and news of what is forgotten here already: nothing depends on them. */
}

static void
referee_ready_cb(void *arg, json_t *message)
{
    (void)message;
    lane_became_ready(arg);
}

static void
referee_down_cb(void *arg, const char *why)
{
    lane_went_down(arg, why);
}

static const struct process_ops referee_ops = { referee_ready_cb, referee_message_cb, referee_down_cb };

int
referee_new(struct lane *l, struct error *err)
{
    AUTO_FREE char *script = NULL;
    char name[64], elements[24];

    snprintf(name, sizeof(name), "referee %s", l->device.name);
    snprintf(elements, sizeof(elements), "%lld", (long long)l->config->interpreter_elements);
    if (asprintf(&script, "%s/referee.py", l->config->harness) < 0)
        return error_set(err, ERR_NOMEM, "no memory for the referee");
    const char *args[] = { l->config->python, script,           "--device", l->device.name, "--cores",
                           l->device.cores,   "--fd",           "3",        "--elements",   elements,
                           "--peaks",         l->config->peaks, NULL };
    return process_new(l->loop, name, args, REFEREE_START_MS, &referee_ops, l, &l->referee, err);
}
