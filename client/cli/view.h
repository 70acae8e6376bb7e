/* view.h - verifierd's documents as people read them, on stdout. Documents are borrowed; missing parts are left out. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include <jansson.h>

void view_submission(json_t *submission);
/* names[i] is what to call item i; NULL: its id. */
void view_group(json_t *group, const char *const *names);
void view_submissions(json_t *page);
/* A page's items, a column for each key; a title that begins with '>' is aligned to the right. */
struct view_column {
    const char *title, *key;
};
void view_rows(json_t *page, const struct view_column *columns, size_t n);
/* On stderr, behind a page: what --cursor goes on with, where there is more. */
void view_more(json_t *page);
void view_task(json_t *task);
/* Any document: scalars by their names, lists of objects as tables. */
void view_document(json_t *document);
/* "label   text": further lines of the text stand below its first. */
void view_label(const char *label, const char *text);

#endif
