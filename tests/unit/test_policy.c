/* test_policy.c - policies by name and by part, and what a request may not say. */
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
#include "common/policy.h"

static int
read_text(const char *text, struct policy *out, struct json_fault *fault)
{
    AUTO_JSON json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return policy_read(value, "/policy", out, fault);
}

static void
names_have_their_defaults(void **state)
{
    struct policy p;

    (void)state;
    assert_int_equal(policy_read(NULL, "/policy", &p, NULL), 0);
    assert_string_equal(p.name, "strict");
    assert_true(p.staged && p.skip_timing_on_failure && p.tiny_first);
    assert_int_equal(p.variations.count, 5);
    assert_int_equal(p.timing.warmup, 10);
    assert_int_equal(p.timing.trials, 50);
    assert_string_equal(p.precision, "tf32");
    assert_string_equal(p.timing.estimator, "paired");
    assert_true(p.timing.cold && !p.timing.fixed);
    assert_int_equal(policy_find("kernelbench", &p), 0);
    assert_string_equal(p.precision, "ieee");
    assert_false(p.variations.value || p.variations.shape || p.variations.dtype);
    assert_int_equal(policy_find("lenient", &p), ERR_NOTFOUND);
}

/* Each part has its key, and turning it off turns off nothing else. */
static void
each_part_is_one_key(void **state)
{
    static const struct {
        const char *text, *part, *key;
    } rows[] = {
        { "{\"staged\":false}", NULL, "staged" },
        { "{\"skip_timing_on_failure\":false}", NULL, "skip_timing_on_failure" },
        { "{\"tiny_first\":false}", NULL, "tiny_first" },
        { "{\"variations\":{\"value\":false}}", "variations", "value" },
        { "{\"variations\":{\"shape\":false}}", "variations", "shape" },
        { "{\"variations\":{\"dtype\":false}}", "variations", "dtype" },
        { "{\"timing\":{\"events\":false}}", "timing", "events" },
        { "{\"timing\":{\"cold\":false}}", "timing", "cold" },
    };
    struct policy standard, p;

    (void)state;
    assert_int_equal(policy_find("strict", &standard), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON json_t *want = policy_json(&standard);
        json_t *part = rows[i].part ? json_object_get(want, rows[i].part) : want;
        assert_true(json_is_true(json_object_get(part, rows[i].key)));
        json_object_set_new(part, rows[i].key, json_false());
        assert_int_equal(read_text(rows[i].text, &p, NULL), 0);
        AUTO_JSON json_t *got = policy_json(&p);
        assert_true(json_equal(got, want));
    }
}

static void
what_is_printed_is_read_back(void **state)
{
    struct policy p, again;

    (void)state;
    assert_int_equal(
        read_text(
            "{\"name\":\"hybrid\",\"precision\":\"ieee\",\"foreign\":\"any\",\"variations\":{\"count\":3},"
            "\"timing\":{\"warmup\":2,\"trials\":7,\"fixed\":true,\"estimator\":\"trimmed\",\"compile_"
            "baseline\":true}}",
            &p, NULL),
        0);
    assert_string_equal(p.foreign, "any");
    assert_int_equal(p.variations.count, 3);
    assert_int_equal(p.timing.trials, 7);
    assert_string_equal(p.timing.estimator, "trimmed");
    assert_true(p.timing.compile_baseline);
    AUTO_JSON json_t *printed = policy_json(&p);
    assert_int_equal(policy_read(printed, "", &again, NULL), 0);
    AUTO_JSON json_t *twice = policy_json(&again);
    assert_true(json_equal(printed, twice));
    AUTO_JSON json_t *parts = policy_parts_json(&p);
    assert_null(json_object_get(parts, "name"));
    assert_int_equal(json_object_size(parts) + 2, json_object_size(printed));
}

/* Their keys stand in a policy that turns them on alone: others are what they were before there was such a thing. */
static void
what_is_asked_for_is_told_where_it_is_on(void **state)
{
    char text[80];
    struct policy p;

    (void)state;
    assert_int_equal(read_text("\"strict\"", &p, NULL), 0);
    AUTO_JSON json_t *plain = policy_parts_json(&p);
    assert_null(json_object_get(plain, "shapes"));
    assert_null(json_object_get(plain, "require_plan"));
    assert_int_equal(read_text("{\"shapes\":\"require\",\"require_plan\":true}", &p, NULL), 0);
    AUTO_JSON json_t *asked = policy_parts_json(&p);
    assert_string_equal(json_string_value(json_object_get(asked, "shapes")), "require");
    assert_true(json_is_true(json_object_get(asked, "require_plan")));
    for (int on = 0; on < 2; on++) {
        snprintf(text, sizeof(text), "{\"timing\":{\"compile_baseline\":%s}}", on ? "true" : "false");
        assert_int_equal(read_text(text, &p, NULL), 0);
        AUTO_JSON json_t *parts = policy_parts_json(&p);
        json_t *found = json_object_get(json_object_get(parts, "timing"), "compile_baseline");
        assert_true(on ? json_is_true(found) : !found);
    }
}

/* What is rewarded is the ratio of the 10 % trimmed means of exactly so many trials behind ten calls. */
static void
classic_is_the_trimmed_mean_of_exactly_so_many_trials(void **state)
{
    struct policy p;

    (void)state;
    assert_int_equal(read_text("\"classic\"", &p, NULL), 0);
    assert_true(p.timing.fixed && p.timing.events && p.timing.cold);
    assert_int_equal(p.timing.warmup, 10);
    assert_int_equal(p.timing.trials, 50);
    assert_string_equal(p.timing.estimator, "trimmed");
    assert_int_equal(read_text("{\"name\":\"classic\",\"timing\":{\"trials\":100}}", &p, NULL), 0);
    assert_int_equal(p.timing.trials, 100);
    assert_true(p.timing.fixed);
}

/* As it is written in an option: each text, and what the request then says. */
static void
a_policy_can_be_written_in_one_word(void **state)
{
    static const struct {
        const char *text, *json;
    } rows[] = {
        { "hybrid", "\"hybrid\"" },
        { "hybrid,shapes=require", "{\"name\":\"hybrid\",\"shapes\":\"require\"}" },
        { "staged=false", "{\"staged\":false}" },
        { "classic,timing.trials=100,timing.cold=false",
          "{\"name\":\"classic\",\"timing\":{\"trials\":100,\"cold\":false}}" },
        { "variations.count=1,timing.estimator=trimmed",
          "{\"variations\":{\"count\":1},\"timing\":{\"estimator\":\"trimmed\"}}" },
    };
    static const struct {
        const char *text, *says;
    } wrong[] = {
        { "strcit", "strict, hybrid, kernelbench and classic" },
        { "strict,stagd=true", "/stagd" },
        { "strict,staged=maybe", "/staged" },
        { "strict,timing.trials=5000", "/timing/trials" },
        { "strict,timing.trials=1", "/timing/trials" },
        { "strict,timing.trials.more=1", "/timing/trials.more" },
        { "timing=5,timing.trials=9", "timing is a section: timing.KEY=VALUE" },
        { "strict,hybrid,staged=true", "\"hybrid\" is not KEY=VALUE" },
        { "lenient,staged=true", "lenient" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct error err = { 0 };
        AUTO_JSON json_t *want = json_loads(rows[i].json, JSON_DECODE_ANY, NULL), *got = NULL;
        assert_int_equal(policy_parse(rows[i].text, &got, &err), 0);
        assert_true(json_equal(got, want));
        /* A request may say the same text. */
        AUTO_JSON json_t *text = json_string(rows[i].text);
        struct policy p, same;
        assert_int_equal(policy_read(text, "/policy", &p, NULL), 0);
        assert_int_equal(policy_read(got, "/policy", &same, NULL), 0);
        AUTO_JSON json_t *a = policy_json(&p), *b = policy_json(&same);
        assert_true(json_equal(a, b));
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct error err = { 0 };
        json_t *got = NULL;
        assert_int_not_equal(policy_parse(wrong[i].text, &got, &err), 0);
        assert_null(got);
        assert_non_null(strstr(err.text, wrong[i].says));
    }
}

static void
a_policy_can_be_read_from_a_file(void **state)
{
    char path[] = "/tmp/test_policy.XXXXXX";
    struct error err = { 0 };
    int fd = mkstemp(path);
    AUTO_JSON json_t *got = NULL;
    json_t *none = NULL;

    (void)state;
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "{\"name\": \"classic\", \"shapes\": \"require\"}") > 0);
    assert_int_equal(policy_parse(path, &got, &err), 0);
    assert_string_equal(json_string_value(json_object_get(got, "shapes")), "require");
    assert_int_equal(ftruncate(fd, 5), 0);
    close(fd);
    assert_int_equal(policy_parse(path, &none, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, path));
    unlink(path);
}

static void
the_name_counts_wherever_it_stands(void **state)
{
    struct policy p;

    (void)state;
    assert_int_equal(read_text("{\"precision\":\"tf32\",\"name\":\"kernelbench\"}", &p, NULL), 0);
    assert_string_equal(p.name, "kernelbench");
    assert_string_equal(p.precision, "tf32");
    assert_string_equal(p.foreign, "any");
    assert_false(p.variations.value);
}

static void
what_is_wrong_is_refused_where_it_is(void **state)
{
    static const struct {
        const char *text, *pointer;
    } rows[] = {
        { "\"lenient\"", "/policy" },
        { "\"strict,hybrid,staged=true\"", "/policy" },
        { "\"timing.trials=1001\"", "/policy/timing/trials" },
        { "7", "/policy" },
        { "{\"name\":\"lenient\"}", "/policy/name" },
        { "{\"name\":3}", "/policy/name" },
        { "{\"stagd\":true}", "/policy/stagd" },
        { "{\"staged\":1}", "/policy/staged" },
        { "{\"precision\":\"fp8\"}", "/policy/precision" },
        { "{\"foreign\":\"everything\"}", "/policy/foreign" },
        { "{\"variations\":{\"count\":0}}", "/policy/variations/count" },
        { "{\"variations\":{\"count\":17}}", "/policy/variations/count" },
        { "{\"variations\":[]}", "/policy/variations" },
        { "{\"timing\":{\"trials\":1001}}", "/policy/timing/trials" },
        { "{\"timing\":{\"trials\":0}}", "/policy/timing/trials" },
        { "{\"shapes\":\"any\"}", "/policy/shapes" },
        { "{\"require_plan\":1}", "/policy/require_plan" },
        { "{\"timing\":{\"trails\":5}}", "/policy/timing/trails" },
        { "{\"timing\":{\"estimator\":\"mean\"}}", "/policy/timing/estimator" },
        { "{\"timing\":{\"cold\":1}}", "/policy/timing/cold" },
        { "{\"timing\":{\"compile_baseline\":\"yes\"}}", "/policy/timing/compile_baseline" },
        { "{\"version\":2}", "/policy/version" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_fault fault = { .pointer = "" };
        struct policy p;
        assert_int_equal(read_text(rows[i].text, &p, &fault), ERR_INPUT);
        assert_string_equal(fault.pointer, rows[i].pointer);
        assert_true(strlen(fault.text) > 0);
    }
}

/* A key that is gone is refused whatever its value, with what to do instead. */
static void
a_removed_key_says_what_to_do(void **state)
{
    static const struct {
        const char *text, *pointer, *instead;
    } rows[] = {
        { "{\"timing\":{\"variations\":true}}", "/policy/timing/variations", "register the task" },
        { "\"timing.batched=false\"", "/policy/timing/batched", "take the key out" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_fault fault = { .pointer = "" };
        struct policy p;
        assert_int_equal(read_text(rows[i].text, &p, &fault), ERR_INPUT);
        assert_string_equal(fault.pointer, rows[i].pointer);
        assert_non_null(strstr(fault.text, "is not a key any more"));
        assert_non_null(strstr(fault.text, rows[i].instead));
    }
}

static void
who_lets_more_through_does_not_bear_the_name_alone(void **state)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        { "\"strict\"", "strict" },
        { "{\"name\":\"strict\",\"foreign\":\"any\"}", "strict*" },
        { "{\"foreign\":\"library\"}", "strict*" },
        { "{\"name\":\"hybrid\",\"foreign\":\"movement\"}", "hybrid" },
        { "{\"variations\":{\"count\":4}}", "strict*" },
        { "{\"variations\":{\"count\":16}}", "strict" },
        { "{\"variations\":{\"value\":false}}", "strict*" },
        { "{\"variations\":{\"shape\":false}}", "strict*" },
        { "{\"variations\":{\"dtype\":false}}", "strict*" },
        { "{\"tiny_first\":false}", "strict*" },
        { "{\"precision\":\"ieee\"}", "strict" },
        { "{\"name\":\"kernelbench\",\"precision\":\"tf32\"}", "kernelbench*" },
        { "{\"staged\":false,\"timing\":{\"fixed\":true,\"trials\":5}}", "strict" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char shown[POLICY_SHOWN_SIZE];
        struct policy p;
        assert_int_equal(read_text(rows[i].text, &p, NULL), 0);
        policy_shown(&p, shown);
        assert_string_equal(shown, rows[i].shown);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_their_defaults),
        cmocka_unit_test(each_part_is_one_key),
        cmocka_unit_test(what_is_printed_is_read_back),
        cmocka_unit_test(what_is_asked_for_is_told_where_it_is_on),
        cmocka_unit_test(classic_is_the_trimmed_mean_of_exactly_so_many_trials),
        cmocka_unit_test(a_policy_can_be_written_in_one_word),
        cmocka_unit_test(a_policy_can_be_read_from_a_file),
        cmocka_unit_test(the_name_counts_wherever_it_stands),
        cmocka_unit_test(what_is_wrong_is_refused_where_it_is),
        cmocka_unit_test(a_removed_key_says_what_to_do),
        cmocka_unit_test(who_lets_more_through_does_not_bear_the_name_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
