/* test_fair.c - the scheduler's core under a simulated clock, over many seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/queue/fair.h"

enum { SEEDS = 300, CLIENTS = 6, JOBS = 400, SLOTS = 4 };
#define LONGEST 4.0 /* seconds of a job */

struct job {
    struct fair_turn turn; /* first: a turn is its job */
    int client, number;
    double came, began, ends, takes;
    bool is_running, is_done, is_cancelled;
};

struct simulation {
    struct fair fair;
    struct fair_share shares[CLIENTS];
    double served[CLIENTS], now;
    struct job jobs[JOBS];
    int n_jobs, n_running, slots, may_run[CLIENTS], running[CLIENTS];
    uint64_t random;
};

static uint64_t
next_random(struct simulation *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

static double
uniform(struct simulation *s)
{
    return (double)(next_random(s) >> 11) / 9007199254740992.0;
}

static void
start(struct simulation *s, unsigned seed, int slots)
{
    memset(s, 0, sizeof(*s));
    s->random = 0x9e3779b97f4a7c15u * (seed + 1);
    s->slots = slots;
    for (int i = 0; i < CLIENTS; i++)
        s->may_run[i] = SLOTS;
}

static struct job *
add(struct simulation *s, int client, int urgency, double takes)
{
    struct job *j = &s->jobs[s->n_jobs];

    assert_true(s->n_jobs < JOBS);
    *j = (struct job){ .client = client, .number = s->n_jobs++, .came = s->now, .takes = takes };
    fair_add(&s->fair, &s->shares[client], &j->turn, urgency, false);
    return j;
}

static bool
may(void *arg, const struct fair_share *share)
{
    struct simulation *s = arg;
    ptrdiff_t client = share - s->shares;
    return s->running[client] < s->may_run[client];
}

/* Give away what is free. */
static void
give(struct simulation *s)
{
    struct fair_turn *t;

    while (s->n_running < s->slots && (t = fair_next(&s->fair, 3, may, s)) != NULL) {
        struct job *j = (struct job *)t;
        /* Within one client and urgency, in the order in which they came. */
        for (int i = 0; i < j->number; i++)
            assert_true(s->jobs[i].client != j->client || s->jobs[i].turn.urgency != j->turn.urgency ||
                        s->jobs[i].is_running || s->jobs[i].is_done || s->jobs[i].is_cancelled);
        fair_take(&s->fair, t);
        j->is_running = true;
        j->began = s->now;
        j->ends = s->now + j->takes;
        s->n_running++;
        s->running[j->client]++;
    }
    if (s->n_running < s->slots)
        assert_null(fair_next(&s->fair, 3, may, s));
}

/* To the next end. False: nothing runs. */
static bool
step(struct simulation *s)
{
    struct job *first = NULL;

    for (int i = 0; i < s->n_jobs; i++)
        if (s->jobs[i].is_running && (!first || s->jobs[i].ends < first->ends))
            first = &s->jobs[i];
    if (!first)
        return false;
    s->now = first->ends;
    first->is_running = false;
    first->is_done = true;
    s->n_running--;
    s->running[first->client]--;
    s->served[first->client] += first->takes;
    fair_done(&s->fair, &s->shares[first->client], &first->turn, first->takes);
    give(s);
    return true;
}

/* Clients that wait all along get the same time, whatever their jobs take and however many they send. */
static void
shares_are_equal_while_all_wait(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct simulation s;
        start(&s, seed, 1 + (int)(seed % SLOTS));
        int clients = 2 + (int)(seed % (CLIENTS - 1));
        int left[CLIENTS] = { 0 };
        for (int i = 0; i < JOBS; i++) {
            int client = (int)(next_random(&s) % (unsigned)clients);
            double most = client == 0 ? LONGEST : LONGEST / (1 + client);
            add(&s, client, FAIR_BATCH, 0.05 + (most - 0.05) * uniform(&s));
            left[client]++;
        }
        give(&s);
        for (bool is_waiting = true; is_waiting && step(&s);) {
            for (int a = 0; a < clients; a++)
                is_waiting &= s.shares[a].waiting > 0;
            for (int a = 0; is_waiting && a < clients; a++)
                for (int b = 0; b < a; b++)
                    assert_true(s.served[a] - s.served[b] < 2 * (s.slots + 1) * LONGEST &&
                                s.served[b] - s.served[a] < 2 * (s.slots + 1) * LONGEST);
        }
        while (step(&s))
            ;
        for (int i = 0; i < s.n_jobs; i++)
            assert_true(s.jobs[i].is_done);
        assert_int_equal(fair_waiting(&s.fair), 0);
        assert_null(s.fair.waiting);
    }
}

/* One that comes late waits for its turn among the clients, not for the queues of the others. */
static void
a_late_one_is_not_kept_waiting_and_owes_nothing(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct simulation s;
        start(&s, seed, 1);
        for (int i = 0; i < 120; i++)
            add(&s, 0, FAIR_BATCH, 0.1 + LONGEST * 0.9 * uniform(&s));
        give(&s);
        for (int i = 0; i < 30; i++)
            step(&s);
        struct job *late = add(&s, 1, FAIR_BATCH, 1);
        struct job *more[20];
        for (int i = 0; i < 20; i++)
            more[i] = add(&s, 1, FAIR_BATCH, 1);
        double before = s.served[0];
        while (!late->is_running && !late->is_done)
            assert_true(step(&s));
        assert_true(late->began - late->came <= 2 * LONGEST);
        while (!more[19]->is_done)
            assert_true(step(&s));
        /* It got half of the time, and not all of it to make up for what it never asked for. */
        assert_true(s.served[0] - before > 21 - 4 * LONGEST);
        assert_true(s.served[0] - before < 21 + 4 * LONGEST);
    }
}

/* Interactive ones wait for what runs, and for one of batch in nine; batch is never starved. */
static void
interactive_comes_first_and_batch_is_served(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct simulation s;
        int batch = 0, run = 0;
        start(&s, seed, 1);
        for (int i = 0; i < 40; i++)
            add(&s, 0, FAIR_BATCH, 1);
        give(&s);
        for (int i = 0; i < 300; i++) {
            while (s.fair.n[FAIR_INTERACTIVE] < 3 && s.n_jobs < JOBS)
                add(&s, 1 + (int)(next_random(&s) % 3), FAIR_INTERACTIVE, 0.5 + uniform(&s));
            bool both = s.fair.n[FAIR_INTERACTIVE] > 0 && s.fair.n[FAIR_BATCH] > 0;
            int64_t waited = s.fair.n[FAIR_BATCH];
            step(&s);
            if (!both)
                continue;
            bool is_batch = s.fair.n[FAIR_BATCH] < waited;
            run = is_batch ? 0 : run + 1;
            batch += is_batch;
            assert_true(run <= FAIR_BATCH_EVERY);
        }
        assert_in_range(batch, 300 / (FAIR_BATCH_EVERY + 1) - 1, 300 / (FAIR_BATCH_EVERY + 1) + 1);
    }
}

/* A client at its limit is passed over, and nobody else waits for it. */
static void
who_may_not_is_passed_over(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct simulation s;
        start(&s, seed, SLOTS);
        s.may_run[0] = 1;
        for (int i = 0; i < 60; i++)
            add(&s, 0, FAIR_INTERACTIVE, uniform(&s));
        for (int i = 0; i < 60; i++)
            add(&s, 1, FAIR_BATCH, uniform(&s));
        give(&s);
        while (step(&s)) {
            assert_true(s.running[0] <= 1);
            if (s.shares[1].waiting > 0)
                assert_int_equal(s.n_running, SLOTS);
        }
        for (int i = 0; i < s.n_jobs; i++)
            assert_true(s.jobs[i].is_done);
    }
}

/* Jobs that come, go back to the head, and are cancelled at random times: the counts are right all along. */
static void
counts_hold_through_cancelling_and_returning(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct simulation s;
        start(&s, seed, 2);
        for (int i = 0; i < 300; i++) {
            add(&s, (int)(next_random(&s) % CLIENTS), (int)(next_random(&s) % FAIR_URGENCIES), uniform(&s));
            struct job *j = &s.jobs[next_random(&s) % (unsigned)s.n_jobs];
            if (j->turn.share && next_random(&s) % 2) {
                fair_remove(&s.fair, &j->turn);
                j->is_cancelled = true;
            } else if (j->turn.share) {
                fair_remove(&s.fair, &j->turn);
                j->number = 0;
                fair_add(&s.fair, &s.shares[j->client], &j->turn, j->turn.urgency, true);
            }
            int64_t waiting[FAIR_URGENCIES] = { 0 };
            for (int k = 0; k < s.n_jobs; k++)
                if (s.jobs[k].turn.share)
                    waiting[s.jobs[k].turn.urgency]++;
            for (int k = 0; k < FAIR_URGENCIES; k++)
                assert_int_equal(s.fair.n[k], waiting[k]);
        }
        for (struct fair_turn *t; (t = fair_next(&s.fair, 3, NULL, NULL)) != NULL;)
            fair_take(&s.fair, t);
        assert_int_equal(fair_waiting(&s.fair), 0);
        assert_null(s.fair.waiting);
    }
}

static void
only_what_is_allowed_is_given(void **state)
{
    struct simulation s;

    (void)state;
    start(&s, 1, 1);
    struct job *batch = add(&s, 0, FAIR_BATCH, 1);
    assert_null(fair_next(&s.fair, 1u << FAIR_INTERACTIVE, NULL, NULL));
    assert_ptr_equal(fair_next(&s.fair, 1u << FAIR_BATCH, NULL, NULL), &batch->turn);
    struct job *interactive = add(&s, 0, FAIR_INTERACTIVE, 1);
    assert_ptr_equal(fair_next(&s.fair, 3, NULL, NULL), &interactive->turn);
    assert_ptr_equal(fair_next(&s.fair, 1u << FAIR_BATCH, NULL, NULL), &batch->turn);
}

static void
a_registration_goes_before_its_clients_other_turns_and_behind_earlier_ones(void **state)
{
    struct fair f = { .now = 0 };
    struct fair_share share = { .served = 0 };
    struct fair_turn waits = { .charged = 0 }, first = { .is_registration = true },
                     second = { .is_registration = true }, back = { .charged = 0 };
    struct fair_turn *const order[] = { &first, &second, &back, &waits };

    (void)state;
    fair_add(&f, &share, &waits, FAIR_BATCH, false);
    fair_add(&f, &share, &first, FAIR_BATCH, true);
    fair_add(&f, &share, &second, FAIR_BATCH, true);
    fair_add(&f, &share, &back, FAIR_BATCH, true);
    for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
        assert_ptr_equal(fair_next(&f, 3, NULL, NULL), order[i]);
        fair_take(&f, order[i]);
    }
    assert_null(fair_next(&f, 3, NULL, NULL));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_equal_while_all_wait),
        cmocka_unit_test(a_late_one_is_not_kept_waiting_and_owes_nothing),
        cmocka_unit_test(interactive_comes_first_and_batch_is_served),
        cmocka_unit_test(who_may_not_is_passed_over),
        cmocka_unit_test(counts_hold_through_cancelling_and_returning),
        cmocka_unit_test(only_what_is_allowed_is_given),
        cmocka_unit_test(a_registration_goes_before_its_clients_other_turns_and_behind_earlier_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
