#include "client/cli/table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libsmartcols.h>

#include "client/cli/cli.h"

#define PLAIN_WIDTH 10000 /* a file or pipe has no edge to stop at */

struct table {
    struct libscols_table *rows;
    struct libscols_line *last;
    size_t columns;
};

static void
need(bool is_there)
{
    if (!is_there)
        exit(cli_complain(CLI_CONFIG, "out of memory"));
}

static bool
may_colour(void)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && no[0]) && !(terminal && strcmp(terminal, "dumb") == 0);
}

struct table *
table_new(const char *const *titles, size_t n)
{
    struct table *t = calloc(1, sizeof(*t));
    need(t != NULL);
    t->rows = scols_new_table();
    need(t->rows != NULL);
    t->columns = n;
    scols_table_enable_colors(t->rows, may_colour());
    if (!isatty(STDOUT_FILENO)) {
        scols_table_set_termforce(t->rows, SCOLS_TERMFORCE_NEVER);
        scols_table_set_termwidth(t->rows, PLAIN_WIDTH);
    }
    for (size_t i = 0; i < n; i++) {
        bool is_right = titles[i][0] == '>';
        need(scols_table_new_column(t->rows, titles[i] + is_right, 0, is_right ? SCOLS_FL_RIGHT : 0) != NULL);
    }
    return t;
}

void
table_free(struct table *t)
{
    if (!t)
        return;
    scols_unref_table(t->rows);
    free(t);
}

void
table_row(struct table *t, const char *const *cells)
{
    t->last = scols_table_new_line(t->rows, NULL);
    need(t->last != NULL);
    for (size_t i = 0; i < t->columns; i++)
        need(scols_line_set_data(t->last, i, cells[i] && cells[i][0] ? cells[i] : "-") == 0);
}

void
table_mark(struct table *t, size_t column, bool is_good)
{
    struct libscols_cell *cell = scols_line_get_cell(t->last, column);
    need(cell != NULL && scols_cell_set_color(cell, is_good ? "green" : "red") == 0);
}

void
table_print(struct table *t)
{
    /* libsmartcols leaves out the newline after the last line if the table has no row. */
    scols_print_table(t->rows);
}
