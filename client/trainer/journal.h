/*
 * journal.h - what a run has done so far: one JSON object a line, durable before the
 * call returns. A line that a crash cut short is dropped when the file is opened again.
 */
#ifndef TRAINER_JOURNAL_H
#define TRAINER_JOURNAL_H

#include <jansson.h>

#include "common/error.h"

struct journal;

/* Runs for each record that is there already, oldest first; record is borrowed. */
typedef void journal_cb(void *arg, json_t *record);

/* Open or create. ERR_CONFLICT: another process has it. ERR_INPUT: a line before the last is not a JSON object. */
int journal_open(const char *path, journal_cb *cb, void *arg, struct journal **out, struct error *err);
void journal_close(struct journal *j);
/* Append a record (borrowed). Any thread. 0, ERR_NOMEM, or ERR_SYS (disk full: the record is not there). */
int journal_add(struct journal *j, json_t *record, struct error *err);

#endif
