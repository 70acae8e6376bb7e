#include "client/trainer/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/trainer/status.h"
#include "common/auto.h"
#include "tests/unit/folder.h"

#define HELLO "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" /* of "hello\n" */
#define EMPTY "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define MANIFEST(size, digest) \
    "{\"run\":\"sft\",\"step\":7,\"files\":{\"weights\":{\"size\":" size ",\"digest\":\"" digest "\"}}}"

static void
whole(void **state)
{
    json_t *manifest = NULL;
    struct error err = { 0 };
    (void)state;
    put("weights", "hello\n");
    put("manifest.json", MANIFEST("6", HELLO));
    put("latest", "what nobody wrote down is not looked at\n");
    assert_int_equal(manifest_verify(directory, &manifest, &err), 0);
    assert_int_equal(json_integer_value(json_object_get(manifest, "step")), 7);
    json_decref(manifest);
    assert_int_equal(manifest_verify(directory, NULL, &err), 0);
}

/* What was not written whole, or was changed afterwards, is told with the file's name. */
static void
broken(void **state)
{
    static const struct {
        const char *weights, *manifest;
        int code;
        const char *says;
    } rows[] = {
        { "hello\n", NULL, ERR_NOTFOUND, "is no checkpoint: it has no manifest.json" },
        { "hello\n", "{\"files\":{\"weights\":{\"size\":6,", ERR_NOTFOUND, "is no checkpoint" },
        { "hello\n", "", ERR_NOTFOUND, "is no checkpoint" },
        { "hello\n", "{}", ERR_INPUT, "names no files" },
        { "hello\n", "{\"files\":{}}", ERR_INPUT, "names no files" },
        { "hello\n", "{\"files\":[\"weights\"]}", ERR_INPUT, "names no files" },
        { "hello\n", "[]", ERR_INPUT, "names no files" },
        { "hell", MANIFEST("6", HELLO), ERR_INPUT, "weights has 4 bytes, not 6" },
        { "hello\n!", MANIFEST("6", HELLO), ERR_INPUT, "weights has 7 bytes, not 6" },
        { "", MANIFEST("6", HELLO), ERR_INPUT, "weights has 0 bytes, not 6" },
        { "hellO\n", MANIFEST("6", HELLO), ERR_INPUT, "weights is not what was written" },
        { "hello\n", MANIFEST("6", EMPTY), ERR_INPUT, "weights is not what was written" },
        { "hello\n", "{\"files\":{\"weights\":{\"size\":6}}}", ERR_INPUT, "weights is not what was written" },
        { NULL, MANIFEST("6", HELLO), ERR_INPUT, "weights is missing" },
        { "hello\n", "{\"files\":{\"sub/../weights\":{\"size\":6,\"digest\":\"" HELLO "\"}}}", ERR_INPUT,
          "sub/../weights is missing" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *manifest = json_null();
        struct error err = { 0 };
        assert_int_equal(remove_directory(NULL) | make_directory(NULL), 0);
        put("sub/file", "");
        if (rows[i].weights)
            put("weights", rows[i].weights);
        if (rows[i].manifest)
            put("manifest.json", rows[i].manifest);
        if (manifest_verify(directory, &manifest, &err) != rows[i].code || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d %s", i, err.code, err.text);
        assert_null(manifest);
        assert_non_null(strstr(err.text, directory));
    }
}

static void
digests(void **state)
{
    char path[128], digest[80];
    struct error err = { 0 };
    (void)state;
    put("empty", "");
    snprintf(path, sizeof(path), "%s/empty", directory);
    assert_int_equal(manifest_digest(path, digest, &err), 0);
    assert_string_equal(digest, EMPTY);
    FILE *file = fopen(path, "w"); /* more than one block */
    for (int i = 0; i < 100000; i++)
        fputs("ab", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(manifest_digest(path, digest, &err), 0);
    assert_string_equal(digest, "sha256:b8487b0acfb9db88072031b3a2ce5495745ee868570b8a05e6880be20d4a15b3");
    assert_int_equal(manifest_digest("/nowhere", digest, &err), ERR_SYS);
}

/* The checkpoint of each run that one goes on from: the newest whose manifest verifies. */
static void
newest(void **state)
{
    static const char *const good[] = { "sft/step-00000050", "sft/step-00000100", "grpo/step-00000008" };
    static const char *const bad[] = { "sft/step-00000150", "sft/step-00000200", "other/step-00000001" };
    char name[128];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        char manifest[256];
        const char *slash = strchr(good[i], '/');
        snprintf(name, sizeof(name), "checkpoints/%s/weights", good[i]);
        put(name, "hello\n");
        snprintf(name, sizeof(name), "checkpoints/%s/manifest.json", good[i]);
        snprintf(manifest, sizeof(manifest),
                 "{\"run\":\"%.*s\",\"step\":%d,\"files\":{\"weights\":{\"size\":6,\"digest\":\"" HELLO
                 "\"}}}",
                 (int)(slash - good[i]), good[i], atoi(slash + strlen("/step-")));
        put(name, manifest);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(name, sizeof(name), "checkpoints/%s/weights", bad[i]);
        put(name, "hell");
        snprintf(name, sizeof(name), "checkpoints/%s/manifest.json", bad[i]);
        put(name, MANIFEST("6", HELLO));
    }
    put("checkpoints/sft/step-00000300/weights", "hello\n"); /* its manifest was never written */
    AUTO_JSON json_t *found = status_checkpoints(directory);
    assert_int_equal(json_object_size(found), 2);
    json_t *sft = json_object_get(found, "sft"), *grpo = json_object_get(found, "grpo");
    assert_int_equal(json_integer_value(json_object_get(sft, "step")), 100);
    assert_non_null(
        strstr(json_string_value(json_object_get(sft, "path")), "/checkpoints/sft/step-00000100"));
    assert_int_equal(json_integer_value(json_object_get(grpo, "step")), 8);
}

static void
none(void **state)
{
    (void)state;
    AUTO_JSON json_t *found = status_checkpoints("/nowhere");
    assert_int_equal(json_object_size(found), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(whole),  IN_DIRECTORY(broken),   IN_DIRECTORY(digests),
        IN_DIRECTORY(newest), cmocka_unit_test(none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
