#include "client/trainer/snapshot.h"

#include <fts.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainer/engine.h"
#include "client/trainer/manifest.h"
#include "client/trainer/output.h"
#include "common/auto.h"
#include "tests/unit/folder.h"

#define HELLO "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" /* of "hello\n" */
#define MANIFEST "{\"run\":\"sft\",\"files\":{\"weights\":{\"size\":6,\"digest\":\"" HELLO "\"}}}"

static struct snapshot snapshot;

static void
checkpoint(const char *name, const char *weights)
{
    char path[128];
    snprintf(path, sizeof(path), "checkpoints/%s/weights", name);
    put(path, weights);
    snprintf(path, sizeof(path), "checkpoints/%s/manifest.json", name);
    put(path, MANIFEST);
}

static int
by_name(const FTSENT **one, const FTSENT **other)
{
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

/* The files of a part by their paths, each with a space after it. */
static const char *
part(const char *name)
{
    static char text[4096];
    char root[SNAPSHOT_PATH_SIZE + 32];
    char *const roots[] = { root, NULL };
    FTSENT *entry;
    snprintf(root, sizeof(root), "%s/%s", snapshot.stage, name);
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    assert_non_null(tree);
    *text = '\0';
    while ((entry = fts_read(tree)) != NULL)
        if (entry->fts_info == FTS_F) {
            strcat(text, entry->fts_path + strlen(root) + 1);
            strcat(text, " ");
        }
    fts_close(tree);
    return text;
}

/* Lay out, and take what is in it for sent. */
static void
take(void)
{
    struct error err = { 0 };
    AUTO_JSON json_t *now = json_object();
    snprintf(snapshot.root, sizeof(snapshot.root), "%s", directory);
    snprintf(snapshot.stage, sizeof(snapshot.stage), "%s/.sync", directory);
    if (snapshot_take(&snapshot, now, &err) != 0)
        fail_msg("%s", err.text);
    json_object_update(snapshot.sent, now);
}

static int
begin(void **state)
{
    snapshot.sent = json_object();
    return make_directory(state);
}

static int
end(void **state)
{
    json_decref(snapshot.sent);
    return remove_directory(state);
}

/* Data before manifests before latest, each by its path; what is nobody's stays. */
static void
parts(void **state)
{
    (void)state;
    checkpoint("sft/step-00000050", "hello\n");
    checkpoint("sft_final", "hello\n");
    put("checkpoints/sft/latest", "step-00000050\n");
    put("checkpoints/latest", "sft_final\n");
    put("checkpoints/curriculum.json", "{}");
    put("checkpoints/sft/.partial-step-00000100/weights", "he");
    put("outputs/report.html", "x");
    put("outputs/train_sft/metrics.jsonl", "x");
    put("data/processed/tasks.jsonl", "x");
    put("data/raw/rows", "x");
    put("evaluation/data/processed/tasks.jsonl", "x");
    put("evaluation/data/raw/rows", "x");
    put("run.json", "{}");
    put("training.log", "x");
    put("run.lock", "");
    put("sync.json", "{}");
    take();
    assert_string_equal(
        part("data"),
        "checkpoints/curriculum.json checkpoints/sft/step-00000050/weights checkpoints/sft_final/weights "
        "data/processed/tasks.jsonl evaluation/data/processed/tasks.jsonl outputs/report.html "
        "outputs/train_sft/metrics.jsonl run.json training.log ");
    assert_string_equal(part("manifests"),
                        "checkpoints/sft/step-00000050/manifest.json checkpoints/sft_final/manifest.json ");
    assert_string_equal(part("latest"), "checkpoints/latest checkpoints/sft/latest ");
    snapshot_remove(&snapshot);
    assert_int_not_equal(access(snapshot.stage, F_OK), 0);
}

/* A second time only what is new goes, and one that was replaced goes again. */
static void
what_was_sent(void **state)
{
    (void)state;
    checkpoint("sft/step-00000050", "hello\n");
    take();
    checkpoint("sft/step-00000100", "hello\n");
    take();
    assert_string_equal(part("manifests"), "checkpoints/sft/step-00000100/manifest.json ");
    put("checkpoints/sft/step-00000050/manifest.json",
        "{\"run\":\"another\",\"files\":{\"weights\":{\"size\":6,\"digest\":\"" HELLO "\"}}}");
    take();
    assert_string_equal(part("manifests"), "checkpoints/sft/step-00000050/manifest.json ");
    take();
    assert_string_equal(part("manifests"), "");
}

/* Without a manifest, or not as it says: nothing of it goes, and it is not taken for sent. */
static void
what_does_not_verify(void **state)
{
    (void)state;
    checkpoint("sft/step-00000050", "hello\n");
    checkpoint("sft/step-00000100", "hellO\n");
    checkpoint("sft/step-00000150", "hell");
    put("checkpoints/sft/step-00000200/weights", "hello\n");
    take();
    assert_string_equal(part("data"), "checkpoints/sft/step-00000050/weights ");
    assert_string_equal(part("manifests"), "checkpoints/sft/step-00000050/manifest.json ");
    assert_int_equal(json_object_size(snapshot.sent), 1);
    put("checkpoints/sft/step-00000100/weights", "hello\n");
    take();
    assert_string_equal(part("data"), "checkpoints/sft/step-00000100/weights ");
}

/* What is pruned while it is being sent is still there; what changes is sent as it was. */
static void
what_changes_meanwhile(void **state)
{
    char digest[80];
    struct error err = { 0 };
    (void)state;
    checkpoint("sft/step-00000050", "hello\n");
    char *log = put("training.log", "hello\n");
    take();
    FILE *file = fopen(log, "a");
    assert_true(fputs("more\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    char path[128];
    snprintf(path, sizeof(path), "%s/checkpoints", directory);
    output_remove_tree(path);
    static const char *const kept[] = { "checkpoints/sft/step-00000050/weights", "training.log" };
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        snprintf(path, sizeof(path), "%s/.sync/data/%s", directory, kept[i]);
        assert_int_equal(manifest_digest(path, digest, &err), 0);
        assert_string_equal(digest, HELLO);
    }
}

/* What is there when it is listed, and is not when it is copied. */
static void
what_is_gone_leaves_nothing(void **state)
{
    char path[128];
    (void)state;
    checkpoint("sft/step-00000050", "hello\n");
    snprintf(path, sizeof(path), "%s/checkpoints/sft/latest", directory);
    assert_int_equal(symlink("nowhere", path), 0);
    take();
    assert_string_equal(part("manifests"), "checkpoints/sft/step-00000050/manifest.json ");
    assert_string_equal(part("latest"), "");
}

/* For a restore: the damaged files of a checkpoint go, so that they are fetched again; the rest stays. */
static void
damaged_files(void **state)
{
    char where[128];
    (void)state;
    put("c/manifest.json",
        "{\"files\":{\"a\":{\"size\":6,\"digest\":\"" HELLO "\"},\"b\":{\"size\":6,\"digest\":\"" HELLO
        "\"},\"../d\":{\"size\":6,\"digest\":\"" HELLO "\"}}}");
    put("c/a", "hello\n");
    put("c/b", "hellO\n");
    put("d", "another's\n");
    snprintf(where, sizeof(where), "%s/c", directory);
    assert_int_equal(manifest_drop_damaged(where), 1);
    static const struct {
        const char *name;
        bool is_there;
    } rows[] = { { "c/a", true }, { "c/b", false }, { "c/manifest.json", true }, { "d", true } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(where, sizeof(where), "%s/%s", directory, rows[i].name);
        assert_int_equal(access(where, F_OK) == 0, rows[i].is_there);
    }
    snprintf(where, sizeof(where), "%s/nowhere", directory);
    assert_int_equal(manifest_drop_damaged(where), 0);
}

/* --- the engine --- */

static void
words(void **state)
{
    static const struct {
        const char *command, *words;
    } rows[] = {
        { ENGINE_COPY, "rclone|copy|/a b|s3:bucket/x|" },
        { "aws s3 cp --recursive {source} {target}", "aws|s3|cp|--recursive|/a b|s3:bucket/x|" },
        { "  cp   {target}  ", "cp|s3:bucket/x|" },
        { "cp x{source} {sourc} {source}/", "cp|x/a b|{sourc}|/a b/|" },
        { "s5cmd cp {source}/ {target}/", "s5cmd|cp|/a b/|s3:bucket/x/|" },
        { "sh -c $(x);`y`", "sh|-c|$(x);`y`|" }, /* no shell reads it */
        { "", "" },
        { "   ", "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[256] = "";
        char **found = engine_words(rows[i].command, "/a b", "s3:bucket/x");
        assert_non_null(found);
        for (char **at = found; *at; free(*at++)) {
            strcat(text, *at);
            strcat(text, "|");
        }
        free(found);
        assert_string_equal(text, rows[i].words);
    }
}

static void
meanings(void **state)
{
    static const struct {
        const char *said, *means;
    } rows[] = {
        { "x\nERROR : InvalidAccessKeyId: The AWS Access Key Id\nlast", "does not know the access key" },
        { "SignatureDoesNotMatch: status code: 403", "the secret is not that" },
        { "fatal error: Unable to locate credentials", "there are no credentials" },
        { "AccessDenied: Access Denied\n\tstatus code: 403", "do not suffice" },
        { "NoSuchBucket: The specified bucket does not exist", "no such bucket" },
        { "Failed to create file system: didn't find section in config file", "rclone knows no such remote" },
        { "dial tcp: lookup s3: no such host", "" },
        { "", "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *at = NULL, *means = engine_meaning(rows[i].said, &at);
        if (*rows[i].means ? !strstr(means, rows[i].means) || !at : *means || at)
            fail_msg("%s: %s", rows[i].said, means);
    }
}

/* The line that tells why, else the last one. */
static void
reasons(void **state)
{
    static const struct {
        const char *command;
        int code;
        const char *says;
    } rows[] = {
        { "true {source} {target}", 0, "" },
        { "false", ERR_UNAVAILABLE, "to: " },
        { "", ERR_INPUT, "the engine's command is empty" },
        { "/no/such/engine {source}", ERR_UNAVAILABLE, "cannot start /no/such/engine" },
        { "cat /nowhere/x", ERR_UNAVAILABLE, "No such file" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct error err = { 0 };
        if (engine_run(rows[i].command, "from", "to", &err) != rows[i].code ||
            !strstr(err.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].command, err.code, err.text);
    }
}

int
main(void)
{
#define OF_A_RUN(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        OF_A_RUN(parts),
        OF_A_RUN(what_was_sent),
        OF_A_RUN(what_does_not_verify),
        OF_A_RUN(what_changes_meanwhile),
        OF_A_RUN(what_is_gone_leaves_nothing),
        IN_DIRECTORY(damaged_files),
        cmocka_unit_test(words),
        cmocka_unit_test(meanings),
        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
