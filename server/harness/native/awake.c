#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/harness/native/awake.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "server/harness/native/spin.h"

struct waker {
    pthread_t thread;
    int core;
    int state; /* 0: starting, 1: spinning, < 0: a negative errno */
};

/* One timing at a time in a process, begun and ended by one thread. */
static struct {
    struct waker wakers[HARNESS_AWAKE_MAX];
    uint32_t n;
    int is_over;
} awake;

static int
settle(int core)
{
    const struct sched_param none = { .sched_priority = 0 };
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0 || sched_setaffinity(0, sizeof(set), &set) != 0)
        return -errno;
    return 1;
}

static void *
keep_awake(void *arg)
{
    struct waker *w = arg;
    int state = settle(w->core);

    __atomic_store_n(&w->state, state, __ATOMIC_RELEASE);
    while (state > 0 && !__atomic_load_n(&awake.is_over, __ATOMIC_RELAXED))
        spin_pause();
    return NULL;
}

/* A started thread's state, once it has one. */
static int
await_state(const struct waker *w)
{
    int state;

    while ((state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE)) == 0)
        sched_yield();
    return state;
}

static int
start(struct waker *w, int core)
{
    sigset_t all, before;
    int code;

    *w = (struct waker){ .core = core };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&w->thread, NULL, keep_awake, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return harness_fail(code, "a thread to keep core %d awake: %s", core, strerror(code));
    awake.n++;
    code = await_state(w);
    return code > 0 ? 0 : harness_fail(-code, "keep core %d awake: %s", core, strerror(-code));
}

int
harness_awake_begin(const int32_t *cores, uint32_t n)
{
    int code = 0;

    if (awake.n != 0)
        return harness_fail(EBUSY, "cores are kept awake already");
    if (n == 0 || n > HARNESS_AWAKE_MAX)
        return harness_fail(EINVAL, "%u cores to keep awake: 1 to %d can be", n, HARNESS_AWAKE_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (cores[i] < 0 || cores[i] >= CPU_SETSIZE)
            return harness_fail(EINVAL, "core %d", cores[i]);
    awake.is_over = 0;
    for (uint32_t i = 0; i < n && code == 0; i++)
        code = start(&awake.wakers[i], cores[i]);
    if (code != 0)
        harness_awake_end();
    return code;
}

void
harness_awake_end(void)
{
    __atomic_store_n(&awake.is_over, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < awake.n; i++)
        pthread_join(awake.wakers[i].thread, NULL);
    awake.n = 0;
}
