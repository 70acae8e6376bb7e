#include "server/harness/native/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_POLL_US 20
#define STOP_WAIT_NS (1000 * 1000 * 1000)

static int
write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return harness_fail_errno("open %s", path);
    n = write(fd, text, strlen(text));
    if (n != (ssize_t)strlen(text)) {
        int code = harness_fail_errno("write \"%s\" to %s", text, path);
        close(fd);
        return code;
    }
    close(fd);
    return 0;
}

/* Without the right to set groups a gid can be mapped only once setgroups() is given up. */
static int
map_own_ids(uid_t uid, gid_t gid)
{
    char line[64];
    int code = write_file("/proc/self/setgroups", "deny");

    if (code != 0)
        return code;
    snprintf(line, sizeof(line), "%u %u 1", (unsigned)uid, (unsigned)uid);
    code = write_file("/proc/self/uid_map", line);
    if (code != 0)
        return code;
    snprintf(line, sizeof(line), "%u %u 1", (unsigned)gid, (unsigned)gid);
    return write_file("/proc/self/gid_map", line);
}

static int
enter_user_namespace(uid_t uid, gid_t gid)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        return harness_fail_errno("neither a PID namespace nor a user namespace may be made here");
    return map_own_ids(uid, gid);
}

/*
 * The same in a process that ends. Ubuntu 24.04 lets a program without an AppArmor profile make a user namespace and
 * then map no ids in it, which cannot be undone: the zygote would have no ids and, once its first child has ended,
 * could not make a second one (ENOMEM: the PID namespace has lost its init).
 */
static int
try_user_namespace(uid_t uid, gid_t gid)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(-enter_user_namespace(uid, gid));
    if (pid < 0)
        return harness_fail_errno("fork to try a user namespace");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return harness_fail(WIFEXITED(status) ? WEXITSTATUS(status) : EIO,
                        "the host allows no user namespace with ids");
}

int
harness_zygote_unshare(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWPID) == 0)
        return 1;
    return try_user_namespace(uid, gid) == 0 && enter_user_namespace(uid, gid) == 0 ? 2 : 0;
}

void
harness_zygote_guard(int pid)
{
    int status = 0;

    /* Our copies of the channel would hide the zygote's end of file from the daemon. */
    syscall(SYS_close_range, 0, ~0U, 0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int
harness_die_with_parent(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        return harness_fail_errno("ask for a signal at the parent's death");
    return 0;
}

int
harness_close_to_others(void)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return harness_fail_errno("close the process to others");
    return 0;
}

int
harness_pid_namespace_begin(void)
{
    int fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return harness_fail_errno("open /proc/self/ns/pid");
    if (unshare(CLONE_NEWPID) != 0) {
        int code = harness_fail_errno("new PID namespace");
        close(fd);
        return code;
    }
    return fd;
}

int
harness_pid_namespace_end(int fd)
{
    int code = 0;

    if (setns(fd, CLONE_NEWPID) != 0)
        code = harness_fail_errno("go back to the own PID namespace");
    close(fd);
    return code;
}

int
harness_count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    if (dir == NULL)
        return harness_fail_errno("open /proc/self/task");
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* --- freezing --- */

static int
send_to(int pidfd, int signal_number)
{
    if (syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0) == 0)
        return 0;
    return harness_fail_errno("signal %d", signal_number);
}

int
harness_pid_of(int pidfd)
{
    char path[64], line[128];
    FILE *f;
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "Pid: %d", &pid) == 1)
            break;
    fclose(f);
    return pid > 0 ? pid : 0;
}

/* State letter of one thread, 0 when it is gone. The name in parentheses may hold anything, so search from the end. */
static char
thread_state(int pid, const char *tid)
{
    char path[64], text[512];
    char *after;
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", pid, tid);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    after = strrchr(text, ')');
    return after != NULL && after[1] == ' ' ? after[2] : 0;
}

/* T: stopped; t: traced; Z, X, 0: dead, which is as still. */
static int
is_still(char state)
{
    return state == 'T' || state == 't' || state == 'Z' || state == 'X' || state == 0;
}

typedef void thread_cb(void *arg, int pid, const char *tid);

static void
each_thread(int pid, thread_cb *cb, void *arg)
{
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    dir = opendir(path);
    if (dir == NULL)
        return;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (e->d_name[0] != '.')
            cb(arg, pid, e->d_name);
    closedir(dir);
}

static void
count_moving(void *arg, int pid, const char *tid)
{
    *(int *)arg += !is_still(thread_state(pid, tid));
}

static void
add_children(void *arg, int pid, const char *tid)
{
    struct harness_tree *tree = arg;
    char path[64];
    FILE *f;
    int child;

    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", pid, tid);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    while (tree->n < HARNESS_TREE_MAX && fscanf(f, "%d", &child) == 1)
        tree->pids[tree->n++] = child;
    fclose(f);
}

void
harness_read_tree(int pid, struct harness_tree *tree)
{
    tree->n = 0;
    tree->pids[tree->n++] = pid;
    for (int i = 0; i < tree->n; i++)
        each_thread(tree->pids[i], add_children, tree);
}

static int
moving_in(const struct harness_tree *tree)
{
    int moving = 0;

    for (int i = 0; i < tree->n; i++)
        each_thread(tree->pids[i], count_moving, &moving);
    return moving;
}

/* Through its directory in /proc, which stands for that very process: a number could have a new owner by now, and
   means another process where /proc shows another namespace than ours. */
static void
send_to_shown(int pid, int signal_number)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d", pid);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0);
    close(fd);
}

int
harness_stop(int pidfd)
{
    static _Thread_local struct harness_tree tree;
    int64_t until = harness_now_ns() + STOP_WAIT_NS;
    int pid = harness_pid_of(pidfd);
    int stopped = 0;
    int code = send_to(pidfd, SIGSTOP);

    if (code != 0)
        return code;
    if (pid == 0)
        return harness_fail(ESRCH, "the process is dead, or /proc does not show it");
    /* A process forks until its own stop arrives, so look again until nothing new shows and nothing moves. */
    do {
        int before = stopped;
        harness_read_tree(pid, &tree);
        for (int i = 1; i < tree.n; i++)
            send_to_shown(tree.pids[i], SIGSTOP);
        stopped = tree.n;
        if (stopped == before && moving_in(&tree) == 0)
            return stopped;
        if (stopped == before)
            usleep(STOP_POLL_US); /* a thread stops on its own core, which may be this one */
    } while (harness_now_ns() < until);
    return harness_fail(ETIMEDOUT, "%d processes were not all still after %d ms", stopped,
                        STOP_WAIT_NS / 1000000);
}

int
harness_cont(int pidfd)
{
    static _Thread_local struct harness_tree tree;
    int pid = harness_pid_of(pidfd);

    tree.n = 1;
    if (pid != 0)
        harness_read_tree(pid, &tree);
    for (int i = tree.n - 1; i > 0; i--)
        send_to_shown(tree.pids[i], SIGCONT);
    if (send_to(pidfd, SIGCONT) != 0)
        return -ESRCH;
    return tree.n;
}

struct pinning {
    cpu_set_t set;
    int done, failed; /* threads; the first errno */
};

static void
pin_thread(void *arg, int pid, const char *tid)
{
    struct pinning *p = arg;

    (void)pid;
    if (sched_setaffinity(atoi(tid), sizeof(p->set), &p->set) == 0)
        p->done++;
    else if (errno != ESRCH && p->failed == 0)
        p->failed = errno;
}

int
harness_pin(int pidfd, const int32_t *cores, uint32_t n)
{
    static _Thread_local struct harness_tree tree;
    struct pinning p = { .done = 0 };
    int pid = harness_pid_of(pidfd);

    if (pid == 0)
        return harness_fail(ESRCH, "the process is dead, or /proc does not show it");
    CPU_ZERO(&p.set);
    for (uint32_t i = 0; i < n; i++) {
        if (cores[i] < 0 || cores[i] >= CPU_SETSIZE)
            return harness_fail(EINVAL, "core %d", cores[i]);
        CPU_SET(cores[i], &p.set);
    }
    harness_read_tree(pid, &tree);
    for (int i = 0; i < tree.n; i++)
        each_thread(tree.pids[i], pin_thread, &p);
    return p.failed == 0 ? p.done : harness_fail(p.failed, "pin process %d: %s", pid, strerror(p.failed));
}

int
harness_cores_of(int pidfd, int32_t *cores, uint32_t n)
{
    cpu_set_t set;
    uint32_t found = 0;
    int pid = harness_pid_of(pidfd);

    if (pid == 0)
        return harness_fail(ESRCH, "the process is dead, or /proc does not show it");
    if (sched_getaffinity(pid, sizeof(set), &set) != 0)
        return harness_fail_errno("the cores of process %d", pid);
    for (int i = 0; i < CPU_SETSIZE && found < n; i++)
        if (CPU_ISSET(i, &set))
            cores[found++] = i;
    return (int)found;
}
