/* Any text: what is found lies within it, keeps the bound, and does not change when it is looked for again. */
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/error.h"
#include "common/extract.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct extract found, again;

    int code = extract_code(text, size, "ModelNew", &found);
    FUZZ_CHECK(code == 0 || code == ERR_INPUT);
    if (code != 0)
        return 0;
    FUZZ_CHECK(found.size > 0 && found.size <= EXTRACT_MAX);
    FUZZ_CHECK(found.code >= text && found.size <= size - (size_t)(found.code - text));
    const bool is_thinking = memmem(text, size, "<think>", 7) != NULL;
    FUZZ_CHECK(found.from != EXTRACT_TEXT || !found.is_truncated || is_thinking);
    /* Behind an open fence there is nothing but special tokens. */
    const char *rest = found.code + found.size;
    FUZZ_CHECK(!found.is_truncated || is_thinking ||
               extract_code(rest, (size_t)(text + size - rest), "ModelNew", &again) == ERR_INPUT);
    FUZZ_CHECK(extract_code(text, size, "ModelNew", &again) == 0);
    FUZZ_CHECK(found.code == again.code && found.size == again.size && found.from == again.from);
    /* Only white space is taken from the lines, and nothing from a text without fences. */
    AUTO_BUFFER struct buffer taken = BUFFER_INIT;
    FUZZ_CHECK(extract_append(&found, &taken) == 0 && taken.size <= found.size);
    for (size_t i = 0; i < found.indent_size; i++)
        FUZZ_CHECK(found.indent[i] == ' ' || found.indent[i] == '\t');
    FUZZ_CHECK(found.from != EXTRACT_TEXT || taken.size == found.size);
    return 0;
}
