#include "server/http/host.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"

/* --- the process --- */

/* Seconds since 1970 at which the machine was started. */
static double
boot_time(void)
{
    struct timespec up;

    clock_gettime(CLOCK_BOOTTIME, &up);
    return (double)clock_wall_ms() / 1000 - (double)up.tv_sec - (double)up.tv_nsec / 1e9;
}

static void
add_stat(json_t *out)
{
    FILE *f = fopen("/proc/self/stat", "re");
    unsigned long long user, system, start, virtual_bytes;
    long threads, resident;
    char text[1024];

    if (!f)
        return;
    size_t size = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[size] = '\0';
    /* The name stands in brackets and may hold anything; the fields after it are numbered from 3 in proc(5). */
    const char *rest = strrchr(text, ')');
    double tick = (double)sysconf(_SC_CLK_TCK);
    if (!rest ||
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %ld %*d %llu %llu %ld",
               &user, &system, &threads, &start, &virtual_bytes, &resident) != 6)
        return;
    json_object_set_new(out, "cpu_s", json_real((double)(user + system) / tick));
    json_object_set_new(out, "threads", json_integer(threads));
    json_object_set_new(out, "virtual_bytes", json_integer((json_int_t)virtual_bytes));
    json_object_set_new(out, "resident_bytes", json_integer((json_int_t)resident * sysconf(_SC_PAGESIZE)));
    json_object_set_new(out, "start_time_s", json_real(boot_time() + (double)start / tick));
}

static void
add_descriptors(json_t *out)
{
    DIR *directory = opendir("/proc/self/fd");
    struct rlimit limit;
    int n = 0;

    if (directory) {
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
            n += entry->d_name[0] != '.';
        closedir(directory);
        json_object_set_new(out, "open_fds", json_integer(n - 1)); /* the directory's own is gone again */
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        json_object_set_new(out, "max_fds", json_integer((json_int_t)limit.rlim_cur));
}

json_t *
host_process(void)
{
    json_t *out = json_object();

    if (out) {
        add_stat(out);
        add_descriptors(out);
    }
    return out;
}

/* --- the disks --- */

static int64_t
size_of(const char *path, const char *suffix)
{
    AUTO_FREE char *name = NULL;
    struct stat status;

    if (asprintf(&name, "%s%s", path, suffix) < 0) {
        name = NULL;
        return 0;
    }
    return stat(name, &status) == 0 ? status.st_size : 0;
}

static void
add_disk(json_t *out, const char *what, const char *path, int64_t used)
{
    struct statvfs fs;

    if (statvfs(path, &fs) != 0)
        return;
    json_int_t unit = (json_int_t)fs.f_frsize;
    json_t *disk = json_pack("{s:s, s:I, s:I}", "what", what, "free_bytes", (json_int_t)fs.f_bavail * unit,
                             "total_bytes", (json_int_t)fs.f_blocks * unit);
    if (used >= 0)
        json_object_set_new(disk, "used_bytes", json_integer(used));
    json_array_append_new(out, disk);
}

json_t *
host_disks(const struct config *config)
{
    json_t *out = json_array();

    if (!out)
        return NULL;
    add_disk(out, "store", config->store, size_of(config->store, "") + size_of(config->store, "-wal"));
    add_disk(out, "scratch", config->scratch, -1);
    return out;
}
