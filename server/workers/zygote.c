#include "server/workers/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uthash.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/log.h"
#include "server/store/store.h"
#include "server/workers/check.h"
#include "server/workers/contention.h"
#include "server/workers/scratch.h"

/*
 * Theory of operation. A child exists here from the request to fork it until
 * its zygote reports that it was reaped (or until the zygote is gone, which
 * ends its children). Only then is its output read to the end, its user id
 * free again and its directory removed; so the next child under the same user
 * id finds nothing of it.
 */

#define START_LIMIT_MS 180000
#define KILL_LIMIT_MS \
    20000             /* a killed child that is not reaped by then hangs in the kernel: the zygote goes too */
#define PROCESSES 512 /* of a child, threads included, where a control group counts them */
#define OUTPUT_EACH_TURN (256 * 1024) /* bytes, and what a pipe holds */
#define OUTPUT_LEFT (4 * 1024 * 1024) /* more than it holds if the child has made it larger */
#define MESSAGES_MAX 16               /* of a child to the daemon; an honest one has one report */
#define MESSAGES_OF_BUILD (4096 + 16) /* which says how far it is after each kernel of a plan */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#define SIGNAL_PROCESS_GROUP (1U << 2) /* PIDFD_SIGNAL_PROCESS_GROUP, from Linux 6.9 on */

static const char *const role_name[] = { "ast", "compile", "inspect", "build", "run", "sanitize" };
_Static_assert(ARRAY_LEN(role_name) == CHILD_NROLES, "name every role");

struct zygote {
    uv_loop_t *loop;
    const struct config *config;
    struct uids *uids;
    struct cgroups *cgroups;
    char *name, *kind;
    struct device device;
    const struct zygote_ops *ops;
    void *arg;
    struct process *process;
    struct child *children; /* by name */
    int64_t made;
    int by_role[CHILD_NROLES];
    bool lacks_layers; /* that are required: no child of it is used */
};

struct child {
    UT_hash_handle hh;
    struct zygote *zygote; /* NULL once it has ended */
    uv_loop_t *loop;
    char name[24];
    enum child_role role;
    const struct child_ops *ops;
    void *arg;
    int64_t uid;
    struct uids *uids;
    char scratch[SCRATCH_PATH_SIZE], cgroup[CGROUP_PATH_SIZE];
    int pidfd, run_channel, pid;
    struct contention_mark begun; /* when its deadline was set, of a stage child */
    struct channel *channel;
    int messages;
    uv_poll_t output_poll;
    int output_fd;
    struct buffer output;
    int64_t output_limit, output_lost;
    uv_timer_t timer;
    int handles; /* open, and closed only when the owner releases it */
    bool is_spawned, is_kill_due, is_limit, is_abandoned, has_ended;
    struct child_end end;
};

const char *
child_role_name(enum child_role role)
{
    return role_name[role];
}

/* --- output --- */

/* Reads the available output. True: the end was reached, or nothing more will come. */
static bool
read_output(struct child *c, size_t most)
{
    char bytes[16384];

    for (size_t all = 0; all < most;) {
        ssize_t n = read(c->output_fd, bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 || errno != EAGAIN;
        size_t room = (size_t)c->output_limit > c->output.size ? (size_t)c->output_limit - c->output.size : 0;
        size_t kept = (size_t)n < room ? (size_t)n : room;
        if (buffer_append(&c->output, bytes, kept) != 0)
            kept = 0;
        c->output_lost += n - (ssize_t)kept;
        all += (size_t)n;
    }
    return false;
}

void
child_read(struct child *c)
{
    if (!c->has_ended && c->output_fd >= 0)
        read_output(c, OUTPUT_EACH_TURN);
}

static void
output_cb(uv_poll_t *poll, int status, int events)
{
    struct child *c = poll->data;

    (void)events;
    if (status != 0 || read_output(c, OUTPUT_EACH_TURN))
        uv_poll_stop(poll);
}

/* --- freeing --- */

static void
handle_closed_cb(uv_handle_t *handle)
{
    struct child *c = handle->data;

    if (--c->handles > 0)
        return;
    buffer_release(&c->output);
    free(c);
}

/* A child that has ended, or was never known to its zygote. */
void
child_free(struct child *c)
{
    if (!c)
        return;
    channel_free(c->channel);
    if (c->output_fd >= 0)
        close(c->output_fd);
    if (c->pidfd >= 0)
        close(c->pidfd);
    if (c->run_channel >= 0)
        close(c->run_channel);
    if (c->scratch[0]) {
        (void)!lchown(c->scratch, geteuid(), getegid()); /* before the user id is another child's */
        scratch_remove(c->loop, c->scratch);
    }
    cgroup_remove(c->loop, c->cgroup);
    uids_give_back(c->uids, c->uid);
    uv_close((uv_handle_t *)&c->timer, handle_closed_cb);
    if (c->handles > 1)
        uv_close((uv_handle_t *)&c->output_poll, handle_closed_cb);
}

void
child_abandon(struct child *c)
{
    if (!c)
        return;
    if (c->has_ended) {
        child_free(c);
        return;
    }
    c->is_abandoned = true;
    child_kill(c);
}

/* --- ending --- */

/* The kernel's OOM killer ends the largest process, which need not be the one that asked for too much. */
static void
note_victim(struct child *c)
{
    struct contention_mark now;

    if (c->end.signal != SIGKILL || c->end.was_limited || *c->end.over)
        return;
    contention_read(NULL, 0, &now);
    c->end.is_victim = now.oom_kills > c->begun.oom_kills;
}

static void
finish(struct child *c)
{
    struct zygote *z = c->zygote;

    HASH_DEL(z->children, c);
    z->by_role[c->role]--;
    if (!*c->end.over && cgroup_was_short(c->cgroup))
        snprintf(c->end.over, sizeof(c->end.over), "memory");
    note_victim(c);
    cgroup_kill(c->cgroup);
    uv_timer_stop(&c->timer);
    uv_poll_stop(&c->output_poll);
    /* What writes is dead, but for what a host without PID namespaces let get away: what lies in the pipe and in the
     * channel is all there is. The news of its end comes another way and may overtake its last word. */
    read_output(c, OUTPUT_LEFT);
    c->zygote = NULL;
    c->has_ended = true; /* who breaks the protocol with its last words is not killed for it */
    if (c->channel)
        channel_drain(c->channel);
    channel_free(c->channel);
    c->channel = NULL;
    if (c->is_abandoned)
        child_free(c);
    else
        c->ops->ended(c->arg, c);
}

static void
lose(struct child *c, const char *why)
{
    c->end.is_lost = true;
    c->end.code = -1;
    snprintf(c->end.error, sizeof(c->end.error), "%s", why);
    finish(c);
}

/* While it is there to be asked about: once it is dead the kernel has forgotten what it waited for. */
static void
note_stolen(struct child *c)
{
    struct contention_mark now;

    contention_read(&c->pid, 1, &now);
    int64_t stolen_ns = contention_stolen_ns(&c->begun, &now);
    c->end.stolen_ms = stolen_ns < 0 ? -1 : stolen_ns / 1000000;
}

static void
timer_cb(uv_timer_t *timer)
{
    struct child *c = timer->data;

    if (c->is_limit) {
        c->end.was_limited = true;
        note_stolen(c);
        child_kill(c);
    } else {
        log_error(c->name, "does not end after SIGKILL");
        c->end.is_stuck = true;
        process_kill(c->zygote->process, "a killed child does not end");
    }
}

void
child_kill(struct child *c)
{
    if (c->has_ended)
        return;
    c->end.was_killed = true;
    c->is_limit = false;
    uv_timer_start(&c->timer, timer_cb, KILL_LIMIT_MS, 0);
    if (!c->is_spawned) {
        c->is_kill_due = true;
        return;
    }
    struct error err;
    process_send(c->zygote->process, json_pack("{s:s, s:s}", "op", "kill", "child", c->name), NULL, 0, &err);
}

void
child_limit(struct child *c, int64_t limit_ms)
{
    if (c->has_ended || c->end.was_killed)
        return;
    if (limit_ms == 0 || c->role < CHILD_RUN)
        contention_read(&c->pid, c->role < CHILD_RUN, &c->begun);
    c->is_limit = limit_ms > 0;
    if (limit_ms > 0)
        uv_timer_start(&c->timer, timer_cb, (uint64_t)limit_ms, 0);
    else
        uv_timer_stop(&c->timer);
}

/* --- making --- */

static void
stage_message_cb(void *arg, struct message *m)
{
    struct child *c = arg;
    channel_log(c->name, "sends", m->body);
    int before = c->messages++, most = c->role == CHILD_BUILD ? MESSAGES_OF_BUILD : MESSAGES_MAX;
    if (before == most) { /* each takes the loop's time */
        log_warn(c->name, "broke the protocol: it sends more than %d messages", most);
        child_kill(c);
    } else if (before < most && !c->is_abandoned) {
        c->ops->message(c->arg, c, m);
    }
}

static void
stage_gone_cb(void *arg, const struct error *why)
{
    struct child *c = arg;

    channel_free(c->channel);
    c->channel = NULL;
    if (why->code == ERR_PROTOCOL) {
        log_warn(c->name, "broke the protocol: %s", why->text);
        child_kill(c);
    }
}

/* The pipe and the channel. theirs[0] is the child's channel, theirs[1] its output. */
static int
connect_child(struct child *c, int theirs[2], struct error *err)
{
    int pipes[2], ends[2];

    if (pipe2(pipes, O_CLOEXEC) != 0)
        return error_set(err, ERR_SYS, "make a pipe");
    c->output_fd = pipes[0];
    theirs[1] = pipes[1];
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    fcntl(pipes[0], F_SETPIPE_SZ, OUTPUT_EACH_TURN); /* a host that grants no more has a pipe all the same */
    if (uv_poll_init(c->loop, &c->output_poll, c->output_fd) != 0)
        return error_set(err, ERR_NOMEM, "watch a pipe");
    c->output_poll.data = c;
    c->handles++;
    uv_poll_start(&c->output_poll, UV_READABLE, output_cb);
    if (channel_pair(ends, err) != 0)
        return err->code;
    theirs[0] = ends[1];
    if (c->role >= CHILD_RUN) {
        c->run_channel = ends[0];
        return 0;
    }
    return channel_new(c->loop, ends[0], stage_message_cb, stage_gone_cb, c, &c->channel, err);
}

static int
ask_for(struct child *c, int theirs[2], struct error *err)
{
    struct zygote *z = c->zygote;
    json_t *limits = json_pack("{s:I, s:I, s:I}", "memory_bytes", (json_int_t)z->config->memory_limit_bytes,
                               "file_bytes", (json_int_t)z->config->file_limit_bytes, "scratch_bytes",
                               (json_int_t)z->config->scratch_limit_bytes);
    json_t *uid = c->uid < 0 ? json_null() : json_integer(c->uid);
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s?}", "op", "spawn", "child", c->name, "role",
                             role_name[c->role], "scratch", c->scratch, "uid", uid, "limits", limits,
                             "cgroup", *c->cgroup ? c->cgroup : NULL);
    struct channel_fd fds[] = { { "channel", fd_take(&theirs[0]) }, { "output", fd_take(&theirs[1]) } };
    return process_send(z->process, body, fds, ARRAY_LEN(fds), err);
}

static int
set_up(struct child *c, struct error *err)
{
    int theirs[2] = { -1, -1 };
    int rc = uids_take(c->uids, &c->uid, err);

    if (rc == 0)
        rc = scratch_make(c->zygote->config->scratch, c->name, c->uid, c->scratch, err);
    if (rc == 0)
        rc = cgroup_make(c->zygote->cgroups, c->name, c->zygote->config->memory_limit_bytes / 4 * 5,
                         PROCESSES, c->cgroup, err);
    if (rc == 0)
        rc = connect_child(c, theirs, err);
    if (rc == 0)
        rc = ask_for(c, theirs, err);
    auto_close(&theirs[0]);
    auto_close(&theirs[1]);
    return rc;
}

int
child_new(struct zygote *z, enum child_role role, const struct child_ops *ops, void *arg, struct child **out,
          struct error *err)
{
    *out = NULL;
    if (!zygote_is_ready(z))
        return error_set(err, ERR_UNAVAILABLE, "%s is not ready", z->name);
    struct child *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    *c = (struct child){ .zygote = z,
                         .loop = z->loop,
                         .role = role,
                         .ops = ops,
                         .arg = arg,
                         .uid = -1,
                         .uids = z->uids,
                         .pidfd = -1,
                         .run_channel = -1,
                         .output_fd = -1,
                         .output_limit = z->config->output_limit_bytes,
                         .end.stolen_ms = -1 };
    snprintf(c->name, sizeof(c->name), "%c%lld", z->kind[0], (long long)++z->made);
    uv_timer_init(z->loop, &c->timer);
    c->timer.data = c;
    c->handles = 1;
    if (set_up(c, err) != 0) {
        child_free(c);
        return err->code;
    }
    HASH_ADD_STR(z->children, name, c);
    z->by_role[role]++;
    *out = c;
    return 0;
}

void
child_hand_over(struct child *c, const struct child_ops *ops, void *arg)
{
    c->ops = ops;
    c->arg = arg;
}

int
child_send(struct child *c, json_t *body, const struct channel_fd *fds, size_t n_fds, struct error *err)
{
    channel_log(c->name, "receives", body);
    if (c->channel)
        return channel_send(c->channel, body, fds, n_fds, err);
    json_decref(body);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i].fd);
    return error_set(err, ERR_UNAVAILABLE, "%s has closed its channel", c->name);
}

/* --- messages of the zygote --- */

static void
spawned(struct child *c, struct message *m)
{
    c->pidfd = message_take_fd(m, "pidfd");
    c->pid = contention_pid(c->pidfd);
    c->is_spawned = true;
    if (c->is_kill_due)
        child_kill(c);
    else if (c->ops->spawned && !c->is_abandoned)
        c->ops->spawned(c->arg, c);
}

static void
exited(struct child *c, const struct message *m)
{
    json_t *code = json_object_get(m->body, "code"), *number = json_object_get(m->body, "signal");
    const char *error = message_text(m, "error");

    c->end.code = json_is_integer(code) ? (int)json_integer_value(code) : -1;
    c->end.signal = (int)json_integer_value(number);
    c->end.max_rss_kb = json_integer_value(json_object_get(m->body, "max_rss_kb"));
    snprintf(c->end.over, sizeof(c->end.over), "%s", message_text(m, "over") ? message_text(m, "over") : "");
    /* Neither forked nor confined: nothing of the candidate has run. */
    if (error) {
        log_warn(c->name, "could not be made: %s", strlen(error) > 400 ? error + strlen(error) - 400 : error);
        lose(c, error);
        return;
    }
    finish(c);
}

static void
message_cb(void *arg, struct message *m)
{
    struct zygote *z = arg;
    const char *event = message_text(m, "ev"), *name = message_text(m, "child");
    struct child *c = NULL;

    if (name)
        HASH_FIND_STR(z->children, name, c);
    if (c && strcmp(event, "spawned") == 0)
        spawned(c, m);
    else if (c && strcmp(event, "exited") == 0)
        exited(c, m);
    else
        process_kill(z->process, "it spoke of a child that is not there");
}

static void
ready_cb(void *arg, json_t *message)
{
    struct zygote *z = arg;
    json_t *layers = json_object_get(json_object_get(message, "sandbox"), "layers");

    struct error err = { 0 };

    json_object_set_new(layers, "cgroup", json_string(cgroups_state(z->cgroups)));
    z->lacks_layers = layers_check(z->config->sandbox_require, layers, &err) != 0;
    if (z->lacks_layers) {
        log_error(z->name, "out of service: %s", err.text);
        process_kill(z->process, err.text);
        return;
    }
    z->ops->ready(z->arg);
}

static bool
has_pid_namespaces(const struct zygote *z)
{
    json_t *sandbox = json_object_get(process_ready_message(z->process), "sandbox");
    return text_is(json_object_get(sandbox, "layers"), "pid_namespace", "on");
}

/*
 * A child ends with its zygote, and with the child all processes that it started if it has a PID namespace. If it has
 * none, those are its process group, which no process can leave (seccomp.c). The pidfd stands for that very group; an
 * older kernel takes only its number, which is not reused while a process is in the group.
 */
static void
kill_group(const struct child *c)
{
    if (c->pid > 0 && syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, SIGNAL_PROCESS_GROUP) != 0 &&
        errno == EINVAL)
        kill(-c->pid, SIGKILL);
}

static void
down_cb(void *arg, const char *why)
{
    struct zygote *z = arg;
    struct child *c, *next;
    bool outlives = !has_pid_namespaces(z); /* processes that a child started outlive the child */

    HASH_ITER(hh, z->children, c, next)
    {
        if (outlives)
            kill_group(c);
        c->end.is_others = process_was_killed(z->process);
        lose(c, why);
    }
    if (z->ops->down)
        z->ops->down(z->arg, why);
}

static const struct process_ops process_ops = { ready_cb, message_cb, down_cb };

/* --- the zygote itself --- */

static size_t
add_private(const char **args, size_t n, const char *file)
{
    args[n++] = "--private";
    args[n++] = file;
    return n;
}

static int
make_process(struct zygote *z, struct error *err)
{
    AUTO_FREE char *script = NULL;

    if (asprintf(&script, "%s/zygote.py", z->config->harness) < 0)
        return error_set(err, ERR_NOMEM, "no memory for zygote %s", z->name);
    /* Private files are last: of a database there is no file of the store, and notices need no key. */
    const char *args[20] = { z->config->python, script,     "--kind",          z->kind, "--device",
                             z->device.name,    "--target", z->config->target, "--fd",  "3" };
    size_t n = 10;
    if (store_is_file(z->config->store))
        n = add_private(args, n, z->config->store);
    n = add_private(args, n, z->config->tokens);
    if (*z->config->notify_key)
        add_private(args, n, z->config->notify_key);
    return process_new(z->loop, z->name, args, START_LIMIT_MS, &process_ops, z, &z->process, err);
}

int
zygote_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
           const char *name, const char *kind, const struct device *device, const struct zygote_ops *ops,
           void *arg, struct zygote **out, struct error *err)
{
    struct zygote *z = calloc(1, sizeof(*z));

    *out = NULL;
    if (!z)
        return error_set(err, ERR_NOMEM, "no memory for zygote %s", name);
    *z = (struct zygote){ .loop = loop,
                          .config = config,
                          .uids = uids,
                          .cgroups = cgroups,
                          .name = strdup(name),
                          .kind = strdup(kind),
                          .device = *device,
                          .ops = ops,
                          .arg = arg };
    int rc = z->name && z->kind ? make_process(z, err)
                                : error_set(err, ERR_NOMEM, "no memory for zygote %s", name);
    if (rc != 0) {
        zygote_free(z);
        return rc;
    }
    *out = z;
    return 0;
}

void
zygote_free(struct zygote *z)
{
    if (!z)
        return;
    process_free(z->process);
    free(z->name);
    free(z->kind);
    free(z);
}

struct process *
zygote_process(const struct zygote *z)
{
    return z->process;
}

bool
zygote_is_ready(const struct zygote *z)
{
    return process_state(z->process) == PROCESS_READY;
}

bool
zygote_lacks_layers(const struct zygote *z)
{
    return z->lacks_layers;
}

const char *
zygote_name(const struct zygote *z)
{
    return z->name;
}

json_t *
zygote_ready_message(const struct zygote *z)
{
    return process_ready_message(z->process);
}

json_t *
zygote_status(const struct zygote *z)
{
    json_t *out = process_json(z->process), *children = json_object();

    for (size_t i = 0; i < CHILD_NROLES; i++)
        if (z->by_role[i] > 0)
            json_object_set_new(children, role_name[i], json_integer(z->by_role[i]));
    json_object_set_new(out, "kind", json_sprintf("%s_zygote", z->kind));
    json_object_set_new(out, "device", json_string(z->device.name));
    json_object_set_new(out, "children", children);
    return out;
}

/* --- looking at children --- */

const char *
child_name(const struct child *c)
{
    return c->name;
}

int64_t
child_held_bytes(const struct child *c)
{
    int pid = child_pid(c);
    struct contention_mark now;

    contention_read(&pid, 1, &now);
    return now.resident_bytes;
}

int
child_pid(const struct child *c)
{
    return c->has_ended ? 0 : c->pid;
}

const char *
child_scratch(const struct child *c)
{
    return c->scratch;
}

const struct child_end *
child_end(const struct child *c)
{
    return c->has_ended ? &c->end : NULL;
}

const struct buffer *
child_output(const struct child *c)
{
    return &c->output;
}

int64_t
child_output_lost(const struct child *c)
{
    return c->output_lost;
}

void
child_forget_output(struct child *c)
{
    buffer_release(&c->output);
    c->output_lost = 0;
}

int
child_take_channel(struct child *c)
{
    return fd_take(&c->run_channel);
}

int
child_take_pidfd(struct child *c)
{
    return fd_take(&c->pidfd);
}
