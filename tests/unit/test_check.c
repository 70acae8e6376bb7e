/* check.c: which layers of the sandbox the daemon does not do without. */
#include "server/workers/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static const struct {
    const char *require, *uid, *user_namespace, *why; /* why: NULL when it suffices */
} rows[] = {
    { "", "absent: no uid was given", "absent: the host allows none", NULL },
    { "uid, seccomp", "on", "absent: not needed: started as root", NULL },
    { "uid", "absent: no uid was given", "on", NULL },
    { "seccomp,uid", "absent: no uid was given", "absent: the host allows none",
      "the layer \"uid\" is required (sandbox_require) and is absent: no uid was given; start as root" },
    { "user_namespace", "on", "absent: the host allows none",
      "the layer \"user_namespace\" is required (sandbox_require) and is absent: the host allows none" },
    { "moat", "on", "on", "the layer \"moat\" is required (sandbox_require) and is none of the sandbox's" },
};

static void
required_layers_are_there_or_named(void **state)
{
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        AUTO_JSON json_t *layers = json_pack("{s:s, s:s, s:s}", "seccomp", "on", "uid", rows[i].uid,
                                             "user_namespace", rows[i].user_namespace);
        struct error err = { 0 };
        int code = layers_check(rows[i].require, layers, &err);

        assert_int_equal(code, rows[i].why ? ERR_INPUT : 0);
        if (rows[i].why)
            assert_memory_equal(err.text, rows[i].why, strlen(rows[i].why));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(required_layers_are_there_or_named) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
