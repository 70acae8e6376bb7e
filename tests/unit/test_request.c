/* test_request.c - bodies of POST: what is read, and where a bad one is bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/limits.h"
#include "server/submission/request.h"

static json_t *
parse(const char *text)
{
    struct json_fault fault;
    json_t *body = json_parse(text, strlen(text), &fault);
    if (!body)
        fail_msg("%s: %s", text, fault.text);
    return body;
}

static json_t *
document(const struct submit_request *r, size_t i)
{
    json_t *out = json_loads(r->candidates[i].document, 0, NULL);
    assert_non_null(out);
    return out;
}

static void
a_submission_is_read(void **state)
{
    AUTO_JSON json_t *body =
        parse("{\"task\":\"relu\",\"candidate\":\"a\\u0000b\",\"entry_point\":\"Fast\",\"until\":\"tiny\","
              "\"priority\":\"batch\",\"client\":\"me\",\"metadata\":{\"k\":1},\"reward\":\"staged\"}");
    struct submit_request r;
    struct json_fault fault;

    (void)state;
    assert_int_equal(submit_request_read(body, &r, &fault), FUNNEL_OK);
    assert_string_equal(r.task, "relu");
    assert_string_equal(r.client, "me");
    assert_int_equal(r.priority, PRIORITY_BATCH);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.candidates[0].source.size, 3);
    assert_memory_equal(r.candidates[0].source.data, "a\0b", 3);
    AUTO_JSON json_t *d = document(&r, 0);
    assert_string_equal(json_string_value(json_object_get(d, "entry_point")), "Fast");
    assert_string_equal(json_string_value(json_object_get(d, "until")), "tiny");
    assert_int_equal(strlen(json_string_value(json_object_get(d, "seed"))), 16);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(d, "metadata"), "k")), 1);
    submit_request_release(&r);
}

static void
code_comes_out_of_an_answer(void **state)
{
    static const struct {
        const char *completion, *source;
        bool is_fault, is_guess, is_truncated;
    } rows[] = {
        { "so:\\n```python\\nx = 1\\n```\\n", "x = 1\n", false, false, false },
        { "so:\\n```python\\nx = 1\\n", "x = 1\n", false, false, true },
        { "x = 1", "x = 1", false, true, false },
        { "  ", "", true, false, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[256];
        struct submit_request r;
        struct json_fault fault;
        snprintf(text, sizeof(text), "{\"task\":\"t\",\"completion\":\"%s\"}", rows[i].completion);
        AUTO_JSON json_t *body = parse(text);
        assert_int_equal(submit_request_read(body, &r, &fault), FUNNEL_OK);
        assert_string_equal(r.candidates[0].source.data ? r.candidates[0].source.data : "", rows[i].source);
        AUTO_JSON json_t *d = document(&r, 0);
        assert_int_equal(json_is_string(json_object_get(d, "extract_fault")), rows[i].is_fault);
        assert_int_equal(json_is_true(json_object_get(d, "is_guess")), rows[i].is_guess);
        assert_int_equal(json_array_size(json_object_get(d, "flags")), rows[i].is_truncated);
        submit_request_release(&r);
    }
}

static void
the_same_task_has_the_same_id(void **state)
{
    static const char *const bodies[] = {
        "{\"name\":\"a\",\"reference\":\"class Model: pass\"}",
        "{\"level\":2,\"reference\":\"class Model: pass\",\"name\":\"b\"}",
        "{\"name\":\"a\",\"reference\":\"class Model: pass\",\"entry_point\":\"Model\"}",
        "{\"name\":\"a\",\"reference\":\"class Model:  pass\"}",
        "{\"name\":\"a\",\"reference\":\"class Model: pass\",\"entry_point\":\"Other\"}",
        "{\"name\":\"a\",\"reference\":\"class Model: pass\",\"dynamic_shapes\":true}",
        ("{\"name\":\"a\",\"reference\":\"class Model: "
         "pass\",\"cases\":[{\"name\":\"tiny\",\"overrides\":{\"N\":4}}]}"),
    };
    struct task_request r[ARRAY_LEN(bodies)];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        AUTO_JSON json_t *body = parse(bodies[i]);
        assert_int_equal(task_request_read(body, &r[i], NULL), FUNNEL_OK);
    }
    assert_string_equal(r[0].id, r[1].id);
    assert_string_equal(r[0].id, r[2].id); /* "Model" is what is looked for anyway */
    assert_string_equal(r[4].twin, r[0].id);
    for (size_t i = 2; i < ARRAY_LEN(bodies); i++)
        for (size_t k = i + 1; k < ARRAY_LEN(bodies); k++)
            assert_string_not_equal(r[i].id, r[k].id);
}

static void
an_inline_reference_is_text_or_object(void **state)
{
    AUTO_JSON json_t *text = parse("{\"reference\":\"class Model: pass\",\"candidate\":\"x\"}");
    AUTO_JSON json_t *object =
        parse("{\"reference\":{\"source\":\"class Model: pass\",\"name\":\"n\"},\"candidate\":\"x\"}");
    AUTO_JSON json_t *task = parse("{\"name\":\"n\",\"reference\":\"class Model: pass\"}");
    struct submit_request one, two;
    struct task_request three;

    (void)state;
    assert_int_equal(submit_request_read(text, &one, NULL), FUNNEL_OK);
    assert_int_equal(submit_request_read(object, &two, NULL), FUNNEL_OK);
    assert_int_equal(task_request_read(task, &three, NULL), FUNNEL_OK);
    assert_true(one.is_inline && two.is_inline);
    assert_string_equal(one.reference.id, two.reference.id);
    assert_string_equal(one.reference.id, three.id);
    submit_request_release(&one);
    submit_request_release(&two);
}

static void
a_group_shares_what_is_common(void **state)
{
    AUTO_JSON json_t *body =
        parse("{\"task\":\"t\",\"metadata\":{\"g\":1},\"candidates\":[{\"candidate\":\"a\"},"
              "{\"completion\":\"```\\nb\\n```\",\"metadata\":{\"i\":2},\"entry_point\":\"E\"}]}");
    struct submit_request r;
    struct json_fault fault = { .pointer = "" };

    (void)state;
    assert_int_equal(group_request_read(body, &r, &fault), FUNNEL_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.priority, PRIORITY_BATCH);
    assert_non_null(r.document);
    AUTO_JSON json_t *a = document(&r, 0), *b = document(&r, 1);
    assert_true(json_equal(json_object_get(a, "seed"), json_object_get(b, "seed")));
    assert_string_equal(json_string_value(json_object_get(a, "entry_point")), "ModelNew");
    assert_string_equal(json_string_value(json_object_get(b, "entry_point")), "E");
    assert_non_null(json_object_get(json_object_get(a, "metadata"), "g"));
    assert_non_null(json_object_get(json_object_get(b, "metadata"), "i"));
    submit_request_release(&r);
}

static void
a_groups_labels_hold_for_each_candidate_that_does_not_say_its_own(void **state)
{
    AUTO_JSON json_t *body =
        parse("{\"task\":\"t\",\"metadata\":{\"g\":1,\"run\":\"r\",\"step\":4},\"candidates\":["
              "{\"candidate\":\"a\",\"metadata\":{\"i\":2,\"step\":5}}]}");
    AUTO_JSON json_t *expected = parse("{\"i\":2,\"run\":\"r\",\"step\":5}");
    struct submit_request r;

    (void)state;
    assert_int_equal(group_request_read(body, &r, NULL), FUNNEL_OK);
    AUTO_JSON json_t *item = document(&r, 0);
    assert_true(json_equal(json_object_get(item, "metadata"), expected));
    submit_request_release(&r);
}

typedef enum funnel_refusal read_fn(json_t *, struct submit_request *, struct json_fault *);

static void
what_is_wrong_is_refused_where_it_is(void **state)
{
    static const struct {
        read_fn *read;
        const char *body, *pointer;
    } rows[] = {
        { submit_request_read, "[]", "" },
        { submit_request_read, "{}", "" },
        { submit_request_read, "{\"task\":\"t\"}", "" },
        { submit_request_read, "{\"candidate\":\"x\"}", "" },
        { submit_request_read, "{\"task\":\"t\",\"reference\":\"r\",\"candidate\":\"x\"}", "" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"completion\":\"y\"}", "" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":7}", "/candidate" },
        { submit_request_read, "{\"task\":7,\"candidate\":\"x\"}", "/task" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"untill\":\"ast\"}", "/untill" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"until\":\"ready\"}", "/until" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"priority\":\"high\"}", "/priority" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"policy\":\"loose\"}", "/policy" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"reward\":{\"kind\":\"magic\"}}",
          "/reward/kind" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"reward\":\"rank\"}", "/reward" },
        { submit_request_read,
          "{\"task\":\"t\",\"candidate\":\"x\",\"reward\":{\"kind\":\"expr\",\"expr\":\"1 + rank\"}}",
          "/reward" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":[]}", "/metadata" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"run\":7}}",
          "/metadata/run" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"run\":\"a\\nb\"}}",
          "/metadata/run" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"run\":\"\"}}",
          "/metadata/run" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"run\":\".\"}}",
          "/metadata/run" },
        { group_request_read,
          "{\"task\":\"t\",\"candidates\":[{\"candidate\":\"x\"}],\"metadata\":{\"run\":\"..\"}}",
          "/metadata/run" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"step\":-1}}",
          "/metadata/step" },
        { submit_request_read, "{\"task\":\"t\",\"candidate\":\"x\",\"metadata\":{\"policy_version\":3}}",
          "/metadata/policy_version" },
        { group_request_read,
          "{\"task\":\"t\",\"candidates\":[{\"candidate\":\"x\"}],\"metadata\":{\"step\":\"1\"}}",
          "/metadata/step" },
        { submit_request_read, "{\"reference\":7,\"candidate\":\"x\"}", "/reference" },
        { submit_request_read, "{\"reference\":{},\"candidate\":\"x\"}", "/reference/source" },
        { submit_request_read, "{\"reference\":{\"source\":\"x\",\"cases\":[1]},\"candidate\":\"x\"}",
          "/reference/cases/0" },
        { submit_request_read, "{\"reference\":{\"source\":\"x\",\"cases\":[{\"z\":1}]},\"candidate\":\"x\"}",
          "/reference/cases/0/z" },
        { submit_request_read,
          "{\"reference\":{\"source\":\"x\",\"cases\":[{\"name\":\"a\"}]},\"candidate\":\"x\"}",
          "/reference/cases/0/overrides" },
        { submit_request_read,
          "{\"reference\":{\"source\":\"x\",\"cases\":[{\"name\":\"a\",\"overrides\":{\"N\":0}}]},"
          "\"candidate\":\"x\"}",
          "/reference/cases/0/overrides/N" },
        { group_request_read, "{\"task\":\"t\"}", "/candidates" },
        { group_request_read, "{\"task\":\"t\",\"candidates\":[]}", "/candidates" },
        { group_request_read, "{\"task\":\"t\",\"candidates\":[7]}", "/candidates/0" },
        { group_request_read, "{\"task\":\"t\",\"candidates\":[{\"candidate\":\"x\"},{}]}", "/candidates/1" },
        { group_request_read, "{\"task\":\"t\",\"candidates\":[{\"candidate\":\"x\"},{\"candidat\":\"x\"}]}",
          "/candidates/1/candidat" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_fault fault = { .pointer = "unset" };
        struct submit_request r;
        AUTO_JSON json_t *body = parse(rows[i].body);
        if (rows[i].read(body, &r, &fault) != FUNNEL_BAD)
            fail_msg("not refused: %s", rows[i].body);
        if (strcmp(fault.pointer, rows[i].pointer) != 0)
            fail_msg("%s: refused at \"%s\"", rows[i].body, fault.pointer);
        submit_request_release(&r);
    }
}

static char *
filled(size_t n)
{
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'x', n);
    text[n] = '\0';
    return text;
}

static void
a_source_has_a_largest_size(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        AUTO_FREE char *text = filled(REQUEST_SOURCE_MAX + extra);
        AUTO_JSON json_t *candidate = json_pack("{s:s, s:s}", "task", "t", "candidate", text);
        AUTO_JSON json_t *reference = json_pack("{s:s, s:s}", "reference", text, "candidate", "x");
        AUTO_JSON json_t *group = json_pack("{s:s, s:[{s:s}]}", "task", "t", "candidates", "candidate", text);
        enum funnel_refusal want = extra ? FUNNEL_TOO_LARGE : FUNNEL_OK;
        struct submit_request r;
        struct json_fault fault = { .pointer = "" };
        assert_int_equal(submit_request_read(candidate, &r, &fault), want);
        assert_string_equal(fault.pointer, extra ? "/candidate" : "");
        submit_request_release(&r);
        assert_int_equal(submit_request_read(reference, &r, &fault), want);
        submit_request_release(&r);
        assert_int_equal(group_request_read(group, &r, &fault), want);
        assert_string_equal(fault.pointer, extra ? "/candidates/0/candidate" : "");
        submit_request_release(&r);
    }
}

static void
a_group_has_a_largest_size(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        AUTO_JSON json_t *items = json_array();
        for (size_t i = 0; i < GROUP_MAX + extra; i++)
            json_array_append_new(items, json_pack("{s:s}", "candidate", "x"));
        AUTO_JSON json_t *body = json_pack("{s:s, s:O}", "task", "t", "candidates", items);
        struct submit_request r;
        struct json_fault fault;
        assert_int_equal(group_request_read(body, &r, &fault), extra ? FUNNEL_BAD : FUNNEL_OK);
        submit_request_release(&r);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_submission_is_read),
        cmocka_unit_test(code_comes_out_of_an_answer),
        cmocka_unit_test(the_same_task_has_the_same_id),
        cmocka_unit_test(an_inline_reference_is_text_or_object),
        cmocka_unit_test(a_group_shares_what_is_common),
        cmocka_unit_test(a_groups_labels_hold_for_each_candidate_that_does_not_say_its_own),
        cmocka_unit_test(what_is_wrong_is_refused_where_it_is),
        cmocka_unit_test(a_source_has_a_largest_size),
        cmocka_unit_test(a_group_has_a_largest_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
