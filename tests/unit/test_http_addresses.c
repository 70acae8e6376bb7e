#include "server/http/addresses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cmocka.h>

#define MOST 10
#define STRANGERS 3

union place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union place
at(const char *text)
{
    union place p = { .v6 = { .sin6_family = AF_INET6 } };

    if (strchr(text, ':')) {
        assert_int_equal(inet_pton(AF_INET6, text, &p.v6.sin6_addr), 1);
        return p;
    }
    memset(&p, 0, sizeof(p));
    p.v4.sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, text, &p.v4.sin_addr), 1);
    return p;
}

static struct address *
enter(struct addresses *all, const char *text, int64_t now_ns)
{
    union place p = at(text);
    return addresses_enter(all, &p.any, MOST, STRANGERS, now_ns);
}

/* Enter until it is refused; how many that were. */
static int
fill(struct addresses *all, const char *text, struct address **out)
{
    int n = 0;
    while ((out[n] = enter(all, text, 0)))
        assert_true(++n <= MOST);
    return n;
}

static void
each_has_its_own_limit(void **state)
{
    static const struct {
        const char *first, *second; /* second: the same one, NULL: none */
        int most;
    } rows[] = {
        { "127.0.0.1", "::ffff:127.0.0.1", MOST },
        { "127.9.9.9", NULL, MOST },
        { "::1", NULL, MOST },
        { "192.0.2.1", "::ffff:192.0.2.1", STRANGERS },
        { "192.0.2.2", NULL, STRANGERS },
        { "2001:db8::1", "2001:db8::ffff:2", STRANGERS },
        { "2001:db8:0:1::1", NULL, STRANGERS },
        { "::2", NULL, STRANGERS },
    };
    struct addresses *all = addresses_new();
    struct address *taken[8][MOST + 1], *again[MOST + 1];

    (void)state;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(fill(all, rows[i].first, taken[i]), rows[i].most);
    for (size_t i = 0; i < 8; i++) {
        if (rows[i].second)
            assert_int_equal(fill(all, rows[i].second, again), 0);
        addresses_leave(all, taken[i][0], false, 0);
        assert_int_equal(fill(all, rows[i].first, again), 1);
    }
    addresses_free(all);
}

static void
a_token_speaks_for_its_address(void **state)
{
    struct addresses *all = addresses_new();
    struct address *taken[MOST + 1], *more[MOST + 1];

    (void)state;
    assert_int_equal(fill(all, "192.0.2.1", taken), STRANGERS);
    address_trust(taken[0]);
    assert_int_equal(fill(all, "192.0.2.1", more), MOST - STRANGERS);
    for (int i = 0; i < MOST - STRANGERS; i++)
        addresses_leave(all, more[i], false, 0);
    /* Long after it was shown the connection is open still. */
    more[0] = enter(all, "192.0.2.1", 9 * ADDRESS_TRUST_NS);
    assert_non_null(more[0]);
    addresses_leave(all, taken[0], true, 10 * ADDRESS_TRUST_NS);
    taken[0] = enter(all, "192.0.2.1", 11 * ADDRESS_TRUST_NS - 1);
    assert_non_null(taken[0]);
    assert_null(enter(all, "192.0.2.1", 11 * ADDRESS_TRUST_NS));
    addresses_free(all);
}

static void
it_is_remembered_for_a_while(void **state)
{
    struct addresses *all = addresses_new();
    struct address *taken[MOST + 1];
    char text[32];

    (void)state;
    struct address *a = enter(all, "192.0.2.1", 0);
    address_trust(a);
    addresses_leave(all, a, true, 0);
    assert_int_equal(fill(all, "192.0.2.1", taken), MOST);
    for (int i = 0; i < MOST; i++)
        addresses_leave(all, taken[i], false, 0);
    /* Not more of them than fit. */
    for (int i = 0; i <= ADDRESSES_IDLE_MAX; i++) {
        snprintf(text, sizeof(text), "10.1.%d.%d", i / 256, i % 256);
        a = enter(all, text, 1);
        address_trust(a);
        addresses_leave(all, a, true, 1);
    }
    assert_int_equal(fill(all, "192.0.2.1", taken), STRANGERS);
    addresses_free(all);
    addresses_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_own_limit),
        cmocka_unit_test(a_token_speaks_for_its_address),
        cmocka_unit_test(it_is_remembered_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
