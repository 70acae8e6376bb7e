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
the_newest_are_kept(void **state)
{
    struct events *e = events_new(3);
    char names[5][EVENT_NAME_SIZE], origin[EVENT_NAME_SIZE];
    uint64_t at;

    (void)state;
    snprintf(origin, sizeof(origin), "%s", events_origin(e));
    assert_true(events_find(e, origin, &at));
    assert_int_equal(at, 0);
    for (int i = 0; i < 5; i++) {
        events_add(e, &(struct event){ .kind = EVENT_STATE, .client = strdup("c"), .attempts = i });
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
    assert_int_equal(events_at(e, 4)->attempts, 4);
    assert_string_equal(events_at(e, 4)->client, "c");
    events_free(e);
    events_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
