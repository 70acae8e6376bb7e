/* test_notices.c - posting a group's end: a resolver that does not answer holds nobody up. */
#include "server/http/notices.h"

#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"

#define DEAD_S 30
#define STOP_MOST_NS INT64_C(5000000000)
#define ASKED_MOST_NS INT64_C(10000000000)

static atomic_int is_asked;

/* In place of the C library's, for curl's thread too: as with name servers that are gone. */
int
getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)name, (void)service, (void)hints, (void)out;
    atomic_store(&is_asked, 1);
    sleep(DEAD_S);
    return EAI_AGAIN;
}

static void
a_dead_resolver_does_not_hold_a_stop(void **state)
{
    char path[] = "/tmp/notify-key-XXXXXX";
    struct notices *n = NULL;
    struct error err = { 0 };
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && dprintf(fd, "0123456789abcdef\n") > 0);
    close(fd);
    assert_int_equal(notices_new("slow.test", path, &n, &err), 0);
    unlink(path);
    notices_group_ended(n, "0199f2c4-0000-7000-8000-000000000000", "https://slow.test/hook");
    int64_t begun_ns = clock_monotonic_ns();
    while (!atomic_load(&is_asked) && clock_monotonic_ns() - begun_ns < ASKED_MOST_NS)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    assert_true(atomic_load(&is_asked));
    begun_ns = clock_monotonic_ns();
    notices_free(n);
    assert_true(clock_monotonic_ns() - begun_ns < STOP_MOST_NS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_dead_resolver_does_not_hold_a_stop) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
