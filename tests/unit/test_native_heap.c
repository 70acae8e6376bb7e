#include "server/harness/native/heap.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT 512
#define UNITS 64

/* The heap never touches its memory, so any address will do that is not 0. */
#define BASE 0x70000000ULL

static void *
take(ssize_t size)
{
    return harness_arena_malloc(size, 0, NULL);
}

static void
give(void *at)
{
    harness_arena_free(at, 0, 0, NULL);
}

static int
fresh_heap(void **state)
{
    (void)state;
    return harness_heap_set(BASE, UNITS * UNIT);
}

static int
nothing_left(void **state)
{
    (void)state;
    return harness_heap_used() == 0 ? 0 : -1;
}

static void
blocks_are_aligned_and_follow_each_other(void **state)
{
    char *a = take(1), *b = take(UNIT + 1), *c = take(0);
    (void)state;

    assert_ptr_equal(a, (void *)BASE);
    assert_ptr_equal(b, a + UNIT);
    assert_ptr_equal(c, b + 2 * UNIT);
    assert_int_equal(harness_heap_used(), 4 * UNIT);
    give(a);
    give(b);
    give(c);
}

static void
the_first_hole_that_fits_is_used_again(void **state)
{
    char *a = take(UNIT), *b = take(3 * UNIT), *c = take(UNIT);
    (void)state;

    give(b);
    assert_ptr_equal(take(2 * UNIT), b);
    assert_ptr_equal(take(2 * UNIT), c + UNIT); /* one unit is left of the hole: too little */
    assert_ptr_equal(take(UNIT), b + 2 * UNIT);
    give(b);
    give(b + 2 * UNIT);
    give(c + UNIT);
    give(a);
    give(c);
}

static void
neighbours_are_joined_in_every_order(void **state)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    (void)state;

    for (int i = 0; i < 6; i++) {
        void *at[3], *whole;
        for (int k = 0; k < 3; k++)
            at[k] = take(UNITS / 4 * UNIT);
        for (int k = 0; k < 3; k++)
            give(at[orders[i][k]]);
        whole = take(UNITS * UNIT);
        assert_ptr_equal(whole, (void *)BASE);
        give(whole);
    }
}

/* No driver here, which else serves what the heap cannot. */
static void
a_full_heap_without_a_driver_says_no(void **state)
{
    void *all = take(UNITS * UNIT);
    (void)state;

    assert_non_null(all);
    assert_null(take(1));
    give(all);
    assert_null(take(UNITS * UNIT + 1));
    assert_null(take(-1));
    assert_null(take(INT64_MAX));
}

static void
what_is_not_ours_changes_nothing(void **state)
{
    char *a = take(2 * UNIT);
    (void)state;

    give(a + UNIT);
    assert_int_equal(harness_heap_used(), 2 * UNIT);
    give(a);
    give(a);
    assert_int_equal(harness_heap_used(), 0);
    give(NULL);
}

static void
a_heap_is_not_replaced_under_its_blocks(void **state)
{
    void *a = take(UNIT);
    (void)state;

    assert_int_equal(harness_heap_set(BASE, UNITS * UNIT), -EBUSY);
    give(a);
    assert_int_equal(harness_heap_set(BASE + 1, UNITS * UNIT), -EINVAL);
    assert_int_equal(harness_heap_set(UINT64_MAX - 511, UNITS * UNIT), -EINVAL);
    assert_int_equal(harness_heap_set(BASE, UNITS * UNIT), 0);
}

/* Random takes and gives against a plain map of which unit belongs to whom. */
static void
no_two_blocks_ever_overlap(void **state)
{
    struct {
        char *at;
        size_t units;
    } held[UNITS] = { { NULL, 0 } };
    int owner[UNITS];
    unsigned seed = 7;
    uint64_t used = 0;
    (void)state;

    memset(owner, -1, sizeof(owner));
    for (int round = 0; round < 20000; round++) {
        int slot = rand_r(&seed) % UNITS;
        size_t units = 1 + (size_t)(rand_r(&seed) % 9);
        if (held[slot].at == NULL && (held[slot].at = take((ssize_t)(units * UNIT - 100))) != NULL) {
            size_t first = (size_t)(held[slot].at - (char *)BASE) / UNIT;
            assert_true(first + units <= UNITS);
            for (size_t u = first; u < first + units; u++) {
                assert_int_equal(owner[u], -1);
                owner[u] = slot;
            }
            held[slot].units = units;
            used += units;
        } else if (held[slot].at != NULL) {
            for (int u = 0; u < UNITS; u++)
                owner[u] = owner[u] == slot ? -1 : owner[u];
            give(held[slot].at);
            held[slot].at = NULL;
            used -= held[slot].units;
        }
        assert_int_equal(harness_heap_used(), used * UNIT);
    }
    for (int slot = 0; slot < UNITS; slot++)
        give(held[slot].at);
}

static void
a_place_serves_each_byte_once(void **state)
{
    (void)state;

    assert_int_equal(harness_place_set(BASE + 1, UNIT), -EINVAL);
    assert_int_equal(harness_place_set(UINT64_MAX - 511, UNIT), -EINVAL);
    assert_null(harness_place_malloc(1, 0, NULL));
    assert_int_equal(harness_place_set(BASE, 4 * UNIT), 0);
    assert_ptr_equal(harness_place_malloc(UNIT + 1, 0, NULL), (void *)BASE);
    assert_null(harness_place_malloc(3 * UNIT, 0, NULL));
    assert_null(harness_place_malloc(-1, 0, NULL));
    harness_place_free((void *)BASE, UNIT + 1, 0, NULL);
    assert_ptr_equal(harness_place_malloc(2 * UNIT, 0, NULL), (void *)(BASE + 2 * UNIT));
    assert_null(harness_place_malloc(0, 0, NULL));
    assert_int_equal(harness_place_set(BASE, 0), 0);
    assert_null(harness_place_malloc(1, 0, NULL));
}

#define WITH_HEAP(test) cmocka_unit_test_setup_teardown(test, fresh_heap, nothing_left)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAP(blocks_are_aligned_and_follow_each_other),
        WITH_HEAP(the_first_hole_that_fits_is_used_again),
        WITH_HEAP(neighbours_are_joined_in_every_order),
        WITH_HEAP(a_full_heap_without_a_driver_says_no),
        WITH_HEAP(what_is_not_ours_changes_nothing),
        WITH_HEAP(a_heap_is_not_replaced_under_its_blocks),
        WITH_HEAP(no_two_blocks_ever_overlap),
        cmocka_unit_test(a_place_serves_each_byte_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
