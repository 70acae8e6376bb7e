#include "server/http/target.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/utf8.h"

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decode in place; it can only get shorter. */
static int
unescape(char *text, bool is_query, struct error *err)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0)
                return error_set(err, ERR_INPUT, "the address has a %% without two hexadecimal digits");
            int c = high * 16 + low;
            if (c < ' ' || c == 127)
                return error_set(err, ERR_INPUT, "the address has an escaped control character");
            *to++ = (char)c;
            from += 2;
        } else {
            *to++ = is_query && *from == '+' ? ' ' : *from;
        }
    }
    *to = '\0';
    if (!utf8_is_valid(text, (size_t)(to - text)))
        return error_set(err, ERR_INPUT, "the address has escapes that are not UTF-8");
    return 0;
}

static int
parse_path(struct target *t, char *path, struct error *err)
{
    char *rest = path;
    if (!*path)
        return 0;
    while (rest) {
        char *segment = strsep(&rest, "/");
        if (t->segments_count == TARGET_SEGMENTS)
            return error_set(err, ERR_INPUT, "the path has more than %d segments", TARGET_SEGMENTS);
        if (unescape(segment, false, err) != 0)
            return ERR_INPUT;
        t->segments[t->segments_count++] = segment;
    }
    return 0;
}

static int
parse_query(struct target *t, char *query, struct error *err)
{
    while (query && *query) {
        char *value = strsep(&query, "&");
        char *name = strsep(&value, "=");
        if (!*name && !value)
            continue;
        if (t->pairs_count == TARGET_PAIRS)
            return error_set(err, ERR_INPUT, "the query has more than %d parameters", TARGET_PAIRS);
        if (unescape(name, true, err) != 0 || (value && unescape(value, true, err) != 0))
            return ERR_INPUT;
        if (target_value(t, name))
            return error_set(err, ERR_INPUT, "the query has \"%.40s\" twice", name);
        t->pairs[t->pairs_count++] = (struct target_pair){ name, value ? value : "", false };
    }
    return 0;
}

int
target_parse(const char *raw, struct target *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    if (*raw != '/')
        return error_set(err, ERR_INPUT, "the address does not begin with a slash");
    for (const char *p = raw; *p; p++)
        if (*p <= ' ' || *p > '~')
            return error_set(err, ERR_INPUT, "the address has a character that needs escaping");
    out->text = strdup(raw);
    if (!out->text)
        return error_set(err, ERR_NOMEM, "no memory for the address");
    char *query = out->text;
    char *path = strsep(&query, "?");
    int rc = parse_path(out, path + 1, err);
    if (rc == 0)
        rc = parse_query(out, query, err);
    if (rc != 0)
        target_release(out);
    return rc;
}

void
target_release(struct target *t)
{
    free(t->text);
    memset(t, 0, sizeof(*t));
}

const char *
target_value(const struct target *t, const char *name)
{
    for (size_t i = 0; i < t->pairs_count; i++)
        if (strcmp(t->pairs[i].name, name) == 0)
            return t->pairs[i].value;
    return NULL;
}

static const char *
skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* The digits after "wait =", of one preference; parameters after a semicolon do not matter. */
static long
wait_value(const char *p)
{
    p = skip_space(p);
    if (*p++ != '=')
        return -1;
    p = skip_space(p);
    bool is_quoted = *p == '"';
    p += is_quoted;
    const char *digits = p;
    long n = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        n = n > 999999999 ? n : n * 10 + (*p - '0');
    if (p == digits || (is_quoted && *p++ != '"'))
        return -1;
    p = skip_space(p);
    return *p == '\0' || *p == ',' || *p == ';' ? n : -1;
}

long
prefer_wait_s(const char *header)
{
    while (header) {
        header = skip_space(header);
        if (strncasecmp(header, "wait", 4) == 0 && strchr(" \t=", header[4]) && header[4])
            return wait_value(header + 4);
        header = strchr(header, ',');
        if (header)
            header++;
    }
    return -1;
}

/* n lower-case hexadecimal digits at p, not all of them 0 unless they may be. */
static bool
is_hex(const char *p, size_t n, bool may_be_zero)
{
    return strspn(p, "0123456789abcdef") >= n && (may_be_zero || strspn(p, "0") < n);
}

bool
traceparent_trace(const char *header, char trace[TRACE_SIZE])
{
    enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, END = 55 };

    if (strlen(header) < END || !is_hex(header, 2, true) || strncmp(header, "ff", 2) == 0 ||
        header[TRACE_AT - 1] != '-' || !is_hex(header + TRACE_AT, 32, false) ||
        header[PARENT_AT - 1] != '-' || !is_hex(header + PARENT_AT, 16, false) ||
        header[FLAGS_AT - 1] != '-' || !is_hex(header + FLAGS_AT, 2, true))
        return false;
    /* A later version may say more behind that; the first does not. */
    if (header[END] != '\0' && (header[END] != '-' || strncmp(header, "00", 2) == 0))
        return false;
    memcpy(trace, header + TRACE_AT, TRACE_SIZE - 1);
    trace[TRACE_SIZE - 1] = '\0';
    return true;
}

bool
idempotency_key(const char *value, char *out, size_t size)
{
    size_t length = strlen(value);
    bool is_quoted = length >= 2 && value[0] == '"' && value[length - 1] == '"';

    if (is_quoted) {
        value++;
        length -= 2;
    }
    if (length == 0 || length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        if (value[i] <= ' ' || value[i] > '~' || value[i] == '"' || value[i] == '\\')
            return false;
    memcpy(out, value, length);
    out[length] = '\0';
    return true;
}

bool
is_tag_known(const char *header, const char *tag)
{
    size_t size = strlen(tag);

    for (const char *at = skip_space(header); *at;) {
        if (*at == '*')
            return true;
        if (strncmp(at, "W/", 2) == 0)
            at += 2;
        if (*at != '"')
            return false; /* malformed: none of it counts */
        const char *end = strchr(at + 1, '"');
        if (!end)
            return false;
        if ((size_t)(end + 1 - at) == size && strncmp(at, tag, size) == 0)
            return true;
        at = skip_space(end + 1);
        if (*at == ',')
            at = skip_space(at + 1);
        else if (*at)
            return false;
    }
    return false;
}
