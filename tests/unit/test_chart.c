/* test_chart.c - a timing drawn in characters. */
#include "client/cli/chart.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/utf8.h"

static void
sparks(void **state)
{
    static const struct {
        double x[8];
        size_t n, columns;
        const char *wanted;
    } rows[] = {
        { { 0, 1, 2, 3, 4, 5, 6, 7 }, 8, 8, "▁▂▃▄▅▆▇█" },
        { { 7, 0 }, 2, 8, "█▁" },
        { { 7, 7, 7 }, 3, 8, "███" },
        { { -3, 9 }, 2, 8, "▁█" },
        { { 0, 0, 7, 7 }, 4, 2, "▁█" }, /* two values share a column */
        { { 0 }, 0, 8, "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_BUFFER struct buffer out = BUFFER_INIT;
        chart_spark(&out, rows[i].x, rows[i].n, 0, 7, rows[i].columns);
        assert_string_equal(out.data ? out.data : "", rows[i].wanted);
    }
    AUTO_BUFFER struct buffer flat = BUFFER_INIT;
    chart_spark(&flat, rows[2].x, 3, 7, 7, 8);
    assert_string_equal(flat.data, "▅▅▅");
}

static void
a_histogram_counts_every_value(void **state)
{
    const double x[] = { 1, 1.1, 1.2, 2, 3, 3 };
    AUTO_BUFFER struct buffer out = BUFFER_INIT, same = BUFFER_INIT;
    (void)state;
    chart_histogram(&out, x, 6, 2, 10);
    assert_string_equal(out.data, "     1.0000 ██████████ 3\n     2.0000 ██████████ 3\n");
    chart_histogram(&same, x + 4, 2, 5, 4);
    assert_string_equal(same.data, "     3.0000 ████ 2\n");
}

static void
an_interval_has_its_place_beside_one(void **state)
{
    AUTO_BUFFER struct buffer above = BUFFER_INIT, around = BUFFER_INIT, point = BUFFER_INIT;
    (void)state;
    chart_interval(&above, 1.5, 1.4, 2, 41);
    const char *one = strstr(above.data, "│"), *first = strstr(above.data, "├");
    const char *at = strstr(above.data, "●"), *last = strstr(above.data, "┤");
    assert_true(one && first && at && last && one < first && first < at && at < last);
    chart_interval(&around, 1.01, 0.9, 1.1, 41);
    assert_null(strstr(around.data, "│")); /* 1 lies within: the interval is drawn over it */
    chart_interval(&point, 1, 1, 1, 41);
    assert_non_null(strstr(point.data, "●"));
}

static json_t *
document(size_t n)
{
    json_t *reference = json_array(), *candidate = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(reference, json_real(3e6 + 1e4 * (double)(i % 7)));
        json_array_append_new(candidate, json_real(2e6 + 1e4 * (double)(i % 5)));
    }
    json_t *timing = json_pack(
        "{s:s, s:n, s:s, s:s, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}",
        "outcome", "measured", "why", "estimator", "paired", "stopped", "the interval is narrow enough",
        "calls", 8, "cold", 1, "speedup", 1.5, "speedup_lo", 1.49, "speedup_hi", 1.51, "speedup_trimmed", 1.5,
        "speedup_trimmed_lo", 1.48, "speedup_trimmed_hi", 1.52, "reference_ms", 3.02, "candidate_ms", 2.02,
        "reference_cv", 0.0021, "empty_ms", 0.34, "reference_ns", reference, "candidate_ns", candidate);
    json_object_set_new(timing, "gpu",
                        json_pack("{s:i, s:i, s:i, s:i, s:[f,f], s:[f,f]}", "throttled", 1, "blocks", 9,
                                  "void", 1, "background", 0, "sm_mhz", 1710.0, 1980.0, "temp_c", 40.0,
                                  40.0));
    json_object_set_new(timing, "not_captured", json_string("the candidate: it reads a number"));
    json_object_set_new(timing, "clocks",
                        json_pack("{s:[{s:n}, {s:s}]}", "blocks", "void", "void", "the GPU throttles"));
    return json_pack("{s:s, s:s, s:o}", "id", "0199f2c4", "task_name", "softmax", "timing", timing);
}

static size_t
columns_of(const char *line, size_t size)
{
    size_t columns = 0;
    for (size_t i = 0; i < size; columns++) {
        size_t step = utf8_char_size(line + i, size - i);
        assert_true(step > 0);
        i += step;
    }
    return columns;
}

static void
a_timing_fits_a_terminal(void **state)
{
    static const char *const wanted[] = { "measured",
                                          "8 calls",
                                          "L2 cold",
                                          "ended early",
                                          "no CUDA graph: the candidate: it reads a number",
                                          "1.5000  (95% interval 1.4900 to 1.5100)",
                                          "<- rewarded",
                                          "0.21",
                                          "200 pairs",
                                          "1710 to 1980 MHz",
                                          "40 degrees",
                                          "YES",
                                          "9, of them 1 measured again, 0 void by work",
                                          "block 1 is void: the GPU throttles",
                                          "▂▆▄",
                                          "●" };
    AUTO_JSON json_t *d = document(200);
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    (void)state;
    chart_timing(&out, d);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!strstr(out.data, wanted[i]))
            fail_msg("\"%s\" is not in\n%s", wanted[i], out.data);
    const char *trimmed = strstr(out.data, "\ntrimmed ");
    assert_true(trimmed && !strstr(strndupa(trimmed, strcspn(trimmed + 1, "\n") + 1), "rewarded"));
    for (const char *line = out.data; *line; line += strcspn(line, "\n") + 1)
        if (columns_of(line, strcspn(line, "\n")) > CHART_WIDTH)
            fail_msg("%zu columns: %.*s", columns_of(line, strcspn(line, "\n")), (int)strcspn(line, "\n"),
                     line);
}

/* One that was not timed, senseless samples, no timing at all: what there is is shown. */
static void
what_is_missing_is_left_out(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"timing\":null}",
        "{\"id\":\"x\",\"timing\":{\"outcome\":\"skipped\",\"why\":\"no GPU\"}}",
        "{\"timing\":{\"outcome\":\"measured\",\"reference_ns\":[1,2],\"candidate_ns\":[1]}}",
        "{\"timing\":{\"outcome\":\"measured\",\"reference_ns\":[1,-2],\"candidate_ns\":[1,1],\"gpu\":7}}",
        "{\"timing\":{\"reference_ns\":[null],\"candidate_ns\":[\"1\"],\"clocks\":{\"blocks\":[3]}}}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO_JSON json_t *d = json_loads(texts[i], 0, NULL);
        AUTO_BUFFER struct buffer out = BUFFER_INIT;
        assert_non_null(d);
        chart_timing(&out, d);
        assert_non_null(strstr(out.data, "timing"));
        assert_null(strstr(out.data, "pairs"));
        assert_null(strstr(out.data, "nan "));
    }
    AUTO_JSON json_t *one = document(1);
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    chart_timing(&out, one);
    assert_non_null(strstr(out.data, "1 pairs"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparks),
        cmocka_unit_test(a_histogram_counts_every_value),
        cmocka_unit_test(an_interval_has_its_place_beside_one),
        cmocka_unit_test(a_timing_fits_a_terminal),
        cmocka_unit_test(what_is_missing_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
