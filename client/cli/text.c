#include "client/cli/text.h"

#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/utf8.h"

/*
 * C0 but newline and tab, DEL, and C1 (U+0080..U+009F), which terminals obey too; and what turns the direction of a
 * text (U+202A..U+202E, U+2066..U+2069), so that a line reads as another.
 */
static bool
is_control(const char *s, size_t size)
{
    unsigned char c = (unsigned char)s[0];
    if (size == 1)
        return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    unsigned char d = (unsigned char)s[1], e = size == 3 ? (unsigned char)s[2] : 0;
    if (size == 3 && c == 0xe2)
        return (d == 0x80 && e >= 0xaa && e <= 0xae) || (d == 0x81 && e >= 0xa6 && e <= 0xa9);
    return size == 2 && c == 0xc2 && d < 0xa0;
}

static void
print_safely(FILE *to, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t step = utf8_char_size(text + i, n - i);
        if (step == 0 || is_control(text + i, step))
            fputc('?', to);
        else
            fwrite(text + i, 1, step, to);
        i += step ? step : 1;
    }
}

void
text_print(FILE *to, const char *text)
{
    print_safely(to, text, strlen(text));
}

bool
text_dump(FILE *to, const char *bytes, size_t size)
{
    if (isatty(fileno(to)))
        print_safely(to, bytes, size);
    else if (size > 0)
        fwrite(bytes, 1, size, to);
    return fflush(to) == 0 && !ferror(to);
}

/* A NUL would end the text for all that comes after: it is shown as other control characters are. */
static void
add_string(struct buffer *out, const json_t *string)
{
    size_t start = out->size;
    if (buffer_append(out, json_string_value(string), json_string_length(string)) < 0)
        return;
    for (size_t i = start; i < out->size; i++)
        if (out->data[i] == '\0')
            out->data[i] = '?';
}

void
text_value(struct buffer *out, const json_t *value)
{
    if (!value || json_is_null(value)) {
        buffer_add(out, "-");
    } else if (json_is_string(value)) {
        add_string(out, value);
    } else if (json_is_real(value)) {
        buffer_printf(out, "%.7g", json_real_value(value));
    } else {
        AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
        buffer_add(out, text ? text : "?");
    }
}

void
text_number(struct buffer *out, const json_t *object, const char *key, int decimals)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value))
        buffer_printf(out, "%.*f", decimals, json_number_value(value));
    else
        buffer_add(out, "-");
}

/* DEL, which JSON_ENSURE_ASCII leaves as it is, stands in strings alone. */
static int
put_cb(const char *text, size_t size, void *to)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] == 0x7f)
            fputs("\\u007f", to);
        else
            fputc(text[i], to);
    return 0;
}

static void
print_json(const json_t *document, size_t flags)
{
    if (isatty(STDOUT_FILENO))
        json_dump_callback(document, put_cb, stdout, flags | JSON_ENSURE_ASCII);
    else
        json_dumpf(document, stdout, flags);
    putchar('\n');
}

void
text_json(const json_t *document)
{
    print_json(document, JSON_INDENT(2) | JSON_REAL_PRECISION(15)); /* as many digits as came */
}

void
text_json_line(const json_t *document)
{
    print_json(document, JSON_COMPACT | JSON_REAL_PRECISION(7));
    fflush(stdout);
}
