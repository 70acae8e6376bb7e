#include "server/workers/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/log.h"
#include "server/workers/handle.h"

/*
 * Theory of operation. A group that has processes of its own cannot delegate
 * controllers to groups below it; so the daemon, with its zygotes and referees,
 * moves into one leaf of its group, and each child has another leaf there. A
 * child enters its leaf itself, before the sandbox, so that no process of it is
 * ever outside.
 */

#define ROOT "/sys/fs/cgroup"
#define PREFIX "verifierd-child-"
#define DAEMON "verifierd-daemon"
#define REMOVE_TRIES 100
#define REMOVE_PAUSE_MS 20
#define DAEMON_WEIGHT "1000" /* of 100 for each child: the clock's end of a bell is in there */

struct cgroups {
    char base[CGROUP_PATH_SIZE - 64]; /* "" none */
    char state[200];
    int64_t made; /* several zygotes may call their children alike */
};

static int
write_to(const char *group, const char *file, const char *text)
{
    char path[CGROUP_PATH_SIZE + 64];

    snprintf(path, sizeof(path), "%s/%s", group, file);
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* 0, or -1; out is "" then. */
static int
read_from(const char *group, const char *file, char *out, size_t size)
{
    char path[CGROUP_PATH_SIZE + 64];

    out[0] = '\0';
    snprintf(path, sizeof(path), "%s/%s", group, file);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (n < 0)
        return -1;
    out[n] = '\0';
    return 0;
}

static bool
has_word(const char *list, const char *word)
{
    size_t size = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += size)
        if ((at == list || at[-1] == ' ') && strchr(" \n", at[size]) != NULL)
            return true;
    return false;
}

static bool
is_cgroup2(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* --- one child's --- */

void
cgroup_kill(const char *path)
{
    if (*path && write_to(path, "cgroup.kill", "1") != 0)
        log_debug("cgroup", "%s/cgroup.kill: %s", path, strerror(errno));
}

bool
cgroup_was_short(const char *path)
{
    char events[1024];
    const char *at;

    if (!*path || read_from(path, "memory.events", events, sizeof(events)) != 0)
        return false;
    at = strstr(events, "oom_kill ");
    return at && atol(at + strlen("oom_kill ")) > 0;
}

static bool
remove_once(const char *path)
{
    cgroup_kill(path);
    return rmdir(path) == 0 || errno == ENOENT;
}

/* The dead leave a group a little after they were waited for. */
static int
remove_now(const char *path)
{
    for (int i = 0; i < REMOVE_TRIES; i++) {
        if (remove_once(path))
            return 0;
        usleep(REMOVE_PAUSE_MS * 1000);
    }
    return -1;
}

/*
 * Tried in libuv's pool; the pauses between tries are timers of the loop, since a sleeping thread would block the pool.
 */
struct removal {
    uv_work_t req;
    uv_timer_t timer;
    int tries;
    bool is_gone;
    char path[CGROUP_PATH_SIZE];
};

static void
try_cb(uv_work_t *req)
{
    struct removal *r = req->data;
    r->is_gone = remove_once(r->path);
}

static void try_again_cb(uv_timer_t *timer);

static void
tried_cb(uv_work_t *req, int status)
{
    struct removal *r = req->data;

    if (status == 0 && !r->is_gone && ++r->tries < REMOVE_TRIES) {
        uv_timer_start(&r->timer, try_again_cb, REMOVE_PAUSE_MS, 0);
        return;
    }
    if (!r->is_gone)
        log_warn("cgroup", "%s stays behind", r->path);
    uv_close((uv_handle_t *)&r->timer, handle_free_cb);
}

static void
try_again_cb(uv_timer_t *timer)
{
    struct removal *r = timer->data;

    if (uv_queue_work(timer->loop, &r->req, try_cb, tried_cb) != 0)
        uv_close((uv_handle_t *)timer, handle_free_cb);
}

void
cgroup_remove(uv_loop_t *loop, const char *path)
{
    struct removal *r = *path ? calloc(1, sizeof(*r)) : NULL;

    if (!r)
        return;
    r->req.data = r->timer.data = r;
    snprintf(r->path, sizeof(r->path), "%s", path);
    uv_timer_init(loop, &r->timer);
    try_again_cb(&r->timer);
}

int
cgroup_make(struct cgroups *g, const char *name, int64_t memory_bytes, int64_t processes,
            char path[CGROUP_PATH_SIZE], struct error *err)
{
    char figure[32];

    path[0] = '\0';
    if (!*g->base)
        return 0;
    snprintf(path, CGROUP_PATH_SIZE, "%s/" PREFIX "%.16s-%lld", g->base, name, (long long)++g->made);
    if (mkdir(path, 0755) != 0) {
        error_set(err, ERR_SYS, "make the control group %s", path);
        path[0] = '\0';
        return err->code;
    }
    /* The file of a controller that the host lacks does not exist, and is not written. */
    snprintf(figure, sizeof(figure), "%lld", (long long)memory_bytes);
    bool is_bound = write_to(path, "memory.max", figure) == 0;
    write_to(path, "memory.swap.max", "0");
    write_to(path, "memory.oom.group", "1");
    snprintf(figure, sizeof(figure), "%lld", (long long)processes);
    write_to(path, "pids.max", figure);
    if (is_bound || strcmp(g->state, "on") != 0)
        return 0;
    error_set(err, ERR_SYS, "limit the memory of the control group %s", path);
    rmdir(path);
    path[0] = '\0';
    return err->code;
}

/* --- all of them --- */

/* Children of a daemon that died, and their groups. */
static void
sweep(const char *base)
{
    char path[CGROUP_PATH_SIZE];
    struct dirent *entry;
    DIR *dir = opendir(base);

    while (dir && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%.60s", base, entry->d_name);
        if (remove_now(path) != 0)
            log_warn("cgroup", "%s stays behind: %s", path, strerror(errno));
    }
    if (dir)
        closedir(dir);
}

static void
absent(struct cgroups *g, const char *why)
{
    snprintf(g->state, sizeof(g->state), "absent: %s", why);
}

/* Delegates controllers. The state shows whether memory, without which the rest bounds little, is among them. */
static void
enable(struct cgroups *g)
{
    char controllers[256];

    read_from(g->base, "cgroup.controllers", controllers, sizeof(controllers));
    write_to(g->base, "cgroup.subtree_control", "+pids");
    write_to(g->base, "cgroup.subtree_control", "+cpu");
    if (!has_word(controllers, "memory"))
        snprintf(g->state, sizeof(g->state), "absent: %.120s has no memory controller", g->base);
    else if (write_to(g->base, "cgroup.subtree_control", "+memory") != 0)
        snprintf(g->state, sizeof(g->state), "absent: %.120s does not hand its memory controller down: %s",
                 g->base, strerror(errno));
    else
        snprintf(g->state, sizeof(g->state), "on");
}

static bool
is_delegated(const char *group)
{
    char value[2] = "";

    return (getxattr(group, "user.delegate", value, 1) == 1 ||
            getxattr(group, "trusted.delegate", value, 1) == 1) &&
           value[0] == '1';
}

/* The daemon's own group, if it is its own to divide. */
static int
open_own(struct cgroups *g, struct error *err)
{
    char line[CGROUP_PATH_SIZE], leaf[CGROUP_PATH_SIZE];

    if (!is_cgroup2(ROOT)) {
        absent(g, "the host has no cgroup v2 at " ROOT);
        return 0;
    }
    if (read_from("/proc/self", "cgroup", line, sizeof(line)) != 0 || strncmp(line, "0::/", 4) != 0) {
        absent(g, "/proc/self/cgroup names no group");
        return 0;
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(g->base, sizeof(g->base), ROOT "%.400s", strcmp(line, "0::/") == 0 ? "" : line + 3);
    if (!is_delegated(g->base) || access(g->base, W_OK) != 0) {
        absent(g, "its group is not delegated to it (systemd: Delegate=yes)");
        g->base[0] = '\0';
        return 0;
    }
    snprintf(leaf, sizeof(leaf), "%s/" DAEMON, g->base);
    if ((mkdir(leaf, 0755) != 0 && errno != EEXIST) || write_to(leaf, "cgroup.procs", "0") != 0)
        return error_set(err, ERR_SYS, "move into the control group %s", leaf);
    enable(g);
    write_to(leaf, "cpu.weight", DAEMON_WEIGHT);
    return 0;
}

static int
open_path(struct cgroups *g, const char *path, struct error *err)
{
    if (strlen(path) >= sizeof(g->base))
        return error_set(err, ERR_INPUT, "cgroup: the path is too long");
    if (!is_cgroup2(path))
        return error_set(err, ERR_INPUT, "cgroup: %s is no control group (v2)", path);
    if (access(path, W_OK) != 0)
        return error_set(err, ERR_SYS, "cgroup: change %s", path);
    snprintf(g->base, sizeof(g->base), "%s", path);
    enable(g);
    return 0;
}

int
cgroups_open(const char *setting, struct cgroups **out, struct error *err)
{
    struct cgroups *g = calloc(1, sizeof(*g));
    int rc = 0;

    *out = NULL;
    if (!g)
        return error_set(err, ERR_NOMEM, "no memory for control groups");
    if (strcmp(setting, "off") == 0)
        absent(g, "switched off");
    else if (strcmp(setting, "auto") == 0)
        rc = open_own(g, err);
    else
        rc = open_path(g, setting, err);
    if (rc != 0) {
        cgroups_free(g);
        return rc;
    }
    if (*g->base)
        sweep(g->base);
    *out = g;
    return 0;
}

void
cgroups_free(struct cgroups *g)
{
    free(g);
}

const char *
cgroups_state(const struct cgroups *g)
{
    return g->state;
}
