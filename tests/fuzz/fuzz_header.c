/* Any bytes as what a request's first lines hold: each reader keeps to its bounds, and what is taken is what it says. */
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/hash.h"
#include "common/ids.h"
#include "server/http/guard.h"
#include "server/http/target.h"
#include "tests/fuzz/fuzz.h"

/* "Name: value" lines, as MHD hands them over. */
static void
read_lines(const char *text, size_t size)
{
    struct guard g;

    guard_init(&g, "POST", "/v1/submissions", "HTTP/1.1");
    for (size_t at = 0; at < size;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;
        const char *colon = memchr(line, ':', length);
        if (colon)
            guard_header(&g, line, (size_t)(colon - line), colon + 1, length - (size_t)(colon - line) - 1);
        at += length + 1;
    }
    if (guard_verdict(&g))
        return;
    FUZZ_CHECK(g.hosts == 1 && g.lengths <= 1 && g.encodings <= 1 && !(g.lengths && g.encodings));
    FUZZ_CHECK(!g.is_chunked || g.encodings == 1);
}

static void
read_target(const char *text)
{
    struct target t;
    struct error err = { 0 };

    if (target_parse(text, &t, &err) != 0)
        return;
    for (size_t i = 0; i < t.segments_count; i++)
        FUZZ_CHECK(strlen(t.segments[i]) <= strlen(text));
    const char *cursor = target_value(&t, "cursor");
    if (cursor && hash_is_valid(cursor))
        FUZZ_CHECK(strlen(cursor) == HASH_TEXT_SIZE - 1);
    if (cursor && id_is_valid(cursor))
        FUZZ_CHECK(strlen(cursor) == ID_SIZE - 1);
    target_release(&t);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = malloc(size + 1);
    char key[64];

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    read_lines(text, size);
    read_target(text);
    FUZZ_CHECK(prefer_wait_s(text) >= -1);
    if (idempotency_key(text, key, sizeof(key)))
        FUZZ_CHECK(strlen(key) > 0 && strlen(key) < sizeof(key) && !strpbrk(key, " \"\\"));
    if (is_tag_known(text, "\"ab\""))
        FUZZ_CHECK(strchr(text, '*') || strstr(text, "\"ab\""));
    guard_host_is_local(text);
    return 0;
}
