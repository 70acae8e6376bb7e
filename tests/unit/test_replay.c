/* test_replay.c - two verdicts side by side: what has to be the same, what may differ, and where machines decide. */
#include "client/cli/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

#define VERDICT                                                                                              \
    "{'id':'a','class':'ok','stage':'timing','task':'sha256:1','reward':0.9,'flags':['truncated'],"          \
    "'components':{'correct':1,'timed':1,'speedup':1.5,'speedup_lo':1.4,'speedup_hi':1.6,'valid':1},"        \
    "'correctness':{'cases':5,'max_abs':1e-7},'timing':{'outcome':'measured','candidate_ms':1.5},"           \
    "'stages':[{'stage':'ast','outcome':'pass','run_ms':1.5},{'stage':'full','outcome':'pass','run_ms':2}]," \
    "'kernels':[{'name':'k','registers':20,'hash':'x'}],"                                                    \
    "'env':{'gpu':'H200','driver':'570','torch':'2.13','triton':'3.6'},'created':'now'}"

static json_t *
parsed(const char *text)
{
    AUTO_FREE char *json = strdup(text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *out = json_loads(json, 0, NULL);
    assert_non_null(out);
    return out;
}

static json_t *
changed(const char *change)
{
    json_t *out = parsed(VERDICT);
    AUTO_JSON json_t *patch = parsed(change);
    assert_int_equal(json_object_update_recursive(out, patch), 0);
    return out;
}

static bool
is_in(json_t *list, const char *field)
{
    json_t *row;
    size_t i;
    json_array_foreach(list, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "field")), field) == 0)
            return true;
    }
    return false;
}

static void
what_must_be_the_same_and_what_may_differ(void **state)
{
    static const struct {
        const char *change, *field;
        bool may;
    } rows[] = {
        { "{'class':'mismatch'}", "class", false },
        { "{'class':null}", "class", false },
        { "{'task':'sha256:2'}", "task", false },
        { "{'nobody_knows':1}", "nobody_knows", false },
        { "{'id':'b'}", "id", true },
        { "{'created':'later'}", "created", true },
        { "{'timing':{'candidate_ms':9}}", "timing/candidate_ms", true },
        { "{'timing':{'outcome':'inconclusive'}}", "timing/outcome", false },
        { "{'stage':'full'}", "stage", false },
        { "{'flags':['truncated','throttled']}", "flags", false },
        { "{'flags':[]}", "flags", false },
        { "{'components':{'correct':0}}", "components/correct", false },
        { "{'components':{'valid':0}}", "components/valid", false },
        { "{'correctness':{'cases':4}}", "correctness/cases", false },
        { "{'correctness':{'max_abs':2e-7}}", "correctness/max_abs", false },
        { "{'stages':[{'stage':'ast','outcome':'pass','run_ms':7},{'stage':'full','outcome':'pass','run_ms':"
          "2}]}",
          "stages/0/run_ms", true },
        { "{'stages':[{'stage':'ast','outcome':'pass','run_ms':1.5},{'stage':'full','outcome':'fail','run_ms'"
          ":2}]}",
          "stages/1/outcome", false },
        { "{'stages':[{'stage':'ast','outcome':'pass','run_ms':1.5}]}", "stages/1", false },
        { "{'kernels':[{'name':'k','registers':21,'hash':'x'}]}", "kernels/0/registers", false },
        { "{'kernels':[{'name':'k','registers':20,'hash':'y'}]}", "kernels/0/hash", true },
        /* Intervals that meet, and such as do not. */
        { "{'components':{'speedup':1.58,'speedup_lo':1.55,'speedup_hi':1.61}}", "components/speedup", true },
        { "{'components':{'speedup':1.8,'speedup_lo':1.7,'speedup_hi':1.9}}", "components/speedup", false },
        { "{'reward':0.95,'components':{'speedup':1.8,'speedup_lo':1.7,'speedup_hi':1.9}}", "reward", false },
        { "{'reward':0.95}", "reward", true },
        { "{'reward':0.7,'components':{'timed':0,'speedup':null}}", "reward", false },
    };
    AUTO_JSON json_t *bundle = parsed(VERDICT);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON json_t *here = changed(rows[i].change);
        AUTO_JSON json_t *result = replay_compare(bundle, here);
        AUTO_JSON json_t *back = replay_compare(here, bundle);
        const char *list = rows[i].may ? "may_differ" : "differ";
        if (!is_in(json_object_get(result, list), rows[i].field) ||
            !is_in(json_object_get(back, list), rows[i].field))
            fail_msg("%s: %s is not in \"%s\"", rows[i].change, rows[i].field, list);
        if (json_is_true(json_object_get(result, "same")) != rows[i].may)
            fail_msg("%s: same is wrong", rows[i].change);
    }
}

static void
what_is_the_same(void **state)
{
    static const char *const changes[] = {
        "{}",
        "{'flags':['replay','truncated']}",
        "{'reward':0.9000000001}",
        "{'correctness':{'max_abs':1.00000000001e-7}}",
        "{'rule':null}",
    };
    AUTO_JSON json_t *bundle = parsed(VERDICT);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        AUTO_JSON json_t *here = changed(changes[i]);
        AUTO_JSON json_t *result = replay_compare(bundle, here);
        assert_true(json_is_true(json_object_get(result, "same")));
        assert_int_equal(json_array_size(json_object_get(result, "may_differ")), 0);
        assert_true(json_integer_value(json_object_get(result, "fields")) > 20);
    }
}

static void
another_machine_may_see_more(void **state)
{
    static const char *const machines[] = { "{'env':{'gpu':null}}", "{'env':{'gpu':'B200'}}",
                                            "{'env':{'triton':'4'}}", "{'env':{'driver':null}}" };
    AUTO_JSON json_t *bundle = parsed(VERDICT);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        AUTO_JSON json_t *here =
            changed("{'stage':'full','reward':0.7,'timing':{'outcome':'skipped'},"
                    "'components':{'timed':0,'speedup':null},'correctness':{'max_abs':3e-7}}");
        AUTO_JSON json_t *machine = parsed(machines[i]);
        json_object_update_recursive(here, machine);
        AUTO_JSON json_t *result = replay_compare(bundle, here);
        assert_string_equal(json_string_value(json_object_get(result, "machines")), "differ");
        assert_true(json_is_true(json_object_get(result, "same")));
        assert_true(is_in(json_object_get(result, "may_differ"), "reward"));
        json_object_set_new(here, "class", json_string("mismatch"));
        AUTO_JSON json_t *worse = replay_compare(bundle, here);
        assert_false(json_is_true(json_object_get(worse, "same")));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_must_be_the_same_and_what_may_differ),
        cmocka_unit_test(what_is_the_same),
        cmocka_unit_test(another_machine_may_see_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
