#include "common/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/utf8.h"

static void
good_documents_parse(void **state)
{
    static const char *const rows[] = { "{}", "[]", " {\"a\": [1, -2.5e3, null, true, \"\\u00e9\"]} ",
                                        "[{\"a\":1},{\"a\":2}]" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_fault fault;
        json_t *document = json_parse(rows[i], strlen(rows[i]), &fault);
        assert_non_null(document);
        json_decref(document);
    }
}

static void
bad_documents_are_refused_with_their_place(void **state)
{
    static const struct {
        const char *text;
        size_t size; /* 0: strlen */
        const char *expect;
    } rows[] = {
        { "", 0, "line 1, column 0" },
        { "5", 0, "line 1" },
        { "\"x\"", 0, "line 1" },
        { "{\"a\":1}x", 0, "line 1, column 8" },
        { "{\"a\":1,\n \"a\":2}", 0, "line 2, column 4: duplicate object key" },
        { "{\"a\\u0000\":1}", 0, "NUL" },
        { "{\"a\":\"\0\"}", 9, "line 1" },
        { "{\"a\":\"\xff\"}", 0, "line 1" },
        { "{\"a\":\"\\ud800\"}", 0, "line 1" },
        { "{'a':1}", 0, "line 1" },
        { "[1,]", 0, "line 1" },
        { "[NaN]", 0, "line 1" },
        { "[123456789012345678901234567890]", 0, "too big integer" },
        { "[1e999]", 0, "line 1" },
        { "{\"a\":1", 0, "line 1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_fault fault = { "unset", "unset" };
        size_t size = rows[i].size ? rows[i].size : strlen(rows[i].text);
        assert_null(json_parse(rows[i].text, size, &fault));
        assert_string_equal(fault.pointer, "");
        if (!strstr(fault.text, rows[i].expect))
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, fault.text, rows[i].expect);
        assert_true(utf8_is_valid(fault.text, strlen(fault.text)));
    }
    assert_null(json_parse(NULL, 0, NULL));
}

static void
deep_nesting_is_refused(void **state)
{
    const size_t depth = 10000;
    struct json_fault fault;
    (void)state;
    AUTO_FREE char *text = malloc(2 * depth);
    assert_non_null(text);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    assert_null(json_parse(text, 2 * depth, &fault));
    assert_non_null(strstr(fault.text, "depth"));
}

struct reading {
    const char *text;
    int64_t count;
    double ratio;
    bool flag;
    json_t *source, *object, *array, *any;
};

static int
read_all(json_t *document, struct reading *r, struct json_fault *fault)
{
    const struct json_field fields[] = {
        { "text", JSON_WANT_STRING, &r->text, true, 2, 5 },
        { "count", JSON_WANT_INT, &r->count, false, 1, 10 },
        { "ratio", JSON_WANT_NUMBER, &r->ratio, false, 0, 0 },
        { "flag", JSON_WANT_BOOL, &r->flag, false, 0, 0 },
        { "object", JSON_WANT_OBJECT, &r->object, false, 0, 0 },
        { "array", JSON_WANT_ARRAY, &r->array, false, 0, 0 },
        { "any", JSON_WANT_ANY, &r->any, false, 0, 0 },
        { "source", JSON_WANT_TEXT, &r->source, false, 0, 4 },
    };
    return json_read(document, "/base", fields, ARRAY_LEN(fields), fault);
}

static void
fields_are_read(void **state)
{
    struct reading r = { 0 };
    struct json_fault fault;
    (void)state;
    AUTO_JSON json_t *document = json_loads(
        "{\"text\":\"abc\",\"count\":10,\"ratio\":3,\"flag\":true,\"object\":{},\"array\":[1],\"any\":4}", 0,
        NULL);
    assert_int_equal(read_all(document, &r, &fault), 0);
    assert_string_equal(r.text, "abc");
    assert_int_equal(r.count, 10);
    assert_true(r.ratio == 3.0);
    assert_true(r.flag);
    assert_true(json_is_object(r.object));
    assert_int_equal(json_array_size(r.array), 1);
    assert_int_equal(json_integer_value(r.any), 4);
}

static void
absent_and_null_leave_the_default(void **state)
{
    struct reading r = { .count = 7, .ratio = 0.5, .flag = true };
    struct json_fault fault;
    (void)state;
    AUTO_JSON json_t *document = json_loads("{\"text\":\"abc\",\"count\":null,\"any\":null}", 0, NULL);
    assert_int_equal(read_all(document, &r, &fault), 0);
    assert_int_equal(r.count, 7);
    assert_true(r.ratio == 0.5);
    assert_true(r.flag);
    assert_null(r.any);
}

static void
a_source_may_hold_nuls(void **state)
{
    static const char text[] = "{\"text\":\"abc\",\"source\":\"a\\u0000b\"}";
    struct reading r = { 0 };
    struct json_fault fault;
    (void)state;
    AUTO_JSON json_t *document = json_parse(text, sizeof(text) - 1, &fault);
    assert_non_null(document);
    assert_int_equal(read_all(document, &r, &fault), 0);
    assert_int_equal(json_string_length(r.source), 3);
    assert_memory_equal(json_string_value(r.source), "a\0b", 3);
}

static void
faults_name_the_place(void **state)
{
    static const struct {
        const char *document, *pointer, *text;
    } rows[] = {
        { "[]", "/base", "must be an object" },
        { "{}", "/base/text", "is required" },
        { "{\"text\":null}", "/base/text", "must not be null" },
        { "{\"text\":1}", "/base/text", "must be a string" },
        { "{\"text\":\"abcdef\"}", "/base/text", "has 6 characters, at most 5 are allowed" },
        { "{\"text\":\"a\"}", "/base/text", "must have at least 2 characters" },
        { "{\"text\":\"\u00e4\u20ac\u00e4\u20ac\u00e4\u20ac\"}", "/base/text",
          "has 6 characters, at most 5 are allowed" },
        { "{\"text\":\"\u20ac\"}", "/base/text", "must have at least 2 characters" },
        { "{\"text\":\"abc\",\"count\":0}", "/base/count", "must be from 1 to 10" },
        { "{\"text\":\"abc\",\"count\":11}", "/base/count", "must be from 1 to 10" },
        { "{\"text\":\"abc\",\"count\":1.0}", "/base/count", "must be an integer" },
        { "{\"text\":\"abc\",\"count\":\"1\"}", "/base/count", "must be an integer" },
        { "{\"text\":\"abc\",\"ratio\":\"1\"}", "/base/ratio", "must be a number" },
        { "{\"text\":\"abc\",\"flag\":1}", "/base/flag", "must be a boolean" },
        { "{\"text\":\"abc\",\"object\":[]}", "/base/object", "must be an object" },
        { "{\"text\":\"abc\",\"array\":{}}", "/base/array", "must be an array" },
        { "{\"text\":\"a\\u0000b\"}", "/base/text", "must not contain a NUL character" },
        { "{\"text\":\"abc\",\"source\":\"abcde\"}", "/base/source",
          "has 5 characters, at most 4 are allowed" },
        { "{\"text\":\"abc\",\"source\":5}", "/base/source", "must be a string" },
        { "{\"text\":\"abc\",\"txet\":1}", "/base/txet", "unknown field" },
        { "{\"text\":\"abc\",\"a/b~c\":1}", "/base/a~1b~0c", "unknown field" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct reading r = { 0 };
        struct json_fault fault = { "unset", "unset" };
        AUTO_JSON json_t *document = json_parse(rows[i].document, strlen(rows[i].document), NULL);
        assert_non_null(document);
        assert_true(read_all(document, &r, &fault) < 0);
        assert_string_equal(fault.pointer, rows[i].pointer);
        assert_string_equal(fault.text, rows[i].text);
    }
}

static void
a_long_key_is_cut_to_the_pointer(void **state)
{
    char key[400], document[500];
    struct reading r = { 0 };
    struct json_fault fault;
    (void)state;
    for (size_t i = 0; i + 2 < sizeof(key); i += 2)
        memcpy(key + i, "\xc3\xa9", 3);
    snprintf(document, sizeof(document), "{\"%s\":1}", key);
    AUTO_JSON json_t *object = json_loads(document, 0, NULL);
    assert_non_null(object);
    assert_true(read_all(object, &r, &fault) < 0);
    assert_true(strlen(fault.pointer) < JSON_POINTER_SIZE);
    assert_true(utf8_is_valid(fault.pointer, strlen(fault.pointer)));
}

static void
a_long_fault_keeps_whole_characters(void **state)
{
    struct json_fault fault;
    char long_text[400];
    (void)state;
    for (size_t i = 0; i + 2 < sizeof(long_text); i += 2)
        memcpy(long_text + i, "\xc3\xa9", 3);
    assert_int_equal(json_refuse(&fault, "", "%s", long_text), ERR_INPUT);
    assert_int_equal(strlen(fault.text), sizeof(fault.text) - 1);
    assert_true(utf8_is_valid(fault.text, strlen(fault.text)));
}

static void
numbers_are_written_in_the_fewest_digits(void **state)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        { 0.3, "0.3" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { 1.0 / 3.0, "0.3333333333333333" },
        { 2.0, "2.0" },
        { -1e300, "-1e+300" },
        { 5e-324, "4.94065645841247e-324" },
        { 123456789012345680.0, "1.2345678901234568e17" },
        { 12345678.9, "12345678.9" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON json_t *value = json_real(rows[i].value);
        AUTO_FREE char *text = json_text(value);
        AUTO_JSON json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);
        assert_true(json_real_value(back) == rows[i].value);
        assert_string_equal(text, rows[i].text);
    }
}

static void
what_is_no_number_is_written_as_it_is(void **state)
{
    static const char text[] =
        "{\"0.29999999999999999\":[\"-1.1000000000000001\\\"\",9007199254740993,true,null,"
        "\"\\\\\",[],{}],\"a\":[0.7,-0.7]}";
    AUTO_JSON json_t *value = json_loads(text, 0, NULL);
    (void)state;
    AUTO_FREE char *again = json_text(value);
    assert_string_equal(again, text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_documents_parse),
        cmocka_unit_test(bad_documents_are_refused_with_their_place),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(fields_are_read),
        cmocka_unit_test(absent_and_null_leave_the_default),
        cmocka_unit_test(a_source_may_hold_nuls),
        cmocka_unit_test(faults_name_the_place),
        cmocka_unit_test(a_long_fault_keeps_whole_characters),
        cmocka_unit_test(a_long_key_is_cut_to_the_pointer),
        cmocka_unit_test(numbers_are_written_in_the_fewest_digits),
        cmocka_unit_test(what_is_no_number_is_written_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
