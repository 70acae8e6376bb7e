#include "server/http/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
add(struct events *e, const char *detail, size_t filler)
{
    struct event event = { .kind = EVENT_STATE, .client = strdup("c") };
    char *text = malloc(filler + strlen(detail) + 1);

    strcpy(text, detail);
    memset(text + strlen(detail), 'x', filler);
    text[strlen(detail) + filler] = '\0';
    event.detail = text;
    assert_true(events_add(e, &event));
}

static void
the_newest_are_kept(void **state)
{
    struct events *e = events_new(3);
    char text[8], names[5][EVENT_NAME_SIZE], origin[EVENT_NAME_SIZE];
    uint64_t at;

    (void)state;
    snprintf(origin, sizeof(origin), "%s", events_origin(e));
    assert_true(events_find(e, origin, &at));
    assert_int_equal(at, 0);
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "%d", i);
        add(e, text, 0);
        snprintf(names[i], EVENT_NAME_SIZE, "%s", events_at(e, (uint64_t)i)->name);
        assert_int_equal(strlen(names[i]), 32);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
    }
    assert_int_equal(events_first(e), 2);
    assert_int_equal(events_end(e), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(events_find(e, names[i], &at), i >= 2);
        if (i >= 2)
            assert_int_equal(at, i + 1);
    }
    /* What was before the first is not known to be nothing. */
    assert_false(events_find(e, origin, &at));
    assert_false(events_find(e, "", &at));
    assert_string_equal(events_at(e, 4)->detail, "4");
    events_free(e);
}

static void
they_have_few_bytes_together(void **state)
{
    struct events *e = events_new(1000);

    (void)state;
    for (int i = 0; i < 100; i++)
        add(e, "", 1024 * 1024);
    assert_int_equal(events_end(e), 100);
    assert_int_equal(events_end(e) - events_first(e), EVENTS_BYTES_MAX / (1024 * 1024) - 1);
    add(e, "", 2 * EVENTS_BYTES_MAX);
    assert_int_equal(events_end(e) - events_first(e), 1);
    add(e, "small", 0);
    assert_int_equal(events_end(e) - events_first(e), 1);
    assert_string_equal(events_at(e, 101)->detail, "small");
    events_free(e);
    events_free(NULL);
}

static void
one_without_a_text_is_none(void **state)
{
    struct events *e = events_new(4);

    (void)state;
    assert_false(events_add(e, &(struct event){ .client = strdup("c"), .view = strdup("v") }));
    assert_int_equal(events_end(e), 0);
    events_free(e);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(they_have_few_bytes_together),
        cmocka_unit_test(one_without_a_text_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
