/* Any bytes as what a candidate says: quoted, no mark of a fence or a template survives, nor a line without the prefix. */
#include <stdbool.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "server/verdict/feedback.h"
#include "tests/fuzz/fuzz.h"

static bool
has(const struct buffer *b, const char *mark)
{
    return b->size > 0 && memmem(b->data, b->size, mark, strlen(mark));
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const marks[] = { "```",    "~~~",   "<|",     "|>",  "</",
                                         "<think", "[INST", "[/INST", "<s>", "\x1b" };
    AUTO_BUFFER struct buffer b = BUFFER_INIT;

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
