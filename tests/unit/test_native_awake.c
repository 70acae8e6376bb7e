#include "server/harness/native/awake.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/harness/native/process.h"

/* The first core that this process may use other than `except`; -1: there is none. */
static int32_t
a_core(int except)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (core != except && CPU_ISSET(core, &set))
            return core;
    return -1;
}

/* Threads of a process on that core alone, only those of the idle policy where is_idle; *all: all its threads. */
static int
count_threads(int pid, int core, bool is_idle, int *all)
{
    char path[64];
    int found = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    *all = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        cpu_set_t set;
        int tid = atoi(e->d_name);
        if (tid == 0 || sched_getaffinity(tid, sizeof(set), &set) != 0)
            continue;
        ++*all;
        found += CPU_COUNT(&set) == 1 && CPU_ISSET(core, &set) &&
                 (!is_idle || sched_getscheduler(tid) == SCHED_IDLE);
    }
    closedir(dir);
    return found;
}

static void
cores_are_kept_awake_until_the_end(void **state)
{
    int32_t core = a_core(-1);
    int before, during, after;

    (void)state;
    assert_int_equal(count_threads(getpid(), core, true, &before), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(harness_awake_begin(&core, 1), 0);
        assert_int_equal(count_threads(getpid(), core, true, &during), 1);
        assert_int_equal(during, before + 1);
        assert_int_equal(harness_awake_begin(&core, 1), -EBUSY);
        harness_awake_end();
        assert_int_equal(count_threads(getpid(), core, true, &after), 0);
        assert_int_equal(after, before);
    }
    harness_awake_end(); /* nothing to end */
}

static void
a_core_that_is_not_ours_leaves_no_thread_behind(void **state)
{
    int32_t cores[] = { a_core(-1), CPU_SETSIZE - 1 };
    int before, after;

    (void)state;
    count_threads(getpid(), cores[0], true, &before);
    assert_int_equal(harness_awake_begin(cores, 0), -EINVAL);
    assert_int_equal(harness_awake_begin(cores, HARNESS_AWAKE_MAX + 1), -EINVAL);
    assert_true(harness_awake_begin(cores, 2) < 0);
    assert_int_equal(count_threads(getpid(), cores[0], true, &after), 0);
    assert_int_equal(after, before);
}

static void *
rest(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* A process with two threads and one process below it, which is ready: its pidfd. */
static int
start_tree(int *pid)
{
    int ends[2];
    char byte;

    assert_int_equal(pipe(ends), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        pthread_t thread;
        pid_t below = fork();
        if (below > 0 && pthread_create(&thread, NULL, rest, NULL) == 0 && write(ends[1], "", 1) != 1)
            _exit(1);
        rest(NULL);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return (int)syscall(SYS_pidfd_open, *pid, 0);
}

static void
a_stopped_process_is_pinned_with_all_its_threads(void **state)
{
    int32_t one = a_core(-1), two[] = { one, a_core(one) };
    struct harness_tree tree;
    int pid, all;

    (void)state;
    int pidfd = start_tree(&pid);
    assert_true(pidfd >= 0);
    assert_int_equal(harness_stop(pidfd), 2);
    harness_read_tree(pid, &tree);
    assert_int_equal(harness_pin(pidfd, &one, 1), 3);
    assert_int_equal(count_threads(pid, one, false, &all), 2);
    assert_int_equal(all, 2);
    assert_int_equal(count_threads(tree.pids[1], one, false, &all), 1);
    if (two[1] >= 0) {
        assert_int_equal(harness_pin(pidfd, two, 2), 3);
        assert_int_equal(count_threads(pid, one, false, &all), 0);
    }
    assert_int_equal(harness_pin(pidfd, (int32_t[]){ -1 }, 1), -EINVAL);
    for (int i = tree.n - 1; i >= 0; i--)
        kill(tree.pids[i], SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(harness_pin(pidfd, &one, 1), -ESRCH);
    close(pidfd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_kept_awake_until_the_end),
        cmocka_unit_test(a_core_that_is_not_ours_leaves_no_thread_behind),
        cmocka_unit_test(a_stopped_process_is_pinned_with_all_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
