#include "client/trainer/notice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

struct row {
    struct notice (*of)(long status, const char *body);
    long status;
    const char *body;
    enum notice_kind kind;
    int seconds;
    const char *says;
};

/* What the services answer, word for word, and what is not theirs. */
static void
answers(void **state)
{
    static const char page[] = "<!doctype html><html><title>sign in</title></html>";
    static const struct row rows[] = {
        { notice_aws_action, 404, "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>", NOTICE_NONE, 0, "" },
        { notice_aws_action, 200, "{\"action\":\"terminate\",\"time\":\"2026-09-18T08:22:00Z\"}",
          NOTICE_LEAVE, 120, "AWS: terminate at 2026-09-18T08:22:00Z" },
        { notice_aws_action, 200, "{\"action\": \"stop\", \"time\": \"2026-09-18T08:22:00Z\"}", NOTICE_LEAVE,
          120, "AWS: stop" },
        { notice_aws_action, 200, "{\"action\":\"hibernate\"}", NOTICE_LEAVE, 120, "a time not told" },
        { notice_aws_action, 200, "{\"action\":\"none\"}", NOTICE_NONE, 0, "" },
        { notice_aws_action, 200, page, NOTICE_NONE, 0, "" },
        { notice_aws_action, 200, "", NOTICE_NONE, 0, "" },
        { notice_aws_action, 200, NULL, NOTICE_NONE, 0, "" },
        { notice_aws_action, 401, "{\"action\":\"terminate\"}", NOTICE_NONE, 0, "" },
        { notice_aws_action, 0, NULL, NOTICE_NONE, 0, "" },
        { notice_aws_rebalance, 200, "{\"noticeTime\":\"2026-09-18T08:22:00Z\"}", NOTICE_ADVICE, 0,
          "recommends to move, since 2026-09-18T08:22:00Z" },
        { notice_aws_rebalance, 404, "", NOTICE_NONE, 0, "" },
        { notice_aws_rebalance, 200, page, NOTICE_NONE, 0, "" },
        { notice_gcp_preempted, 200, "FALSE", NOTICE_NONE, 0, "" },
        { notice_gcp_preempted, 200, "TRUE", NOTICE_LEAVE, 30, "preempted" },
        { notice_gcp_preempted, 200, "TRUE\n", NOTICE_LEAVE, 30, "preempted" },
        { notice_gcp_preempted, 503, "TRUE", NOTICE_NONE, 0, "" },
        { notice_gcp_preempted, 200, NULL, NOTICE_NONE, 0, "" },
        { notice_gcp_maintenance, 200, "NONE", NOTICE_NONE, 0, "" },
        { notice_gcp_maintenance, 200, "MIGRATE_ON_HOST_MAINTENANCE", NOTICE_NONE, 0, "" }, /* it stays */
        { notice_gcp_maintenance, 200, "TERMINATE_ON_HOST_MAINTENANCE", NOTICE_LEAVE, 30,
          "TERMINATE_ON_HOST_MAINTENANCE" },
        { notice_gcp_maintenance, 404, "TERMINATE_ON_HOST_MAINTENANCE", NOTICE_NONE, 0, "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct notice found = rows[i].of(rows[i].status, rows[i].body);
        if (found.kind != rows[i].kind || found.seconds != rows[i].seconds ||
            !strstr(found.text, rows[i].says))
            fail_msg("row %zu: %d %d %s", i, (int)found.kind, found.seconds, found.text);
    }
}

#define EVENT(kind, machine)                                                        \
    "{\"EventId\":\"602d9444\",\"EventStatus\":\"Scheduled\",\"EventType\":\"" kind \
    "\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[" machine                \
    "],\"NotBefore\":\"Mon, 19 Sep 2026 18:29:47 GMT\",\"Description\":\"\",\"EventSource\":\"Platform\"}"
#define DOCUMENT(events) "{\"DocumentIncarnation\":2,\"Events\":[" events "]}"

/* Azure's list is that of all machines of a set. */
static void
azure(void **state)
{
    static const struct {
        const char *body, *machine;
        enum notice_kind kind;
    } rows[] = {
        { DOCUMENT(""), "vm_0", NOTICE_NONE },
        { DOCUMENT(EVENT("Preempt", "\"vm_0\"")), "vm_0", NOTICE_LEAVE },
        { DOCUMENT(EVENT("Terminate", "\"vm_0\"")), "vm_0", NOTICE_LEAVE },
        { DOCUMENT(EVENT("Preempt", "\"vm_1\"")), "vm_0", NOTICE_NONE },
        { DOCUMENT(EVENT("Preempt", "\"vm_1\",\"vm_0\"")), "vm_0", NOTICE_LEAVE },
        { DOCUMENT(EVENT("Preempt", "\"vm_1\"")), "", NOTICE_LEAVE },
        { DOCUMENT(EVENT("Preempt", "")), "vm_0", NOTICE_LEAVE },
        { DOCUMENT(EVENT("Reboot", "\"vm_0\"")), "vm_0", NOTICE_NONE },
        { DOCUMENT(EVENT("Freeze", "\"vm_0\"") "," EVENT("Preempt", "\"vm_0\"")), "vm_0", NOTICE_LEAVE },
        { DOCUMENT("{},3,null"), "vm_0", NOTICE_NONE },
        { "{\"Events\":{}}", "vm_0", NOTICE_NONE },
        { "[]", "vm_0", NOTICE_NONE },
        { "{\"Events\":[{\"EventType\":\"Preempt\"", "vm_0", NOTICE_NONE },
        { "", "vm_0", NOTICE_NONE },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (notice_azure(200, rows[i].body, rows[i].machine).kind != rows[i].kind)
            fail_msg("row %zu: %s", i, rows[i].body);
    const struct notice found = notice_azure(200, rows[1].body, "vm_0");
    assert_string_equal(found.text, "Azure: Preempt, not before Mon, 19 Sep 2026 18:29:47 GMT");
    assert_int_equal(found.seconds, 30);
    assert_int_equal(notice_azure(500, rows[1].body, "vm_0").kind, NOTICE_NONE);
    assert_int_equal(notice_azure(200, NULL, "vm_0").kind, NOTICE_NONE);
}

static void
tokens(void **state)
{
    char out[256] = "before", large[300];
    (void)state;
    memset(large, 'a', sizeof(large));
    large[256] = '\0';
    assert_false(notice_token(200, large, out));
    assert_false(notice_token(200, "", out));
    assert_false(notice_token(200, NULL, out));
    assert_false(notice_token(403, "AQAE", out));
    assert_false(notice_token(200, "AQAE\r\nX-Other: header", out));
    assert_string_equal(out, "before");
    large[255] = '\0';
    assert_true(notice_token(200, large, out));
    assert_true(notice_token(200, "AQAEAHy==", out));
    assert_string_equal(out, "AQAEAHy==");
}

/* The last copy has a third of the notice. */
static void
grace(void **state)
{
    static const int seconds[] = { NOTICE_AWS_S, NOTICE_GCP_S, NOTICE_AZURE_S, NOTICE_SIGTERM_S };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(seconds); i++) {
        const struct notice n = { NOTICE_LEAVE, seconds[i], "" };
        assert_true(notice_grace_s(&n) == (seconds[i] == 120 ? 80 : 20));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(azure),
        cmocka_unit_test(tokens),
        cmocka_unit_test(grace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
