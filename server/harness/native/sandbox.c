#include "server/harness/native/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/harness/native/landlock.h"
#include "server/harness/native/process.h"
#include "server/harness/native/seccomp.h"

/*
 * Theory of operation. The steps run in the order of the table at the end of this file, and the order matters: steps
 * that need privilege (mounts, ids, the bounding set) come before those that drop it; descriptors are closed before
 * Landlock, which does not cover open ones; no_new_privs comes before Landlock and seccomp, which require it; seccomp
 * is last because it would forbid most of the rest.
 *
 * A required step works on every Linux that this runs on, so its failure ends a child and a probe alike. An optional
 * one is a layer that a host may lack: the probe notes the reason, and each child takes exactly those steps that
 * succeeded in the probe.
 */

#define REASON_MAX 256

enum layer {
    REQUIRED = -1,
    LAYER_PID_NAMESPACE,
    LAYER_USER_NAMESPACE,
    LAYER_MOUNT_NAMESPACE,
    LAYER_PROC,
    LAYER_HIDDEN,
    LAYER_IPC_NAMESPACE,
    LAYER_NET_NAMESPACE,
    LAYER_UTS_NAMESPACE,
    LAYER_BOUNDING_SET,
    LAYER_UID,
    LAYER_LANDLOCK,
    LAYER_LANDLOCK_TCP,
    LAYER_LANDLOCK_SCOPES,
    LAYER_SECCOMP,
    N_LAYERS
};

struct state {
    const struct harness_sandbox *s;
    uint64_t on; /* layers applied so far */
    bool is_probe;
    char why[N_LAYERS][REASON_MAX]; /* of those that are absent */
};

/* The probe wants everything; a child what the probe could have. */
static bool
is_wanted(const struct state *st, enum layer layer)
{
    return st->is_probe || ((st->s->layers >> layer) & 1);
}

static bool
is_on(const struct state *st, enum layer layer)
{
    return (st->on >> layer) & 1;
}

/* --- steps: each returns 0 or < 0 with harness_error() --- */

static int
be_single_threaded(struct state *st)
{
    int n = harness_count_threads();

    (void)st;
    if (n < 0)
        return n;
    /* Ids, Landlock and seccomp take hold of the calling thread alone. */
    return n == 1 ? 0 : harness_fail(EBUSY, "the process has %d threads", n);
}

static int
compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int
close_others(struct state *st)
{
    int keep[64], first = 3;
    size_t n = st->s->n_keep;

    if (n > sizeof(keep) / sizeof(keep[0]))
        return harness_fail(EINVAL, "%zu descriptors to keep", n);
    for (size_t i = 0; i < n; i++)
        keep[i] = st->s->keep[i];
    qsort(keep, n, sizeof(keep[0]), compare_ints);
    for (size_t i = 0; i < n; i++) {
        if (keep[i] > first && syscall(SYS_close_range, (unsigned)first, (unsigned)keep[i] - 1, 0) != 0)
            return harness_fail_errno("close descriptors");
        if (keep[i] >= first)
            first = keep[i] + 1;
    }
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0) != 0)
        return harness_fail_errno("close descriptors");
    return 0;
}

/* The init of a PID namespace begins as leader of nothing; without a session of its own it would share a terminal. */
static int
new_session(struct state *st)
{
    (void)st;
    if (setsid() < 0 && getsid(0) != getpid())
        return harness_fail_errno("new session");
    return 0;
}

static int
own_scratch(struct state *st)
{
    const struct harness_sandbox *s = st->s;
    int fd = open(s->scratch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int code = 0;

    if (fd < 0)
        return harness_fail_errno("open %s", s->scratch);
    if (geteuid() == 0 && s->uid >= 0 && fchown(fd, (uid_t)s->uid, (gid_t)s->uid) != 0)
        code = harness_fail_errno("give %s to uid %lld", s->scratch, (long long)s->uid);
    else if (fchmod(fd, 0700) != 0)
        code = harness_fail_errno("make %s private", s->scratch);
    close(fd);
    return code;
}

static int
be_init(struct state *st)
{
    (void)st;
    return getpid() == 1 ? 0 : harness_fail(ESRCH, "the child is not the first process of a PID namespace");
}

static int
be_in_user_namespace(struct state *st)
{
    if (st->s->zygote == 2)
        return 0;
    return harness_fail(ENOENT, st->s->zygote == 1 ? "not needed: started as root" : "the host allows none");
}

static int
new_mounts(struct state *st)
{
    (void)st;
    if (unshare(CLONE_NEWNS) != 0)
        return harness_fail_errno("new mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return harness_fail_errno("keep mounts to oneself");
    return 0;
}

/* Without it the driver finds no /proc/self of its own and CUDA fails to start. */
static int
own_proc(struct state *st)
{
    if (!is_on(st, LAYER_PID_NAMESPACE) || !is_on(st, LAYER_MOUNT_NAMESPACE))
        return harness_fail(ENOENT, "it takes a PID and a mount namespace");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return harness_fail_errno("mount /proc");
    return 0;
}

/* path lies below directory, or is it: how long the common part is, else 0. */
static size_t
below(const char *path, const char *directory)
{
    size_t n = strlen(directory);

    while (n > 1 && directory[n - 1] == '/')
        n--;
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0') ? n : 0;
}

/* Make the directories down to path again inside the empty one. */
static int
make_way(const char *path, size_t hidden_length)
{
    char way[PATH_MAX];

    if (snprintf(way, sizeof(way), "%s/", path) >= (int)sizeof(way))
        return harness_fail(ENAMETOOLONG, "%s", path);
    for (char *slash = way + hidden_length + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        if (mkdir(way, 0755) != 0 && errno != EEXIST)
            return harness_fail_errno("make %s", way);
        *slash = '/';
    }
    return 0;
}

#define SHOWN_MAX 32

/* Directories that stay to be seen, held open while a hidden one above them is covered. */
struct shown {
    const char *paths[SHOWN_MAX];
    int fds[SHOWN_MAX];
    int n;
};

static int
hold(struct shown *shown, const char *path)
{
    if (shown->n == SHOWN_MAX)
        return harness_fail(EINVAL, "more than %d directories to show", SHOWN_MAX);
    shown->fds[shown->n] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (shown->fds[shown->n] < 0)
        return harness_fail_errno("open %s", path);
    shown->paths[shown->n++] = path;
    return 0;
}

static int
show_again(const struct shown *shown, const char *directory)
{
    char link[64];

    for (int i = 0; i < shown->n; i++) {
        int code = make_way(shown->paths[i], below(shown->paths[i], directory));
        if (code != 0)
            return code;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", shown->fds[i]);
        if (mount(link, shown->paths[i], NULL, MS_BIND | MS_REC, NULL) != 0)
            return harness_fail_errno("bind %s", shown->paths[i]);
    }
    return 0;
}

static int
cover(const char *directory, const struct shown *shown)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    int code;

    if (mount("tmpfs", directory, "tmpfs", flags, "size=64k,mode=0755") != 0)
        return harness_fail_errno("hide %s", directory);
    code = show_again(shown, directory);
    if (code == 0 && mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY | flags, NULL) != 0)
        code = harness_fail_errno("make the empty %s read-only", directory);
    return code;
}

static int
hide_directory(const char *directory, const struct harness_sandbox *s)
{
    struct shown shown = { .n = 0 };
    int code = below(s->scratch, directory) != 0 ? hold(&shown, s->scratch) : 0;

    for (int i = 0; code == 0 && s->shown != NULL && s->shown[i] != NULL; i++)
        if (below(s->shown[i], directory) != 0)
            code = hold(&shown, s->shown[i]);
    if (code == 0)
        code = cover(directory, &shown);
    for (int i = 0; i < shown.n; i++)
        close(shown.fds[i]);
    return code;
}

/* Each node is covered by /dev/null, and the directory nvidia-caps by an empty one. */
static int
hide_gpus(const struct harness_sandbox *s)
{
    DIR *dir = opendir("/dev");
    char path[300];
    int code = 0;

    if (dir == NULL)
        return harness_fail_errno("list /dev");
    for (struct dirent *e = readdir(dir); e != NULL && code == 0; e = readdir(dir)) {
        if (strncmp(e->d_name, "nvidia", 6) != 0)
            continue;
        snprintf(path, sizeof(path), "/dev/%s", e->d_name);
        if (mount("/dev/null", path, NULL, MS_BIND, NULL) == 0 || errno == ENOENT)
            continue; /* it may have gone meanwhile */
        code = errno == ENOTDIR ? hide_directory(path, s) : harness_fail_errno("hide %s", path);
    }
    closedir(dir);
    return code;
}

static int
hide(struct state *st)
{
    if (!is_on(st, LAYER_MOUNT_NAMESPACE))
        return harness_fail(ENOENT, "it takes a mount namespace");
    for (int i = 0; st->s->hidden != NULL && st->s->hidden[i] != NULL; i++) {
        int code = hide_directory(st->s->hidden[i], st->s);
        if (code != 0)
            return code;
    }
    return st->s->has_gpus ? 0 : hide_gpus(st->s);
}

static int
new_ipc(struct state *st)
{
    (void)st;
    return unshare(CLONE_NEWIPC) == 0 ? 0 : harness_fail_errno("new IPC namespace");
}

static int
new_net(struct state *st)
{
    (void)st;
    return unshare(CLONE_NEWNET) == 0 ? 0 : harness_fail_errno("new network namespace");
}

static int
new_uts(struct state *st)
{
    (void)st;
    return unshare(CLONE_NEWUTS) == 0 ? 0 : harness_fail_errno("new UTS namespace");
}

/* A limit never rises above the one that holds already. */
static int
limit(int resource, const char *name, uint64_t most)
{
    struct rlimit r;

    if (getrlimit((__rlimit_resource_t)resource, &r) != 0)
        return harness_fail_errno("read the limit %s", name);
    if (r.rlim_max == RLIM_INFINITY || r.rlim_max > most)
        r.rlim_max = most;
    r.rlim_cur = r.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &r) != 0)
        return harness_fail_errno("set the limit %s to %llu", name, (unsigned long long)r.rlim_max);
    return 0;
}

/* No limit on address space: the driver reserves hundreds of gigabytes that it never touches. */
static int
set_limits(struct state *st)
{
    const struct {
        int resource;
        const char *name;
        uint64_t most;
        bool is_set;
    } limits[] = {
        { RLIMIT_CORE, "core", 0, true },
        { RLIMIT_DATA, "data", st->s->memory_bytes, st->s->memory_bytes != 0 },
        { RLIMIT_FSIZE, "fsize", st->s->file_bytes, st->s->file_bytes != 0 },
        { RLIMIT_NOFILE, "nofile", st->s->files, st->s->files != 0 },
        { RLIMIT_NPROC, "nproc", st->s->processes, st->s->processes != 0 },
        { RLIMIT_MSGQUEUE, "msgqueue", 0, true },
        { RLIMIT_NICE, "nice", 0, true },
        { RLIMIT_RTPRIO, "rtprio", 0, true },
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        int code = limits[i].is_set ? limit(limits[i].resource, limits[i].name, limits[i].most) : 0;
        if (code != 0)
            return code;
    }
    return 0;
}

/* No program that is executed later may gain a capability, whatever its file has. */
static int
empty_bounding_set(struct state *st)
{
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                               SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                               SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

    (void)st;
    for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
            return harness_fail_errno("drop capability %lu from the bounding set", cap);
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) != 0)
        return harness_fail_errno("lock the secure bits");
    return 0;
}

static int
change_ids(struct state *st)
{
    uid_t uid = (uid_t)st->s->uid;
    gid_t gid = (gid_t)st->s->uid;

    if (st->s->uid < 0)
        return harness_fail(ENOENT, "no uid was given");
    if (st->s->uid == 0 || st->s->uid >= UINT32_MAX)
        return harness_fail(EINVAL, "uid %lld is no uid for a child", (long long)st->s->uid);
    if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
        return harness_fail_errno("become uid %lld", (long long)st->s->uid);
    return 0;
}

static int
drop_capabilities(struct state *st)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2];

    (void)st;
    memset(none, 0, sizeof(none));
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
        return harness_fail_errno("clear ambient capabilities");
    if (syscall(SYS_capset, &header, none) != 0)
        return harness_fail_errno("drop capabilities");
    return 0;
}

/* A change of ids hands the process' own /proc files to root, and the driver must write one of them. */
static int
own_proc_files(struct state *st)
{
    (void)st;
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
        return harness_fail_errno("own the files in /proc");
    return 0;
}

static int
die_with_parent(struct state *st)
{
    (void)st;
    return harness_die_with_parent();
}

static int
no_new_privileges(struct state *st)
{
    (void)st;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : harness_fail_errno("no new privileges");
}

/* As the child's own user: a directory above that is closed to it would otherwise show up in every submission. */
static int
reach_scratch(struct state *st)
{
    if (chdir(st->s->scratch) != 0)
        return harness_fail_errno("enter %s as uid %u", st->s->scratch, (unsigned)geteuid());
    if (access(".", R_OK | W_OK | X_OK) != 0)
        return harness_fail_errno("use %s as uid %u", st->s->scratch, (unsigned)geteuid());
    return 0;
}

static int
restrict_files(struct state *st)
{
    struct landlock_paths paths;
    int abi = landlock_abi();
    int has_scopes = 0, code;

    if (abi < 0)
        return abi;
    paths.writable = st->s->scratch;
    paths.has_gpus = st->s->has_gpus != 0;
    paths.without_tcp = !is_wanted(st, LAYER_LANDLOCK_TCP);
    paths.without_scopes = !is_wanted(st, LAYER_LANDLOCK_SCOPES);
    code = landlock_enter(&paths, abi, &has_scopes);
    if (code != 0)
        return code;
    st->on |= (uint64_t)(abi >= 4 && !paths.without_tcp) << LAYER_LANDLOCK_TCP | (uint64_t)(has_scopes != 0)
                                                                                     << LAYER_LANDLOCK_SCOPES;
    snprintf(st->why[LAYER_LANDLOCK_TCP], REASON_MAX, "Landlock ABI %d has no TCP rules", abi);
    snprintf(st->why[LAYER_LANDLOCK_SCOPES], REASON_MAX, "Landlock ABI %d has no scopes", abi);
    return 0;
}

/* Landlock's step has settled these two; the rows are here so that they are reported and compared. */
static int
restrict_tcp(struct state *st)
{
    return is_on(st, LAYER_LANDLOCK_TCP) ? 0 : harness_fail(ENOSYS, "%s", st->why[LAYER_LANDLOCK_TCP]);
}

static int
restrict_scopes(struct state *st)
{
    return is_on(st, LAYER_LANDLOCK_SCOPES) ? 0 : harness_fail(ENOSYS, "%s", st->why[LAYER_LANDLOCK_SCOPES]);
}

static int
filter_calls(struct state *st)
{
    struct seccomp_given given = { .has_pid_namespace = is_on(st, LAYER_PID_NAMESPACE),
                                   .has_ipc_namespace = is_on(st, LAYER_IPC_NAMESPACE),
                                   .may_connect = st->s->may_connect != 0 };

    return seccomp_enter(&given);
}

/* --- the list --- */

static const struct step {
    const char *name;
    int layer; /* enum layer, or REQUIRED */
    int (*take)(struct state *st);
} steps[] = {
    { "single_thread", REQUIRED, be_single_threaded },
    { "descriptors", REQUIRED, close_others },
    { "session", REQUIRED, new_session },
    { "scratch", REQUIRED, own_scratch },
    { "pid_namespace", LAYER_PID_NAMESPACE, be_init },
    { "user_namespace", LAYER_USER_NAMESPACE, be_in_user_namespace },
    { "mount_namespace", LAYER_MOUNT_NAMESPACE, new_mounts },
    { "hidden", LAYER_HIDDEN, hide },
    { "proc", LAYER_PROC, own_proc },
    { "ipc_namespace", LAYER_IPC_NAMESPACE, new_ipc },
    { "net_namespace", LAYER_NET_NAMESPACE, new_net },
    { "uts_namespace", LAYER_UTS_NAMESPACE, new_uts },
    { "rlimits", REQUIRED, set_limits },
    { "bounding_set", LAYER_BOUNDING_SET, empty_bounding_set },
    { "uid", LAYER_UID, change_ids },
    { "capabilities", REQUIRED, drop_capabilities },
    { "proc_files", REQUIRED, own_proc_files },
    { "parent_death", REQUIRED, die_with_parent },
    { "no_new_privs", REQUIRED, no_new_privileges },
    { "scratch_access", REQUIRED, reach_scratch },
    { "landlock", LAYER_LANDLOCK, restrict_files },
    { "landlock_tcp", LAYER_LANDLOCK_TCP, restrict_tcp },
    { "landlock_scopes", LAYER_LANDLOCK_SCOPES, restrict_scopes },
    { "seccomp", LAYER_SECCOMP, filter_calls },
};

#define N_STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

static int
fail_step(const struct step *step, int code)
{
    char text[400];

    snprintf(text, sizeof(text), "%s", harness_error());
    return harness_fail(-code, "sandbox step %s: %s", step->name, text);
}

static int
take_step(struct state *st, const struct step *step)
{
    bool is_optional = step->layer != REQUIRED;
    int code;

    if (is_optional && !is_wanted(st, (enum layer)step->layer)) {
        snprintf(st->why[step->layer], REASON_MAX, "the probe could not apply it");
        return 0;
    }
    code = step->take(st);
    if (code != 0 && is_optional && st->is_probe) {
        snprintf(st->why[step->layer], REASON_MAX, "%s", harness_error());
        return 0;
    }
    if (code != 0)
        return fail_step(step, code);
    if (is_optional)
        st->on |= 1ULL << step->layer;
    return 0;
}

static size_t
put_text(char *out, size_t cap, const char *text)
{
    size_t n = 0;

    for (; *text != '\0' && n + 3 < cap; text++) {
        if (*text == '"' || *text == '\\')
            out[n++] = '\\';
        out[n++] = (unsigned char)*text < ' ' ? ' ' : *text;
    }
    out[n] = '\0';
    return n;
}

static int
write_report(const struct state *st, char *out, size_t cap)
{
    size_t n = 0;

    if (cap < HARNESS_SANDBOX_REPORT_MAX)
        return harness_fail(EINVAL, "a report takes %d bytes", HARNESS_SANDBOX_REPORT_MAX);
    out[n++] = '{';
    for (int i = 0; i < N_STEPS; i++) {
        const struct step *step = &steps[i];
        bool on = step->layer == REQUIRED || is_on(st, (enum layer)step->layer);
        n += (size_t)snprintf(out + n, cap - n, "%s\"%s\":\"%s", i == 0 ? "" : ",", step->name,
                              on ? "on" : "absent: ");
        if (!on)
            n += put_text(out + n, cap - n, st->why[step->layer]);
        out[n++] = '"';
    }
    out[n++] = '}';
    out[n] = '\0';
    return 0;
}

static int
check(const struct harness_sandbox *s)
{
    if (s->scratch == NULL || s->scratch[0] != '/' || s->scratch[1] == '\0')
        return harness_fail(EINVAL, "sandbox: scratch must be an absolute path");
    if (s->uid == 0)
        return harness_fail(EINVAL, "sandbox: uid 0 is no uid for a child");
    return 0;
}

static int
take_steps(struct state *st)
{
    for (int i = 0; i < N_STEPS; i++) {
        int code = take_step(st, &steps[i]);
        if (code != 0)
            return code;
    }
    return 0;
}

int
harness_sandbox_enter(const struct harness_sandbox *s, char *report, size_t cap)
{
    struct state st = { .s = s };
    int code = check(s);

    if (code == 0)
        code = take_steps(&st);
    return code != 0 ? code : write_report(&st, report, cap);
}

uint64_t
harness_sandbox_layer(const char *name)
{
    for (int i = 0; i < N_STEPS; i++)
        if (steps[i].layer != REQUIRED && strcmp(steps[i].name, name) == 0)
            return 1ULL << steps[i].layer;
    return 0;
}

int
harness_sandbox_wants_pid_namespace(uint64_t layers)
{
    return (layers >> LAYER_PID_NAMESPACE) & 1;
}

/* --- the probe --- */

struct probe_result {
    int code;
    uint64_t layers;
    char text[HARNESS_SANDBOX_REPORT_MAX]; /* the report, or the error */
};

/* In the probe's child: the steps of enter(), reported over a pipe that the steps leave open. */
static void
run_probe(const struct harness_sandbox *s, int out, struct probe_result *r)
{
    struct harness_sandbox own = *s;
    struct state st = { .s = &own, .is_probe = true };
    size_t done = 0;

    memset(r, 0, sizeof(*r));
    own.keep = &out;
    own.n_keep = 1;
    r->code = take_steps(&st);
    r->layers = st.on;
    if (r->code == 0)
        r->code = write_report(&st, r->text, sizeof(r->text));
    if (r->code != 0)
        snprintf(r->text, sizeof(r->text), "%s", harness_error());
    while (done < sizeof(*r)) {
        ssize_t n = write(out, (const char *)r + done, sizeof(*r) - done);
        if (n <= 0)
            _exit(1);
        done += (size_t)n;
    }
    _exit(0);
}

static int
read_result(int in, struct probe_result *r)
{
    size_t done = 0;

    while (done < sizeof(*r)) {
        ssize_t n = read(in, (char *)r + done, sizeof(*r) - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return harness_fail(EIO, "sandbox: the probe died at work");
        done += (size_t)n;
    }
    r->text[sizeof(r->text) - 1] = '\0';
    return r->code != 0 ? harness_fail(-r->code, "%s", r->text) : 0;
}

static int
probe_once(const struct harness_sandbox *s, bool in_pid_namespace, struct probe_result *r)
{
    int pipe_fds[2], namespace_fd = -1, code = 0, end_code = 0;
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return harness_fail_errno("sandbox: pipe");
    if (in_pid_namespace)
        namespace_fd = harness_pid_namespace_begin();
    pid = fork();
    if (pid == 0)
        run_probe(s, pipe_fds[1], r);
    if (pid < 0)
        code = harness_fail_errno("sandbox: fork the probe");
    if (namespace_fd >= 0)
        end_code = harness_pid_namespace_end(namespace_fd);
    close(pipe_fds[1]);
    if (pid > 0) {
        code = read_result(pipe_fds[0], r);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(pipe_fds[0]);
    return code != 0 ? code : end_code;
}

int
harness_sandbox_probe(const struct harness_sandbox *s, uint64_t *layers, char *report, size_t cap)
{
    struct probe_result *r;
    int code = check(s);

    if (code != 0)
        return code;
    if (cap < HARNESS_SANDBOX_REPORT_MAX)
        return harness_fail(EINVAL, "a report takes %d bytes", HARNESS_SANDBOX_REPORT_MAX);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return harness_fail_errno("sandbox: probe");
    code = probe_once(s, true, r);
    /* A PID namespace whose /proc cannot be mounted is left out: CUDA would not start in it. */
    if (code == 0 && !((r->layers >> LAYER_PROC) & 1) && ((r->layers >> LAYER_PID_NAMESPACE) & 1))
        code = probe_once(s, false, r);
    if (code == 0) {
        *layers = r->layers;
        snprintf(report, cap, "%s", r->text);
    }
    free(r);
    return code;
}
