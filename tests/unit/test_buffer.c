#include "common/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"

static void
grows_and_stays_terminated(void **state)
{
    struct buffer b = BUFFER_INIT;
    (void)state;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(buffer_append(&b, "xyz", 3), 0);
        assert_int_equal(b.data[b.size], '\0');
        assert_true(b.capacity > b.size);
    }
    assert_int_equal(b.size, 15000);
    assert_memory_equal(b.data + 14997, "xyz", 4);
    buffer_release(&b);
    assert_null(b.data);
    assert_int_equal(b.capacity, 0);
}

static void
keeps_nuls(void **state)
{
    AUTO_BUFFER struct buffer b = BUFFER_INIT;
    (void)state;
    assert_int_equal(buffer_append(&b, "a\0b", 3), 0);
    assert_int_equal(b.size, 3);
    assert_memory_equal(b.data, "a\0b", 4);
}

static void
prints_after_what_is_there(void **state)
{
    AUTO_BUFFER struct buffer b = BUFFER_INIT;
    (void)state;
    assert_int_equal(buffer_add(&b, "n="), 0);
    assert_int_equal(buffer_printf(&b, "%d %*s", 12, 300, "z"), 0);
    assert_int_equal(b.size, 2 + 3 + 300);
    assert_memory_equal(b.data, "n=12 ", 5);
    assert_int_equal(b.data[b.size - 1], 'z');
}

static void
clear_keeps_the_memory(void **state)
{
    AUTO_BUFFER struct buffer b = BUFFER_INIT;
    (void)state;
    buffer_clear(&b);
    assert_int_equal(buffer_add(&b, "hello"), 0);
    size_t capacity = b.capacity;
    buffer_clear(&b);
    assert_int_equal(b.size, 0);
    assert_int_equal(b.capacity, capacity);
    assert_string_equal(b.data, "");
}

static void
take_gives_the_bytes_away(void **state)
{
    struct buffer b = BUFFER_INIT;
    size_t size = 99;
    (void)state;
    assert_int_equal(buffer_add(&b, "hello"), 0);
    char *given = buffer_take(&b, &size);
    assert_string_equal(given, "hello");
    assert_int_equal(size, 5);
    assert_null(b.data);
    free(given);
    given = buffer_take(&b, NULL);
    assert_string_equal(given, "");
    free(given);
}

static void
impossible_sizes_are_refused_and_change_nothing(void **state)
{
    AUTO_BUFFER struct buffer b = BUFFER_INIT;
    (void)state;
    assert_int_equal(buffer_add(&b, "keep"), 0);
    assert_int_equal(buffer_reserve(&b, SIZE_MAX), ERR_NOMEM);
    assert_int_equal(buffer_reserve(&b, SIZE_MAX / 2), ERR_NOMEM);
    assert_int_equal(buffer_append(&b, "x", SIZE_MAX - 2), ERR_NOMEM);
    assert_string_equal(b.data, "keep");
    assert_int_equal(buffer_add(&b, "x"), ERR_NOMEM); /* no hole: nothing is added behind what is missing */
    assert_true(b.is_short && !buffer_take(&b, NULL));
    assert_int_equal(b.size, 4);
    buffer_clear(&b);
    assert_int_equal(buffer_add(&b, "x"), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(keeps_nuls),
        cmocka_unit_test(prints_after_what_is_there),
        cmocka_unit_test(clear_keeps_the_memory),
        cmocka_unit_test(take_gives_the_bytes_away),
        cmocka_unit_test(impossible_sizes_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
