/* test_pool.c - how many children are wanted, under a simulated clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/workers/pool.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define START (12345 * S)
#define CHILD (715 * INT64_C(1000000))

/* A device under a clock of our own: what it was told, and what it wants. */
struct device {
    struct pool_rate entering, arriving, taking;
    int64_t now_ns, last_ns;
    struct pool_need need;
};

static struct device
device_new(void)
{
    return (struct device){ .now_ns = START,
                            .last_ns = START,
                            .need = { .passing = 1,
                                      .make_s = 0.5,
                                      .limit_s = 60,
                                      .child_bytes = CHILD,
                                      .budget_bytes = 100 * CHILD,
                                      .least = 2,
                                      .most = 8 } };
}

static int64_t
wanted(struct device *d)
{
    d->need.entering = pool_rate_read(&d->entering, d->now_ns);
    d->need.arriving = pool_rate_read(&d->arriving, d->now_ns);
    d->need.taking = pool_rate_read(&d->taking, d->now_ns);
    d->need.idle_s = (double)(d->now_ns - d->last_ns) / 1e9;
    return pool_wanted(&d->need);
}

static void
note(struct device *d, struct pool_rate *r)
{
    pool_rate_note(r, d->now_ns, 1);
    d->last_ns = d->now_ns;
}

/* So many a second for so long, evenly. */
static void
take_steadily(struct device *d, int per_s, int seconds)
{
    for (int i = 0; i < per_s * seconds; i++) {
        d->now_ns += S / per_s;
        note(d, &d->taking);
    }
}

static void
a_rate_is_what_happens_in_a_second(void **state)
{
    static const int rates[] = { 1, 4, 50 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct device d = device_new();
        take_steadily(&d, rates[i], 60);
        assert_float_equal(pool_rate_read(&d.taking, d.now_ns), rates[i], 0.15 * rates[i] + 0.1);
        /* Reading does not change it, and it fades at the pace that the header says. */
        double before = pool_rate_read(&d.taking, d.now_ns);
        int64_t later = d.now_ns + (int64_t)(POOL_RATE_S * log(2) * 1e9);
        assert_float_equal(pool_rate_read(&d.taking, later), before / 2, 1e-6 * before);
        assert_float_equal(pool_rate_read(&d.taking, d.now_ns), before, 0);
    }
    struct pool_rate none = { 0 };
    assert_true(pool_rate_read(&none, START) == 0);
}

static void
a_steady_stream_has_what_it_takes_while_one_is_made(void **state)
{
    static const struct {
        int per_s;
        double make_s;
        int64_t least, most;
    } rows[] = {
        { 1, 0.3, 2, 2 },   /* 0.3 meanwhile, and 1.1 for luck */
        { 4, 0.5, 5, 5 },   /* 2, and 2.8 for luck */
        { 20, 0.05, 3, 4 }, /* about 1, and 2 */
        { 100, 1, 8, 8 },   /* what there may be at most */
        { 100, 0, 2, 2 },   /* nobody knows yet how long it takes */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device d = device_new();
        d.need.make_s = rows[i].make_s;
        take_steadily(&d, rows[i].per_s, 60);
        assert_in_range(wanted(&d), rows[i].least, rows[i].most);
    }
}

static void
a_burst_grows_it_and_it_shrinks_again(void **state)
{
    struct device d = device_new();
    int64_t last, highest;

    (void)state;
    assert_int_equal(wanted(&d), 2);
    for (int i = 0; i < 40; i++) {
        d.now_ns += 5 * MS;
        note(&d, &d.taking);
    }
    highest = last = wanted(&d);
    assert_int_equal(highest, 8);
    /* Never more again while nothing comes, and the least long before it is called idle. */
    for (int i = 0; i < 600; i++) {
        d.now_ns += S / 10;
        int64_t now = wanted(&d);
        assert_in_range(now, 2, last);
        last = now;
    }
    assert_int_equal(last, 2);
}

static void
idle_is_the_least(void **state)
{
    struct device d = device_new();

    (void)state;
    d.need.make_s = 1e7; /* so that even the faintest rate wants many */
    take_steadily(&d, 4, 10);
    d.now_ns += 60 * S - 1;
    assert_int_equal(wanted(&d), 8);
    d.now_ns += 1;
    assert_int_equal(wanted(&d), 2);
    d.now_ns += 3600 * S;
    assert_int_equal(wanted(&d), 2);
    note(&d, &d.entering);
    assert_int_equal(wanted(&d), 8);
}

static void
what_comes_through_the_cpu_stages_is_foreseen(void **state)
{
    struct device d = device_new();

    (void)state;
    for (int i = 0; i < 40; i++) {
        d.now_ns += 50 * MS;
        note(&d, &d.entering);
    }
    int64_t all = wanted(&d);
    assert_true(all > 4);
    /* Only those that get so far. */
    d.need.passing = 0.25;
    int64_t quarter = wanted(&d);
    assert_in_range(quarter, 3, all - 1);
    d.need.passing = 0;
    assert_int_equal(wanted(&d), 2);
    for (int i = 0; i < 40; i++)
        note(&d, &d.arriving);
    assert_true(wanted(&d) > 4);
    /* A device that is held for two seconds by each serves half a one in a second, however many wait. */
    d.need.job_s = 2;
    assert_int_equal(wanted(&d), 2);
}

static void
memory_and_bounds_hold_whatever_comes(void **state)
{
    uint64_t seed = 88172645463325252ULL;

    (void)state;
    for (int run = 0; run < 20000; run++) {
        double figures[8];
        for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            figures[i] = (double)(seed >> 11) / (double)(1ULL << 53);
        }
        int64_t least = 1 + (int64_t)(figures[0] * 8);
        struct pool_need n = { .entering = 1000 * figures[1],
                               .passing = figures[2],
                               .arriving = 100 * figures[3],
                               .taking = 100 * figures[4],
                               .job_s = figures[5] < 0.3 ? 0 : figures[5],
                               .make_s = 10 * figures[6],
                               .idle_s = 70 * figures[3],
                               .limit_s = 60,
                               .child_bytes = CHILD,
                               .budget_bytes = (int64_t)(20 * figures[7] * (double)CHILD),
                               .least = least,
                               .most = least + (int64_t)(figures[1] * 56) };
        int64_t got = pool_wanted(&n);
        assert_in_range(got, n.least, n.most);
        assert_true(got == n.least || got * n.child_bytes <= n.budget_bytes);
        if (n.idle_s >= n.limit_s)
            assert_int_equal(got, n.least);
    }
    struct device d = device_new();
    take_steadily(&d, 50, 20);
    for (int64_t room = 0; room < 12; room++) {
        d.need.budget_bytes = room * CHILD + CHILD / 2;
        assert_int_equal(wanted(&d), room < 2 ? 2 : room > 8 ? 8 : room);
    }
}

static void
a_mean_follows_slowly(void **state)
{
    double mean = pool_mean(0, 2);

    (void)state;
    assert_true(mean == 2);
    mean = pool_mean(mean, 12);
    assert_float_equal(mean, 4, 1e-9);
    for (int i = 0; i < 40; i++)
        mean = pool_mean(mean, 1);
    assert_float_equal(mean, 1, 1e-2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_what_happens_in_a_second),
        cmocka_unit_test(a_steady_stream_has_what_it_takes_while_one_is_made),
        cmocka_unit_test(a_burst_grows_it_and_it_shrinks_again),
        cmocka_unit_test(idle_is_the_least),
        cmocka_unit_test(what_comes_through_the_cpu_stages_is_foreseen),
        cmocka_unit_test(memory_and_bounds_hold_whatever_comes),
        cmocka_unit_test(a_mean_follows_slowly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
