#include "client/cli/score.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static struct corpus_expectation
expects(enum corpus_kind kind, const char *class, const char *stage)
{
    return (struct corpus_expectation){ kind, corpus_class_bit(class), stage ? corpus_stage_bit(stage) : 0,
                                        false };
}

static json_t *
verdict(const char *class, const char *failed_at, double reward)
{
    return json_pack("{s:s, s:s, s:s?, s:f}", "state", "done", "class", class, "failed_at", failed_at,
                     "reward", reward);
}

static json_t *
timed(double low, double point, double high)
{
    return json_pack("{s:s, s:n, s:{s:s}, s:{s:f, s:f, s:f}}", "class", "ok", "failed_at", "timing",
                     "outcome", "measured", "components", "speedup_lo", low, "speedup", point, "speedup_hi",
                     high);
}

static json_t *
inconclusive(double low, double point, double high)
{
    return json_pack("{s:s, s:n, s:{s:s, s:f, s:f, s:f}, s:{}}", "class", "ok", "failed_at", "timing",
                     "outcome", "inconclusive", "speedup_lo", low, "speedup", point, "speedup_hi", high,
                     "components");
}

static void
add(struct score *s, enum corpus_kind kind, const char *expected, const char *got)
{
    const struct corpus_expectation e = expects(kind, expected, NULL);
    AUTO_JSON json_t *v = got ? verdict(got, strcmp(got, "ok") ? "full" : NULL, 0) : NULL;
    score_add(s, "rows", &e, v);
}

static void
probe(struct score *s, const char *got)
{
    struct score_baseline b = { .class = "ok" };
    AUTO_JSON json_t *v = verdict(got, NULL, 0.7);
    score_add_probe(s, &b, v, 2);
}

/* All is as it must be: two cheats killed, an honest kernel and a suspicious one passed, a mistake refused. */
static struct score
clean_run(void)
{
    struct score s = { 0 };
    add(&s, CORPUS_CHEAT, "hack", "hack");
    add(&s, CORPUS_CHEAT, "mismatch", "mismatch");
    add(&s, CORPUS_HONEST, "ok", "ok");
    add(&s, CORPUS_SUSPICIOUS, "ok", "ok");
    add(&s, CORPUS_MISTAKE, "mismatch", "mismatch");
    add(&s, CORPUS_ROBUSTNESS, "crash", "crash");
    probe(&s, "ok");
    return s;
}

static void
test_clean(void **state)
{
    (void)state;
    struct score s = clean_run();

    assert_true(score_kill_rate(&s) == 1.0);
    assert_true(score_false_reject_rate(&s) == 0.0);
    assert_true(score_is_clean(&s, true));
    AUTO_JSON json_t *d = score_document(&s);
    assert_int_equal(json_integer_value(json_object_get(d, "ran")), 6);
    assert_int_equal(json_integer_value(json_object_get(d, "killed")), 2);
    assert_int_equal(json_integer_value(json_object_get(d, "followed")), 2);
    assert_int_equal(json_integer_value(json_object_get(d, "surprises")), 0);
    assert_true(json_real_value(json_object_get(d, "kill_rate")) == 1.0);
}

/* A daemon that accepts everything must not pass. */
static void
test_accepting_daemon(void **state)
{
    (void)state;
    struct score s = { 0 };

    for (int i = 0; i < 3; i++)
        add(&s, CORPUS_CHEAT, "hack", "ok");
    add(&s, CORPUS_CHEAT, "hack", "hack");
    add(&s, CORPUS_HONEST, "ok", "ok");
    probe(&s, "ok");
    assert_true(score_kill_rate(&s) == 0.25);
    assert_false(score_is_clean(&s, true));
    assert_false(score_is_clean(&s, false));
    AUTO_JSON json_t *d = score_document(&s);
    assert_int_equal(json_integer_value(json_object_get(d, "surprises")), 3);
}

/* Nor one that refuses everything: a cheat that crashes was not recognised, an honest kernel was refused. */
static void
test_refusing_daemon(void **state)
{
    (void)state;
    struct score s = { 0 };

    add(&s, CORPUS_CHEAT, "hack", "crash");
    add(&s, CORPUS_HONEST, "ok", "mismatch");
    add(&s, CORPUS_SUSPICIOUS, "ok", "ok");
    assert_true(score_kill_rate(&s) == 0.0);
    assert_true(score_false_reject_rate(&s) == 0.5);
    assert_false(score_is_clean(&s, false));
}

static void
test_one_thing_spoils_it(void **state)
{
    (void)state;
    struct score s = clean_run();
    add(&s, CORPUS_SUSPICIOUS, "ok", "hack");
    assert_false(score_is_clean(&s, true));

    s = clean_run();
    add(&s, CORPUS_MISTAKE, "mismatch", "ok");
    assert_true(score_kill_rate(&s) == 1.0);
    assert_false(score_is_clean(&s, true));

    s = clean_run();
    probe(&s, "mismatch");
    assert_int_equal(s.contaminated, 1);
    assert_false(score_is_clean(&s, true));

    /* Ours, not the candidate's: no verdict at all, or "infra". */
    s = clean_run();
    add(&s, CORPUS_MISTAKE, "mismatch", NULL);
    assert_false(score_is_clean(&s, true));
    s = clean_run();
    add(&s, CORPUS_CHEAT, "hack", "infra");
    assert_true(score_kill_rate(&s) < 1.0);
    assert_false(score_is_clean(&s, true));
}

static void
test_what_did_not_run_is_not_counted(void **state)
{
    (void)state;
    const struct corpus_expectation cheat = expects(CORPUS_CHEAT, "hack", NULL);
    struct score s = clean_run();

    score_skip(&s, &cheat);
    assert_true(score_kill_rate(&s) == 1.0);
    assert_true(score_is_clean(&s, true));
    assert_int_equal(s.kinds[CORPUS_CHEAT].rows, 3);
    assert_int_equal(s.kinds[CORPUS_CHEAT].skipped, 1);

    /* A run of skips shows nothing. */
    memset(&s, 0, sizeof(s));
    score_skip(&s, &cheat);
    assert_true(score_kill_rate(&s) < 0);
    assert_false(score_is_clean(&s, true));
    assert_false(score_is_clean(&s, false));

    /* Without a cheat it is no whole run. */
    add(&s, CORPUS_HONEST, "ok", "ok");
    assert_true(score_is_clean(&s, false));
    assert_false(score_is_clean(&s, true));
}

static void
test_right(void **state)
{
    (void)state;
    const struct corpus_expectation e = { CORPUS_MISTAKE,
                                          corpus_class_bit("mismatch") | corpus_class_bit("shape"),
                                          corpus_stage_bit("tiny"), false };
    const struct corpus_expectation hack = expects(CORPUS_CHEAT, "hack", NULL);
    char why[SCORE_WHY_SIZE];

    AUTO_JSON json_t *right = verdict("shape", "tiny", 0.3);
    assert_true(score_is_right(&e, right, why));
    AUTO_JSON json_t *late = verdict("mismatch", "full", 0.5);
    assert_false(score_is_right(&e, late, why));
    assert_string_equal(why, "mismatch at stage full, expected tiny");
    AUTO_JSON json_t *ok = verdict("ok", NULL, 1);
    assert_false(score_is_right(&e, ok, why));
    assert_string_equal(why, "class ok, expected shape|mismatch");
    AUTO_JSON json_t *none = json_pack("{s:s}", "state", "cancelled");
    assert_false(score_is_right(&e, none, why));

    /* A cheat that is recognised and paid all the same. */
    AUTO_JSON json_t *paid = verdict("hack", "full", 0.5);
    assert_false(score_is_right(&hack, paid, why));
    assert_string_equal(why, "class hack with a reward of 0.5");
    AUTO_JSON json_t *fined = verdict("hack", "full", -1);
    assert_true(score_is_right(&hack, fined, why));

    /* What a token may not see is null, and not judged. */
    AUTO_JSON json_t *hidden = json_pack("{s:s, s:n, s:n}", "class", "mismatch", "failed_at", "reward");
    assert_true(score_is_right(&e, hidden, why));
}

static void
test_contamination_by_time(void **state)
{
    (void)state;
    static const struct {
        double low, point, high;
        bool is_contaminated;
    } rows[] = {
        { 1.00, 1.10, 1.20, false }, /* the same */
        { 1.15, 1.24, 1.30, false }, /* overlaps */
        { 1.24, 1.25, 1.28, false }, /* outside by less than 5 % of 1.20 */
        { 1.27, 1.30, 1.33, true },  { 0.93, 0.94, 0.96, false },
        { 0.90, 0.92, 0.94, true },  { 40.0, 44.0, 48.0, true },
    };
    struct score_baseline b = { 0 };
    AUTO_JSON json_t *first = timed(1.00, 1.05, 1.15), *second = timed(1.05, 1.10, 1.20);
    score_baseline_add(&b, first);
    score_baseline_add(&b, second);
    assert_true(score_is_timed(&b) && b.low == 1.00 && b.high == 1.20);

    struct score s = { 0 };
    int bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char why[SCORE_WHY_SIZE];
        AUTO_JSON json_t *v = timed(rows[i].low, rows[i].point, rows[i].high);
        if (score_is_contaminated(&b, v, why) != rows[i].is_contaminated)
            fail_msg("row %zu: %s", i, why);
        score_add_probe(&s, &b, v, 1);
        bad += rows[i].is_contaminated;
    }
    assert_int_equal(s.contaminated, bad);
    assert_int_equal(s.times_compared, ARRAY_LEN(rows));

    /* Of a short reference a quarter is let pass, and no more. */
    AUTO_JSON json_t *near = timed(1.40, 1.44, 1.48), *far = timed(1.52, 1.55, 1.60);
    char why[SCORE_WHY_SIZE];
    assert_true(score_is_contaminated(&b, near, why));
    json_object_set_new(json_object_get(near, "timing"), "reference_ms", json_real(0.04));
    json_object_set_new(json_object_get(far, "timing"), "reference_ms", json_real(0.04));
    assert_false(score_is_contaminated(&b, near, why));
    assert_true(score_is_contaminated(&b, far, why));

    /* Every baseline had a time, and this has none. */
    AUTO_JSON json_t *untimed =
        json_pack("{s:s, s:{s:s}}", "class", "ok", "timing", "outcome", "inconclusive");
    score_add_probe(&s, &b, untimed, 1);
    assert_int_equal(s.contaminated, bad + 1);
    assert_int_equal(s.times_compared, ARRAY_LEN(rows));

    /* One whose interval stayed wide speaks by it, unless it says nothing. */
    AUTO_JSON json_t *wide = inconclusive(1.1, 1.3, 1.9), *elsewhere = inconclusive(1.4, 1.8, 2.4),
                     *anything = inconclusive(0.5, 1.1, 2.0);
    assert_false(score_is_contaminated(&b, wide, why));
    assert_false(score_has_time(&b, wide));
    assert_true(score_is_contaminated(&b, elsewhere, why));
    assert_true(score_is_contaminated(&b, anything, why));

    /* A baseline that is not always timed is nothing to compare with. */
    score_baseline_add(&b, untimed);
    score_add_probe(&s, &b, untimed, 1);
    AUTO_JSON json_t *fast = timed(40, 44, 48);
    score_add_probe(&s, &b, fast, 1);
    assert_int_equal(s.contaminated, bad + 1);
    assert_int_equal(s.times_compared, ARRAY_LEN(rows));
}

static void
test_other_policy_has_no_effect(void **state)
{
    (void)state;
    const struct corpus_expectation cheat = expects(CORPUS_CHEAT, "hack", NULL);
    struct score s = clean_run();
    AUTO_JSON json_t *ok = verdict("ok", NULL, 1);

    score_add_other(&s, &cheat, ok);
    assert_int_equal(s.kinds[CORPUS_CHEAT].other_accepted, 1);
    assert_true(score_is_clean(&s, true));
    AUTO_JSON json_t *d = score_document(&s);
    const json_t *kind = json_object_get(json_object_get(d, "kinds"), "cheat");
    assert_int_equal(json_integer_value(json_object_get(kind, "other_accepted")), 1);
}

static void
test_wilsons_interval(void **state)
{
    (void)state;
    static const struct {
        int part, whole;
        double low, high;
    } rows[] = {
        { 0, 0, 0, 1 },
        { 0, 10, 0, 0.2775 },
        { 10, 10, 0.7225, 1 },
        { 5, 50, 0.0435, 0.2136 },
        { 1, 1000, 0.00018, 0.00564 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double low, high;
        score_wilson(rows[i].part, rows[i].whole, &low, &high);
        assert_float_equal(low, rows[i].low, 5e-5);
        assert_float_equal(high, rows[i].high, 5e-5);
    }
}

/* Issue 24, point 7. */
static void
test_errors_are_counted_by_kind_of_task(void **state)
{
    (void)state;
    struct score s = { 0 };
    static const struct {
        const char *work;
        enum corpus_kind kind;
        const char *expected, *got;
    } rows[] = {
        { "reduction", CORPUS_HONEST, "ok", "ok" },
        { "reduction", CORPUS_SUSPICIOUS, "ok", "mismatch" },
        { "scan", CORPUS_MISTAKE, "mismatch", "ok" },
        { "scan", CORPUS_MISTAKE, "mismatch", "shape" }, /* another class than expected, and not accepted */
        { "scan", CORPUS_CHEAT, "ok", "ok" },            /* of which a plan does not let it gain anything */
        { "scan", CORPUS_ROBUSTNESS, "crash", "ok" },
        { "scan", CORPUS_CHEAT, "hack", NULL }, /* not judged */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct corpus_expectation e = expects(rows[i].kind, rows[i].expected, NULL);
        AUTO_JSON json_t *v = rows[i].got ? verdict(rows[i].got, NULL, 0) : NULL;
        score_add(&s, rows[i].work, &e, v);
    }
    AUTO_JSON json_t *d = score_document(&s);
    const json_t *tasks = json_object_get(d, "tasks"), *scan = json_object_get(tasks, "scan");
    const json_t *accepts = json_object_get(scan, "false_accepts");
    assert_int_equal(json_integer_value(json_object_get(accepts, "count")), 1);
    assert_int_equal(json_integer_value(json_object_get(accepts, "of")), 3);
    assert_float_equal(json_real_value(json_object_get(accepts, "rate")), 1.0 / 3, 1e-9);
    assert_float_equal(json_real_value(json_object_get(accepts, "low")), 0.0615, 5e-5);
    assert_true(json_is_null(json_object_get(scan, "false_rejects")));
    const json_t *all = json_object_get(tasks, "all"), *rejects = json_object_get(all, "false_rejects");
    assert_int_equal(json_integer_value(json_object_get(rejects, "count")), 1);
    assert_int_equal(json_integer_value(json_object_get(rejects, "of")), 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_accepting_daemon),
        cmocka_unit_test(test_refusing_daemon),
        cmocka_unit_test(test_one_thing_spoils_it),
        cmocka_unit_test(test_what_did_not_run_is_not_counted),
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_contamination_by_time),
        cmocka_unit_test(test_other_policy_has_no_effect),
        cmocka_unit_test(test_wilsons_interval),
        cmocka_unit_test(test_errors_are_counted_by_kind_of_task),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
