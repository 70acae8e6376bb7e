#include "client/trainer/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/auto.h"
#include "tests/unit/folder.h"

static json_t *
at(json_t *document, const char *one, const char *two, const char *three)
{
    json_t *found = json_object_get(document, one);
    found = two ? json_object_get(found, two) : found;
    return three ? json_object_get(found, three) : found;
}

static void
assert_number(json_t *document, const char *one, const char *two, const char *three, double expected)
{
    json_t *found = at(document, one, two, three);
    double x = json_number_value(found);
    if (!json_is_number(found) || x < expected - 1e-9 || x > expected + 1e-9)
        fail_msg("%s %s %s is %g, not %g", one, two, three, x, expected);
}

static void
assert_holds(const struct buffer *page, const char *text)
{
    if (!strstr(page->data, text))
        fail_msg("the page has no %s", text);
}

#define VERDICT(kind, reward, components) \
    "{\"verdict\":{\"class\":\"" kind "\",\"reward\":" reward ",\"components\":{" components "}}}\n"

/* Of each answer judged once: how far it came, its class, its reward; what infra left without one counts in the funnel alone. */
static void
rounds(void **state)
{
    static const int bins[10] = { 2, 0, 0, 0, 0, 1, 0, 0, 0, 2 };
    (void)state;
    put("outputs/bestofn_round1/candidates.jsonl",
        VERDICT("ok", "1.0", "\"extracted\":1,\"valid\":1,\"compiled\":1,\"correct\":1,\"timed\":1")
            VERDICT("ok", "0.9", "\"extracted\":1,\"valid\":1,\"compiled\":1,\"correct\":1,\"timed\":0")
                VERDICT("mismatch", "0.5", "\"extracted\":1,\"valid\":1,\"compiled\":1,\"correct\":0")
                    VERDICT("syntax", "0.0", "\"extracted\":1,\"valid\":0")
                        VERDICT("hack", "0.0", "\"extracted\":1,\"valid\":1,\"compiled\":1") VERDICT(
                            "infra", "null",
                            "\"extracted\":1") "{\"verdict\":{\"class\":\"ok\",\"reward\":1.0,\"duplicate_"
                                               "of\":\"x\",\"components\":{\"extracted\":1}}}\n"
                                               "{\"verdict\":null}\n[1]\nnot JSON\n\n");
    AUTO_JSON json_t *d = report_read(directory);
    assert_number(d, "funnel", "round1", "answers", 6);
    assert_number(d, "funnel", "round1", "extracted", 6);
    assert_number(d, "funnel", "round1", "valid", 4);
    assert_number(d, "funnel", "round1", "compiled", 4);
    assert_number(d, "funnel", "round1", "correct", 2);
    assert_number(d, "funnel", "round1", "timed", 1);
    assert_number(d, "classes", "round1", "ok", 2);
    assert_number(d, "classes", "round1", "infra", 1);
    assert_number(d, "cheats", "round1", "hack", 1);
    assert_number(d, "cheats", "round1", "policy", 0);
    assert_number(d, "rewards", "round1", "n", 5);
    assert_number(d, "rewards", "round1", "mean", 0.48);
    assert_number(d, "rewards", "round1", "least", 0);
    assert_number(d, "rewards", "round1", "most", 1);
    for (size_t i = 0; i < ARRAY_LEN(bins); i++)
        assert_int_equal(json_integer_value(json_array_get(at(d, "rewards", "round1", "bins"), i)), bins[i]);
}

/* One reward has no spread, and no reward no mean. */
static void
rounds_of_little(void **state)
{
    (void)state;
    put("outputs/bestofn_round2/candidates.jsonl", VERDICT("ok", "0.7", "\"extracted\":1"));
    put("outputs/bestofn_round3/candidates.jsonl", VERDICT("infra", "null", "\"extracted\":1"));
    AUTO_JSON json_t *d = report_read(directory);
    assert_number(d, "rewards", "round2", "n", 1);
    assert_number(d, "rewards", "round2", "mean", 0.7);
    assert_int_equal(json_integer_value(json_array_get(at(d, "rewards", "round2", "bins"), 0)), 1);
    assert_number(d, "rewards", "round3", "n", 0);
    assert_null(at(d, "rewards", "round3", "mean"));
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    report_page(&page, d);
    assert_null(strstr(page.data, "nan"));
    assert_null(strstr(page.data, "inf<"));
}

static void
losses(void **state)
{
    (void)state;
    put("outputs/train_sft/metrics.jsonl",
        "{\"step\":1,\"loss\":4.0,\"secret\":1}\n{\"step\":2,\"loss\":1.0}\n"
        "{\"step\":3}\n{\"step\":4,\"loss\":2.0}\n");
    AUTO_JSON json_t *d = report_read(directory);
    json_t *points = at(d, "losses", "sft", NULL);
    assert_int_equal(json_array_size(points), 4);
    assert_true(json_number_value(json_object_get(json_array_get(points, 0), "loss")) == 4.0);
    assert_null(json_object_get(json_array_get(points, 0), "secret"));
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    report_page(&page, d);
    assert_holds(&page, "<h3>sft</h3><p>loss: first 4, last 2, least 1, most 4 (3 steps)</p>");
    /* The greatest on top, the least at the bottom; the step without a loss has no place. */
    assert_holds(&page, "<polyline points=\"0.0,5.0 200.0,115.0 600.0,78.3 \"/>");
    assert_null(strstr(page.data, "reward_mean:"));
}

/* The best three of all rounds, the best first; of equals the one that came first. */
static void
best_kernels(void **state)
{
    static const char *const expected[] = { "d", "b", "c" };
    (void)state;
    put("outputs/bestofn_round1/kept.jsonl", "{\"task\":\"a\",\"reward\":0.1,\"code\":\"\"}\n"
                                             "{\"task\":\"b\",\"reward\":0.8,\"code\":\"x < y\"}\n");
    put("outputs/bestofn_round2/kept.jsonl",
        "{\"task\":\"c\",\"reward\":0.8}\n{\"task\":\"d\",\"reward\":1.5}\n"
        "{\"task\":\"e\",\"reward\":0.8}\n");
    AUTO_JSON json_t *d = report_read(directory);
    json_t *best = json_object_get(d, "best");
    assert_int_equal(json_array_size(best), 3);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(best, i), "task")), expected[i]);
}

static void
costs(void **state)
{
    (void)state;
    put("run.json",
        "{\"configuration\":{\"gpus\":4,\"gpu_price\":2.5},\"steps\":{\"sft\":{\"seconds\":900,\"state\":"
        "\"done\"},\"round1\":{\"seconds\":90,\"state\":\"failed\"}}}");
    AUTO_JSON json_t *d = report_read(directory);
    assert_number(d, "costs", "gpu_seconds", NULL, 3960);
    assert_number(d, "costs", "price", NULL, 2.75);
    json_t *sft = json_object_get(at(d, "costs", "steps", NULL), "sft");
    assert_true(json_number_value(json_object_get(sft, "gpu_seconds")) == 3600);
    assert_number(d, "configuration", "gpus", NULL, 4);
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    report_page(&page, d);
    assert_holds(&page, "<p>3960 GPU seconds, price 2.75</p>");
    assert_holds(&page, "<th>round1</th><td>90</td><td>360</td><td>failed</td>");
}

/* Issue 22, point 9: SFT against RL and published figures, and time by phase with the GPUs that waited. */
static void
differences_and_phases(void **state)
{
    (void)state;
    put("outputs/comparison.json",
        "[{\"name\":\"sft_final\",\"levels\":{\"2\":{\"correct\":10,\"correct_difference\":null,"
        "\"previous_difference\":null,\"less_published\":{\"Tri<ton\":3}}}},"
        "{\"name\":\"rl_final\",\"levels\":{\"2\":{\"correct\":15,\"correct_difference\":{\"mean\":15},"
        "\"previous_difference\":{\"mean\":5},\"less_published\":{\"Tri<ton\":8}}}}]");
    put("run.json",
        "{\"configuration\":{\"gpus\":4,\"gpu_price\":1},\"steps\":{\"prepare\":{\"seconds\":10,\"stage\":"
        "\"prepare\","
        "\"argv\":[\"prepare\"]},\"round1\":{\"seconds\":20,\"stage\":\"rl\",\"argv\":[\"bestofn\"]},"
        "\"learned\":{\"seconds\":30,\"stage\":\"rl\",\"argv\":[\"sft\"],\"trains\":true},"
        "\"publish\":{\"seconds\":1,\"stage\":\"rl\",\"argv\":[\"@publish\"]}}}");
    AUTO_JSON json_t *d = report_read(directory);
    json_t *row = json_object_get(json_object_get(d, "comparison"), "rl_final, level 2");
    assert_true(json_number_value(json_object_get(row, "beyond the one before")) == 5);
    assert_true(json_number_value(json_object_get(row, "less Tri<ton")) == 8);
    json_t *phases = at(d, "costs", "phases", NULL), *rl = json_object_get(phases, "rl");
    assert_true(json_number_value(json_object_get(rl, "wall_s")) == 51);
    assert_true(json_number_value(json_object_get(rl, "gpu_s")) == 204);
    assert_true(json_number_value(json_object_get(rl, "idle_gpu_s")) == 4);
    assert_true(json_number_value(json_object_get(json_object_get(phases, "prepare"), "idle_gpu_s")) == 40);
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    report_page(&page, d);
    assert_holds(&page, "<th>less Tri&lt;ton</th>");
    assert_holds(&page, "<th>rl_final, level 2</th><td>15</td><td>15</td><td>5</td><td>8</td>");
    assert_holds(&page, "<th>sft_final, level 2</th><td>10</td><td>-</td><td>-</td><td>3</td>");
    assert_holds(&page, "<th>rl</th><td>51</td><td>204</td><td>4</td>");
}

/* Kernels, tasks' names and configurations are others' texts. */
static void
escaping(void **state)
{
    static const char hostile[] = "</pre><script>alert(\\\"&\\\")</script>";
    static const char escaped[] = "&lt;/pre&gt;&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;";
    char text[512];
    (void)state;
    snprintf(text, sizeof(text), "{\"task\":\"T%s\",\"reward\":9,\"code\":\"C%s\"}\n", hostile, hostile);
    put("outputs/bestofn_round9/kept.jsonl", text);
    snprintf(text, sizeof(text), "{\"name\":\"N%s\",\"metrics\":{\"num_tasks\":3,\"fast_p\":{\"1\":33.3}}}",
             hostile);
    put("outputs/eval_base.json", text);
    snprintf(text, sizeof(text),
             "{\"configuration\":{\"model\":\"M%s\"},\"steps\":{\"S%s\":{\"state\":\"A%s\"}}}", hostile,
             hostile, hostile);
    put("run.json", text);
    snprintf(text, sizeof(text), "{\"p\":\"U%s\"}", hostile);
    put("checkpoints/curriculum.json", text);
    AUTO_JSON json_t *d = report_read(directory);
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    report_page(&page, d);
    assert_null(strstr(page.data, "<script"));
    for (const char *mark = "TCNSA"; *mark; mark++) {
        snprintf(text, sizeof(text), "%c%s", *mark, escaped);
        assert_holds(&page, text);
    }
    assert_holds(&page, "M&lt;/pre&gt;");
    assert_holds(&page, "U&lt;/pre&gt;");
    assert_holds(&page, "<td>3</td>");
    assert_holds(&page, "<td>33.3</td>");
}

static void
nothing_there(void **state)
{
    (void)state;
    AUTO_JSON json_t *d = report_read("/nowhere");
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    assert_int_equal(json_object_size(json_object_get(d, "rewards")), 0);
    assert_number(d, "costs", "gpu_seconds", NULL, 0);
    report_page(&page, d);
    assert_holds(&page, "</html>");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(rounds),   IN_DIRECTORY(rounds_of_little),
        IN_DIRECTORY(losses),   IN_DIRECTORY(best_kernels),
        IN_DIRECTORY(costs),    IN_DIRECTORY(differences_and_phases),
        IN_DIRECTORY(escaping), cmocka_unit_test(nothing_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
