/*
 * output.h - the output files of a command: written under a temporary name and renamed, so that none is ever
 * incomplete.
 */
#ifndef TRAINER_OUTPUT_H
#define TRAINER_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "common/error.h"

#define OUTPUT_PATH_MAX 1024

struct output {
    FILE *file;
    bool is_bad; /* something could not be written */
    char path[OUTPUT_PATH_MAX], partial[OUTPUT_PATH_MAX + 8];
};

/* A path's last part, without the slashes at its end: "mine" of "runs/mine/". Given: free(); NULL: no memory. */
char *output_last_part(const char *path);
/* Make all directories of workdir/sub; path gets workdir/sub/name. */
int output_path(const char *workdir, const char *sub, const char *name, char path[OUTPUT_PATH_MAX],
                struct error *err);
int output_begin(struct output *o, const char *path, struct error *err);
/* One line of JSON. Faults are found by output_end(). */
void output_line(struct output *o, json_t *document);
/* On the disk and under its name, or an error and nothing there. */
int output_end(struct output *o, struct error *err);
/* Nothing of it is left. A file that was not begun (zeroed) is fine. */
void output_cancel(struct output *o);
/* A whole document, indented. */
int output_document(const char *path, json_t *document, struct error *err);

#endif
