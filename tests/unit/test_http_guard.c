#include "server/http/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

struct row {
    const char *version;
    const char *headers; /* "Name=value" separated by "|" */
    const char *why;     /* part of the verdict; NULL: fine */
};

static void
guard_all(struct guard *g, const char *version, const char *headers)
{
    AUTO_FREE char *copy = strdup(headers);
    char *rest = *copy ? copy : NULL;

    guard_init(g, "GET", "/", version);
    while (rest) {
        char *value = strsep(&rest, "|");
        char *name = strsep(&value, "=");
        guard_header(g, name, strlen(name), value, value ? strlen(value) : 0);
    }
}

static void
requests_are_judged_by_their_framing(void **state)
{
    static const struct row rows[] = {
        { "HTTP/1.1", "Host=a", NULL },
        { "HTTP/1.1", "host=a|content-length=5", NULL },
        { "HTTP/1.1", "Host=a|Content-Length=000000000000000005", NULL },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=chunked", NULL },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=CHUNKED", NULL },
        { "HTTP/1.0", "", NULL },
        { "HTTP/1.0", "Host=a", NULL },
        { "HTTP/1.1", "Host=a|!#$%&'*+-.^_`~=x", NULL },
        { "HTTP/1.1", "Host=a|X=a\tb", NULL },
        { "HTTP/1.1", "", "exactly one Host" },
        { "HTTP/1.1", "Host=a|Host=a", "exactly one Host" },
        { "HTTP/1.0", "Host=a|HOST=b", "exactly one Host" },
        { "HTTP/2.0", "Host=a", "version" },
        { "HTTP/1.10", "Host=a", "version" },
        { "HTTP/1.1", "Host=a|Content-Length=5|Content-Length=5", "more than one Content-Length" },
        { "HTTP/1.1", "Host=a|Content-Length=5|CONTENT-LENGTH=6", "more than one Content-Length" },
        { "HTTP/1.1", "Host=a|Content-Length=5|Transfer-Encoding=chunked", "both" },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=chunked|Transfer-Encoding=chunked",
          "more than one Transfer" },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=gzip, chunked", "not \"chunked\"" },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=xchunked", "not \"chunked\"" },
        { "HTTP/1.1", "Host=a|Transfer-Encoding=", "not \"chunked\"" },
        { "HTTP/1.0", "Transfer-Encoding=chunked", "HTTP/1.0" },
        { "HTTP/1.1", "Host=a|Content-Length=", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length=+5", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length=5 ", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length=0x5", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length=5, 5", "not a number" },
        { "HTTP/1.1", "Host=a|Content-Length=1000000000000000000", "not a number" },
        { "HTTP/1.1", "Host=a|Transfer-Encoding =chunked", "no token" },
        { "HTTP/1.1", "Host=a|=x", "no token" },
        { "HTTP/1.1", "Host=a|A(B=x", "no token" },
        { "HTTP/1.1", "Host=a|\xc3\xa9=x", "no token" },
        { "HTTP/1.1", "Host=a|X=a\001b", "control character" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct guard g;
        guard_all(&g, rows[i].version, rows[i].headers);
        const char *why = guard_verdict(&g);
        if (rows[i].why ? !why || !strstr(why, rows[i].why) : why != NULL)
            fail_msg("%s %s: %s", rows[i].version, rows[i].headers, why ? why : "fine");
    }
}

static void
request_lines_are_judged_too(void **state)
{
    static const struct {
        const char *method, *target, *why;
    } rows[] = {
        { "GET", "/", NULL },
        { "M-SEARCH", "/%00?a=\xc3\xa9",
          NULL }, /* what is wrong with it, but not in framing, is told later */
        { "", "/", "method" },
        { "G(T", "/", "method" },
        { "GET\xff", "/", "method" },
        { "GET", "/a b", "address" },
        { "GET", "/a\rb", "address" },
        { "GET", "/a\tb", "address" },
        { "GET", "/a\x7f", "address" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct guard g;
        guard_init(&g, rows[i].method, rows[i].target, "HTTP/1.0");
        const char *why = guard_verdict(&g);
        if (rows[i].why ? !why || !strstr(why, rows[i].why) : why != NULL)
            fail_msg("%s %s: %s", rows[i].method, rows[i].target, why ? why : "fine");
    }
}

static void
a_nul_in_name_or_value_is_seen(void **state)
{
    struct guard g;

    (void)state;
    guard_init(&g, "GET", "/", "HTTP/1.0");
    guard_header(&g, "X", 1, "a\0b", 3);
    assert_non_null(strstr(guard_verdict(&g), "control"));
    guard_init(&g, "GET", "/", "HTTP/1.0");
    guard_header(&g, "X\0Y", 3, "a", 1);
    assert_non_null(strstr(guard_verdict(&g), "token"));
}

static void
the_length_of_the_body_is_told(void **state)
{
    struct guard g;

    (void)state;
    guard_all(&g, "HTTP/1.1", "Host=a|Content-Length=8388609");
    assert_int_equal(g.length, 8388609);
    assert_false(g.is_chunked);
    guard_all(&g, "HTTP/1.1", "Host=a|Transfer-Encoding=chunked");
    assert_int_equal(g.length, 0);
    assert_true(g.is_chunked);
}

static void
only_addresses_and_localhost_are_local(void **state)
{
    static const struct {
        const char *host;
        bool is_local;
    } rows[] = {
        { "localhost", true },
        { "LOCALHOST:8080", true },
        { "127.0.0.1", true },
        { "127.0.0.1:1", true },
        { "[::1]", true },
        { "[::1]:8080", true },
        { "10.0.0.7:65535", true },
        { "", false },
        { "rebound.example", false },
        { "127.0.0.1.nip.io", false },
        { "localhost.example", false },
        { "127.0.0.1:8080x", false },
        { "127.0.0.1:", false },
        { "[::1", false },
        { "[::1]x", false },
        { "[localhost]", false },
        { "0x7f.1", false },
        { "127.1", false },
        { "[", false },
        { "::1", false },
        { "[0000000000000000000000000000000000000000000000000000000000000000000000]", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (guard_host_is_local(rows[i].host) != rows[i].is_local)
            fail_msg("%s", rows[i].host);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_judged_by_their_framing),
        cmocka_unit_test(request_lines_are_judged_too),
        cmocka_unit_test(a_nul_in_name_or_value_is_seen),
        cmocka_unit_test(the_length_of_the_body_is_told),
        cmocka_unit_test(only_addresses_and_localhost_are_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
