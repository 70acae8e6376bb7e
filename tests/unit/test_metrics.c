/* test_metrics.c - figures as Prometheus reads them: every line well formed, every label escaped, units as named. */
#include "server/http/metrics.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static char *
written(const char *json)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_JSON json_t *status = json_loads(json, 0, NULL);

    assert_non_null(status);
    assert_int_equal(metrics_write(status, &out), 0);
    return buffer_take(&out, NULL);
}

static void
assert_has(const char *text, const char *line)
{
    size_t size = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at += size)
        if ((at == text || at[-1] == '\n') && at[size] == '\n')
            return;
    fail_msg("\"%s\" is no line of\n%s", line, text);
}

#define STATUS                                                                                               \
    "{\"node\":{\"name\":\"a\",\"role\":\"all\",\"version\":\"1.2\",\"state\":\"draining\",\"lease_s\":12."  \
    "5,"                                                                                                     \
    "\"running\":3,\"gpus\":[{},{}]},"                                                                       \
    "\"ready\":true,\"version\":\"1.2\",\"queues\":{\"queued\":{\"interactive\":3,\"batch\":4},"             \
    "\"waiting\":7},"                                                                                        \
    "\"counts\":{\"stages\":{\"ast\":{\"entered\":5,\"pass\":3,\"fail\":2,\"skip\":0,\"spared\":1,"          \
    "\"run_ms\":1500}},\"classes\":{\"ok\":3},\"cache\":{\"hits\":6,\"differed\":1},\"finished\":4,"         \
    "\"verdict_s\":2.5,"                                                                                     \
    "\"rejections\":[{\"class\":\"hack\",\"rule\":\"a\\\"b\\\\c\\nd\",\"n\":2},"                             \
    "{\"class\":\"policy\",\"rule\":\"\",\"n\":1}]},"                                                        \
    "\"store\":{\"commit_ms_max\":250,\"commits\":12345678901},"                                             \
    "\"workers\":[{\"name\":\"referee cpu\",\"device\":\"cpu\",\"state\":\"waiting\",\"starts\":2,"          \
    "\"lane\":\"starting\",\"pool\":{\"ready\":2,\"making\":1,\"most\":4,\"made\":9,"                        \
    "\"lost\":1,\"waited_s\":1.5}}],"                                                                        \
    "\"gpus\":[{\"device\":\"cuda:0\",\"canary\":{\"age_s\":12.5,\"drift\":-0.01,\"passes\":7,\"failures\":" \
    "2}},"                                                                                                   \
    "{\"device\":\"cuda:1\",\"canary\":{\"age_s\":null,\"drift\":null,\"passes\":0,\"failures\":0}}],"       \
    "\"http\":{\"answers\":{\"200\":9,\"401\":1}}}"

static void
figures_have_their_names_and_units(void **state)
{
    static const char *const lines[] = {
        "verifierd_build_info{version=\"1.2\"} 1",
        "verifierd_node_info{node=\"a\",role=\"all\",version=\"1.2\"} 1",
        "verifierd_node_gpus{node=\"a\"} 2",
        "verifierd_node_running{node=\"a\"} 3",
        "verifierd_node_lease_seconds{node=\"a\"} 12.5",
        "verifierd_node_draining{node=\"a\"} 1",
        "verifierd_ready 1",
        "verifierd_waiting_submissions 7",
        "verifierd_queue_length{queue=\"queued\",priority=\"batch\"} 4",
        "verifierd_verdicts_total{class=\"ok\"} 3",
        "verifierd_cache_answers_total{result=\"hits\"} 6",
        "verifierd_cache_differences_total 1",
        "verifierd_rejections_total{class=\"hack\",rule=\"a\\\"b\\\\c\\nd\"} 2",
        "verifierd_rejections_total{class=\"policy\",rule=\"\"} 1",
        "verifierd_submission_seconds_sum 2.5",
        "verifierd_submission_seconds_count 4",
        "verifierd_stage_outcomes_total{stage=\"ast\",outcome=\"fail\"} 2",
        "verifierd_stage_run_seconds_total{stage=\"ast\"} 1.5",
        "verifierd_stage_spared_total{stage=\"ast\"} 1",
        "verifierd_store_commit_max_seconds 0.25",
        "verifierd_store_commits_total 12345678901",
        "verifierd_worker_ready{worker=\"referee cpu\"} 0",
        "verifierd_worker_starts_total{worker=\"referee cpu\"} 2",
        "verifierd_device_state{device=\"cpu\",state=\"starting\"} 1",
        "verifierd_pool_children{device=\"cpu\",state=\"ready\"} 2",
        "verifierd_pool_children{device=\"cpu\",state=\"making\"} 1",
        "verifierd_pool_made_total{device=\"cpu\"} 9",
        "verifierd_pool_lost_total{device=\"cpu\"} 1",
        "verifierd_pool_wait_seconds_total{device=\"cpu\"} 1.5",
        "verifierd_canary_age_seconds{device=\"cuda:0\"} 12.5",
        "verifierd_canary_drift_ratio{device=\"cuda:0\"} -0.01",
        "verifierd_canary_passes_total{device=\"cuda:0\"} 7",
        "verifierd_canary_failures_total{device=\"cuda:1\"} 0",
        "verifierd_http_requests_total{code=\"401\"} 1",
    };
    AUTO_FREE char *text = written(STATUS);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_has(text, lines[i]);
    assert_null(strstr(text, "verifierd_canary_age_seconds{device=\"cuda:1\"}"));
    assert_null(strstr(text, "verifierd_canary_drift_ratio{device=\"cuda:1\"}"));
}

/* "# HELP name …", "# TYPE name kind", then its samples and no others; no name comes twice. */
static void
families_stand_together(void **state)
{
    char current[80] = "", kind[16], name[80];
    AUTO_FREE char *text = written(STATUS);
    char *rest = text, *line;
    int families = 0;

    (void)state;
    while ((line = strsep(&rest, "\n")) && *line) {
        if (sscanf(line, "# HELP %79[a-z_] ", current) == 1) {
            families++;
            assert_true(strlen(line) > strlen("# HELP ") + strlen(current) + 10);
            line = strsep(&rest, "\n");
            assert_int_equal(sscanf(line, "# TYPE %79[a-z_] %15s", name, kind), 2);
            assert_string_equal(name, current);
            bool is_counter = strcmp(kind, "counter") == 0;
            size_t size = strlen(name);
            assert_int_equal(is_counter, size > 6 && strcmp(name + size - 6, "_total") == 0);
            continue;
        }
        assert_int_equal(sscanf(line, "%79[a-z_]", name), 1);
        assert_memory_equal(name, current, strlen(current));
        assert_true(isdigit((unsigned char)line[strlen(line) - 1]));
    }
    assert_null(rest && *rest ? rest : NULL);
    assert_true(families > 15);
}

/* A daemon that just starts has little to tell, and that is well formed too. */
static void
what_is_not_known_is_left_out(void **state)
{
    AUTO_FREE char *text = written("{}");

    (void)state;
    assert_has(text, "verifierd_build_info{version=\"\"} 1");
    assert_null(strstr(text, "verifierd_queue_limit"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_have_their_names_and_units),
        cmocka_unit_test(families_stand_together),
        cmocka_unit_test(what_is_not_known_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
