#include "client/trainer/run_state.h"

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

#include "client/trainer/run_check.h"
#include "client/trainer/run_files.h"
#include "common/auto.h"

static struct run run;

static int
make_run(void **state)
{
    (void)state;
    run = (struct run){ .file = "/some/run.conf", .workdir = "/tmp/test_run_state.XXXXXX" };
    if (!mkdtemp(run.workdir))
        return -1;
    snprintf(run.state_path, sizeof(run.state_path), "%.100s/run.json", run.workdir);
    run.conf = json_pack("{s:i}", "gpus", 3);
    run.steps = json_array();
    return 0;
}

static int
remove_run(void **state)
{
    char command[PATH_MAX + 16];
    (void)state;
    json_decref(run.conf);
    json_decref(run.steps);
    json_decref(run.state);
    snprintf(command, sizeof(command), "rm -rf '%s'", run.workdir);
    return system(command);
}

static void
put(const char *name, const char *text)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", run.workdir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void
make(const char *name)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof(path), "%s/%s", run.workdir, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* A step of the plan: one argument, one input ("" for none), one output. */
static json_t *
step(const char *name, const char *argument, const char *input, const char *output)
{
    json_t *one = json_pack("{s:s, s:s, s:[s, s], s:[], s:[s]}", "name", name, "stage", "sft", "argv", "sft",
                            argument, "inputs", "outputs", output);
    assert_non_null(one);
    if (*input)
        json_array_append_new(json_object_get(one, "inputs"), json_string(input));
    json_array_append_new(run.steps, one);
    return one;
}

/* As another process of the same run would find it. */
static void
open_again(void)
{
    struct error err = { 0 };
    json_decref(run.state);
    run.state = NULL;
    if (run_state_open(&run, &err) != 0)
        fail_msg("%s", err.text);
}

static json_t *
stored(const char *name, const char *key)
{
    return json_object_get(json_object_get(json_object_get(run.state, "steps"), name), key);
}

static void
what_is_finished(void **state)
{
    static const char *const unfinished[] = { "running", "interrupted", "failed" };
    struct error err = { 0 };
    (void)state;
    json_t *one = step("a", "--epochs=1", "", "made");
    open_again();
    assert_false(run_state_is_finished(&run, one));
    put("made", "x");
    assert_false(run_state_is_finished(&run, one)); /* by whom? */
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++) {
        assert_int_equal(run_state_set(&run, one, unfinished[i], 1, &err), 0);
        open_again();
        assert_false(run_state_is_finished(&run, one));
    }
    assert_int_equal(run_state_set(&run, one, "done", 1, &err), 0);
    open_again();
    assert_true(run_state_is_finished(&run, one));
    char path[PATH_MAX];
    assert_int_equal(unlink(run_path(&run, "made", path)), 0);
    assert_false(run_state_is_finished(&run, one));
    assert_int_equal(run_state_set(&run, one, "skipped", 0, &err), 0); /* it had nothing to leave */
    assert_true(run_state_is_finished(&run, one));
}

/* Other arguments are other work; where the services are is not. */
static void
other_arguments(void **state)
{
    struct error err = { 0 };
    (void)state;
    put("made", "x");
    assert_int_equal(
        (open_again(), run_state_set(&run, step("a", "--epochs=1", "", "made"), "done", 1, &err)), 0);
    assert_false(run_state_is_finished(&run, step("a", "--epochs=2", "", "made")));
    assert_false(run_state_is_finished(&run, step("b", "--epochs=1", "", "made")));
    assert_true(run_state_is_finished(&run, step("a", "--epochs=1", "", "made")));
    static const char *const places[][2] = { { "--url=http://a", "--url=http://b" },
                                             { "--endpoint=http://a", "--endpoint=http://b" },
                                             { "--concurrency=1", "--concurrency=9" },
                                             { "--python=python3", "--python=/other/python3" } };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        assert_int_equal(run_state_set(&run, step("a", places[i][0], "", "made"), "done", 1, &err), 0);
        assert_true(run_state_is_finished(&run, step("a", places[i][1], "", "made")));
    }
}

/* What a step has read is other now, by content; what is gone, or stood in an older release's record, says nothing. */
static void
other_inputs(void **state)
{
    struct error err = { 0 };
    char path[PATH_MAX];
    (void)state;
    open_again();
    json_t *one = step("a", "--x", "rows", "made");
    put("rows", "1");
    put("made", "x");
    assert_int_equal(run_state_set(&run, one, "running", 0, &err), 0);
    put("rows", "2"); /* meanwhile: what was read first counts */
    assert_int_equal(run_state_set(&run, one, "done", 1, &err), 0);
    open_again();
    assert_false(run_state_is_finished(&run, one));
    put("rows", "1");
    assert_true(run_state_is_finished(&run, one));
    assert_int_equal(unlink(run_path(&run, "rows", path)), 0);
    assert_true(run_state_is_finished(&run, one));
    put("rows", "2");
    json_object_del(json_object_get(json_object_get(run.state, "steps"), "a"), "from");
    assert_true(run_state_is_finished(&run, one));
    assert_int_equal(run_state_set(&run, one, "skipped", 0, &err), 0);
    put("rows", "3");
    assert_false(run_state_is_finished(&run, one)); /* there may be something to learn now */
}

static void
put_adapter(const char *name, const char *text)
{
    char path[128], manifest[256], digest[80];
    struct error err = { 0 };
    snprintf(path, sizeof(path), "checkpoints/%s", name);
    make(path);
    snprintf(path, sizeof(path), "checkpoints/%s/adapter_model.safetensors", name);
    put(path, text);
    snprintf(path, sizeof(path), "checkpoints/%s", name);
    assert_int_equal(run_path_digest(&run, path, digest, &err), 0);
    snprintf(path, sizeof(path), "checkpoints/%s/manifest.json", name);
    snprintf(manifest, sizeof(manifest),
             "{\"files\":{\"adapter_model.safetensors\":{\"size\":%zu,\"digest\":\"%s\"}}}", strlen(text),
             digest);
    put(path, manifest);
}

/* The adapter that a step begins at is an input, too: of a round of this plan that learned something. */
static void
other_adapters(void **state)
{
    struct error err = { 0 };
    char path[RUN_ADAPTER_SIZE];
    (void)state;
    json_object_set_new(run.conf, "rl", json_pack("{s:i}", "rounds", 3));
    open_again();
    make("checkpoints");
    put_adapter("sft_final", "0");
    put_adapter("rl_round1", "1");
    put_adapter("rl_round2", "2");
    put_adapter("rl_round3", "3");
    put("made", "x");
    run_state_adapter(&run, 0, path);
    assert_string_equal(path, "checkpoints/sft_final"); /* the rounds are of another plan */
    step("rl_round1", "--x", "", "checkpoints/rl_round1");
    json_t *second = step("rl_round2", "--x", "", "checkpoints/rl_round2");
    json_t *publish = step("publish", "--from={adapter}", "", "made");
    run_state_adapter(&run, 0, path);
    assert_string_equal(path, "checkpoints/rl_round2");
    run_state_adapter(&run, 2, path);
    assert_string_equal(path, "checkpoints/rl_round1");
    assert_int_equal(run_state_set(&run, publish, "done", 1, &err), 0);
    assert_true(run_state_is_finished(&run, publish));
    assert_int_equal(run_state_set(&run, second, "skipped", 0, &err), 0); /* what lies there is left over */
    run_state_adapter(&run, 0, path);
    assert_string_equal(path, "checkpoints/rl_round1");
    assert_false(run_state_is_finished(&run, publish));
}

/* Evaluations of another base model are other ones. */
static void
another_model(void **state)
{
    struct error err = { 0 };
    (void)state;
    open_again();
    put("made", "x");
    json_t *one = step("evaluate_base", "--model={served}", "", "made");
    json_object_set_new(one, "serve", json_string(""));
    run.serving.model = "tiny";
    run.serving.name = "base";
    assert_int_equal(run_state_set(&run, one, "done", 1, &err), 0);
    assert_true(run_state_is_finished(&run, one));
    run.serving.model = "other";
    assert_false(run_state_is_finished(&run, one));
}

/* Time is added up over the attempts at the same work. */
static void
seconds(void **state)
{
    struct error err = { 0 };
    (void)state;
    open_again();
    json_t *one = step("a", "--epochs=1", "", "made");
    assert_int_equal(run_state_set(&run, one, "interrupted", 30, &err), 0);
    open_again();
    assert_int_equal(run_state_set(&run, one, "running", 0, &err), 0);
    assert_int_equal(run_state_set(&run, one, "done", 12, &err), 0);
    open_again();
    assert_true(json_number_value(stored("a", "seconds")) == 42);
    assert_int_equal(run_state_set(&run, step("a", "--epochs=2", "", "made"), "done", 5, &err), 0);
    assert_true(json_number_value(stored("a", "seconds")) == 5);
    assert_string_equal(json_string_value(stored("a", "stage")), "sft");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(run.state, "configuration"), "gpus")),
                     3);
    assert_int_equal(json_integer_value(json_object_get(run.state, "pid")), getpid());
}

/* One that cannot be read is not taken for a run that has not begun. */
static void
no_state(void **state)
{
    static const char *const texts[] = { "", "{\"steps\":", "\"steps\"", "{}", "{\"steps\":[]}" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct error err = { 0 };
        put("run.json", texts[i]);
        json_decref(run.state);
        run.state = NULL;
        if (run_state_open(&run, &err) != ERR_INPUT)
            fail_msg("%s was read", texts[i]);
        assert_non_null(strstr(err.text, run.state_path));
        assert_non_null(strstr(err.text, "remove it to begin again"));
    }
}

/* A checkpoint has to be what its manifest says; another path has to be there. */
static void
paths(void **state)
{
    struct error err = { 0 };
    char full[PATH_MAX];
    (void)state;
    assert_string_equal(run_path(&run, "/abs/olute", full), "/abs/olute");
    assert_int_equal(run_path_check(&run, "file", &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.text, "/file is not there"));
    put("file", "");
    assert_int_equal(run_path_check(&run, "file", &err), 0);
    make("checkpoints");
    make("checkpoints/sft_final");
    err = (struct error){ 0 };
    assert_int_equal(run_path_check(&run, "checkpoints/sft_final", &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.text, "manifest.json"));
    put("checkpoints/sft_final/w", "hello\n");
    put("checkpoints/sft_final/manifest.json",
        "{\"files\":{\"w\":{\"size\":6,\"digest\":"
        "\"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"}}}");
    assert_int_equal(run_path_check(&run, "checkpoints/sft_final", &err), 0);
    put("checkpoints/sft_final/w", "hellO\n");
    err = (struct error){ 0 };
    assert_int_equal(run_path_check(&run, "checkpoints/sft_final", &err), ERR_INPUT);
    put("checkpoints/sft_final/inside", "");
    assert_int_equal(run_path_check(&run, "checkpoints/sft_final/inside", &err), 0);
}

/* Before anything is run: what no step leaves and no finished step is past needing. */
static void
inputs_before_the_first_step(void **state)
{
    struct error err = { 0 };
    (void)state;
    open_again();
    json_t *first = step("first", "--x", "rows", "made");
    step("second", "--x", "made", "more");
    assert_int_equal(run_check_inputs(&run), TRAINER_CONFIG);
    put("rows", "x");
    assert_int_equal(run_check_inputs(&run), TRAINER_OK);
    step("third", "--x", "tasks", "end");
    assert_int_equal(run_check_inputs(&run), TRAINER_CONFIG); /* hours before the third step */
    put("tasks", "x");
    assert_int_equal(run_check_inputs(&run), TRAINER_OK);
    char path[PATH_MAX];
    put("made", "x");
    assert_int_equal(run_state_set(&run, first, "done", 1, &err), 0);
    assert_int_equal(unlink(run_path(&run, "rows", path)), 0);
    assert_int_equal(run_check_inputs(&run), TRAINER_OK);
}

int
main(void)
{
#define OF_A_RUN(test) cmocka_unit_test_setup_teardown(test, make_run, remove_run)
    const struct CMUnitTest tests[] = {
        OF_A_RUN(what_is_finished), OF_A_RUN(other_arguments), OF_A_RUN(other_inputs),
        OF_A_RUN(other_adapters),   OF_A_RUN(another_model),   OF_A_RUN(seconds),
        OF_A_RUN(no_state),         OF_A_RUN(paths),           OF_A_RUN(inputs_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
