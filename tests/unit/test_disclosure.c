/* test_disclosure.c - what a submitter is told: every class, every field, and nothing that was not decided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/policy.h"
#include "common/stages.h"
#include "server/submission/attempt.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/disclosure.h"
#include "server/verdict/verdict.h"

/* In every place that could carry something of the detector's. */
#define SECRET "decoy_detector_37"

static json_t *
detail(void)
{
    return json_pack("{s:[{s:s, s:s}], s:i, s:f, s:i, s:i, s:{s:s, s:f}}", "cases", "name", "original",
                     "note", SECRET, "passed", 1, "max_abs", 0.25, "peak_bytes", 1, "reference_peak_bytes", 1,
                     "first_mismatch", "case", SECRET, "got", 1.5);
}

/* A verdict with something in every field. Given. */
static json_t *
verdict_of(const char *class_, const char *rule, enum state state)
{
    struct submission s = { .state = state, .attempts = 2, .cache = "miss" };
    struct attempt j = { .passed = STAGE_FULL, .stage = STAGE_TIMING, .failed_stage = -1, .until = -1 };
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;

    s.attempt = &j;
    j.reward = standard;
    assert_int_equal(policy_find("strict", &j.policy), 0);
    j.row.created_ms = j.row.finished_ms = 1700000000000;
    j.row.client = strdup("someone");
    for (int i = 0; i < STAGE_NSTAGES; i++)
        j.stages[i] = (struct stage_record){ .outcome = OUTCOME_PASS, .done = 1, .of = 1, .run_ms = 1 };
    j.flags = json_pack("[s, s]", "truncated", SECRET);
    j.request = json_pack("{s:s, s:s, s:{s:s}}", "seed", "00000000000000ff", "entry_point", "ModelNew",
                          "metadata", "prompt", "p1");
    j.tiny = detail();
    j.full = detail();
    j.timing =
        json_pack("{s:s, s:s, s:[f, f, f], s:[f, f, f], s:{s:s}}", "outcome", "measured", "why", SECRET,
                  "reference_ns", 3e6, 3e6, 3e6, "candidate_ns", 1e6, 1e6, 1e6, "clocks", "state", SECRET);
    j.env = json_pack("{s:s, s:s}", "gpu", SECRET, "torch", "2");
    j.compiled = json_pack("[{s:s}]", "name", SECRET);
    j.generality = strdup(SECRET);
    if (strcmp(class_, "ok") != 0) {
        AUTO_JSON json_t *error = json_pack("{s:s, s:s}", "type", SECRET, "text", SECRET);
        attempt_fail(&j, STAGE_TIMING, class_find(class_), error, "timing: %s", SECRET);
        if (rule)
            snprintf(j.rule, sizeof(j.rule), "%s", rule);
    }
    json_t *out = verdict_json(&s);
    json_t *const owned[] = { j.flags, j.request, j.tiny, j.full, j.timing, j.env, j.compiled, j.error };
    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        json_decref(owned[i]);
    free(j.generality);
    free(j.row.client);
    assert_non_null(out);
    json_object_set_new(out, "evidence", json_pack("{s:s}", "decoys", SECRET)); /* of an earlier version */
    return out;
}

static bool
has_secret(json_t *document)
{
    AUTO_FREE char *text = json_dumps(document, JSON_ENCODE_ANY);
    assert_non_null(text);
    return strstr(text, SECRET) != NULL;
}

/* What may stand in the view of one that was refused, or is not finished; all else is null. */
static bool
is_neutral(const char *field)
{
    static const char *const neutral[] = { "id",          "group",        "group_index", "task",
                                           "task_name",   "state",        "class",       "reward",
                                           "reward_spec", "reward_parts", "policy",      "policy_on",
                                           "until",       "entry_point",  "source",      "client",
                                           "priority",    "metadata",     "cache",       "cached_from",
                                           "created",     "finished",     "feedback",    "cancel_reason" };
    for (size_t i = 0; i < ARRAY_LEN(neutral); i++)
        if (strcmp(neutral[i], field) == 0)
            return true;
    return false;
}

static void
every_field_is_classified(void **state)
{
    const char *field;
    json_t *value;

    (void)state;
    AUTO_JSON json_t *verdict = verdict_of("hack", SECRET, STATE_DONE);
    json_object_foreach(verdict, field, value) if (!disclosure_is_classified(field)) fail_msg(
        "\"%s\" is in the verdict, and server/verdict/disclosure.c does not say who is told of it", field);
    /* One that nobody thought of is told to nobody. */
    json_object_set_new(verdict, "new_evidence", json_string(SECRET));
    AUTO_JSON json_t *view = disclosure_view(verdict);
    assert_null(json_object_get(view, "new_evidence"));
    AUTO_JSON json_t *honest = verdict_of("ok", NULL, STATE_DONE);
    json_object_set_new(honest, "new_evidence", json_string(SECRET));
    AUTO_JSON json_t *open = disclosure_view(honest);
    assert_null(json_object_get(open, "new_evidence"));
}

static void
check_neutral(json_t *verdict, json_t *view)
{
    const char *field;
    json_t *value;

    assert_int_equal(json_object_size(view), json_object_size(verdict)); /* the same keys */
    json_object_foreach(view, field, value)
    {
        if (!is_neutral(field) && !json_is_null(value))
            fail_msg("\"%s\" is told", field);
    }
    assert_false(has_secret(view));
}

static void
a_refused_one_learns_the_class_and_the_reward(void **state)
{
    static const struct {
        const char *class_, *rule;
    } refused[] = { { "hack", SECRET },   { "hack", NULL },
                    { "policy", SECRET }, { "policy", "import ctypes" },
                    { "policy", NULL },   { "hack", "entry_class" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        AUTO_JSON json_t *verdict = verdict_of(refused[i].class_, refused[i].rule, STATE_DONE);
        assert_true(has_secret(verdict));
        assert_true(disclosure_is_refused(verdict));
        AUTO_JSON json_t *view = disclosure_view(verdict);
        check_neutral(verdict, view);
        assert_string_equal(json_string_value(json_object_get(view, "class")), refused[i].class_);
        assert_true(json_number_value(json_object_get(view, "reward")) == 0);
        AUTO_JSON json_t *feedback =
            json_pack("{s:s, s:s}", "class", refused[i].class_, "text", DISCLOSURE_REFUSED);
        assert_true(json_equal(json_object_get(view, "feedback"), feedback));
    }
}

/* Two cheats that were found in different ways look the same. */
static void
refusals_cannot_be_told_apart(void **state)
{
    (void)state;
    AUTO_JSON json_t *one = verdict_of("hack", "idle_kernels", STATE_DONE);
    AUTO_JSON json_t *other = verdict_of("hack", "impossible_time", STATE_DONE);
    json_object_set_new(other, "stages", json_array());
    json_object_set_new(other, "attempts", json_integer(3));
    json_object_set_new(other, "failed_at", json_string("ast"));
    AUTO_JSON json_t *view = disclosure_view(one);
    AUTO_JSON json_t *other_view = disclosure_view(other);
    assert_true(json_equal(view, other_view));
}

/* Whoever looks again and again must not see how far a candidate came before it was refused. */
static void
an_unfinished_one_shows_its_state_alone(void **state)
{
    static const enum state states[] = { STATE_QUEUED, STATE_AST, STATE_FULL, STATE_TIMING, STATE_CANCELLED };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        for (int is_hack = 0; is_hack < 2; is_hack++) {
            AUTO_JSON json_t *verdict = verdict_of(is_hack ? "hack" : "ok", NULL, states[i]);
            AUTO_JSON json_t *view = disclosure_view(verdict);
            check_neutral(verdict, view);
            assert_true(json_is_null(json_object_get(view, "class")));
            assert_true(json_is_null(json_object_get(view, "reward")));
        }
    }
}

static void
an_honest_one_is_told_all_but_suspicions(void **state)
{
    (void)state;
    for (int i = CLASS_NONE + 1; i < CLASS_N; i++) {
        const char *rule = i == CLASS_FORM     ? "kernel_required"
                           : i == CLASS_POLICY ? "foreign_operator"
                                               : NULL;
        AUTO_JSON json_t *verdict = verdict_of(class_name((enum verdict_class)i), rule, STATE_DONE);
        bool is_hack = i == CLASS_HACK;
        assert_int_equal(disclosure_is_refused(verdict), is_hack);
        if (is_hack)
            continue;
        AUTO_JSON json_t *view = disclosure_view(verdict);
        AUTO_JSON json_t *flags = json_pack("[s]", "truncated");
        assert_true(json_equal(json_object_get(view, "flags"), flags));
        json_object_set(view, "flags", json_object_get(verdict, "flags"));
        assert_true(json_is_null(json_object_get(view, "evidence")));
        json_object_set(view, "evidence", json_object_get(verdict, "evidence"));
        assert_true(json_equal(view, verdict));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_classified),
        cmocka_unit_test(a_refused_one_learns_the_class_and_the_reward),
        cmocka_unit_test(refusals_cannot_be_told_apart),
        cmocka_unit_test(an_unfinished_one_shows_its_state_alone),
        cmocka_unit_test(an_honest_one_is_told_all_but_suspicions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
