/* Any bytes as a compressed body: what comes out is within its bound, or it is refused with a reason. */
#include <string.h>

#include "common/auto.h"
#include "server/http/encoding.h"
#include "tests/fuzz/fuzz.h"

#define BOUND 4096

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (enum encoding encoding = ENCODING_GZIP; encoding <= ENCODING_ZSTD; encoding++) {
        AUTO_BUFFER struct buffer out = BUFFER_INIT;
        struct error err = { 0 };
        int code = encoding_undo(encoding, (const char *)data, size, BOUND, &out, &err);
        FUZZ_CHECK(out.size <= BOUND);
        FUZZ_CHECK(code == 0 || (err.code == (enum err_code)code && err.text[0] != '\0'));
    }
    return 0;
}
