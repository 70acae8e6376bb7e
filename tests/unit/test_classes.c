#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/classes.h"

static void
every_class_is_found_by_its_name(void **state)
{
    (void)state;
    for (int i = CLASS_NONE + 1; i < CLASS_N; i++) {
        enum verdict_class class_ = (enum verdict_class)i;
        assert_int_equal(class_find(class_name(class_)), class_);
        assert_int_not_equal(class_info(class_)->stages, 0);
    }
    assert_null(class_name(CLASS_NONE));
    assert_int_equal(class_find(NULL), CLASS_NONE);
    assert_int_equal(class_find(""), CLASS_NONE);
    assert_int_equal(class_find("OK"), CLASS_NONE);
}

/* What a class is in the words of docs/rewards.md and docs/lifecycle.md. */
static void
each_class_is_what_the_documents_say(void **state)
{
    static const char *const cheats[] = { "policy", "hack" };
    static const char *const passing[] = { "timeout", "oom", "crash", "infra" };
    int n_cheats = 0, n_passing = 0;

    (void)state;
    for (int i = CLASS_NONE + 1; i < CLASS_N; i++) {
        const struct class_info *info = class_info((enum verdict_class)i);
        n_cheats += info->is_cheat;
        n_passing += !info->is_reusable;
        assert_int_equal(info->fault == FAULT_NOBODY, i == CLASS_OK);
        assert_int_equal(info->fault == FAULT_SERVICE, i == CLASS_INFRA);
        assert_false(info->is_cheat && info->is_retryable);
    }
    for (size_t i = 0; i < ARRAY_LEN(cheats); i++)
        assert_true(class_info(class_find(cheats[i]))->is_cheat);
    for (size_t i = 0; i < ARRAY_LEN(passing); i++)
        assert_false(class_info(class_find(passing[i]))->is_reusable);
    assert_int_equal(n_cheats, ARRAY_LEN(cheats));
    assert_int_equal(n_passing, ARRAY_LEN(passing));
}

/* A worker cannot excuse a candidate, nor fail it by what its stage does not look at. */
static void
a_report_is_believed_a_class_of_its_stage(void **state)
{
    (void)state;
    assert_int_equal(class_reported(CLASS_MISMATCH, STAGE_FULL, CLASS_CRASH), CLASS_MISMATCH);
    assert_int_equal(class_reported(CLASS_MISMATCH, STAGE_COMPILE, CLASS_IMPORT), CLASS_IMPORT);
    assert_int_equal(class_reported(CLASS_HACK, STAGE_AST, CLASS_SYNTAX), CLASS_SYNTAX);
    assert_int_equal(class_reported(CLASS_OK, STAGE_FULL, CLASS_CRASH), CLASS_CRASH);
    assert_int_equal(class_reported(CLASS_INFRA, STAGE_FULL, CLASS_CRASH), CLASS_CRASH);
    assert_int_equal(class_reported(CLASS_NONE, STAGE_FULL, CLASS_CRASH), CLASS_CRASH);
}

static void
every_stage_is_found_by_its_name(void **state)
{
    (void)state;
    for (int i = 0; i < STAGE_NSTAGES; i++)
        assert_int_equal(stage_find(stage_name((enum stage)i)), i);
    assert_string_equal(stage_name(STAGE_EXTRACT), "extract");
    assert_null(stage_name(STAGE_NONE));
    assert_int_equal(stage_find("extract"), STAGE_NONE);
    assert_int_equal(stage_find(NULL), STAGE_NONE);
    assert_int_equal(stage_find(""), STAGE_NONE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_is_found_by_its_name),
        cmocka_unit_test(each_class_is_what_the_documents_say),
        cmocka_unit_test(a_report_is_believed_a_class_of_its_stage),
        cmocka_unit_test(every_stage_is_found_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
