#include "server/store/sql.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/auto.h"

struct sql_value
sql_text(const char *text)
{
    return (struct sql_value){ .kind = text ? SQL_TEXT : SQL_NULL, .text = text };
}

struct sql_value
sql_name(const char *text)
{
    return sql_text(text && *text ? text : NULL);
}

struct sql_value
sql_int(int64_t number)
{
    return (struct sql_value){ .kind = SQL_INT, .whole = number };
}

struct sql_value
sql_real(double number)
{
    return (struct sql_value){ .kind = isfinite(number) ? SQL_REAL : SQL_NULL, .real = number };
}

struct sql_value
sql_bytes(const void *bytes, size_t size)
{
    return (struct sql_value){ .kind = SQL_BYTES, .text = size > 0 ? bytes : "", .size = size };
}

char *
row_text(struct sql_row *row, int column)
{
    if (row->ops->is_null(row, column))
        return NULL;
    const char *text = row->ops->text(row, column);
    row->is_short |= !text;
    return (char *)(uintptr_t)text;
}

const char *
row_word(struct sql_row *row, int column)
{
    const char *text = row_text(row, column);
    return text ? text : "";
}

int64_t
row_int(const struct sql_row *row, int column)
{
    return row->ops->whole(row, column);
}

double
row_real(const struct sql_row *row, int column)
{
    return row->ops->is_null(row, column) ? NAN : row->ops->real(row, column);
}

bool
row_bool(struct sql_row *row, int column)
{
    char first = *row_word(row, column);
    return first == 't' || first == '1'; /* PostgreSQL's, SQLite's */
}

void
row_name(struct sql_row *row, int column, char *out, size_t size)
{
    snprintf(out, size, "%s", row_word(row, column));
}

void
sql_add(struct sql_query *q, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    q->size += (size_t)vsnprintf(q->sql + q->size, sizeof(q->sql) - q->size, format, args);
    va_end(args);
    assert(q->size < sizeof(q->sql));
}

void
sql_add_value(struct sql_query *q, const char *text, struct sql_value value)
{
    assert(q->n < ARRAY_LEN(q->values));
    q->values[q->n++] = value;
    sql_add(q, " %s $%zu", text, q->n);
}
