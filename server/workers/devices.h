/*
 * devices.h - where kernels run: the devices that the configuration names, and the
 * cores that are kept for each GPU so that compiling never disturbs its timing.
 */
#ifndef WORKERS_DEVICES_H
#define WORKERS_DEVICES_H

#include <sched.h>
#include <stddef.h>

#include "common/error.h"
#include "server/config.h"

#define DEVICES_MAX 64
#define CORES_TEXT_SIZE 128
/* Reasons that slow down a GPU that has work: NVML's bits for hardware and thermal slowdown and for the power brake. */
#define DEVICE_THROTTLES (0x8 | 0x20 | 0x40 | 0x80)

#define CORES_FOR_TIMING 3 /* the referee, the child that is timed, the driver's own thread */

struct device {
    char name[32];               /* "cpu", "cpu:1", "cuda:0" */
    char cores[CORES_TEXT_SIZE]; /* "13,14,15": for its referee, and timing; "": any */
};

struct devices {
    size_t n;
    struct device all[DEVICES_MAX];
    cpu_set_t rest; /* for all else, children that are not timed too; all there are where none are kept */
};

/* The devices and cores of the settings `device` and `timing_cores` on this machine. 0 or ERR_INPUT. */
int devices_find(const struct config *config, struct devices *out, struct error *err);
/* Keep the calling thread, and the processes it starts later, off the cores kept for timing. 0 or ERR_SYS. */
int devices_stay_off(const struct devices *d, struct error *err);

/*
 * The names alone, on a machine with `gpus` GPUs. Their numbers are nvidia-smi's; visible is CUDA_VISIBLE_DEVICES
 * (NULL: not set), which decides the GPUs of "auto" and "cuda". 0 or ERR_INPUT. Pure.
 */
int devices_name(const char *setting, const char *visible, int gpus, struct devices *out, struct error *err);

/*
 * Take per_gpu cores out of *have for each of n GPUs, from the end, whole physical cores while they last: core_of[i] is
 * the core of logical CPU i. per_gpu < 0: CORES_FOR_TIMING if that leaves as many cores as there are GPUs, two at
 * least; else none. kept has room for n. Returns the number for each, or -1: there are too few. Pure.
 */
int cores_split(cpu_set_t *have, const int core_of[CPU_SETSIZE], size_t n, int per_gpu, cpu_set_t *kept);

#endif
