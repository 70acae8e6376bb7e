/* table.h - a table on stdout (libsmartcols). On anything but a terminal: no colour, nothing cut. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct table;

/* Columns by their titles; one that begins with '>' is aligned to the right. Ends the program when memory does. */
struct table *table_new(const char *const *titles, size_t n);
void table_free(struct table *t);
/* One row of as many cells as there are columns; copied; NULL is "-". */
void table_row(struct table *t, const char *const *cells);
/* Colour a cell of the last row: good or bad. */
void table_mark(struct table *t, size_t column, bool is_good);
void table_print(struct table *t);

#define AUTO_TABLE __attribute__((cleanup(auto_table)))
static inline void
auto_table(struct table **t)
{
    table_free(*t);
}

#endif
