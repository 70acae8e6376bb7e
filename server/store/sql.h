/*
 * sql.h - queries and their results, for any database. Private to store/ and its back ends.
 * Statements are written for both: $1 is the first parameter, and a type is given by CAST.
 */
#ifndef STORE_SQL_H
#define STORE_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* The value of a parameter of a statement. */
struct sql_value {
    enum { SQL_NULL, SQL_TEXT, SQL_BYTES, SQL_INT, SQL_REAL } kind;
    const char *text; /* or bytes; borrowed */
    size_t size;      /* of bytes */
    int64_t whole;
    double real;
};
struct sql_value sql_text(const char *text); /* NULL is NULL */
struct sql_value sql_name(const char *text); /* the same, and "" is NULL too */
struct sql_value sql_int(int64_t number);
struct sql_value sql_real(double number); /* NULL where it is not finite */
struct sql_value sql_bytes(const void *bytes, size_t size);
#define SQL_VALUES(...)                        \
    (const struct sql_value[]){ __VA_ARGS__ }, \
        sizeof((const struct sql_value[]){ __VA_ARGS__ }) / sizeof(struct sql_value)
#define SQL_NO_VALUES NULL, 0

/* One row of an answer: borrowed in the callback that it is given to, with the texts of its columns. */
struct sql_row {
    const struct sql_row_ops *ops;
    const void *answer; /* the back end's */
    int at;             /* which row of it */
    bool is_short;      /* there was no memory for a column that was read */
};
struct sql_row_ops {
    bool (*is_null)(const struct sql_row *row, int column);
    const char *(*text)(struct sql_row *row, int column); /* not of NULL */
    int64_t (*whole)(const struct sql_row *row, int column);
    double (*real)(const struct sql_row *row, int column);
    /* Of stored bytes (pack.h): their size, and in the next column what was made of them. out: given, free(). */
    int (*unpack)(const struct sql_row *row, int column, char **out, size_t *size, struct error *err);
};
/* False: no more rows. */
typedef bool sql_row_cb(void *arg, struct sql_row *row);

char *row_text(struct sql_row *row, int column);                        /* NULL for NULL */
const char *row_word(struct sql_row *row, int column);                  /* "" for NULL */
int64_t row_int(const struct sql_row *row, int column);                 /* 0 for NULL */
double row_real(const struct sql_row *row, int column);                 /* NAN for NULL */
bool row_bool(struct sql_row *row, int column);                         /* false for NULL */
void row_name(struct sql_row *row, int column, char *out, size_t size); /* "" for NULL */

/* A statement that is put together. */
struct sql_query {
    char sql[4096];
    size_t size;
    struct sql_value values[12];
    size_t n;
};
void sql_add(struct sql_query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next parameter, behind text: "LIMIT". */
void sql_add_value(struct sql_query *q, const char *text, struct sql_value value);

#endif
