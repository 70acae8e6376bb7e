/* brief.h - what a table of submissions shows of one: a part of its document. Pure; any thread. */
#ifndef STORE_BRIEF_H
#define STORE_BRIEF_H

#include <jansson.h>

/* Of a submission's document (borrowed), finished or not. Given; NULL: no memory. */
json_t *brief_of(json_t *document);
/* The same as JSON text, as it is stored with a verdict and sent: given, free(); NULL: no memory. */
char *brief_text(json_t *document);

/* The verdict's document, given; NULL: text is NULL, or no object. */
json_t *verdict_read(const char *text);

#endif
