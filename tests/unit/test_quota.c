/* test_quota.c - quotas as they are written, and what they let through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/queue/quota.h"

#define SECOND INT64_C(1000000000)
#define NOON (INT64_C(20000) * 86400000 + 43200000)

static void
rows_are_found_by_client(void **state)
{
    struct quotas q;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(quotas_parse("  alice:rate=60,gpu_s=3600  *:queued=500,running=4 ", &q, &err), 0);
    assert_int_equal(q.n, 2);
    assert_int_equal(quotas_find(&q, "alice")->rate, 60);
    assert_int_equal(quotas_find(&q, "alice")->gpu_s, 3600);
    assert_int_equal(quotas_find(&q, "alice")->queued, 0);
    assert_int_equal(quotas_find(&q, "bob")->queued, 500);
    assert_int_equal(quotas_find(&q, "bob")->running, 4);
    /* The operator has none. */
    assert_int_equal(quotas_find(&q, NULL)->queued, 0);
    assert_int_equal(quotas_find(&q, "")->queued, 0);
    quotas_release(&q);
    assert_int_equal(quotas_parse("", &q, &err), 0);
    assert_int_equal(quotas_find(&q, "bob")->rate, 0);
}

static void
each_of_many_rows_is_found(void **state)
{
    char text[1000 * 16] = "";
    size_t size = 0;
    struct quotas q;
    struct error err = { 0 };

    (void)state;
    for (int i = 0; i < 999; i++)
        size += (size_t)snprintf(text + size, sizeof(text) - size, "c%d:rate=%d ", i * 7919 % 1000, i + 1);
    snprintf(text + size, sizeof(text) - size, "*:rate=5000");
    assert_int_equal(quotas_parse(text, &q, &err), 0);
    for (int i = 0; i < 999; i++) {
        char name[8];
        snprintf(name, sizeof(name), "c%d", i * 7919 % 1000);
        assert_int_equal(quotas_find(&q, name)->rate, i + 1);
    }
    assert_int_equal(quotas_find(&q, "c1000")->rate, 5000);
    quotas_release(&q);
}

static void
only_what_was_used_today_has_to_be_remembered(void **state)
{
    struct usage u = { 0 };

    (void)state;
    assert_false(usage_is_of_today(&u, NOON));
    usage_add_gpu(&u, 1.5, NOON);
    assert_true(usage_is_of_today(&u, NOON));
    assert_false(usage_is_of_today(&u, NOON + 86400000));
}

static void
what_is_malformed_is_named(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "alice", "\"alice\" is not CLIENT:LIMIT=NUMBER" },
        { ":rate=1", "is not CLIENT:LIMIT=NUMBER" },
        { "alice:", "\"\" is none of rate, queued, running, gpu_s" },
        { "alice:speed=1", "\"speed\" is none of" },
        { "alice:rate", "rate is a whole number" },
        { "alice:rate=", "rate is a whole number" },
        { "alice:rate=-1", "rate is a whole number, not \"-1\"" },
        { "alice:rate=1x", "rate is a whole number" },
        { "alice:rate=1,", "\"\" is none of" },
        { "alice:rate=9999999999999", "rate is a whole number" },
        { "alice:rate=1 alice:rate=2", "alice stands there twice" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct error err = { 0 };
        struct quotas q;
        assert_int_equal(quotas_parse(rows[i].text, &q, &err), ERR_INPUT);
        if (!strstr(err.text, rows[i].words))
            fail_msg("\"%s\": %s", rows[i].text, err.text);
        assert_null(q.rows);
    }
}

static void
a_rate_lets_a_minutes_worth_through_and_then_its_share(void **state)
{
    const struct quota q = { .rate = 60 };
    struct usage u = { 0 };
    int retry_s;

    (void)state;
    for (int i = 0; i < 60; i++)
        assert_int_equal(quota_admit(&q, &u, 1, 0, SECOND, NOON, &retry_s), QUOTA_OK);
    assert_int_equal(quota_admit(&q, &u, 1, 0, SECOND, NOON, &retry_s), QUOTA_RATE);
    assert_int_equal(retry_s, 1);
    assert_int_equal(quota_admit(&q, &u, 1, 0, 2 * SECOND, NOON, &retry_s), QUOTA_OK);
    assert_int_equal(quota_admit(&q, &u, 10, 0, 2 * SECOND, NOON, &retry_s), QUOTA_RATE);
    assert_int_equal(retry_s, 10);
    /* A group of more than a minute's worth: once, and then it is paid off. */
    assert_int_equal(quota_admit(&q, &u, 120, 0, 100 * SECOND, NOON, &retry_s), QUOTA_OK);
    assert_int_equal(quota_admit(&q, &u, 1, 0, 100 * SECOND, NOON, &retry_s), QUOTA_RATE);
    assert_int_equal(retry_s, 61);
    assert_int_equal(quota_admit(&q, &u, 1, 0, 161 * SECOND, NOON, &retry_s), QUOTA_OK);
    assert_int_equal(quota_admit(&q, &u, 1, 1, 162 * SECOND, NOON, &retry_s), QUOTA_RATE); /* it is two */
}

static void
what_waits_and_the_days_seconds_are_bounded(void **state)
{
    const struct quota q = { .queued = 10, .gpu_s = 100 };
    struct usage u = { .waiting = 8 };
    int retry_s;

    (void)state;
    assert_int_equal(quota_admit(&q, &u, 2, 0, SECOND, NOON, &retry_s), QUOTA_OK);
    assert_int_equal(quota_admit(&q, &u, 3, 0, SECOND, NOON, &retry_s), QUOTA_QUEUED);
    assert_int_equal(retry_s, 0);
    usage_add_gpu(&u, 99, NOON);
    assert_int_equal(quota_admit(&q, &u, 1, 0, SECOND, NOON, &retry_s), QUOTA_OK);
    usage_add_gpu(&u, 1, NOON);
    assert_int_equal(quota_admit(&q, &u, 1, 0, SECOND, NOON, &retry_s), QUOTA_GPU);
    assert_int_equal(retry_s, 43201);
    /* Another day. */
    assert_int_equal(quota_admit(&q, &u, 1, 0, SECOND, NOON + 43200000, &retry_s), QUOTA_OK);
    assert_true(u.gpu_s == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_by_client),
        cmocka_unit_test(each_of_many_rows_is_found),
        cmocka_unit_test(only_what_was_used_today_has_to_be_remembered),
        cmocka_unit_test(what_is_malformed_is_named),
        cmocka_unit_test(a_rate_lets_a_minutes_worth_through_and_then_its_share),
        cmocka_unit_test(what_waits_and_the_days_seconds_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
