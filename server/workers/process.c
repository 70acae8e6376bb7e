#include "server/workers/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"

/*
 * Theory of operation. A process ends in one way: every failure (a broken
 * channel, no "ready" in time, a call of process_kill()) sends SIGKILL, and the
 * exit callback alone releases the process and reports its end. The channel is
 * closed with the kill, since what a worker started ends when its channel does.
 * A worker that has closed its channel itself is probably ending: it gets a
 * moment, so that its status shows the cause. One that SIGKILL does not end (it
 * hangs in a driver) is left behind when the daemon stops.
 */

#define CHANNEL_FD 3
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 30000
#define CLOSED_MS 1000   /* from the end of its channel to its own */
#define LEAVE_MS 3000    /* the same when the daemon stops, and has closed it */
#define STOP_MS 10000    /* from SIGKILL to the end, when the daemon stops */
#define HEALTHY_MS 60000 /* alive for so long: the next failure begins at the first step again */

extern char **environ;

struct process {
    uv_loop_t *loop;
    char *name;
    char *args[PROCESS_ARGS_MAX + 1];
    int64_t start_limit_ms;
    const struct process_ops *ops;
    void *arg;
    enum process_state state;
    bool is_stopping;
    bool is_killed;  /* by us, since its start */
    bool was_killed; /* not by us, the last time */
    void (*stopped_cb)(void *arg);
    void *stopped_arg;
    uv_process_t *handle; /* freed in its own close callback */
    uv_timer_t timer;     /* start limit; the end after that of its channel; backoff */
    bool is_freed;
    struct channel *channel;
    json_t *ready;
    int64_t started_ns, backoff_ms, starts;
    char why[sizeof(((struct error *)0)->text)];
};

static void
timer_closed_cb(uv_handle_t *handle)
{
    struct process *p = handle->data;

    json_decref(p->ready);
    for (size_t i = 0; p->args[i]; i++)
        free(p->args[i]);
    free(p->name);
    free(p);
}

void
process_free(struct process *p)
{
    if (!p || p->is_freed)
        return;
    p->is_freed = true;
    uv_close((uv_handle_t *)&p->timer, timer_closed_cb);
}

int
process_new(uv_loop_t *loop, const char *name, const char *const *args, int64_t start_limit_ms,
            const struct process_ops *ops, void *arg, struct process **out, struct error *err)
{
    struct process *p = calloc(1, sizeof(*p));
    size_t n = 0;

    *out = NULL;
    if (!p)
        return error_set(err, ERR_NOMEM, "no memory for worker %s", name);
    p->loop = loop;
    p->start_limit_ms = start_limit_ms;
    p->ops = ops;
    p->arg = arg;
    p->name = strdup(name);
    p->backoff_ms = BACKOFF_FIRST_MS;
    uv_timer_init(loop, &p->timer);
    p->timer.data = p;
    bool is_short = !p->name;
    for (; args[n] && n < PROCESS_ARGS_MAX; n++) {
        p->args[n] = strdup(args[n]);
        is_short |= !p->args[n];
    }
    if (is_short) {
        process_free(p);
        return error_set(err, ERR_NOMEM, "no memory for worker %s", name);
    }
    *out = p;
    return 0;
}

/* --- ending --- */

static void
process_closed_cb(uv_handle_t *handle)
{
    free(handle);
}

static void
backoff_cb(uv_timer_t *timer)
{
    process_start(timer->data);
}

/* Nothing of it is left. */
static void
gone(struct process *p)
{
    channel_free(p->channel);
    p->channel = NULL;
    if (clock_monotonic_ns() - p->started_ns > (int64_t)HEALTHY_MS * 1000000)
        p->backoff_ms = BACKOFF_FIRST_MS;
    int64_t pause_ms = p->backoff_ms;
    p->backoff_ms = p->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : p->backoff_ms * 2;
    p->state = p->is_stopping ? PROCESS_STOPPED : PROCESS_WAITING;
    uv_timer_stop(&p->timer);
    if (!p->is_stopping)
        uv_timer_start(&p->timer, backoff_cb, (uint64_t)pause_ms, 0);
    p->ops->down(p->arg, p->why);
    if (p->state == PROCESS_STOPPED && p->stopped_cb) {
        void (*cb)(void *) = p->stopped_cb;
        p->stopped_cb = NULL;
        cb(p->stopped_arg);
    }
}

static void
exit_cb(uv_process_t *handle, int64_t status, int signal_number)
{
    struct process *p = handle->data;
    char how[64];

    if (signal_number)
        snprintf(how, sizeof(how), "killed by signal %d", signal_number);
    else
        snprintf(how, sizeof(how), "exited with status %lld", (long long)status);
    if (!p->why[0])
        snprintf(p->why, sizeof(p->why), "%s", how);
    p->was_killed = signal_number == SIGKILL && !p->is_killed;
    if (p->is_stopping)
        log_debug(p->name, "stopped");
    else
        log_warn(p->name, "worker is gone: %s (%s)", p->why, how);
    uv_close((uv_handle_t *)handle, process_closed_cb);
    p->handle = NULL;
    gone(p);
}

/* It is ending, whether it was killed or not. */
static void
end(struct process *p, const char *why)
{
    if (p->state != PROCESS_STARTING && p->state != PROCESS_READY)
        return;
    p->state = PROCESS_ENDING;
    snprintf(p->why, sizeof(p->why), "%s", why);
    channel_free(p->channel);
    p->channel = NULL;
    uv_timer_stop(&p->timer);
}

void
process_kill(struct process *p, const char *why)
{
    end(p, why);
    if (p->state != PROCESS_ENDING || p->is_killed)
        return;
    p->is_killed = true;
    uv_process_kill(p->handle, SIGKILL);
}

static void
stop_limit_cb(uv_timer_t *timer)
{
    struct process *p = timer->data;

    log_error(p->name, "process %d does not end after SIGKILL: it is left behind", process_pid(p));
    uv_close((uv_handle_t *)p->handle, process_closed_cb);
    p->handle = NULL;
    gone(p);
}

static void
closed_limit_cb(uv_timer_t *timer)
{
    struct process *p = timer->data;

    process_kill(p, "it does not end");
    if (p->is_stopping)
        uv_timer_start(timer, stop_limit_cb, STOP_MS, 0);
}

/* Its end of the channel is closed. */
static void
hang_up(struct process *p, const char *why)
{
    end(p, why);
    if (p->state == PROCESS_ENDING && !p->is_killed)
        uv_timer_start(&p->timer, closed_limit_cb, CLOSED_MS, 0);
}

void
process_stop(struct process *p, void (*stopped_cb)(void *arg), void *arg)
{
    p->is_stopping = true;
    p->stopped_cb = stopped_cb;
    p->stopped_arg = arg;
    if (p->handle) {
        /* A ready worker removes its files and ends when its channel does; one that still starts does not look. */
        if (p->state == PROCESS_STARTING)
            process_kill(p, "stopped");
        end(p, "stopped");
        if (p->is_killed)
            uv_timer_start(&p->timer, stop_limit_cb, STOP_MS, 0);
        else
            uv_timer_start(&p->timer, closed_limit_cb, LEAVE_MS, 0);
        return;
    }
    uv_timer_stop(&p->timer);
    p->state = PROCESS_STOPPED;
    p->stopped_cb = NULL;
    if (stopped_cb)
        stopped_cb(arg);
}

/* --- the channel --- */

static void
gone_cb(void *arg, const struct error *why)
{
    struct process *p = arg;

    if (why->code == ERR_PROTOCOL) {
        process_kill(p, why->text);
        return;
    }
    hang_up(p, why->text);
}

static void
message_cb(void *arg, struct message *m)
{
    struct process *p = arg;
    const char *event = message_text(m, "ev");

    channel_log(p->name, "sends", m->body);
    if (p->state == PROCESS_STARTING && event && strcmp(event, "ready") == 0) {
        p->state = PROCESS_READY;
        uv_timer_stop(&p->timer);
        json_decref(p->ready);
        p->ready = json_incref(m->body);
        log_info(p->name, "ready after %.1f s", (double)(clock_monotonic_ns() - p->started_ns) / 1e9);
        p->ops->ready(p->arg, m->body);
    } else if (p->state == PROCESS_READY && event) {
        p->ops->message(p->arg, m);
    } else {
        process_kill(p, "it broke the protocol");
    }
}

int
process_send(struct process *p, json_t *body, const struct channel_fd *fds, size_t n_fds, struct error *err)
{
    if (p->state != PROCESS_READY) {
        json_decref(body);
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i].fd);
        return error_set(err, ERR_UNAVAILABLE, "worker %s is not ready", p->name);
    }
    channel_log(p->name, "receives", body);
    int rc = channel_send(p->channel, body, fds, n_fds, err);
    if (rc == ERR_SYS)
        hang_up(p, "the other end has closed");
    else if (rc != 0 && rc != ERR_INPUT)
        process_kill(p, "it takes no messages");
    return rc;
}

/* --- starting --- */

static void
start_limit_cb(uv_timer_t *timer)
{
    process_kill(timer->data, "it was not ready in time");
}

/*
 * All that a worker gets of the daemon's environment: where programs, libraries and the CUDA toolkit lie, and the
 * language of messages. Foreign code can read it (/proc/self/environ), so nothing belongs here that could be a secret.
 */
static const char *const passed[] = { "PATH", "LANG",      "LC_ALL", "LD_LIBRARY_PATH",
                                      "CC",   "CUDA_HOME", "TMPDIR", "VIRTUAL_ENV" };

static bool
is_passed(const char *entry)
{
    size_t n = strcspn(entry, "=");

    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        if (strlen(passed[i]) == n && strncmp(entry, passed[i], n) == 0)
            return true;
    return false;
}

char **
process_environment(void)
{
    char **out = calloc(ARRAY_LEN(passed) + 1, sizeof(*out));
    size_t n = 0;

    for (size_t i = 0; out && environ[i] && n < ARRAY_LEN(passed); i++)
        if (is_passed(environ[i]))
            out[n++] = environ[i];
    return out;
}

/* Takes theirs. 0 or a libuv error. */
static int
spawn(struct process *p, int theirs)
{
    AUTO_FREE char **env = process_environment();
    uv_stdio_container_t stdio[] = {
        { .flags = UV_IGNORE },
        { .flags = UV_INHERIT_FD, .data.fd = 2 },
        { .flags = UV_INHERIT_FD, .data.fd = 2 },
        { .flags = UV_INHERIT_FD, .data.fd = theirs },
    };
    _Static_assert(ARRAY_LEN(stdio) == CHANNEL_FD + 1, "the channel is descriptor 3");
    uv_process_options_t options = {
        .exit_cb = exit_cb,
        .file = p->args[0],
        .args = p->args,
        .env = env,
        .stdio_count = ARRAY_LEN(stdio),
        .stdio = stdio,
        /* a session of its own: Ctrl-C drains the daemon and leaves its workers to it */
        .flags = UV_PROCESS_DETACHED
    };
    uv_process_t *handle = calloc(1, sizeof(*handle));
    int rc = handle && env ? uv_spawn(p->loop, handle, &options) : UV_ENOMEM;

    close(theirs);
    if (!handle)
        return rc;
    handle->data = p;
    if (rc == 0)
        p->handle = handle;
    else if (env)
        uv_close((uv_handle_t *)handle, process_closed_cb);
    else
        free(handle);
    return rc;
}

void
process_start(struct process *p)
{
    struct error err = { 0 };
    int ends[2];

    p->why[0] = '\0';
    p->is_killed = p->was_killed = false;
    p->started_ns = clock_monotonic_ns();
    p->starts++;
    p->state = PROCESS_STARTING;
    int rc = channel_pair(ends, &err);
    if (rc == 0 && (rc = channel_new(p->loop, ends[0], message_cb, gone_cb, p, &p->channel, &err)) != 0)
        close(ends[1]);
    if (rc == 0 && (rc = spawn(p, ends[1])) != 0)
        error_set(&err, ERR_UNAVAILABLE, "start %s: %s", p->args[0], uv_strerror(rc));
    if (rc != 0) {
        snprintf(p->why, sizeof(p->why), "%s", err.text);
        log_warn(p->name, "%s", err.text);
        gone(p);
        return;
    }
    uv_timer_start(&p->timer, start_limit_cb, (uint64_t)p->start_limit_ms, 0);
}

/* --- looking --- */

enum process_state
process_state(const struct process *p)
{
    return p->state;
}

int
process_pid(const struct process *p)
{
    return p->handle ? (int)p->handle->pid : 0;
}

bool
process_was_killed(const struct process *p)
{
    return p->was_killed;
}

json_t *
process_ready_message(const struct process *p)
{
    return p->ready;
}

json_t *
process_json(const struct process *p)
{
    static const char *const states[] = { "stopped", "starting", "ready", "ending", "waiting" };
    _Static_assert(ARRAY_LEN(states) == PROCESS_NSTATES, "name every state");
    int pid = process_pid(p);

    return json_pack("{s:s, s:o, s:s, s:I, s:s?}", "name", p->name, "pid",
                     pid ? json_integer(pid) : json_null(), "state", states[p->state], "starts",
                     (json_int_t)p->starts, "why", *p->why ? p->why : NULL);
}
