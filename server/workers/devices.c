#include "server/workers/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

/* --- names --- */

/* GPUs that the driver shows, without asking it: the loop's process never loads it. */
static int
count_gpus(void)
{
    char path[32];
    int n = 0;

    for (int i = 0; i < 256; i++) {
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        n += access(path, F_OK) == 0;
    }
    return n < DEVICES_MAX ? n : DEVICES_MAX;
}

static void
add(struct devices *d, const char *kind, long ordinal)
{
    char *name = d->all[d->n++].name;
    if (ordinal < 0)
        snprintf(name, sizeof(d->all[0].name), "%s", kind);
    else
        snprintf(name, sizeof(d->all[0].name), "%s:%ld", kind, ordinal);
}

/* The error "there is no GPU here", "there is only cuda:0 here", "there are only cuda:0 to cuda:3 here". */
static int
refuse_missing(const char *setting, int gpus, struct error *err)
{
    if (gpus == 0)
        return error_set(err, ERR_INPUT, "device \"%s\", and there is no GPU here", setting);
    if (gpus == 1)
        return error_set(err, ERR_INPUT, "device \"%s\", and there is only cuda:0 here", setting);
    return error_set(err, ERR_INPUT, "device \"%s\", and there are only cuda:0 to cuda:%d here", setting,
                     gpus - 1);
}

/* kind: "cuda" or "cpu". */
static int
add_listed(struct devices *d, const char *kind, const char *setting, int gpus, struct error *err)
{
    char *end;

    for (const char *at = setting + strlen(kind) + 1;; at = end + 1) {
        long ordinal = strtol(at, &end, 10);
        if (end == at || ordinal < 0 || ordinal > 255 || (*end && *end != ','))
            return error_set(err, ERR_INPUT, "device \"%s\" is not like %s:0,1", setting, kind);
        if (strcmp(kind, "cuda") == 0 && ordinal >= gpus)
            return refuse_missing(setting, gpus, err);
        if (d->n == DEVICES_MAX)
            return error_set(err, ERR_INPUT, "more than %d devices", DEVICES_MAX);
        add(d, kind, ordinal);
        if (!*end)
            return 0;
    }
}

int
devices_name(const char *setting, const char *visible, int gpus, struct devices *d, struct error *err)
{
    bool is_auto = strcmp(setting, "auto") == 0;
    char listed[256];

    *d = (struct devices){ 0 };
    if (visible && (is_auto || strcmp(setting, "cuda") == 0)) {
        if (!*visible)
            gpus = 0;
        else if (strlen(visible) >= sizeof(listed) - 5 || visible[strspn(visible, "0123456789,")])
            return error_set(
                err, ERR_INPUT,
                "device \"%s\", and CUDA_VISIBLE_DEVICES is not like 0,1: name devices as cuda:0,1", setting);
        else {
            snprintf(listed, sizeof(listed), "cuda:%s", visible);
            setting = listed;
        }
    }
    if (strncmp(setting, "cuda:", 5) == 0)
        return add_listed(d, "cuda", setting, gpus, err);
    if (strncmp(setting, "cpu:", 4) == 0)
        return add_listed(d, "cpu", setting, gpus, err);
    if (strcmp(setting, "cpu") != 0 && strcmp(setting, "cuda") != 0 && !is_auto)
        return error_set(err, ERR_INPUT, "device \"%s\" is none of auto, cpu, cpu:0,1, cuda, cuda:0,1",
                         setting);
    if (strcmp(setting, "cuda") == 0 && gpus == 0)
        return refuse_missing(setting, gpus, err);
    if (strcmp(setting, "cpu") == 0 || gpus == 0) {
        add(d, "cpu", -1);
        return 0;
    }
    for (int i = 0; i < gpus; i++)
        add(d, "cuda", i);
    return 0;
}

/* --- cores --- */

/* The physical core of each logical CPU; where the kernel does not say, each is one of its own. */
static void
read_cores(int core_of[CPU_SETSIZE])
{
    for (int i = 0; i < CPU_SETSIZE; i++) {
        char path[96];
        int first;
        core_of[i] = i;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fscanf(file, "%d", &first) == 1)
            core_of[i] = first; /* the list is sorted */
        fclose(file);
    }
}

/* Move logical CPU i, and then the rest of its core while more are wanted. */
static int
take_core(cpu_set_t *have, const int core_of[CPU_SETSIZE], int core, int wanted, cpu_set_t *to)
{
    int taken = 0;
    for (int i = CPU_SETSIZE - 1; i >= 0 && taken < wanted; i--) {
        if (!CPU_ISSET(i, have) || core_of[i] != core)
            continue;
        CPU_CLR(i, have);
        CPU_SET(i, to);
        taken++;
    }
    return taken;
}

int
cores_split(cpu_set_t *have, const int core_of[CPU_SETSIZE], size_t n, int per_gpu, cpu_set_t *kept)
{
    int count = CPU_COUNT(have), gpus = (int)n;
    int least = gpus > 2 ? gpus : 2;

    if (per_gpu < 0)
        per_gpu = count - CORES_FOR_TIMING * gpus >= least ? CORES_FOR_TIMING : 0;
    if (per_gpu * gpus >= count && per_gpu > 0)
        return -1;
    for (size_t g = 0; g < n; g++) {
        int left = per_gpu;
        CPU_ZERO(&kept[g]);
        for (int i = CPU_SETSIZE - 1; i >= 0 && left > 0; i--)
            if (CPU_ISSET(i, have))
                left -= take_core(have, core_of, core_of[i], left, &kept[g]);
    }
    return per_gpu;
}

static void
write_cores(const cpu_set_t *set, char out[CORES_TEXT_SIZE])
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < CPU_SETSIZE && used < CORES_TEXT_SIZE - 8; i++)
        if (CPU_ISSET(i, set))
            used += (size_t)snprintf(out + used, CORES_TEXT_SIZE - used, "%s%d", used ? "," : "", i);
}

int
devices_find(const struct config *config, struct devices *out, struct error *err)
{
    int core_of[CPU_SETSIZE];
    cpu_set_t kept[DEVICES_MAX];

    int rc = devices_name(config->device, getenv("CUDA_VISIBLE_DEVICES"), count_gpus(), out, err);
    if (rc != 0)
        return rc;
    if (sched_getaffinity(0, sizeof(out->rest), &out->rest) != 0)
        return error_set(err, ERR_SYS, "cannot see which cores there are");
    if (strncmp(out->all[0].name, "cpu", 3) == 0)
        return 0; /* nothing is timed */
    read_cores(core_of);
    int each = cores_split(&out->rest, core_of, out->n, (int)config->timing_cores, kept);
    if (each < 0)
        return error_set(err, ERR_INPUT, "timing_cores %lld for each of %zu GPUs leaves none of %d cores",
                         (long long)config->timing_cores, out->n, CPU_COUNT(&out->rest));
    for (size_t i = 0; i < out->n && each > 0; i++)
        write_cores(&kept[i], out->all[i].cores);
    return 0;
}

int
devices_stay_off(const struct devices *d, struct error *err)
{
    for (size_t i = 0; i < d->n && *d->all[i].cores; i++)
        log_info(d->all[i].name, "cores %s are kept for it", d->all[i].cores);
    if (strncmp(d->all[0].name, "cpu", 3) != 0 && !*d->all[0].cores)
        log_warn(NULL, "no cores are kept for timing: compiling may disturb it");
    if (sched_setaffinity(0, sizeof(d->rest), &d->rest) != 0)
        return error_set(err, ERR_SYS, "cannot leave the cores kept for timing");
    return 0;
}
