#include "client/trainer/runconf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"

static char path[] = "/tmp/test_runconf.XXXXXX";

static int
make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int
remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static int
read_text(const char *text, json_t **conf, struct error *err)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *err = (struct error){ 0 };
    return runconf_read(path, conf, err);
}

static json_t *
conf_of(const char *text)
{
    json_t *conf = NULL;
    struct error err;
    if (read_text(text, &conf, &err) != 0)
        fail_msg("%s", err.text);
    return conf;
}

/* What a file does not say: run's own defaults, and the presets of the methods, which issue 8 names. */
static void
defaults(void **state)
{
    (void)state;
    AUTO_JSON json_t *conf = conf_of("");
    assert_string_equal(runconf_text(conf, "", "model"), "Qwen/Qwen2.5-Coder-7B-Instruct");
    assert_int_equal(runconf_number(conf, "", "gpus"), 1);
    assert_true(json_is_true(runconf_get(conf, "verifier", "selftest")));
    assert_int_equal(runconf_number(conf, "sync", "every_s"), 600);
    assert_string_equal(runconf_text(conf, "sync", "engine"), "rclone");
    assert_string_equal(runconf_text(conf, "rl", "method"), "bestofn");
    assert_int_equal(runconf_number(conf, "rl", "level"), 2);
    assert_int_equal(runconf_number(conf, "evaluate", "level"), 2);
    assert_int_equal(runconf_number(conf, "evaluate", "max_tasks"), 20);
    assert_int_equal(runconf_number(conf, "sft", "lora_r"), 16);
    assert_int_equal(runconf_number(conf, "sft", "lora_alpha"), 32);
    assert_true(runconf_number(conf, "sft", "lora_dropout") == 0.05);
    assert_int_equal(runconf_number(conf, "sft", "epochs"), 1);
    assert_true(runconf_number(conf, "sft", "learning_rate") == 1e-5);
    assert_int_equal(runconf_number(conf, "sft", "batch"), 2);
    assert_int_equal(runconf_number(conf, "sft", "accumulation"), 4);
    assert_int_equal(runconf_number(conf, "sft", "length"), 8192);
    assert_int_equal(runconf_number(conf, "sft", "save_steps"), 50);
    assert_int_equal(runconf_number(conf, "sft", "keep"), 2);
    assert_int_equal(runconf_number(conf, "train", "epochs"), 2);
    assert_int_equal(runconf_number(conf, "train", "batch"), 4);
    assert_true(runconf_number(conf, "train", "learning_rate") == 5e-6);
}

/* "train" has the defaults of the method that "rl" names, before it or after. */
static void
the_method_decides(void **state)
{
    static const char *const texts[] = { "rl { method = reinforce }\ntrain { seed = 3 }\n",
                                         "train { seed = 3 }\nrl { method = reinforce }\n" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO_JSON json_t *conf = conf_of(texts[i]);
        assert_true(runconf_number(conf, "train", "learning_rate") == 1e-6);
        assert_int_equal(runconf_number(conf, "train", "epochs"), 2);
        assert_int_equal(runconf_number(conf, "train", "tasks_per_step"), 8);
        assert_true(runconf_number(conf, "train", "gradient_norm") == 1.0);
        assert_string_equal(runconf_text(conf, "train", "reward"), "hierarchical");
        assert_string_equal(runconf_text(conf, "train", "baseline"), "leave_one_out");
        assert_int_equal(runconf_number(conf, "train", "seed"), 3);
        assert_int_equal(runconf_number(conf, "sft", "seed"), 0);
    }
}

/* A section named by a method holds for that method, and before "train". */
static void
sections_of_methods(void **state)
{
    static const char text[] =
        "train { epochs = 9\n seed = 3 }\nreinforce { epochs = 4 }\nbestofn { batch = 7 }\n";
    (void)state;
    AUTO_JSON json_t *conf = conf_of(text);
    assert_int_equal(runconf_number(conf, "train", "epochs"), 9);
    assert_int_equal(runconf_number(conf, "train", "batch"), 7);
    AUTO_FREE char *other = NULL;
    assert_true(asprintf(&other, "%srl { method = reinforce }\n", text) > 0);
    AUTO_JSON json_t *second = conf_of(other);
    assert_int_equal(runconf_number(second, "train", "epochs"), 4);
    assert_int_equal(runconf_number(second, "train", "seed"), 3);
    assert_int_equal(runconf_number(second, "train", "batch"), 2);
    assert_true(runconf_number(second, "train", "learning_rate") == 1e-6);
    assert_null(json_object_get(second, "reinforce"));
}

static void
what_the_file_says(void **state)
{
    (void)state;
    assert_int_equal(setenv("TEST_RUNCONF", "8123", 1), 0);
    AUTO_JSON json_t *conf = conf_of("# a run\n"
                                     "model = \"some/where\" // a path\n"
                                     "gpu_price = 2.5\n"
                                     "endpoint {\n url = \"http://h:${TEST_RUNCONF}/v1\"\n keep = true\n"
                                     " temperature = 0\n}\n"
                                     "rl { rounds = 2\n rounds = 7 }\n");
    assert_string_equal(runconf_text(conf, "", "model"), "some/where");
    assert_true(runconf_number(conf, "", "gpu_price") == 2.5);
    assert_string_equal(runconf_text(conf, "endpoint", "url"), "http://h:8123/v1");
    assert_true(json_is_true(runconf_get(conf, "endpoint", "keep")));
    assert_true(runconf_number(conf, "endpoint", "temperature") == 0);
    assert_int_equal(runconf_number(conf, "rl", "rounds"), 7); /* the last one counts */
    assert_true(json_is_integer(runconf_get(conf, "rl", "rounds")));
}

/* Where libconfuse puts nothing in, nothing has to be set. */
static void
variables_that_need_not_be_set(void **state)
{
    (void)state;
    AUTO_JSON json_t *conf = conf_of("# ${TEST_UNSET}\n// ${TEST_UNSET}\n/* ${TEST_UNSET} */\n"
                                     "model = 'a/${TEST_UNSET}'\n"
                                     "python = \"${TEST_UNSET:-python3}\"\n"
                                     "endpoint { url = \"http://h/#${TEST_RUNCONF_EMPTY}\"\n"
                                     " start = \"serve \\${TEST_UNSET} $TEST_UNSET\" }\n");
    assert_string_equal(runconf_text(conf, "", "model"), "a/${TEST_UNSET}");
    assert_string_equal(runconf_text(conf, "", "python"), "python3");
    assert_string_equal(runconf_text(conf, "endpoint", "url"), "http://h/#");
    assert_string_equal(runconf_text(conf, "endpoint", "start"), "serve ${TEST_UNSET} $TEST_UNSET");
}

/* Each message names the file, the line, the key, and what it takes. */
static void
bad_files(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "gpus = 0\n", ":1: gpus takes a whole number from 1 to 1024, not \"0\"" },
        { "\n\ngpus = 1.5\n", ":3: gpus takes a whole number" },
        { "gpus = nan\n", ":1: gpus takes" },
        { "gpus = \"\"\n", ":1: gpus takes" },
        { "gpus = 3x\n", ":1: gpus takes" },
        { "gpu_price = inf\n", ":1: gpu_price takes a number from 0 to 10000" },
        { "sft {\n epochs = 1\n learning_rate = fast\n}\n", ":3: sft.learning_rate takes a number" },
        { "train {\n learning_rate = -1\n}\n", ":2: train.learning_rate takes a number" },
        { "rl { method = \"ppo\" }\n",
          ":1: rl.method takes one of bestofn weighted reinforce grpo, not \"ppo\"" },
        { "rl {\n method = \"\"\n}\n", ":2: rl.method takes one of" },
        { "verifier {\n\n selftest = yes }\n", ":3: verifier.selftest takes true or false, not \"yes\"" },
        { "sft {\n lerning_rate = 1\n}\n", ":2: no such option 'lerning_rate'" },
        { "gpu = 8\n", ":1: no such option 'gpu'" },
        { "train {\n gpus = 8\n}\n", ":2: no such option 'gpus'" },
        { "rlhf { }\n", ":1: no such option 'rlhf'" },
        { "gpus = 8\nseed =", ":2: " },
        { "gpus 8\n", ":1: " },
        { "gpus = 0\nseed = -1\n", ":1: gpus" }, /* the first one */
        { "model = \"\xff\"\n", ":1: model is not UTF-8" },
        { "gpus = 1\nendpoint {\n url = \"http://h:${TEST_UNSET}/v1\"\n}\n",
          ":3: ${TEST_UNSET} is not set in the environment" },
        { "/* one\n two */ gpus = 1 # \"\nseed = ${TEST_UNSET}\n", ":3: ${TEST_UNSET} is not set" },
        { "model = \"a\\\"\nb ${TEST_UNSET}\"\n", ":2: ${TEST_UNSET} is not set" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *conf = NULL;
        struct error err;
        int rc = read_text(rows[i].text, &conf, &err);
        if (rc != ERR_INPUT || strncmp(err.text, path, strlen(path)) != 0 || !strstr(err.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
        assert_null(conf);
    }
}

#define SHIPPED "client/deploy/qwen2.5-coder-7b-8gpu.conf" /* tests run at the top of the source */

struct number {
    const char *section, *key;
    double value;
};

static void
assert_numbers(json_t *conf, const struct number *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (runconf_number(conf, numbers[i].section, numbers[i].key) != numbers[i].value)
            fail_msg("%s.%s is %g, not %g", numbers[i].section, numbers[i].key,
                     runconf_number(conf, numbers[i].section, numbers[i].key), numbers[i].value);
}

/* What the file says itself, without any default: is this line in this section? */
static void
assert_says(const char *text, const char *section, const char *line)
{
    char head[64];
    snprintf(head, sizeof(head), "\n%s {\n", section);
    const char *begin = strstr(text, head);
    const char *end = begin ? strstr(begin, "\n}") : NULL;
    const char *found = begin ? strstr(begin, line) : NULL;
    if (!found || found > end)
        fail_msg("%s does not say \"%s\" in its section %s", SHIPPED, line, section);
}

/* Issue 8, number by number. */
static void
shipped_numbers(void **state)
{
    static const struct number bestofn[] = {
        { "", "gpus", 4 },
        { "sft", "lora_r", 16 },
        { "sft", "lora_alpha", 32 },
        { "sft", "lora_dropout", 0.05 },
        { "sft", "epochs", 1 },
        { "sft", "learning_rate", 1e-5 },
        { "sft", "batch", 2 },
        { "sft", "accumulation", 8 },
        { "sft", "length", 8192 },
        { "sft", "save_steps", 50 },
        { "sft", "keep", 2 },
        { "sft", "least_loss", 0.01 },
        { "train", "epochs", 2 },
        { "train", "batch", 4 },
        { "train", "learning_rate", 5e-6 },
        { "train", "lora_r", 16 },
        { "train", "lora_alpha", 32 },
        { "train", "length", 8192 },
        { "train", "save_steps", 50 },
        { "train", "keep", 2 },
        { "train", "least_loss", 0.01 },
        { "rl", "level", 2 }, /* tasks with operations to fuse */
        { "evaluate", "level", 2 },
        { "evaluate", "max_tasks", 20 },
        { "sync", "every_s", 600 },
        { "watch", "every_s", 5 },
    };
    static const struct number reinforce[] = {
        { "train", "learning_rate", 1e-6 }, { "train", "epochs", 2 },      { "train", "tasks_per_step", 8 },
        { "train", "gradient_norm", 1.0 },  { "train", "lora_r", 16 },     { "train", "lora_alpha", 32 },
        { "train", "length", 8192 },        { "train", "save_steps", 50 },
    };
    static const char *const lines[][2] = {
        { "sft", "lora_r = 16" },
        { "sft", "lora_alpha = 32" },
        { "sft", "lora_dropout = 0.05" },
        { "sft", "epochs = 1" },
        { "sft", "learning_rate = 1e-5" },
        { "sft", "batch = 2" },
        { "sft", "accumulation = 8" },
        { "sft", "length = 8192" },
        { "sft", "save_steps = 50" },
        { "bestofn", "epochs = 2" },
        { "bestofn", "batch = 4" },
        { "bestofn", "learning_rate = 5e-6" },
        { "reinforce", "epochs = 2" },
        { "reinforce", "learning_rate = 1e-6" },
        { "reinforce", "tasks_per_step = 8" },
        { "train", "gradient_norm = 1.0" },
        { "reinforce", "reward = \"hierarchical\"" },
        { "reinforce", "baseline = \"leave_one_out\"" },
        { "sync", "every_s = 600" },
        { "watch", "every_s = 5" },
        { "train", "save_steps = 50" },
    };
    static const char targets[] = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";
    (void)state;
    char text[16384];
    FILE *file = fopen(SHIPPED, "r");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    AUTO_JSON json_t *conf = conf_of(text);
    assert_numbers(conf, bestofn, ARRAY_LEN(bestofn));
    assert_int_equal(runconf_number(conf, "", "gpus") * runconf_number(conf, "sft", "batch") *
                         runconf_number(conf, "sft", "accumulation"),
                     64);
    assert_string_equal(runconf_text(conf, "", "model"), "Qwen/Qwen2.5-Coder-7B-Instruct");
    assert_string_equal(runconf_text(conf, "sft", "lora_targets"), targets);
    assert_string_equal(runconf_text(conf, "train", "lora_targets"), targets);
    assert_string_equal(runconf_text(conf, "sft", "precision"),
                        "auto"); /* bf16, or fp16 where the card lacks it */
    assert_string_equal(runconf_text(conf, "watch", "clouds"), "aws,gcp,azure");
    assert_true(json_is_true(runconf_get(conf, "verifier", "selftest")));
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_says(text, lines[i][0], lines[i][1]);
    /* One word is changed, and it is REINFORCE. */
    char *method = strstr(text, "method = \"bestofn\"");
    assert_non_null(method);
    AUTO_FREE char *other = NULL;
    assert_true(asprintf(&other, "%.*smethod = \"reinforce\"%s", (int)(method - text), text,
                         method + strlen("method = \"bestofn\"")) > 0);
    AUTO_JSON json_t *second = conf_of(other);
    assert_numbers(second, reinforce, ARRAY_LEN(reinforce));
    assert_string_equal(runconf_text(second, "train", "reward"), "hierarchical");
    assert_string_equal(runconf_text(second, "train", "baseline"), "leave_one_out");
}

static void
no_file(void **state)
{
    json_t *conf = NULL;
    struct error err = { 0 };
    (void)state;
    assert_int_equal(runconf_read("/nowhere/run.conf", &conf, &err), ERR_SYS);
    assert_non_null(strstr(err.text, "/nowhere/run.conf"));
}

int
main(void)
{
    setenv("TEST_RUNCONF_EMPTY", "", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(the_method_decides),
        cmocka_unit_test(sections_of_methods),
        cmocka_unit_test(what_the_file_says),
        cmocka_unit_test(variables_that_need_not_be_set),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(no_file),
        cmocka_unit_test(shipped_numbers),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
