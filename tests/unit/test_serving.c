#include "client/trainer/serving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainer/checkpoint.h"
#include "client/trainer/run_along.h"
#include "common/auto.h"
#include "tests/unit/folder.h"

static void
commands(void **state)
{
    static const struct {
        const char *command, *out;
    } rows[] = {
        { "vllm serve {model} --port 8000", "exec vllm serve Qwen/Qwen2.5 --port 8000" },
        { "{model}", "exec Qwen/Qwen2.5" },
        { "a --model={model} --name={model}", "exec a --model=Qwen/Qwen2.5 --name=Qwen/Qwen2.5" },
        { "a {mode} {model", "exec a {mode} {model" },
        { "$PYTHON -m x", "exec $PYTHON -m x" }, /* the shell's to expand */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_BUFFER struct buffer out = BUFFER_INIT;
        const struct serving s = { .command = rows[i].command, .model = "Qwen/Qwen2.5" };
        assert_int_equal(serving_command(&s, &out), 0);
        assert_string_equal(out.data, rows[i].out);
    }
}

/* Other weights have another name, wherever they are; the same ones are loaded once. */
static void
names(void **state)
{
    char one[SERVING_NAME_SIZE], other[SERVING_NAME_SIZE];
    (void)state;
    serving_name("/w/checkpoints/rl_round1", "sha256:5891b5b522d5df086d0ff0b110fbd9d2", one);
    assert_string_equal(one, "rl_round1-5891b5b522d5");
    serving_name("rl_round1", "sha256:5891b5b522d5df086d0ff0b110fbd9d2", other);
    assert_string_equal(one, other);
    serving_name("rl_round1", "sha256:e3b0c44298fc1c149afbf4c8996fb924", other);
    assert_string_not_equal(one, other);
}

static void
lists(void **state)
{
    static const struct {
        const char *found, *name;
        bool is_there;
    } rows[] = {
        { "{\"data\":[{\"id\":\"base\"},{\"id\":\"a-1\"}]}", "a-1", true },
        { "{\"data\":[{\"id\":\"base\"},{\"id\":\"a-1\"}]}", "a", false },
        { "{\"data\":[{\"name\":\"a-1\"},3,null]}", "a-1", false },
        { "{\"data\":{}}", "a-1", false },
        { "[]", "a-1", false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON json_t *found = json_loads(rows[i].found, 0, NULL);
        assert_non_null(found);
        assert_int_equal(serving_has(found, rows[i].name), rows[i].is_there);
    }
    assert_false(serving_has(NULL, "a-1"));
}

/* The base itself is asked for by the endpoint's own name; an adapter that does not verify is not loaded. */
static void
adapters(void **state)
{
    char name[SERVING_NAME_SIZE];
    struct serving s = { .url = "http://127.0.0.1:9/v1", .name = "base", .command = "" };
    struct error err = { 0 };
    (void)state;
    assert_int_equal(serving_adapter(&s, "", name, &err), 0);
    assert_string_equal(name, "base");
    put("a/adapter_model.safetensors", "x");
    assert_int_equal(serving_adapter(&s, directory, name, &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.text, "is no checkpoint"));
}

/* --- an evaluation's checkpoint: the wrong directory is told, and where right ones are --- */

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

/* --- what goes along with a run --- */

static void
pauses(void **state)
{
    static const int seconds[] = { 1, 2, 4, 8, 16, 32, 60, 60 };
    (void)state;
    for (int n = 0; n < (int)ARRAY_LEN(seconds); n++)
        assert_int_equal(companion_pause_s(n + 1), seconds[n]);
    assert_int_equal(companion_pause_s(1000000), 60);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands), cmocka_unit_test(names),         cmocka_unit_test(lists),
        IN_DIRECTORY(adapters),     IN_DIRECTORY(wrong_directories), cmocka_unit_test(pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
