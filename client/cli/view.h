/* view.h - verifierd's documents as people read them, on stdout. Documents are borrowed; missing parts are left out. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include <jansson.h>

void view_submission(json_t *submission);
/* names[i] is what to call item i; NULL: its id. */
void view_group(json_t *group, const char *const *names);
void view_submissions(json_t *page);
void view_tasks(json_t *page);
void view_task(json_t *task);
void view_status(json_t *status);

#endif
