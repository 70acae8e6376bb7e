#include "common/xml.h"

#include <ctype.h>
#include <string.h>

static const char *
find(const char *at, const char *end, const char *text, size_t size)
{
    return at < end ? memmem(at, (size_t)(end - at), text, size) : NULL;
}

/* Where "</name>" begins and ends; NULL: nowhere. */
static const char *
find_close(const char *at, const char *end, const char *name, size_t size, const char **after)
{
    while ((at = find(at, end, "</", 2)) != NULL) {
        const char *gt = at + 2 + size;
        if (gt < end && memcmp(at + 2, name, size) == 0 && *gt == '>') {
            *after = gt + 1;
            return at;
        }
        at += 2;
    }
    return NULL;
}

bool
xml_element(struct xml_span document, const char *name, struct xml_span *out, struct xml_span *rest)
{
    const size_t size = strlen(name);
    const char *end = document.at + document.size, *after = NULL;

    for (const char *at = document.at; (at = find(at, end, "<", 1)) != NULL; at++) {
        const char *behind = at + 1 + size;
        if (behind >= end || memcmp(at + 1, name, size) != 0 || !strchr(" \t\r\n/>", *behind) || !*behind)
            continue;
        const char *gt = find(behind, end, ">", 1);
        if (!gt)
            return false;
        struct xml_span found = { gt + 1, 0 };
        if (gt[-1] == '/') {
            after = gt + 1;
        } else {
            const char *close = find_close(gt + 1, end, name, size, &after);
            if (!close)
                return false;
            found.size = (size_t)(close - found.at);
        }
        *out = found;
        if (rest)
            *rest = (struct xml_span){ after, (size_t)(end - after) };
        return true;
    }
    return false;
}

/* Without white space around it. */
static bool
text_of(struct xml_span document, const char *name, struct xml_span *out)
{
    if (!xml_element(document, name, out, NULL))
        return false;
    while (out->size > 0 && isspace((unsigned char)out->at[0])) {
        out->at++;
        out->size--;
    }
    while (out->size > 0 && isspace((unsigned char)out->at[out->size - 1]))
        out->size--;
    return true;
}

bool
xml_is(struct xml_span document, const char *name, const char *text)
{
    struct xml_span found;
    return text_of(document, name, &found) && found.size == strlen(text) &&
           memcmp(found.at, text, found.size) == 0;
}

void
xml_copy(struct xml_span document, const char *name, char *out, size_t size)
{
    struct xml_span found = { "", 0 };
    text_of(document, name, &found);
    size_t n = found.size < size - 1 ? found.size : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = iscntrl((unsigned char)found.at[i]) ? ' ' : found.at[i];
    out[n] = '\0';
}
