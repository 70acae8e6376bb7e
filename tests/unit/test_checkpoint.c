#include "client/trainer/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "tests/unit/folder.h"

/* The wrong directory is told, and where right ones are. */
static void
wrong_directories(void **state)
{
    static const struct {
        const char *name, *says;
    } rows[] = {
        { "none", "there is no such directory" },
        { "file", "it is no directory" },
        { "empty", "it is no checkpoint: no adapter_config.json and no config.json" },
        { "half", "it has adapter_config.json, and no weights" },
        { "bare", "it has config.json, and no weights" },
        { "hollow", "it has adapter_config.json, and no weights" }, /* of no bytes */
    };
    struct trainer t = { .workdir = directory };
    (void)state;
    put("file", "x");
    put("empty/x", "x");
    put("half/adapter_config.json", "{}");
    put("bare/config.json", "{}");
    put("hollow/adapter_config.json", "{}");
    put("hollow/adapter_model.safetensors", "");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char path[128];
        struct checkpoint *c = NULL;
        struct error err = { 0 };
        snprintf(path, sizeof(path), "%s/%s", directory, rows[i].name);
        if (checkpoint_serve(&t, "/no/python", path, &c, &err) != ERR_INPUT ||
            !strstr(err.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].name, err.code, err.text);
        assert_null(c);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = { IN_DIRECTORY(wrong_directories) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
