/* test_registry.c - who is found, and who has waited longest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/submission/registry.h"

static void
name(struct registry_entry *s, const char *id)
{
    snprintf(s->id, sizeof(s->id), "%s", id);
}

static void
a_submission_is_found_until_it_is_removed(void **state)
{
    struct registry *r = registry_new();
    struct registry_entry a = { 0 }, b = { 0 };

    (void)state;
    name(&a, "a");
    name(&b, "b");
    registry_add(r, &a);
    registry_add(r, &b);
    assert_ptr_equal(registry_find(r, "b"), &b);
    assert_null(registry_find(r, "c"));
    assert_ptr_equal(registry_first(r), &a);
    assert_ptr_equal(registry_after(&a), &b);
    registry_remove(r, &a);
    assert_null(registry_find(r, "a"));
    assert_ptr_equal(registry_first(r), &b);
    registry_remove(r, &b);
    free(r);
}

/* One that is removed while it waits is not what the status shows for ever. */
static void
the_oldest_is_the_one_that_began_to_wait_first_and_still_does(void **state)
{
    struct registry *r = registry_new();
    struct registry_entry a = { 0 }, b = { 0 }, c = { 0 };

    (void)state;
    name(&a, "a");
    name(&b, "b");
    name(&c, "c");
    registry_add(r, &a);
    registry_add(r, &b);
    registry_add(r, &c);
    assert_true(registry_oldest_s(r, REGISTRY_FOR_SLOT) < 0);
    registry_begin_wait(r, &a, REGISTRY_FOR_SLOT);
    registry_begin_wait(r, &b, REGISTRY_FOR_SLOT);
    registry_begin_wait(r, &c, REGISTRY_FOR_DEVICE);
    a.since_ns -= 60 * INT64_C(1000000000);
    assert_true(registry_oldest_s(r, REGISTRY_FOR_SLOT) >= 60);
    assert_true(registry_oldest_s(r, REGISTRY_FOR_DEVICE) >= 0 &&
                registry_oldest_s(r, REGISTRY_FOR_DEVICE) < 60);
    registry_begin_wait(r, &a, REGISTRY_FOR_SLOT); /* anew: it is the youngest now */
    assert_true(registry_oldest_s(r, REGISTRY_FOR_SLOT) < 60);
    registry_end_wait(r, &c);
    registry_end_wait(r, &c);
    assert_true(registry_oldest_s(r, REGISTRY_FOR_DEVICE) < 0);
    registry_remove(r, &a);
    registry_remove(r, &b);
    assert_true(registry_oldest_s(r, REGISTRY_FOR_SLOT) < 0);
    registry_remove(r, &c);
    free(r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_submission_is_found_until_it_is_removed),
        cmocka_unit_test(the_oldest_is_the_one_that_began_to_wait_first_and_still_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
