#include "common/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/utf8.h"

int
json_refuse_at(struct json_fault *fault, const char *base, const char *key, const char *format, ...)
{
    va_list args;

    if (!fault)
        return ERR_INPUT;
    snprintf(fault->pointer, sizeof(fault->pointer), "%s%s%s", base, *key ? "/" : "", key);
    va_start(args, format);
    vsnprintf(fault->text, sizeof(fault->text), format, args);
    va_end(args);
    /* Either may have been cut inside a character; both are sent back as JSON. */
    utf8_clean(fault->pointer);
    utf8_clean(fault->text);
    return ERR_INPUT;
}

json_t *
json_parse(const char *bytes, size_t size, struct json_fault *fault)
{
    json_error_t why;
    json_t *document = json_loadb(bytes ? bytes : "", size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!document)
        json_refuse(fault, "", "line %d, column %d: %s", why.line, why.column, why.text);
    return document;
}

json_t *
json_of(const char *text)
{
    return text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
}

/* Append "/key" with ~ and / escaped; a pointer too long loses its end. */
static void
pointer_join(char out[JSON_POINTER_SIZE], const char *base, const char *key)
{
    size_t used = (size_t)snprintf(out, JSON_POINTER_SIZE, "%s/", base);
    for (; *key && used + 3 < JSON_POINTER_SIZE; key++) {
        if (*key == '~' || *key == '/') {
            out[used++] = '~';
            out[used++] = *key == '~' ? '0' : '1';
        } else {
            out[used++] = *key;
        }
    }
    if (used < JSON_POINTER_SIZE)
        out[used] = '\0';
}

static const char *const want_name[] = {
    [JSON_WANT_STRING] = "a string", [JSON_WANT_TEXT] = "a string",  [JSON_WANT_INT] = "an integer",
    [JSON_WANT_NUMBER] = "a number", [JSON_WANT_BOOL] = "a boolean", [JSON_WANT_OBJECT] = "an object",
    [JSON_WANT_ARRAY] = "an array",  [JSON_WANT_ANY] = "a value",
};

static bool
has_type(const json_t *value, enum json_want want)
{
    switch (want) {
    case JSON_WANT_STRING:
    case JSON_WANT_TEXT:
        return json_is_string(value);
    case JSON_WANT_INT:
        return json_is_integer(value);
    case JSON_WANT_NUMBER:
        return json_is_number(value);
    case JSON_WANT_BOOL:
        return json_is_boolean(value);
    case JSON_WANT_OBJECT:
        return json_is_object(value);
    case JSON_WANT_ARRAY:
        return json_is_array(value);
    case JSON_WANT_ANY:
        return true;
    }
    return false;
}

static int
check_string(const json_t *value, const struct json_field *field, const char *pointer,
             struct json_fault *fault)
{
    double size = (double)utf8_length(json_string_value(value), json_string_length(value));
    if (field->max > 0 && size > field->max)
        return json_refuse(fault, pointer, "has %.0f characters, at most %.0f are allowed", size, field->max);
    if (size < field->min)
        return json_refuse(fault, pointer, "must have at least %.0f character%s", field->min,
                           field->min > 1 ? "s" : "");
    /* Read as a C string it would lose its end without a word. */
    if (field->want == JSON_WANT_STRING && strlen(json_string_value(value)) < json_string_length(value))
        return json_refuse(fault, pointer, "must not contain a NUL character");
    return 0;
}

static int
check_number(const json_t *value, const struct json_field *field, const char *pointer,
             struct json_fault *fault)
{
    double number = json_number_value(value);
    bool is_bounded = field->min != 0 || field->max != 0;
    if (is_bounded && !(number >= field->min && number <= field->max))
        return json_refuse(fault, pointer, "must be from %.16g to %.16g", field->min, field->max);
    return 0;
}

static int
check_value(const json_t *value, const struct json_field *field, const char *pointer,
            struct json_fault *fault)
{
    if (!has_type(value, field->want))
        return json_refuse(fault, pointer, "must be %s", want_name[field->want]);
    if (field->want == JSON_WANT_STRING || field->want == JSON_WANT_TEXT)
        return check_string(value, field, pointer, fault);
    if (field->want == JSON_WANT_INT || field->want == JSON_WANT_NUMBER)
        return check_number(value, field, pointer, fault);
    return 0;
}

static void
assign(json_t *value, const struct json_field *field)
{
    switch (field->want) {
    case JSON_WANT_STRING:
        *(const char **)field->out = json_string_value(value);
        break;
    case JSON_WANT_INT:
        *(int64_t *)field->out = json_integer_value(value);
        break;
    case JSON_WANT_NUMBER:
        *(double *)field->out = json_number_value(value);
        break;
    case JSON_WANT_BOOL:
        *(bool *)field->out = json_is_true(value);
        break;
    case JSON_WANT_TEXT:
    case JSON_WANT_OBJECT:
    case JSON_WANT_ARRAY:
    case JSON_WANT_ANY:
        *(json_t **)field->out = value;
        break;
    }
}

static const struct json_field *
find_field(const char *key, const struct json_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
    return NULL;
}

static int
refuse_unknown(json_t *object, const char *base, const struct json_field *fields, size_t n,
               struct json_fault *fault)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        if (!find_field(key, fields, n)) {
            char pointer[JSON_POINTER_SIZE];
            pointer_join(pointer, base, key);
            return json_refuse(fault, pointer, "unknown field");
        }
    }
    return 0;
}

int
json_read(json_t *object, const char *base, const struct json_field *fields, size_t n,
          struct json_fault *fault)
{
    if (!json_is_object(object))
        return json_refuse(fault, base, "must be an object");
    if (refuse_unknown(object, base, fields, n, fault) < 0)
        return ERR_INPUT;
    for (size_t i = 0; i < n; i++) {
        char pointer[JSON_POINTER_SIZE];
        json_t *value = json_object_get(object, fields[i].key);
        pointer_join(pointer, base, fields[i].key);
        if (!value || json_is_null(value)) {
            if (fields[i].is_required)
                return json_refuse(fault, pointer, value ? "must not be null" : "is required");
            continue;
        }
        if (check_value(value, &fields[i], pointer, fault) < 0)
            return ERR_INPUT;
        assign(value, &fields[i]);
    }
    return 0;
}

/* --- writing --- */

#define DIGITS_SURE 15 /* of a decimal number, which a double keeps */
#define DIGITS_MOST 17 /* of a double */

/* Shortens a number that jansson wrote in `size` characters to the fewest digits; returns its new length. */
static size_t
shorten(char *number, size_t size)
{
    char text[40];
    double value = strtod(number, NULL);
    int n = 0;

    if (size <= DIGITS_SURE || strcspn(number, ".e") >= size)
        return size;
    for (int digits = DIGITS_SURE; digits <= DIGITS_MOST; digits++) {
        n = snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (!strpbrk(text, ".e"))
        n += snprintf(text + n, sizeof(text) - (size_t)n, ".0");
    if ((size_t)n >= size)
        return size;
    memcpy(number, text, (size_t)n);
    return (size_t)n;
}

char *
json_text(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY), *to = text;
    bool is_string = false;

    for (char *at = text; at && *at;) {
        size_t size = 1, kept = 1;
        if (is_string && *at == '\\') {
            size = kept = 2;
        } else if (*at == '"') {
            is_string = !is_string;
        } else if (!is_string && strchr("-0123456789", *at)) {
            size = strspn(at, "+-.0123456789eE");
            kept = shorten(at, size);
        }
        memmove(to, at, kept);
        to += kept;
        at += size;
    }
    if (to)
        *to = '\0';
    return text;
}

json_t *
text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

json_t *
real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *
get_or_null(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value ? json_incref(value) : json_null();
}

double
number_or_nan(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *
text_member(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const char *
text_or(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = text_member(object, key);
    return text ? text : otherwise;
}

static bool
is_this(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

bool
text_is(const json_t *object, const char *key, const char *text)
{
    return is_this(json_object_get(object, key), text);
}

bool
json_has_text(const json_t *array, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (is_this(json_array_get(array, i), text))
            return true;
    return false;
}

double
number_under(const json_t *object, const char *first, const char *second)
{
    const json_t *value = json_object_get(object, first);
    return json_number_value(second ? json_object_get(value, second) : value);
}

json_t *
time_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];

    clock_text(wall_ms, text);
    return json_string(text);
}

json_t *
time_or_null(int64_t wall_ms)
{
    return wall_ms > 0 ? time_json(wall_ms) : json_null();
}

void
json_hash(json_t *document, char out[HASH_TEXT_SIZE])
{
    AUTO_FREE char *text = document ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    out[0] = '\0';
    if (text)
        hash_text(text, strlen(text), out);
    json_decref(document);
}
