#include "server/http/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

/* "a|b?n=v&" for segments a, b and the pair n, v. */
static void
spell(const struct target *t, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->segments_count; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "|" : "", t->segments[i]);
    for (size_t i = 0; i < t->pairs_count; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s=%s", i ? "&" : "?", t->pairs[i].name,
                                 t->pairs[i].value);
}

static void
targets_are_taken_apart(void **state)
{
    static const char *const rows[][2] = {
        { "/", "" },
        { "/v1/tasks", "v1|tasks" },
        { "/v1/tasks/", "v1|tasks|" },
        { "//", "|" },
        { "/v1/tasks/a%20b%2Fc", "v1|tasks|a b/c" },
        { "/v1/tasks/%C3%A9", "v1|tasks|\xc3\xa9" },
        { "/a+b?c+d=e+f", "a+b?c d=e f" },
        { "/?a", "?a=" },
        { "/?a=", "?a=" },
        { "/?a=b=c&d", "?a=b=c&d=" },
        { "/?a=1&&b=2&", "?a=1&b=2" },
        { "/x?", "x" },
        { "/x?a=?", "x?a=?" },
        { "/1/2/3/4/5/6/7/8", "1|2|3|4|5|6|7|8" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct target t;
        struct error err = { 0 };
        char got[256];
        if (target_parse(rows[i][0], &t, &err) != 0)
            fail_msg("%s: %s", rows[i][0], err.text);
        spell(&t, got, sizeof(got));
        assert_string_equal(got, rows[i][1]);
        target_release(&t);
    }
}

static void
bad_targets_are_refused(void **state)
{
    static const char *const rows[][2] = {
        { "", "slash" },
        { "x", "slash" },
        { "*", "slash" },
        { "http://a/", "slash" },
        { "/a b", "escaping" },
        { "/\xc3\xa9", "escaping" },
        { "/a\tb", "escaping" },
        { "/%", "hexadecimal" },
        { "/%2", "hexadecimal" },
        { "/%2x", "hexadecimal" },
        { "/%00", "control" },
        { "/%7f", "control" },
        { "/?a=%0a", "control" },
        { "/%ff", "UTF-8" },
        { "/?a=%c3", "UTF-8" },
        { "/?a=1&a=2", "twice" },
        { "/?%61=1&a=2", "twice" },
        { "/1/2/3/4/5/6/7/8/9", "segments" },
        { "/?1&2&3&4&5&6&7&8&9&10&11&12&13&14&15&16&17", "parameters" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct target t;
        struct error err = { 0 };
        if (target_parse(rows[i][0], &t, &err) != ERR_INPUT || !strstr(err.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], err.text);
        assert_null(t.text);
        assert_int_equal(t.segments_count + t.pairs_count, 0);
    }
}

static void
values_are_found_by_name(void **state)
{
    struct target t;

    (void)state;
    assert_int_equal(target_parse("/x?a=1&ab=2", &t, NULL), 0);
    assert_string_equal(target_value(&t, "a"), "1");
    assert_string_equal(target_value(&t, "ab"), "2");
    assert_null(target_value(&t, "b"));
    target_release(&t);
}

static void
prefer_is_read_as_rfc_7240_says(void **state)
{
    static const struct {
        const char *header;
        long seconds;
    } rows[] = {
        { NULL, -1 },
        { "", -1 },
        { "wait=5", 5 },
        { "Wait = 5", 5 },
        { "wait=\"5\"", 5 },
        { "respond-async, wait=10", 10 },
        { "a=\"b\", wait=3; x=y, c", 3 },
        { "wait=0", 0 },
        { "wait=99999999999999999999", 9999999999 },
        { "wait", -1 },
        { "wait=", -1 },
        { "wait=-1", -1 },
        { "wait=1.5", -1 },
        { "wait=soon", -1 },
        { "wait=\"5", -1 },
        { "waiting=5", -1 },
        { "nowait=5", -1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (prefer_wait_s(rows[i].header) != rows[i].seconds)
            fail_msg("%s: %ld", rows[i].header, prefer_wait_s(rows[i].header));
}

static void
a_trace_is_read_as_the_standard_says(void **state)
{
#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
    static const struct {
        const char *header;
        bool is_good;
    } rows[] = {
        { "00-" TRACE "-" PARENT "-01", true },
        { "00-" TRACE "-" PARENT "-00", true },
        { "cc-" TRACE "-" PARENT "-01-what-comes-later", true },
        { "cc-" TRACE "-" PARENT "-01", true },
        { "00-" TRACE "-" PARENT "-01-more", false },
        { "cc-" TRACE "-" PARENT "-01.more", false },
        { "ff-" TRACE "-" PARENT "-01", false },
        { "00-00000000000000000000000000000000-" PARENT "-01", false },
        { "00-" TRACE "-0000000000000000-01", false },
        { "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", false },
        { "00-" TRACE "-" PARENT "-0", false },
        { "00-" TRACE "-" PARENT "-0x", false },
        { "00_" TRACE "-" PARENT "-01", false },
        { "00-" TRACE PARENT "--01", false },
        { "", false },
        { "00", false },
    };
    char trace[TRACE_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (traceparent_trace(rows[i].header, trace) != rows[i].is_good)
            fail_msg("\"%s\"", rows[i].header);
        if (rows[i].is_good)
            assert_string_equal(trace, TRACE);
    }
}

static void
an_idempotency_key_is_a_word_or_a_string(void **state)
{
    static const struct {
        const char *header, *key; /* NULL: none */
    } rows[] = {
        { "\"8e03978e-40d5-43dd\"", "8e03978e-40d5-43dd" },
        { "8e03978e", "8e03978e" },
        { "sha256:00ff", "sha256:00ff" },
        { "x", "x" },
        { "1234567", "1234567" },
        { "\"1234567\"", "1234567" },
        { "12345678", NULL },
        { "\"12345678\"", NULL },
        { "", NULL },
        { "\"\"", NULL },
        { "\"", NULL },
        { "\"a", NULL },
        { "a\"b", NULL },
        { "a b", NULL },
        { "\"a\\\\b\"", NULL },
        { "a\tb", NULL },
        { "\303\244", NULL },
        { "\"a\";x=1", NULL },
    };
    char key[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t size = strspn(rows[i].header, "\"12345678") >= 7 ? 8 : sizeof(key);
        bool is_key = idempotency_key(rows[i].header, key, size);
        if (is_key != (rows[i].key != NULL) || (is_key && strcmp(key, rows[i].key) != 0))
            fail_msg("%s: %s", rows[i].header, is_key ? key : "none");
    }
}

static void
a_known_tag_is_found_in_its_header(void **state)
{
    static const struct {
        const char *header;
        bool is_known;
    } rows[] = {
        { "\"ab\"", true },
        { " \"ab\" ", true },
        { "*", true },
        { "W/\"ab\"", true },
        { "\"x\", \"ab\"", true },
        { "\"x\",W/\"y\" , \"ab\", \"z\"", true },
        { "\"a,b\", \"ab\"", true },
        { "", false },
        { "ab", false },
        { "\"abc\"", false },
        { "\"a\"", false },
        { "\"\"", false },
        { "\"ab", false },
        { "W/", false },
        { "x, \"ab\"", false },
        { "\"x\" \"ab\"", false },
        { "\"x\"; \"ab\"", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (is_tag_known(rows[i].header, "\"ab\"") != rows[i].is_known)
            fail_msg("%s", rows[i].header);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_taken_apart),
        cmocka_unit_test(bad_targets_are_refused),
        cmocka_unit_test(values_are_found_by_name),
        cmocka_unit_test(prefer_is_read_as_rfc_7240_says),
        cmocka_unit_test(a_known_tag_is_found_in_its_header),
        cmocka_unit_test(a_trace_is_read_as_the_standard_says),
        cmocka_unit_test(an_idempotency_key_is_a_word_or_a_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
