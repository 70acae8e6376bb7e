#include "server/harness/native/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/harness/native/memory.h"
#include "server/harness/native/timer.h"

#define SPIN_NS 20000
#define LONG_NS (60LL * 1000000000)
#define SHORT_NS (30LL * 1000000)
#define SET_EXIT 77
#define SET_STAY 78

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

struct pair {
    struct doorbell *page;
    pid_t pid;
    int pidfd;
};

/* Answers with its bell and set, until it is told to leave or to stay silent. */
static void
serve(struct doorbell *page)
{
    uint32_t bell[4] = { 0, 0, 0, 0 };

    for (;;) {
        uint32_t reply[2];
        if (harness_doorbell_wait(page, bell[0], SPIN_NS, LONG_NS, bell) != 0)
            _exit(2);
        if (bell[1] == SET_EXIT)
            _exit(0);
        if (bell[1] == SET_STAY)
            for (;;)
                pause();
        reply[0] = bell[1];
        reply[1] = bell[2] * 1000 + bell[3];
        if (harness_reply_write(page, reply, sizeof(reply)) != 0)
            _exit(3);
        harness_doorbell_answer(page, bell[0], bell[1] == 9 ? DOORBELL_RAISED : DOORBELL_OK, bell[1],
                                2 * bell[1]);
    }
}

static int
start_pair(void **state)
{
    static struct pair p;
    int fd = harness_doorbell_create();

    p.page = harness_doorbell_map(fd);
    if (p.page == NULL)
        return -1;
    p.pid = fork();
    if (p.pid == 0)
        serve(p.page);
    p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
    close(fd);
    *state = &p;
    return p.pidfd < 0 ? -1 : 0;
}

static int
stop_pair(void **state)
{
    struct pair *p = *state;

    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    close(p->pidfd);
    harness_doorbell_unmap(p->page);
    return 0;
}

static void
ten_thousand_rounds_each_get_their_own_answer(void **state)
{
    struct pair *p = *state;

    for (uint32_t i = 1; i <= 10000; i++) {
        uint32_t reply[2] = { 0, 0 };
        /* Now and then long enough for the child to fall asleep on its futex. */
        uint32_t bell = harness_doorbell_ring(p->page, i % 5, i, 7);
        assert_int_equal(bell, i);
        assert_int_equal(harness_doorbell_await(p->page, bell, p->pidfd, i % 2 ? SPIN_NS : 0, LONG_NS), 0);
        assert_int_equal(harness_reply_read(p->page, (char *)reply, sizeof(reply), NULL), sizeof(reply));
        assert_int_equal(reply[0], i % 5);
        assert_int_equal(reply[1], i * 1000 + 7);
        if (i % 1000 == 0)
            usleep(2000);
    }
}

static void
the_generation_grows_only_with_new_bytes(void **state)
{
    struct pair *p = *state;
    uint32_t first, second, third;
    uint64_t events, host;

    for (int i = 0; i < 2; i++)
        assert_int_equal(
            harness_doorbell_await(p->page, harness_doorbell_ring(p->page, 3, 1, 1), p->pidfd, 0, LONG_NS),
            0);
    harness_doorbell_claims(p->page, NULL, &first, &events, &host);
    assert_int_equal(events, 3);
    assert_int_equal(host, 6);
    assert_int_equal(
        harness_doorbell_await(p->page, harness_doorbell_ring(p->page, 3, 1, 1), p->pidfd, 0, LONG_NS), 0);
    harness_doorbell_claims(p->page, NULL, &second, NULL, NULL);
    assert_int_equal(first, second);
    assert_int_equal(
        harness_doorbell_await(p->page, harness_doorbell_ring(p->page, 4, 1, 1), p->pidfd, 0, LONG_NS), 0);
    harness_doorbell_claims(p->page, NULL, &third, NULL, NULL);
    assert_int_not_equal(second, third);
}

static void
silence_ends_at_the_deadline(void **state)
{
    struct pair *p = *state;
    uint32_t bell = harness_doorbell_ring(p->page, SET_STAY, 1, 1);
    int64_t start = harness_now_ns();

    assert_int_equal(harness_doorbell_await(p->page, bell, p->pidfd, SPIN_NS, SHORT_NS), -ETIMEDOUT);
    assert_true(harness_now_ns() - start >= SHORT_NS);
    assert_non_null(strstr(harness_error(), "was not answered"));
}

static void
a_dead_child_is_noticed_long_before_the_deadline(void **state)
{
    struct pair *p = *state;
    uint32_t bell = harness_doorbell_ring(p->page, SET_EXIT, 1, 1);
    int64_t start = harness_now_ns();

    assert_int_equal(harness_doorbell_await(p->page, bell, p->pidfd, SPIN_NS, LONG_NS), -ESRCH);
    assert_true(harness_now_ns() - start < LONG_NS / 2);
}

static void
an_answer_counts_though_the_child_died_after_it(void **state)
{
    struct pair *p = *state;
    uint32_t bell = harness_doorbell_ring(p->page, 1, 1, 1);

    assert_int_equal(harness_doorbell_await(p->page, bell, p->pidfd, SPIN_NS, LONG_NS), 0);
    kill(p->pid, SIGKILL);
    waitid(P_PID, (id_t)p->pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
    assert_int_equal(harness_doorbell_await(p->page, bell, p->pidfd, 0, LONG_NS), 0);
}

static void
a_child_waits_no_longer_than_it_was_told(void **state)
{
    struct pair *p = *state;
    uint32_t out[4];

    assert_int_equal(harness_doorbell_wait(p->page, p->page->bell, 0, SHORT_NS, out), -ETIMEDOUT);
}

static void
a_size_beyond_the_page_is_refused(void **state)
{
    struct pair *p = *state;
    char out[DOORBELL_REPLY_MAX];

    p->page->reply_bytes = DOORBELL_REPLY_MAX + 1;
    assert_int_equal(harness_reply_read(p->page, out, sizeof(out), NULL), -EPROTO);
    p->page->reply_bytes = 11;
    assert_int_equal(harness_reply_read(p->page, out, 10, NULL), -EPROTO);
    assert_int_equal(harness_reply_read(p->page, out, 11, NULL), 11);
    assert_int_equal(harness_reply_write(p->page, out, DOORBELL_REPLY_MAX + 1), -EMSGSIZE);
}

static void
the_clock_tells_moved_raised_and_time(void **state)
{
    struct pair *p = *state;
    struct harness_clock c = { .page = p->page,
                               .spin_ns = SPIN_NS,
                               .timeout_ns = LONG_NS,
                               .pidfd = p->pidfd,
                               .set = 1,
                               .calls = 1,
                               .sets = 1 };
    int64_t ns = 0;

    assert_int_equal(harness_clock_call(&c, &ns), HARNESS_CLOCK_MOVED);
    usleep(3000);
    assert_int_equal(harness_clock_finish(&c, &ns), 0);
    assert_true(ns >= 3000000); /* the clock ran on */
    c.expected_generation = c.generation;
    assert_int_equal(harness_clock_call(&c, &ns), 0);
    assert_true(ns > 0 && ns == c.ended_ns - c.started_ns && c.answered_ns <= c.ended_ns);
    assert_int_equal(c.events_ns, 1);
    c.set = 9;
    assert_int_equal(harness_clock_call(&c, &ns), HARNESS_CLOCK_RAISED);
    assert_int_equal(c.status, DOORBELL_RAISED);
    c.set = SET_EXIT;
    assert_int_equal(harness_clock_call(&c, &ns), -ESRCH);
}

static void
a_memfd_keeps_its_size(void **state)
{
    int fd = harness_arena_memfd(8192);
    (void)state;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 16384), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    close(fd);
    assert_int_equal(harness_arena_memfd(0), -EINVAL);
    assert_int_equal(harness_arena_memfd(UINT64_MAX), -EINVAL);
}

static void
what_could_shrink_or_has_another_size_is_not_mapped(void **state)
{
    int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int tight = harness_arena_memfd(DOORBELL_BYTES - 1);
    int arena = harness_arena_memfd(4096);
    void *mapped;
    (void)state;

    assert_int_equal(ftruncate(loose, DOORBELL_BYTES), 0);
    assert_null(harness_doorbell_map(loose));
    assert_non_null(strstr(harness_error(), "not sealed"));
    assert_null(harness_doorbell_map(tight));
    assert_null(harness_map(arena, 8192));
    assert_null(harness_map(-1, 4096));
    mapped = harness_map(arena, 4096);
    assert_non_null(mapped);
    harness_unmap(mapped, 4096);
    close(loose);
    close(tight);
    close(arena);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, start_pair, stop_pair)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(ten_thousand_rounds_each_get_their_own_answer),
        WITH_PAIR(the_generation_grows_only_with_new_bytes),
        WITH_PAIR(silence_ends_at_the_deadline),
        WITH_PAIR(a_dead_child_is_noticed_long_before_the_deadline),
        WITH_PAIR(an_answer_counts_though_the_child_died_after_it),
        WITH_PAIR(a_child_waits_no_longer_than_it_was_told),
        WITH_PAIR(a_size_beyond_the_page_is_refused),
        WITH_PAIR(the_clock_tells_moved_raised_and_time),
        cmocka_unit_test(a_memfd_keeps_its_size),
        cmocka_unit_test(what_could_shrink_or_has_another_size_is_not_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
