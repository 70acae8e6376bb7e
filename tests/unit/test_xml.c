/* test_xml.c - elements of S3's answers, as they come and as they should not. */
#include "common/xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainer/s3.h"
#include "common/auto.h"

static struct xml_span
span(const char *text)
{
    return (struct xml_span){ text, strlen(text) };
}

static void
test_text(void **state)
{
    static const struct {
        const char *document, *name, *text; /* text NULL: there is no such element */
    } rows[] = {
        { "<a><Status>Enabled</Status></a>", "Status", "Enabled" },
        { "<a><Status>\n  Enabled </Status></a>", "Status", "Enabled" },
        { "<V xmlns=\"http://s3\"><Status>Enabled</Status></V>", "V", "<Status>Enabled</Status>" },
        { "<StatusOf>no</StatusOf><Status>yes</Status>", "Status", "yes" },
        { "<Status/>", "Status", "" },
        { "<Status a=\"b\" />", "Status", "" },
        { "<Status></Status>", "Status", "" },
        { "<Status>x</StatusOf></Status>", "Status", "x</StatusOf>" },
        { "<Status>cut off", "Status", NULL },
        { "<Status", "Status", NULL },
        { "<Status>x</Status", "Status", NULL },
        { "</Status>", "Status", NULL },
        { "", "Status", NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct xml_span found;
        char copy[64];
        print_message("%s\n", rows[i].document);
        assert_int_equal(xml_element(span(rows[i].document), rows[i].name, &found, NULL),
                         rows[i].text != NULL);
        assert_int_equal(xml_is(span(rows[i].document), rows[i].name, rows[i].text ? rows[i].text : ""),
                         rows[i].text != NULL);
        xml_copy(span(rows[i].document), rows[i].name, copy, sizeof(copy));
        assert_string_equal(copy, rows[i].text ? rows[i].text : "");
    }
}

static void
test_one_after_another(void **state)
{
    struct xml_span rest = span("<L><Rule><ID>a</ID></Rule><Rule/><Rule><ID>b</ID></Rule></L>"), rule;
    char id[8], ids[32] = "";
    int n = 0;
    (void)state;
    while (xml_element(rest, "Rule", &rule, &rest)) {
        xml_copy(rule, "ID", id, sizeof(id));
        strcat(ids, id);
        n++;
    }
    assert_int_equal(n, 3);
    assert_string_equal(ids, "ab");
}

static void
test_a_copy_keeps_to_its_size_and_to_a_terminal(void **state)
{
    char small[5];
    (void)state;
    xml_copy(span("<C>a\033[b-and-more</C>"), "C", small, sizeof(small));
    assert_string_equal(small, "a [b");
}

static void
test_names_of_buckets(void **state)
{
    static const struct {
        const char *name, *why; /* NULL: it is one */
    } rows[] = {
        { "kernels-1", NULL },
        { "123", NULL },
        { "a23456789012345678901234567890123456789012345678901234567890123", NULL },
        { "a234567890123456789012345678901234567890123456789012345678901234", "3 to 63" },
        { "ab", "3 to 63" },
        { "", "3 to 63" },
        { "Kernels", "lower-case" },
        { "ker_nels", "lower-case" },
        { "ker/nels", "lower-case" },
        { "k\xc3\xa9rnels", "lower-case" },
        { "my.bucket", "dot" },
        { "-kernels", "begins and ends" },
        { "kernels-", "begins and ends" },
        { "xn--kernels", "beginning" },
        { "kernels-s3alias", "this end" },
        { "kernels--ol-s3", "this end" },
        { "kernels--x", NULL },
        { "kernels--x-s3", "this end" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *why;
        print_message("%s\n", rows[i].name);
        assert_int_equal(s3_is_name(rows[i].name, &why), rows[i].why == NULL);
        if (rows[i].why)
            assert_non_null(strstr(why, rows[i].why));
        else
            assert_null(why);
    }
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_one_after_another),
        cmocka_unit_test(test_a_copy_keeps_to_its_size_and_to_a_terminal),
        cmocka_unit_test(test_names_of_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
