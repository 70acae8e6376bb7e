/* test_norm.c - a canary's norm, and when it is due, under a simulated clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/auto.h"
#include "server/workers/norm.h"

#define START_MS (INT64_C(1700000100) * 1000)
#define USUAL 323000

/* A GPU under a clock of our own. */
struct gpu {
    struct norm norm;
    int64_t now_ms;
};

static struct gpu
gpu_new(void)
{
    return (struct gpu){ .now_ms = START_MS };
}

static enum norm_finding
sing(struct gpu *g, int64_t after_s, double ns)
{
    g->now_ms += after_s * 1000;
    return norm_note(&g->norm, g->now_ms, (int64_t)ns, true);
}

/* The usual canary n times, five minutes apart. */
static void
sing_usually(struct gpu *g, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(sing(g, 300, USUAL + i % 3), NORM_STEADY);
}

static void
what_is_not_known_has_no_drift(void **state)
{
    struct norm none = { 0 };

    (void)state;
    assert_int_equal(norm_ns(&none), 0);
    assert_true(isnan(norm_drift(&none, USUAL)));
}

static void
the_norm_is_the_median_of_the_first(void **state)
{
    struct gpu g = gpu_new();
    const int64_t first[NORM_SAMPLES] = { 104, 100, 101, 99, 100, 103, 98, 100, 102 };

    (void)state;
    for (int i = 0; i < NORM_SAMPLES; i++)
        assert_int_equal(sing(&g, 300, (double)first[i] * 1000), NORM_STEADY);
    assert_int_equal(norm_ns(&g.norm), 100000);
    assert_int_equal(g.norm.since_ms, START_MS + 300 * 1000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sing(&g, 300, 104000), NORM_STEADY);
    assert_int_equal(norm_ns(&g.norm), 100000);
}

/* No step is a drift over the one before it; the sum is one over the norm. */
static void
a_gpu_that_slows_down_over_hours_is_found(void **state)
{
    struct gpu g = gpu_new();
    double ns = USUAL;
    int steps = 0;

    (void)state;
    sing_usually(&g, NORM_SAMPLES);
    while (sing(&g, 300, ns) == NORM_STEADY) {
        ns *= 1.001;
        assert_in_range(++steps, 1, 60);
    }
    assert_int_equal(steps, 49); /* 1.001^49 is the first above 1.05 */
    assert_int_equal(norm_ns(&g.norm), USUAL + 1);
}

static void
slow_ones_teach_nothing(void **state)
{
    struct gpu g = gpu_new();

    (void)state;
    sing_usually(&g, 2);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sing(&g, 300, USUAL * 1.2), NORM_SLOWER);
    assert_int_equal(g.norm.n_samples, 2);
    assert_int_equal(sing(&g, 300, USUAL), NORM_STEADY);
}

/* First seen while it was throttled, say. */
static void
a_faster_one_begins_the_norm_anew(void **state)
{
    struct gpu g = gpu_new();

    (void)state;
    for (int i = 0; i < NORM_SAMPLES; i++)
        assert_int_equal(sing(&g, 300, USUAL * 1.5), NORM_STEADY);
    assert_int_equal(sing(&g, 300, USUAL), NORM_FASTER);
    assert_int_equal(norm_ns(&g.norm), USUAL);
    assert_int_equal(g.norm.since_ms, g.now_ms);
    assert_int_equal(sing(&g, 300, USUAL), NORM_STEADY);
    assert_int_equal(sing(&g, 300, USUAL * 1.5), NORM_SLOWER);
}

/* Its answer was wrong, or its referee found it off. */
static void
one_that_failed_otherwise_teaches_nothing(void **state)
{
    struct gpu g = gpu_new();

    (void)state;
    sing_usually(&g, NORM_SAMPLES);
    assert_int_equal(norm_note(&g.norm, g.now_ms, USUAL / 2, false), NORM_STEADY);
    assert_int_equal(norm_note(&g.norm, g.now_ms, USUAL * 2, false), NORM_SLOWER);
    assert_int_equal(norm_ns(&g.norm), USUAL + 1);
}

static void
bounds_of_a_drift(void **state)
{
    static const struct {
        double factor;
        enum norm_finding finding;
    } rows[] = {
        { 1.049, NORM_STEADY }, { 1.051, NORM_SLOWER }, { 0.951, NORM_STEADY }, { 0.949, NORM_FASTER }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gpu g = gpu_new();
        for (int k = 0; k < NORM_SAMPLES; k++)
            sing(&g, 300, 1e6);
        assert_true(fabs(norm_drift(&g.norm, (int64_t)(1e6 * rows[i].factor)) - (rows[i].factor - 1)) < 1e-5);
        assert_int_equal(sing(&g, 300, 1e6 * rows[i].factor), rows[i].finding);
    }
}

static void
a_clock_that_is_set_back_spoils_nothing(void **state)
{
    struct gpu g = gpu_new();

    (void)state;
    sing_usually(&g, NORM_SAMPLES);
    assert_int_equal(sing(&g, -86400, USUAL), NORM_STEADY);
    assert_int_equal(sing(&g, -86400, USUAL * 1.2), NORM_SLOWER);
}

static void
what_is_written_is_read_again(void **state)
{
    struct gpu g = gpu_new();
    struct norm again;

    (void)state;
    sing_usually(&g, NORM_SAMPLES + 5);
    AUTO_JSON json_t *document = norm_json(&g.norm);
    assert_int_equal(json_integer_value(json_object_get(document, "norm_ns")), norm_ns(&g.norm));
    assert_true(norm_read(document, &again));
    assert_memory_equal(&again, &g.norm, sizeof(again));
    /* A restart: the slow time is not the norm of whoever begins now. */
    assert_int_equal(norm_note(&again, g.now_ms, USUAL * 2, true), NORM_SLOWER);
}

/* Versions before this one kept a history beside the norm. */
static void
an_older_version_s_norm_is_read(void **state)
{
    AUTO_JSON json_t *document = json_loads(
        "{\"norm_ns\":7,\"samples\":[7],\"since_ms\":1,\"history\":[{\"start_s\":0,\"n\":1}]}", 0, NULL);
    struct norm read;

    (void)state;
    assert_true(norm_read(document, &read));
    assert_int_equal(norm_ns(&read), 7);
}

static void
what_is_no_norm_is_refused(void **state)
{
    static const char *const documents[] = {
        "[]",
        "{}",
        "{\"samples\":[]}",
        "{\"since_ms\":1}",
        "{\"samples\":[0],\"since_ms\":1}",
        "{\"samples\":[\"1\"],\"since_ms\":1}",
        "{\"samples\":[1000000000001],\"since_ms\":1}",
        "{\"samples\":[1,1,1,1,1,1,1,1,1,1],\"since_ms\":1}",
        "{\"samples\":[1],\"since_ms\":-1}",
    };
    struct norm read;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        AUTO_JSON json_t *document = json_loads(documents[i], 0, NULL);
        assert_non_null(document);
        assert_false(norm_read(document, &read));
        assert_int_equal(read.n_samples, 0);
    }
}

static void
when_one_is_due(void **state)
{
    const int64_t s = 1000000000, now = 12345 * s;

    (void)state;
    assert_int_equal(norm_due_ms(0, 300, now), 0);
    assert_int_equal(norm_due_ms(now, 300, now), 300000);
    assert_int_equal(norm_due_ms(now - 1, 300, now), 300000); /* a timer of it is not early */
    assert_int_equal(norm_due_ms(now - 299 * s, 300, now), 1000);
    assert_int_equal(norm_due_ms(now - 300 * s, 300, now), 0);
    assert_int_equal(norm_due_ms(now - 301 * s, 300, now), 0);
    assert_int_equal(norm_due_ms(now - 86400 * s, 86400, now + 5 * s), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_has_no_drift),
        cmocka_unit_test(the_norm_is_the_median_of_the_first),
        cmocka_unit_test(a_gpu_that_slows_down_over_hours_is_found),
        cmocka_unit_test(slow_ones_teach_nothing),
        cmocka_unit_test(a_faster_one_begins_the_norm_anew),
        cmocka_unit_test(one_that_failed_otherwise_teaches_nothing),
        cmocka_unit_test(bounds_of_a_drift),
        cmocka_unit_test(a_clock_that_is_set_back_spoils_nothing),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(an_older_version_s_norm_is_read),
        cmocka_unit_test(what_is_no_norm_is_refused),
        cmocka_unit_test(when_one_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
