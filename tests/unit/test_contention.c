/* test_contention.c - what others took of the CPU: the arithmetic, and real processes that share one. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "server/workers/contention.h"

#define MS 1000000LL
#define LONGEST_MS 60000

static struct contention_mark
mark(int64_t ran_ms, int64_t waited_ms, int64_t busy_ms)
{
    return (struct contention_mark){
        .is_known = true, .ran_ns = ran_ms * MS, .waited_ns = waited_ms * MS, .busy_ns = busy_ms * MS
    };
}

static void
what_was_stolen_is_the_lesser_of_waiting_and_others_work(void **state)
{
    static const struct {
        const char *what;
        int64_t ran_ms, waited_ms, busy_ms, stolen_ms;
    } rows[] = {
        { "alone on an idle machine", 10000, 5, 10010, 5 },
        { "asleep on a busy one", 0, 0, 20000, 0 },
        { "starved", 1000, 9000, 20000, 9000 },
        { "its own threads wait for each other", 20000, 140000, 20100, 100 },
        { "its own, and others beside", 12000, 60000, 20000, 8000 },
        { "less than before, since some threads ended", 100, -500, 1000, 0 },
        { "its own time is counted later than the machine's", 1000, 800, 900, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct contention_mark before = mark(700, 900, 50000);
        const struct contention_mark after =
            mark(700 + rows[i].ran_ms, 900 + rows[i].waited_ms, 50000 + rows[i].busy_ms);
        if (contention_stolen_ns(&before, &after) != rows[i].stolen_ms * MS)
            fail_msg("%s: %lld ms", rows[i].what, (long long)(contention_stolen_ns(&before, &after) / MS));
    }
}

static void
what_is_not_known_is_nobodys_fault(void **state)
{
    struct contention_mark known = mark(1, 1, 1), unknown = { 0 };

    (void)state;
    assert_int_equal(contention_stolen_ns(&unknown, &known), -1);
    assert_int_equal(contention_stolen_ns(&known, &unknown), -1);
    assert_false(contention_is_starved(-1, 0));
    assert_false(contention_is_starved(4999 * MS, 10000));
    assert_true(contention_is_starved(5000 * MS, 10000));
}

static void
memory_is_short_where_others_hold_it(void **state)
{
    (void)state;
    /* Nobody holds so much that not a byte is left; and what one holds oneself is not others'. */
    assert_false(contention_is_short(1, 0));
    assert_false(contention_is_short(INT64_MAX / 2, INT64_MAX / 4));
    /* As if an exabyte less were left. */
    assert_true(contention_is_short(INT64_MAX / 2, -(INT64_C(1) << 60)));
}

static void
share_one_cpu(void)
{
    cpu_set_t all, one;

    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    sched_setaffinity(0, sizeof(one), &one);
}

static int
start(void (*act)(void))
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    share_one_cpu();
    setpriority(PRIO_PROCESS, 0,
                -10); /* where we may: what else the machine has to do counts for little then */
    alarm(LONGEST_MS / 1000);
    act();
    _exit(0);
}

static void
end(const int *pids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    for (size_t i = 0; i < n; i++)
        waitpid(pids[i], NULL, 0);
}

static void
spin(void)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

static void
fork_and_spin(void)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LONGEST_MS / 1000);
        spin();
    }
    pause();
}

static void
sleep_on(void)
{
    for (;;)
        pause();
}

static void
wait_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * MS }, NULL);
}

/* Until the one that is watched has waited for so long; false: it never did. */
static bool
waits_so_long(int pid, const struct contention_mark *before, int64_t stolen_ns)
{
    int64_t until = clock_monotonic_ns() + LONGEST_MS * MS;
    struct contention_mark now;

    while (clock_monotonic_ns() < until) {
        wait_ms(20);
        contention_read(&pid, 1, &now);
        if (contention_stolen_ns(before, &now) >= stolen_ns)
            return true;
    }
    return false;
}

static void
starved_process_is_seen(void **state)
{
    int pids[6] = { start(spin), start(fork_and_spin) };
    struct contention_mark begun[2];

    (void)state;
    for (size_t i = 2; i < 6; i++)
        pids[i] = start(spin);
    for (size_t i = 0; i < 2; i++) {
        contention_read(&pids[i], 1, &begun[i]);
        assert_true(begun[i].is_known);
        assert_true(begun[i].resident_bytes > 0);
    }
    /* Six share a CPU: sooner or later each has waited for a second, the grandchild as well. */
    bool is_seen = waits_so_long(pids[0], &begun[0], 1000 * MS);
    bool is_seen_below = waits_so_long(pids[1], &begun[1], 1000 * MS);
    end(pids, 6);
    assert_true(is_seen);
    assert_true(is_seen_below);
}

static void
one_that_is_gone_is_left_out(void **state)
{
    int pid = start(sleep_on);
    struct contention_mark now;

    (void)state;
    end(&pid, 1);
    contention_read(&pid, 1, &now);
    assert_true(now.is_known); /* of this process */
    assert_int_equal(now.resident_bytes, 0);
    assert_int_equal(contention_pid(-1), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_stolen_is_the_lesser_of_waiting_and_others_work),
        cmocka_unit_test(what_is_not_known_is_nobodys_fault),
        cmocka_unit_test(memory_is_short_where_others_hold_it),
        cmocka_unit_test(starved_process_is_seen),
        cmocka_unit_test(one_that_is_gone_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
