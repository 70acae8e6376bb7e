/* report.h - what a run did, from the files that its steps left: losses, rewards, funnel, cheats, evaluations, kernels, costs. */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include <jansson.h>

#include "common/buffer.h"

/*
 * The document of report.json; given. {"made", "losses": {run: [point]}, "rewards": {round: {"n", "mean", "least", "most", "bins"}},
 * "funnel", "classes", "cheats": {round: {name: count}}, "best": [kernel], "evaluations": {name: ...}, "costs", "configuration",
 * "curriculum"}; a file that is not there leaves its part empty, a line that is no object is passed over.
 */
json_t *report_read(const char *workdir);
/* Append the document as a page of HTML. Every text in it is escaped: kernels and names come from models and data sets. */
void report_page(struct buffer *out, json_t *document);

#endif
