/* test_isolation.c - which rerun has the machine to itself, under a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/queue/isolation.h"

#define SECOND 1000000000LL
#define START (1000 * SECOND) /* of the clock: not at nought */

static void
nobody_is_held_up_while_nobody_is_due(void **state)
{
    struct isolation a = { 0 };
    struct isolated_rerun t = { 0 };

    (void)state;
    assert_true(isolation_may_begin(&a, NULL, 0));
    assert_true(isolation_may_begin(&a, NULL, 5));
    assert_true(isolation_promise(&a, &t, START));
    /* Promised is not due: it waits for its turn like all others. */
    assert_true(isolation_may_begin(&a, NULL, 5));
    assert_false(isolation_may_begin(&a, &t, 0));
}

static void
it_begins_when_all_are_through_and_none_begins_beside_it(void **state)
{
    struct isolation a = { 0 };
    struct isolated_rerun t = { 0 }, other = { 0 };

    (void)state;
    assert_true(isolation_promise(&a, &t, START));
    assert_true(isolation_promise(&a, &other, START));
    isolation_becomes_due(&a, &t, START);
    isolation_becomes_due(&a, &other, START); /* one after the other */
    assert_ptr_equal(a.due, &t);
    assert_false(isolation_may_begin(&a, NULL, 0));
    assert_false(isolation_may_begin(&a, &other, 0));
    assert_false(isolation_may_begin(&a, &t, 1));
    assert_true(isolation_may_begin(&a, &t, 0));
    isolation_begin(&a, &t);
    isolation_becomes_due(&a, &other, START + SECOND);
    assert_null(a.due);
    assert_false(isolation_may_begin(&a, NULL, 0));
    assert_false(isolation_may_begin(&a, &other, 0));
    assert_false(isolation_may_begin(&a, &t, 0));
    isolation_end(&a, &t, START + 3 * SECOND);
    assert_true(isolation_may_begin(&a, NULL, 0));
    isolation_becomes_due(&a, &other, START + 3 * SECOND);
    assert_true(isolation_may_begin(&a, &other, 0));
}

/* Cancelled while it is due, or before: nobody waits for it, and it has cost what others waited. */
static void
whoever_leaves_early_gives_back_what_was_set_aside(void **state)
{
    struct isolation a = { 0 };
    struct isolated_rerun t = { 0 };

    (void)state;
    assert_true(isolation_promise(&a, &t, START));
    double before = a.left_s;
    isolation_end(&a, &t, START);
    assert_true(a.left_s > before + ISOLATION_USUAL_S - 0.001 && a.held_s < 0.001);
    assert_true(isolation_promise(&a, &t, START));
    isolation_becomes_due(&a, &t, START);
    isolation_end(&a, &t, START + 4 * SECOND);
    assert_true(isolation_may_begin(&a, NULL, 9));
    assert_true(a.held_s > 3.999 && a.held_s < 4.001);
    before = a.left_s;
    isolation_end(&a, &t, START + 50 * SECOND); /* it is nothing any more */
    assert_true(a.left_s <= before + 0.001 && a.left_s >= before - 0.001);
}

/* One that was put back while it ran, since a worker was lost, may be judged alone again. */
static void
whoever_was_put_back_becomes_due_again(void **state)
{
    struct isolation a = { 0 };
    struct isolated_rerun t = { 0 };

    (void)state;
    assert_true(isolation_promise(&a, &t, START));
    for (int i = 0; i < 3; i++) {
        isolation_becomes_due(&a, &t, START + i * 10 * SECOND);
        assert_true(isolation_may_begin(&a, &t, 0));
        isolation_begin(&a, &t);
        isolation_end(&a, &t, START + (i * 10 + 5) * SECOND);
        assert_null(a.begun);
    }
    assert_true(a.held_s > 14.999 && a.held_s < 15.001);
}

struct simulation {
    struct isolation isolation;
    struct isolated_rerun turns[4096];
    int64_t now_ns;
    uint64_t random;
    int promised, refused;
};

static double
uniform(struct simulation *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (double)(s->random >> 11) / 9007199254740992.0;
}

/* Nothing but endless loops, as many as anybody likes to send: others wait for them a tenth of the time. */
static void
endless_loops_do_not_stop_everything_else(void **state)
{
    static struct simulation s;

    (void)state;
    for (unsigned seed = 0; seed < 50; seed++) {
        memset(&s, 0, sizeof(s));
        s.now_ns = START;
        s.random = 0x9e3779b97f4a7c15u * (seed + 1);
        double longest = 5 + 120 * uniform(&s);
        const double hours = 24;
        int first = 0, n = 0;
        while (s.now_ns < START + (int64_t)(hours * 3600) * SECOND) {
            /* Many fail side by side, before any of them was judged again. */
            for (int i = 0; i < 16 && n < 4096; i++) {
                if (isolation_promise(&s.isolation, &s.turns[n], s.now_ns)) {
                    s.promised++;
                    n++;
                } else {
                    s.refused++;
                }
            }
            for (; first < n; first++) {
                isolation_becomes_due(&s.isolation, &s.turns[first], s.now_ns);
                s.now_ns += (int64_t)(uniform(&s) * 10 * (double)SECOND); /* until all that runs is through */
                assert_true(isolation_may_begin(&s.isolation, &s.turns[first], 0));
                isolation_begin(&s.isolation, &s.turns[first]);
                s.now_ns += (int64_t)((longest / 2 + uniform(&s) * longest / 2) * (double)SECOND);
                isolation_end(&s.isolation, &s.turns[first], s.now_ns);
            }
            s.now_ns += 10 * SECOND;
        }
        assert_true(s.promised > 50 && s.refused > s.promised);
        double passed = (double)(s.now_ns - START) / 1e9;
        /* What a full bucket has beside, and what the last ones took beyond the usual. */
        double most = ISOLATION_SHARE * passed + ISOLATION_SHARE * ISOLATION_WINDOW_S + 16 * (longest + 10);
        if (s.isolation.held_s > most)
            fail_msg("seed %u: held %g s of %g s, more than %g s", seed, s.isolation.held_s, passed, most);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_held_up_while_nobody_is_due),
        cmocka_unit_test(it_begins_when_all_are_through_and_none_begins_beside_it),
        cmocka_unit_test(whoever_leaves_early_gives_back_what_was_set_aside),
        cmocka_unit_test(whoever_was_put_back_becomes_due_again),
        cmocka_unit_test(endless_loops_do_not_stop_everything_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
