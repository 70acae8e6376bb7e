/* Any text: what is found lies within it, keeps the bound, and does not change when it is looked for again. */
#include <string.h>

#include "common/error.h"
#include "common/extract.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct extract found, again;

    int code = extract_code(text, size, &found);
    FUZZ_CHECK(code == 0 || code == ERR_INPUT);
    if (code != 0)
        return 0;
    FUZZ_CHECK(found.size > 0 && found.size <= EXTRACT_MAX);
    FUZZ_CHECK(found.code >= text && found.size <= size - (size_t)(found.code - text));
    FUZZ_CHECK(found.from != EXTRACT_TEXT || !found.is_truncated);
    /* Behind an open fence there is nothing but special tokens. */
    const char *rest = found.code + found.size;
    FUZZ_CHECK(!found.is_truncated || extract_code(rest, (size_t)(text + size - rest), &again) == ERR_INPUT);
    FUZZ_CHECK(extract_code(text, size, &again) == 0);
    FUZZ_CHECK(found.code == again.code && found.size == again.size && found.from == again.from);
    return 0;
}
