/* Any bytes as the answer of an S3 service: what is found lies in the document, and the search goes forward. */
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/xml.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = { "Rule", "ID", "Status", "Code", "Expiration", "a" };

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = malloc(size ? size : 1); /* no more, so that a byte too far is seen */
    char copy[16];

    if (!text)
        return 0;
    memcpy(text, data, size);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct xml_span rest = { text, size }, found;
        while (xml_element(rest, names[i], &found, &rest)) {
            FUZZ_CHECK(found.at > text && found.at + found.size <= text + size);
            FUZZ_CHECK(rest.at >= found.at + found.size && rest.at + rest.size == text + size);
        }
        xml_is((struct xml_span){ text, size }, names[i], "Enabled");
        xml_copy((struct xml_span){ text, size }, names[i], copy, sizeof(copy));
        FUZZ_CHECK(strlen(copy) < sizeof(copy));
    }
    return 0;
}
