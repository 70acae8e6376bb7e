/* Any bytes as what a candidate says: quoted, no mark of a fence or a template survives, nor a line without the prefix. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "server/verdict/cause.h"
#include "server/verdict/feedback.h"
#include "tests/fuzz/fuzz.h"

static bool
has(const struct buffer *b, const char *mark)
{
    return b->size > 0 && memmem(b->data, b->size, mark, strlen(mark));
}

/* What was raised makes one line, which its quotes end: whatever the bytes are, they are inside, or of a known form. */
static void
check_cause(const char *text, const char *type)
{
    AUTO_JSON json_t *error = json_pack("{s:s?, s:s?, s:i}", "type", type, "text", text, "line", 7);
    const struct cause cause = { STAGE_TINY, CLASS_LAUNCH, error, "nothing was said" };
    AUTO_BUFFER struct buffer line = BUFFER_INIT;
    int quotes = 0;

    if (!error) /* no UTF-8: no worker's message has such a text */
        return;
    FUZZ_CHECK(cause_add(&cause, &line) == 0);
    FUZZ_CHECK(strncmp(line.data, "tiny: line 7", 12) == 0 && !memchr(line.data, '\n', line.size));
    for (size_t i = 0; i < line.size; i++)
        quotes += line.data[i] == '"';
    FUZZ_CHECK(quotes == 0 || (quotes == 2 && line.data[line.size - 1] == '"'));
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const marks[] = { "```",    "~~~",   "<|",     "|>",  "</",
                                         "<think", "[INST", "[/INST", "<s>", "\x1b" };
    AUTO_BUFFER struct buffer b = BUFFER_INIT;

    AUTO_FREE char *text = size < 100000 ? strndup((const char *)bytes, size) : NULL;
    if (text) {
        check_cause(text, "ValueError");
        check_cause(text, text);
    }
    FUZZ_CHECK(feedback_quote((const char *)bytes, size, 500, "| ", &b) == 0);
    FUZZ_CHECK(b.size <= 4 * 500 + 100);
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        FUZZ_CHECK(!has(&b, marks[i]));
    for (size_t i = 0; i < b.size; i++) {
        FUZZ_CHECK((unsigned char)b.data[i] >= 0x20 || b.data[i] == '\n' || b.data[i] == '\t');
        FUZZ_CHECK(b.data[i] != '\n' || (i + 2 < b.size + 1 && strncmp(b.data + i + 1, "| ", 2) == 0));
    }
    return 0;
}
