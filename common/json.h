/*
 * json.h - strict reading of JSON from outside: duplicate keys, unknown keys
 * and wrong types are errors that carry a JSON pointer (RFC 6901).
 */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/error.h"
#include "common/hash.h"

#define JSON_POINTER_SIZE 128

/* Where and why a document was refused. */
struct json_fault {
    char pointer[JSON_POINTER_SIZE]; /* "" is the document itself */
    char text[192];
};

/*
 * Parse one document: an object or an array, duplicate keys refused. Strings may hold \u0000 (a source may,
 * and is then judged for it); json_read() lets it through for JSON_WANT_TEXT only. Given: json_decref().
 * NULL: fault is filled (pointer "", line and column in the text).
 */
json_t *json_parse(const char *bytes, size_t size, struct json_fault *fault);

/* The document of a text that was made here: a row of the store. Given; NULL for NULL, and where there is no memory. */
json_t *json_of(const char *text);

enum json_want {
    JSON_WANT_STRING, /* const char **; view into the document; a NUL in it is refused */
    JSON_WANT_TEXT,   /* json_t **; borrowed: a string that may hold NULs, see json_string_length() */
    JSON_WANT_INT,    /* int64_t *; bounds checked */
    JSON_WANT_NUMBER, /* double *; bounds checked; integers are numbers too */
    JSON_WANT_BOOL,   /* bool * */
    JSON_WANT_OBJECT, /* json_t **; borrowed from the document */
    JSON_WANT_ARRAY,  /* json_t **; borrowed */
    JSON_WANT_ANY,    /* json_t **; borrowed */
};

/* One row for each key that an object may have. A key that is absent or null leaves *out alone. */
struct json_field {
    const char *key;
    enum json_want want;
    void *out;
    bool is_required;
    double min, max; /* for INT and NUMBER; for STRING and TEXT the number of characters; 0, 0: none */
};

/*
 * Read an object by its table of fields. base is the pointer of the object
 * ("" for the document). Returns 0 or ERR_INPUT with fault filled: not an
 * object, unknown key, missing key, wrong type, out of range.
 */
int json_read(json_t *object, const char *base, const struct json_field *fields, size_t n,
              struct json_fault *fault);

/* Fill fault with base and, behind a slash, key (which may be a path; "": none); returns ERR_INPUT. */
int json_refuse_at(struct json_fault *fault, const char *base, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define json_refuse(fault, pointer, ...) json_refuse_at(fault, pointer, "", __VA_ARGS__)

/* Compact text of a value, each number in the fewest digits that read back as the same. Given: free(). NULL: no memory. */
char *json_text(const json_t *value);

/* --- numbers and members of documents, where an unknown value is null --- */

json_t *real_or_null(double x);                        /* given; null if it is not finite */
json_t *text_or_null(const char *text);                /* given; null for NULL and for "" */
json_t *time_json(int64_t wall_ms);                    /* given */
json_t *time_or_null(int64_t wall_ms);                 /* given; null for 0 */
json_t *get_or_null(json_t *object, const char *key);  /* given */
double number_or_nan(json_t *object, const char *key); /* NAN if it is not a number */

/* The string under a key; view; NULL, or otherwise, where it is absent or no string. */
const char *text_member(const json_t *object, const char *key);
const char *text_or(const json_t *object, const char *key, const char *otherwise);
/* Whether the string under a key is this one; whether an item of an array is. */
bool text_is(const json_t *object, const char *key, const char *text);
bool json_has_text(const json_t *array, const char *text);
/* The number under a key, or under a key below that (NULL: none); 0 where it is none. */
double number_under(const json_t *object, const char *first, const char *second);

/* Equal for equal documents, whatever the order of the keys. document: taken. "": it is NULL, or no memory. */
void json_hash(json_t *document, char out[HASH_TEXT_SIZE]);

#endif
