#include "server/harness/native/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "server/harness/native/process.h"

/*
 * Theory of operation. Resident pages are cheap to read and count too much: memory that several processes share counts
 * once for each, and so does the file cache. As long as even that sum is below the limit nothing more is read. Above it
 * the proportional shares decide, for which the kernel walks the page tables.
 *
 * A memfd that was written and never mapped is in no process's pages, so open files without a name count as well: by
 * their blocks, once for all descriptors, as memory if they are on a tmpfs and as disk elsewhere. Most of a memfd is
 * mapped too; of the two figures the larger counts.
 *
 * Data in sockets are in no page and in no block either. The kernel does not report their size, so each socket counts
 * as its whole buffer; the sandbox keeps a child from making the buffer larger.
 */

#define DESCRIPTORS_MAX 4096 /* of a child and its descendants; far more than an honest one has */
#define FILES_MAX 50000
#define DEPTH_MAX 48
#define SEEN_MAX 8192 /* a power of two, above DESCRIPTORS_MAX */
#define BLOCK 512
#define SOCKET_BYTES \
    212992 /* of a socket's buffer, where the host cannot be asked: the kernel's own default */

struct seen {
    dev_t dev;
    ino_t ino;
};

struct sum {
    uint64_t resident, anonymous, shared, nameless_memory, nameless_disk, sockets, descriptors;
    struct seen *seen; /* open addressing; ino 0 is free */
};

/* A file that was not counted yet. */
static bool
is_new(struct sum *sum, const struct stat *st)
{
    size_t at = ((size_t)st->st_ino * 2654435761u ^ (size_t)st->st_dev) & (SEEN_MAX - 1);

    while (sum->seen[at].ino != 0) {
        if (sum->seen[at].ino == st->st_ino && sum->seen[at].dev == st->st_dev)
            return false;
        at = (at + 1) & (SEEN_MAX - 1);
    }
    sum->seen[at] = (struct seen){ st->st_dev, st->st_ino };
    return true;
}

static void
add_resident(struct sum *sum, int pid)
{
    char path[64];
    unsigned long size, resident;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    if (fscanf(f, "%lu %lu", &size, &resident) == 2)
        sum->resident += (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
    fclose(f);
}

/* Shares of pages that several processes map. What may not be read counts as resident. */
static void
add_proportional(struct sum *sum, int pid)
{
    unsigned long kb, pss = 0, anon = 0, shmem = 0;
    bool has_parts = false;
    char path[64], line[128];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "Pss: %lu", &kb) == 1)
            pss = kb;
        else if (sscanf(line, "Pss_Anon: %lu", &kb) == 1)
            anon = kb, has_parts = true;
        else if (sscanf(line, "Pss_Shmem: %lu", &kb) == 1)
            shmem = kb;
    }
    fclose(f);
    sum->anonymous += (uint64_t)(has_parts ? anon : pss) * 1024;
    sum->shared += (uint64_t)shmem * 1024;
}

static void
add_file(struct sum *sum, int directory, const char *name)
{
    char path[300];
    struct statfs fs;
    struct stat st;
    uint64_t bytes;

    if (fstatat(directory, name, &st, 0) != 0)
        return;
    if (S_ISSOCK(st.st_mode) && is_new(sum, &st))
        sum->sockets++;
    if (!S_ISREG(st.st_mode) || st.st_nlink != 0 || !is_new(sum, &st))
        return;
    bytes = (uint64_t)st.st_blocks * BLOCK;
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, name);
    if (statfs(path, &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC &&
        fs.f_type != RAMFS_MAGIC)
        sum->nameless_disk += bytes;
    else
        sum->nameless_memory += bytes;
}

static void
add_descriptors(struct sum *sum, int pid)
{
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    dir = opendir(path);
    if (dir == NULL)
        return;
    for (struct dirent *e = readdir(dir); e != NULL && sum->descriptors <= DESCRIPTORS_MAX; e = readdir(dir))
        if (e->d_name[0] != '.') {
            sum->descriptors++;
            add_file(sum, dirfd(dir), e->d_name);
        }
    closedir(dir);
}

/* Of a new socket of this host; a pair holds as much in each direction. */
static uint64_t
socket_bytes(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bytes = 0;
    socklen_t size = sizeof(bytes);

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0)
        bytes = SOCKET_BYTES;
    if (fd >= 0)
        close(fd);
    return (uint64_t)bytes;
}

/* --- the scratch directory --- */

struct census {
    uint64_t bytes, files, bytes_max;
};

static bool
is_full(const struct census *c)
{
    return c->files > FILES_MAX || (c->bytes_max != 0 && c->bytes > c->bytes_max);
}

/* Takes fd. Links are not followed. A tree below the greatest depth has more files than the limit. */
static void
count_directory(struct census *c, int fd, int depth)
{
    struct stat st;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (depth > DEPTH_MAX)
        c->files = FILES_MAX + 1;
    for (struct dirent *e = readdir(dir); e != NULL && !is_full(c); e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        c->files++;
        c->bytes += (uint64_t)st.st_blocks * BLOCK;
        if (S_ISDIR(st.st_mode))
            count_directory(
                c,
                openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                depth + 1);
    }
    closedir(dir);
}

/* --- the whole --- */

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void
measure_memory(const struct harness_tree *tree, struct sum *sum, uint64_t limit, struct harness_usage *out)
{
    uint64_t waiting = sum->sockets != 0 ? sum->sockets * socket_bytes() : 0;

    out->memory_bytes = sum->resident + sum->nameless_memory + waiting;
    if (limit == 0 || out->memory_bytes <= limit)
        return;
    for (int i = 0; i < tree->n; i++)
        add_proportional(sum, tree->pids[i]);
    /* None of them may be read: then the resident pages are the only figure, less the certain file cache. */
    if (sum->anonymous != 0)
        out->memory_bytes = sum->anonymous + larger(sum->shared, sum->nameless_memory) + waiting;
}

static int
measure(int pid, const char *scratch, uint64_t memory_bytes, uint64_t disk_bytes, struct sum *sum,
        struct harness_usage *out)
{
    static _Thread_local struct harness_tree tree;
    struct census census = { .bytes_max = disk_bytes };

    harness_read_tree(pid, &tree);
    for (int i = 0; i < tree.n; i++) {
        add_resident(sum, tree.pids[i]);
        add_descriptors(sum, tree.pids[i]);
    }
    measure_memory(&tree, sum, memory_bytes, out);
    if (scratch != NULL)
        count_directory(&census, open(scratch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), 0);
    out->processes = (uint64_t)tree.n;
    out->descriptors = sum->descriptors;
    out->files = census.files;
    out->disk_bytes = census.bytes + sum->nameless_disk;
    if (memory_bytes != 0 && out->memory_bytes > memory_bytes)
        return HARNESS_MEMORY;
    if (census.files > FILES_MAX || (disk_bytes != 0 && out->disk_bytes > disk_bytes))
        return HARNESS_DISK;
    return sum->descriptors > DESCRIPTORS_MAX ? HARNESS_DESCRIPTORS : HARNESS_WITHIN;
}

int
harness_watch(int pidfd, const char *scratch, uint64_t memory_bytes, uint64_t disk_bytes,
              struct harness_usage *out)
{
    struct sum sum = { .seen = NULL };
    int pid = harness_pid_of(pidfd);
    int code;

    memset(out, 0, sizeof(*out));
    if (pid == 0)
        return harness_fail(ESRCH, "the process is dead, or /proc does not show it");
    sum.seen = calloc(SEEN_MAX, sizeof(*sum.seen));
    if (sum.seen == NULL)
        return harness_fail_errno("watch: no memory");
    code = measure(pid, scratch, memory_bytes, disk_bytes, &sum, out);
    free(sum.seen);
    return code;
}
