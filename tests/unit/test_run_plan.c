#include "client/trainer/run_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/trainer/run_estimate.h"
#include "client/trainer/run_files.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"

static char path[] = "/tmp/test_run_plan.XXXXXX";
static struct trainer trainer = { .daemon_url = "http://judge" };

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

/* A run with its plan, of a configuration's text. */
static void
plan(struct run *r, const char *text, const char *stage)
{
    struct error err = { 0 };
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    *r = (struct run){ .trainer = &trainer, .stage = stage, .max_samples = -1, .workdir = "/data/run" };
    r->serving.url = "http://model/v1";
    r->steps = json_array();
    if (runconf_read(path, &r->conf, &err) != 0)
        fail_msg("%s", err.text);
    run_plan(r);
}

static void
release(struct run *r)
{
    json_decref(r->conf);
    json_decref(r->steps);
}

static const char *
name_of(json_t *step)
{
    return json_string_value(json_object_get(step, "name"));
}

static json_t *
step_of(const struct run *r, const char *name)
{
    size_t i;
    json_t *step;
    json_array_foreach(r->steps, i, step) if (strcmp(name_of(step), name) == 0) return step;
    fail_msg("there is no step %s", name);
    return NULL;
}

static void
assert_names(const struct run *r, const char *expected)
{
    char names[1024] = "";
    size_t i;
    json_t *step;
    json_array_foreach(r->steps, i, step)
    {
        strcat(names, *names ? " " : "");
        strcat(names, name_of(step));
    }
    assert_string_equal(names, expected);
}

/* The texts of one of a step's lists, with a space after each. */
static const char *
list_of(const struct run *r, const char *name, const char *list)
{
    static char text[8192];
    size_t i;
    json_t *one;
    *text = '\0';
    json_array_foreach(json_object_get(step_of(r, name), list), i, one)
    {
        strcat(text, json_string_value(one));
        strcat(text, " ");
    }
    return text;
}

static void
assert_has(const struct run *r, const char *name, const char *word)
{
    char wanted[512];
    snprintf(wanted, sizeof(wanted), "%s ", word);
    if (!strstr(list_of(r, name, "argv"), wanted))
        fail_msg("%s: no %s in %s", name, word, list_of(r, name, "argv"));
}

static const char with_all[] = "evaluate { source = kernelbench }\n"
                               "prepare { source = kernelbook }\n"
                               "rl { rounds = 2\n curriculum = linear\n held_out = h.jsonl }\n";

static void
every_step(void **state)
{
    struct run r;
    (void)state;
    plan(&r, with_all, "all");
    assert_names(&r,
                 "selftest evaluation_tasks prepare extraction sft held_out_1 round1 rl_round1 held_out_2 "
                 "round2 rl_round2 publish evaluate_base evaluate_sft evaluate_rl compare report");
    release(&r);
}

static void
one_stage(void **state)
{
    static const struct {
        const char *stage, *names;
    } rows[] = {
        { "prepare", "selftest evaluation_tasks prepare extraction" },
        { "sft", "sft" },
        { "rl", "held_out_1 round1 rl_round1 held_out_2 round2 rl_round2 publish" },
        { "evaluate", "evaluate_base evaluate_sft evaluate_rl compare report" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run r;
        plan(&r, with_all, rows[i].stage);
        assert_names(&r, rows[i].names);
        release(&r);
    }
}

static void
methods(void **state)
{
    static const struct {
        const char *text, *names, *step, *has;
    } rows[] = {
        { "rl { rounds = 1 }", "round1 rl_round1 publish", "rl_round1", "--preset=bestofn" },
        { "rl { rounds = 1\n method = weighted }", "round1 rl_round1 publish", "rl_round1",
          "--data=outputs/bestofn_round1/candidates.jsonl" },
        { "rl { rounds = 1 }", "round1 rl_round1 publish", "rl_round1",
          "--data=outputs/bestofn_round1/kept.jsonl" },
        { "rl { method = reinforce }", "reinforce", "reinforce", "--baseline=leave_one_out" },
        { "rl { method = reinforce }", "reinforce", "reinforce", "--final=rl_final" },
        { "rl { method = grpo }", "grpo", "grpo", "--url=http://judge" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run r;
        plan(&r, rows[i].text, "rl");
        assert_names(&r, rows[i].names);
        assert_has(&r, rows[i].step, rows[i].has);
        assert_has(&r, rows[i].step, "--adapter={adapter}");
        assert_true(json_is_true(json_object_get(step_of(&r, rows[i].step), "trains")));
        release(&r);
    }
}

/* A setting of another method is not handed on: its command would refuse it. */
static void
settings_of_a_method(void **state)
{
    struct run r;
    (void)state;
    plan(&r, "sft { epochs = 3\n checkpointing = false\n samples = 5 }", "all");
    assert_has(&r, "sft", "sft");
    assert_has(&r, "sft", "--epochs=3");
    assert_has(&r, "sft", "--checkpointing=false");
    assert_has(&r, "sft", "--lora-r=16");
    assert_has(&r, "sft", "--model=Qwen/Qwen2.5-Coder-7B-Instruct");
    assert_null(strstr(list_of(&r, "sft", "argv"), "--samples"));
    assert_null(strstr(list_of(&r, "sft", "argv"), "--gpus"));
    assert_has(&r, "rl_round1", "--epochs=2");
    release(&r);
    plan(&r, "gpus = 8\nseed = 7\n", "all");
    assert_has(&r, "sft", "--gpus=8");
    assert_has(&r, "rl_round3", "--gpus=8");
    assert_has(&r, "sft", "--seed=7");
    assert_has(&r, "round1", "--seed=7"); /* other tasks each round */
    assert_has(&r, "round3", "--seed=9");
    release(&r);
}

/* Everything read is left by an earlier step, or is a file of the user's; steps are in an order that can be gone through. */
static void
check_inputs_of(const char *method)
{
    struct run r;
    size_t i, k;
    json_t *step, *one;
    AUTO_JSON json_t *made = json_object();
    size_t n = 0;
    char text[512];
    snprintf(text, sizeof(text), "%s rl { method = %s }\n", with_all, method);
    plan(&r, text, "all");
    json_array_foreach(r.steps, i, step)
    {
        json_array_foreach(json_object_get(step, "inputs"), k, one)
        {
            const char *input = json_string_value(one);
            bool is_users = strcmp(input, "h.jsonl") == 0;
            if (run_is_made(&r, input) == is_users)
                fail_msg("%s: %s reads %s, which no step makes", method, name_of(step), input);
            if (!is_users && !json_object_get(made, input))
                fail_msg("%s: %s reads %s before it is there", method, name_of(step), input);
            n++;
        }
        json_array_foreach(json_object_get(step, "outputs"), k, one)
            json_object_set_new(made, json_string_value(one), json_true());
    }
    assert_true(n > 10);
    assert_true(run_is_made(&r, "/data/run/checkpoints/rl_final"));
    assert_false(run_is_made(&r, "checkpoints/rl_round3"));
    release(&r);
}

static void
inputs_come_first(void **state)
{
    static const char *const methods[] = { "bestofn", "weighted", "reinforce", "grpo" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        check_inputs_of(methods[i]);
}

/* What the endpoint has to serve: the base, a checkpoint, or the adapter that the rounds have come to. */
static void
served(void **state)
{
    static const char *const rows[][2] = { { "round1", "{adapter}" },
                                           { "held_out_2", "{adapter}" },
                                           { "evaluate_base", "" },
                                           { "evaluate_sft", "sft_final" },
                                           { "evaluate_rl", "rl_final" } };
    struct run r;
    (void)state;
    plan(&r, with_all, "all");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *serve = json_string_value(json_object_get(step_of(&r, rows[i][0]), "serve"));
        assert_non_null(serve);
        assert_string_equal(serve, rows[i][1]);
        assert_has(&r, rows[i][0], "--model={served}");
    }
    assert_null(json_object_get(step_of(&r, "sft"), "serve"));
    assert_null(json_object_get(step_of(&r, "round1"), "trains"));
    release(&r);
}

static void
what_is_prepared(void **state)
{
    static const struct {
        const char *text, *has, *has_not;
    } rows[] = {
        { "", "--verify", "--static" },
        { "prepare { static = true }", "--static", "--verify" },
        { "prepare { verify = false }", "--max-samples=1000", "--verify" },
        { "prepare { source = kernelbook\n max_samples = 5 }", "--max-samples=5", "--overlap" },
        { "evaluate { source = kernelbench }", "--overlap=evaluation/data/processed/tasks.jsonl",
          "--source" },
        { "evaluate { source = kernelbench }\nprepare { overlap = own.jsonl }", "--overlap=own.jsonl",
          "--overlap=eval" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run r;
        plan(&r, rows[i].text, "all");
        assert_has(&r, "prepare", rows[i].has);
        assert_null(strstr(list_of(&r, "prepare", "argv"), rows[i].has_not));
        release(&r);
    }
}

/* Nothing to be judged by: the report is made all the same. No self-test where the file does not want one. */
static void
without(void **state)
{
    struct run r;
    (void)state;
    plan(&r, "verifier { selftest = false }\nrl { rounds = 1 }", "all");
    assert_names(&r, "prepare extraction sft round1 rl_round1 publish report");
    release(&r);
}

static void
max_samples(void **state)
{
    struct run r;
    (void)state;
    plan(&r, "", "sft");
    assert_null(strstr(list_of(&r, "sft", "argv"), "--max-samples=12"));
    json_array_clear(r.steps);
    r.max_samples = 12;
    run_plan(&r);
    assert_has(&r, "sft", "--max-samples=12");
    release(&r);
}

/* Hours of one GPU, by hand. */
static void
estimates(void **state)
{
#define SPEEDS                                                                                              \
    "estimate { train_tokens_per_s = 1000\n sample_tokens_per_s = 100\n verdicts_per_s = 2\n row_tokens = " \
    "500 }\n"
#define ANSWERS "endpoint { max_tokens = 400 }\n" /* 200 on average: 2 s, and half a second of judging */
    static const struct {
        const char *text, *step;
        double seconds;
    } rows[] = {
        { SPEEDS "prepare { max_samples = 360 }", "prepare", 180 },
        { SPEEDS "prepare { max_samples = 360\n verify = false }", "prepare", 0 },
        { SPEEDS "prepare { max_samples = 360\n static = true }", "prepare", 0 },
        { SPEEDS "prepare { max_samples = 0 }", "prepare", 9000 }, /* KernelBook's 18,000 */
        { SPEEDS "prepare { max_samples = 360 }\nsft { epochs = 3 }", "sft", 540 },
        { SPEEDS ANSWERS "rl { max_tasks = 6\n samples = 10 }", "round1", 150 },
        { SPEEDS "rl { max_tasks = 6\n samples = 10\n keep = 3 }\ntrain { epochs = 4 }", "rl_round1", 36 },
        { SPEEDS "rl { max_tasks = 6\n samples = 10\n method = weighted }\ntrain { epochs = 4 }", "rl_round1",
          120 },
        { SPEEDS "rl { max_tasks = 6\n method = reinforce }\ntrain { epochs = 2\n samples = 5\n "
                 "answer_tokens = 400 }",
          "reinforce", 180 }, /* 60 answers: 2 s sampled, half judged, half learned */
        { SPEEDS ANSWERS "evaluate { tasks = t.jsonl\n max_tasks = 8\n samples = 2 }", "evaluate_base", 40 },
        { SPEEDS ANSWERS "evaluate { tasks = t.jsonl\n max_tasks = 0 }", "evaluate_rl",
          675 }, /* KernelBench's 270 */
        { SPEEDS ANSWERS "rl { held_out = h.jsonl\n curriculum = fixed\n held_out_tasks = 4 }\n"
                         "evaluate { max_tasks = 9 }",
          "held_out_2", 10 },
        { SPEEDS, "publish", 0 },
        { SPEEDS, "report", 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run r;
        plan(&r, rows[i].text, "all");
        double seconds = 3600 * run_hours(&r, step_of(&r, rows[i].step));
        if (seconds < rows[i].seconds - 1e-6 || seconds > rows[i].seconds + 1e-6)
            fail_msg("%s: %g s, not %g, of %s", rows[i].step, seconds, rows[i].seconds, rows[i].text);
        release(&r);
    }
}

/* Issue 22, point 6: new tasks are a step, reinforcement draws from them, and a teacher's answers reach the fine-tuning. */
static void
fused_tasks_and_a_teacher(void **state)
{
    struct run r;
    (void)state;
    plan(&r, "verifier { selftest = false }\nrl { rounds = 1\n fused = 50 }\n", "all");
    assert_has(&r, "fuse", "--number=50");
    assert_has(&r, "fuse", "--mined");
    assert_has(&r, "fuse", "--with=data/processed/tasks.jsonl");
    assert_has(&r, "round1", "--tasks=data/processed/rl_tasks.jsonl");
    assert_has(&r, "round1", "--level=2");
    assert_has(&r, "sft", "--data=data/processed/sft_train.jsonl");
    release(&r);
    plan(&r,
         "verifier { selftest = false }\nrl { rounds = 1\n fused = 50\n method = reinforce }\n"
         "teacher { url = \"http://teacher/v1\"\n model = large }\n",
         "all");
    assert_names(&r, "prepare extraction fuse teach join sft reinforce report");
    assert_has(&r, "teach", "--as=sft");
    assert_has(&r, "teach", "--endpoint=http://teacher/v1");
    assert_has(&r, "teach", "--model=large");
    assert_string_equal(list_of(&r, "join", "inputs"),
                        "data/processed/sft_train.jsonl outputs/bestofn_teacher/sft_train.jsonl ");
    assert_has(&r, "sft", "--data=data/processed/sft_taught.jsonl");
    assert_has(&r, "reinforce", "--tasks=data/processed/rl_tasks.jsonl");
    release(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_tasks_and_a_teacher),
        cmocka_unit_test(every_step),
        cmocka_unit_test(one_stage),
        cmocka_unit_test(methods),
        cmocka_unit_test(settings_of_a_method),
        cmocka_unit_test(inputs_come_first),
        cmocka_unit_test(served),
        cmocka_unit_test(what_is_prepared),
        cmocka_unit_test(without),
        cmocka_unit_test(max_samples),
        cmocka_unit_test(estimates),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
