/* test_alone.c - who has the house to himself, under a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/queue/alone.h"

#define SECOND 1000000000LL
#define START (1000 * SECOND) /* of the clock: not at nought */

static void
nobody_is_held_up_while_nobody_is_due(void **state)
{
    struct alone a = { 0 };
    struct alone_turn t = { 0 };

    (void)state;
    assert_true(alone_may_begin(&a, NULL, 0));
    assert_true(alone_may_begin(&a, NULL, 5));
    assert_true(alone_promise(&a, &t, START));
    /* Promised is not due: it waits for its turn like all others. */
    assert_true(alone_may_begin(&a, NULL, 5));
    assert_false(alone_may_begin(&a, &t, 0));
}

static void
it_begins_when_all_are_through_and_none_begins_beside_it(void **state)
{
    struct alone a = { 0 };
    struct alone_turn t = { 0 }, other = { 0 };

    (void)state;
    assert_true(alone_promise(&a, &t, START));
    assert_true(alone_promise(&a, &other, START));
    alone_becomes_due(&a, &t, START);
    alone_becomes_due(&a, &other, START); /* one after the other */
    assert_ptr_equal(a.due, &t);
    assert_false(alone_may_begin(&a, NULL, 0));
    assert_false(alone_may_begin(&a, &other, 0));
    assert_false(alone_may_begin(&a, &t, 1));
    assert_true(alone_may_begin(&a, &t, 0));
    alone_begin(&a, &t);
    alone_becomes_due(&a, &other, START + SECOND);
    assert_null(a.due);
    assert_false(alone_may_begin(&a, NULL, 0));
    assert_false(alone_may_begin(&a, &other, 0));
    assert_false(alone_may_begin(&a, &t, 0));
    alone_end(&a, &t, START + 3 * SECOND);
    assert_true(alone_may_begin(&a, NULL, 0));
    alone_becomes_due(&a, &other, START + 3 * SECOND);
    assert_true(alone_may_begin(&a, &other, 0));
}

/* Cancelled while it is due, or before: nobody waits for it, and it has cost what others waited. */
static void
whoever_leaves_early_gives_back_what_was_set_aside(void **state)
{
    struct alone a = { 0 };
    struct alone_turn t = { 0 };

    (void)state;
    assert_true(alone_promise(&a, &t, START));
    double before = a.left_s;
    alone_end(&a, &t, START);
    assert_true(a.left_s > before + ALONE_USUAL_S - 0.001 && a.held_s < 0.001);
    assert_true(alone_promise(&a, &t, START));
    alone_becomes_due(&a, &t, START);
    alone_end(&a, &t, START + 4 * SECOND);
    assert_true(alone_may_begin(&a, NULL, 9));
    assert_true(a.held_s > 3.999 && a.held_s < 4.001);
    before = a.left_s;
    alone_end(&a, &t, START + 50 * SECOND); /* it is nothing any more */
    assert_true(a.left_s <= before + 0.001 && a.left_s >= before - 0.001);
}

/* One that was put back while it ran, since a worker was lost, may be judged alone again. */
static void
whoever_was_put_back_becomes_due_again(void **state)
{
    struct alone a = { 0 };
    struct alone_turn t = { 0 };

    (void)state;
    assert_true(alone_promise(&a, &t, START));
    for (int i = 0; i < 3; i++) {
        alone_becomes_due(&a, &t, START + i * 10 * SECOND);
        assert_true(alone_may_begin(&a, &t, 0));
        alone_begin(&a, &t);
        alone_end(&a, &t, START + (i * 10 + 5) * SECOND);
        assert_null(a.holder);
    }
    assert_true(a.held_s > 14.999 && a.held_s < 15.001);
}

struct simulation {
    struct alone house;
    struct alone_turn turns[4096];
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
endless_loops_do_not_stop_the_house(void **state)
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
                if (alone_promise(&s.house, &s.turns[n], s.now_ns)) {
                    s.promised++;
                    n++;
                } else {
                    s.refused++;
                }
            }
            for (; first < n; first++) {
                alone_becomes_due(&s.house, &s.turns[first], s.now_ns);
                s.now_ns += (int64_t)(uniform(&s) * 10 * (double)SECOND); /* until all that runs is through */
                assert_true(alone_may_begin(&s.house, &s.turns[first], 0));
                alone_begin(&s.house, &s.turns[first]);
                s.now_ns += (int64_t)((longest / 2 + uniform(&s) * longest / 2) * (double)SECOND);
                alone_end(&s.house, &s.turns[first], s.now_ns);
            }
            s.now_ns += 10 * SECOND;
        }
        assert_true(s.promised > 50 && s.refused > s.promised);
        double passed = (double)(s.now_ns - START) / 1e9;
        /* What a full bucket has beside, and what the last ones took beyond the usual. */
        double most = ALONE_SHARE * passed + ALONE_SHARE * ALONE_WINDOW_S + 16 * (longest + 10);
        if (s.house.held_s > most)
            fail_msg("seed %u: held %g s of %g s, more than %g s", seed, s.house.held_s, passed, most);
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
        cmocka_unit_test(endless_loops_do_not_stop_the_house),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
