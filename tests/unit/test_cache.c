/* test_cache.c - by what stored verdicts are found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/hash.h"
#include "server/submission/reuse_keys.h"
#include "tests/unit/folder.h"

static void
test_every_file_that_judges_is_in_the_fingerprint(void **state)
{
    static const char *const files[] = { "harness/oracle/judge.py", "harness/compiler/errors.py",
                                         "harness/oracle/deep/timing.py", "libharness.so" };
    char harness[96], before[HASH_TEXT_SIZE], after[HASH_TEXT_SIZE];

    (void)state;
    snprintf(harness, sizeof(harness), "%s/harness", directory);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        put(files[i], "old");
    reuse_fingerprint(harness, before);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        put(files[i], "new");
        reuse_fingerprint(harness, after);
        if (strcmp(before, after) == 0)
            fail_msg("%s is not in the fingerprint", files[i]);
        put(files[i], "old");
        reuse_fingerprint(harness, after);
        assert_string_equal(before, after);
    }
}

static void
test_what_python_leaves_behind_is_not_in_the_fingerprint(void **state)
{
    char harness[96], before[HASH_TEXT_SIZE], after[HASH_TEXT_SIZE];

    (void)state;
    snprintf(harness, sizeof(harness), "%s/harness", directory);
    put("harness/compiler/errors.py", "text");
    reuse_fingerprint(harness, before);
    put("harness/compiler/__pycache__/errors.cpython-310.pyc", "compiled");
    reuse_fingerprint(harness, after);
    assert_string_equal(before, after);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_every_file_that_judges_is_in_the_fingerprint),
        IN_DIRECTORY(test_what_python_leaves_behind_is_not_in_the_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
