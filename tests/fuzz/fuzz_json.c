/* Any bytes as a request: parsed, and read by a table that has every kind of field, or refused with a clean fault. */
#include <stdbool.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/reward.h"
#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"

static void
check_fault(const struct json_fault *fault)
{
    FUZZ_CHECK(memchr(fault->pointer, '\0', sizeof(fault->pointer)));
    FUZZ_CHECK(memchr(fault->text, '\0', sizeof(fault->text)));
    FUZZ_CHECK(fault->text[0] != '\0');
    FUZZ_CHECK(utf8_is_valid(fault->text, strlen(fault->text)));
    FUZZ_CHECK(utf8_is_valid(fault->pointer, strlen(fault->pointer)));
    FUZZ_CHECK(fault->pointer[0] == '\0' || fault->pointer[0] == '/');
}

static void
read_request(json_t *document)
{
    const char *task = NULL;
    json_t *candidate = NULL, *metadata = NULL, *cases = NULL, *reward = NULL, *any = NULL;
    int64_t priority = 0;
    double deadline_s = 1;
    bool is_dynamic = false;
    struct json_fault fault;
    const struct json_field fields[] = {
        { "task", JSON_WANT_STRING, &task, true, 1, 8 },
        { "candidate", JSON_WANT_TEXT, &candidate, false, 0, 16 },
        { "priority", JSON_WANT_INT, &priority, false, 0, 1 },
        { "deadline_s", JSON_WANT_NUMBER, &deadline_s, false, 0.5, 60 },
        { "dynamic_shapes", JSON_WANT_BOOL, &is_dynamic, false, 0, 0 },
        { "metadata", JSON_WANT_OBJECT, &metadata, false, 0, 0 },
        { "cases", JSON_WANT_ARRAY, &cases, false, 0, 0 },
        { "reward", JSON_WANT_OBJECT, &reward, false, 0, 0 },
        { "any", JSON_WANT_ANY, &any, false, 0, 0 },
    };
    if (json_read(document, "", fields, ARRAY_LEN(fields), &fault) < 0) {
        check_fault(&fault);
        return;
    }
    FUZZ_CHECK(task && *task && utf8_length(task, strlen(task)) <= 8);
    FUZZ_CHECK(!candidate || utf8_length(json_string_value(candidate), json_string_length(candidate)) <= 16);
    FUZZ_CHECK(priority == 0 || priority == 1);
    FUZZ_CHECK(deadline_s >= 0.5 && deadline_s <= 60);
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    if (reward && reward_spec_read(reward, "/reward", &spec, &fault) < 0)
        check_fault(&fault);
    FUZZ_CHECK(spec.hack_value >= -1 && spec.hack_value <= 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_fault fault;
    AUTO_JSON json_t *document = json_parse((const char *)data, size, &fault);
    if (document)
        read_request(document);
    else
        check_fault(&fault);
    return 0;
}
