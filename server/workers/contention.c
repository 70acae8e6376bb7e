#include "server/workers/contention.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"

/*
 * Theory of operation. The scheduler counts for each thread how long it was ready and did not run (schedstat). On an
 * idle machine that is also long for a process with more threads than there are CPUs, so the sum is compared with what
 * other processes used meanwhile: the CPUs' busy time, less what these processes used. The lesser of the two is the
 * time that others took. The caller counts as one of these processes, since it reads their output and messages. A
 * sleeping process does not wait, nor does one that spins on an idle machine.
 */

#define THREADS_MAX 256
#define PROCESSES_MAX 64
#define STARVED_PART 2 /* of a limit: with the other half for itself, a slow process is slow by itself */

/* A small file's beginning. False: it is not there. */
static bool
read_text(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n;

    if (!f)
        return false;
    n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = '\0';
    return n > 0;
}

static int64_t
tick_ns(void)
{
    long ticks = sysconf(_SC_CLK_TCK);
    return 1000000000 / (ticks > 0 ? ticks : 100);
}

struct walk {
    int pids[PROCESSES_MAX];
    size_t n;
    int threads, found;
    struct contention_mark *mark;
};

static void
add_thread(struct walk *w, int pid, const char *tid)
{
    char path[96], text[1024], *rest = text;
    int64_t ran, waited;

    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", pid, tid);
    if (read_text(path, text, sizeof(text)) && sscanf(text, "%" SCNd64 " %" SCNd64, &ran, &waited) == 2) {
        w->mark->waited_ns += waited;
        w->found++;
    }
    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", pid, tid);
    if (!read_text(path, text, sizeof(text)))
        return;
    for (char *word; w->n < PROCESSES_MAX && (word = strsep(&rest, " ")) != NULL;)
        if (*word >= '1' && *word <= '9')
            w->pids[w->n++] = (int)strtol(word, NULL, 10);
}

/* utime, stime, cutime and cstime: fields 14 to 17; the name in parentheses may hold anything. */
static int64_t
used_ticks(int pid)
{
    char path[64], text[1024];
    unsigned long long utime, stime;
    long long cutime, cstime;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    const char *after = strrchr(text, ')');
    if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
                         &utime, &stime, &cutime, &cstime) != 4)
        return 0;
    return (int64_t)(utime + stime) + cutime + cstime;
}

static int64_t
resident_bytes(int pid)
{
    char path[64], text[256];
    unsigned long long resident;

    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    if (!read_text(path, text, sizeof(text)) || sscanf(text, "%*u %llu", &resident) != 1)
        return 0;
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

static void
add_process(struct walk *w, int pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    w->mark->ran_ns += used_ticks(pid) * tick_ns();
    w->mark->resident_bytes += resident_bytes(pid);
    for (struct dirent *e = readdir(dir); e && w->threads < THREADS_MAX; e = readdir(dir))
        if (e->d_name[0] != '.') {
            w->threads++;
            add_thread(w, pid, e->d_name);
        }
    closedir(dir);
}

/* user, nice, system, irq and softirq, and what the host's other guests took. */
static bool
read_busy(int64_t *out)
{
    unsigned long long user, nice, system, irq, softirq, steal;
    char text[256];

    if (!read_text("/proc/stat", text, sizeof(text)) ||
        sscanf(text, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq, &softirq,
               &steal) != 6)
        return false;
    *out = (int64_t)(user + nice + system + irq + softirq + steal) * tick_ns();
    return true;
}

static int64_t
read_oom_kills(void)
{
    AUTO_FREE char *text = malloc(16384);
    int64_t n = 0;

    if (!text || !read_text("/proc/vmstat", text, 16384))
        return 0;
    const char *line = strstr(text, "\noom_kill ");
    return line && sscanf(line, " oom_kill %" SCNd64, &n) == 1 ? n : 0;
}

void
contention_read(const int *pids, size_t n, struct contention_mark *out)
{
    struct walk w = { .mark = out };

    *out = (struct contention_mark){ .oom_kills = read_oom_kills() };
    for (size_t i = 0; i < n && w.n < PROCESSES_MAX; i++)
        if (pids[i] > 0)
            w.pids[w.n++] = pids[i];
    for (size_t i = 0; i < w.n; i++)
        add_process(&w, w.pids[i]);
    int64_t resident = out->resident_bytes;
    add_process(&w, getpid());
    out->resident_bytes = resident;
    out->is_known = w.found > 0 && read_busy(&out->busy_ns);
}

int64_t
contention_stolen_ns(const struct contention_mark *before, const struct contention_mark *after)
{
    if (!before->is_known || !after->is_known)
        return -1;
    int64_t ran = after->ran_ns - before->ran_ns, waited = after->waited_ns - before->waited_ns;
    int64_t others = after->busy_ns - before->busy_ns - (ran > 0 ? ran : 0);
    int64_t stolen = waited < others ? waited : others;
    return stolen > 0 ? stolen : 0;
}

bool
contention_is_starved(int64_t stolen_ns, int64_t limit_ms)
{
    return stolen_ns >= 0 && stolen_ns >= limit_ms * 1000000 / STARVED_PART;
}

bool
contention_is_short(int64_t limit_bytes, int64_t own_bytes)
{
    long long total_kb, available_kb;
    char text[512];

    if (!read_text("/proc/meminfo", text, sizeof(text)))
        return false;
    const char *available = strstr(text, "MemAvailable:");
    if (sscanf(text, "MemTotal: %lld", &total_kb) != 1 || !available ||
        sscanf(available, "MemAvailable: %lld", &available_kb) != 1)
        return false;
    /* A promise of more than half of the machine is treated as half of it. */
    int64_t promised = limit_bytes < total_kb * 512 ? limit_bytes : total_kb * 512;
    return available_kb * 1024 + own_bytes < promised;
}

int
contention_pid(int pidfd)
{
    char path[64], text[512];
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    const char *line = strstr(text, "Pid:");
    return line && sscanf(line, "Pid: %d", &pid) == 1 && pid > 0 ? pid : 0;
}
