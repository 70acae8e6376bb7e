/*
 * journal.h - what a run has done so far: one JSON object a line, durable before the
 * call returns. A line that a crash cut short is dropped when the file is opened again.
 */
#ifndef TRAINER_JOURNAL_H
#define TRAINER_JOURNAL_H

#include <jansson.h>
#include <sys/types.h>

#include "common/error.h"

struct journal;

/* Runs for each record that is there already, oldest first; record is borrowed, at is for journal_read(). */
typedef void journal_cb(void *arg, json_t *record, off_t at);

/* Open or create. ERR_CONFLICT: another process has it. ERR_INPUT: a line before the last is no JSON object. */
int journal_open(const char *path, journal_cb *cb, void *arg, struct journal **out, struct error *err);
void journal_close(struct journal *j);
/* Append a record (borrowed). Any thread. 0, ERR_NOMEM, or ERR_SYS (disk full: the record is not there). */
int journal_add(struct journal *j, json_t *record, struct error *err);
/* The record that journal_open() told of at this place, given. One thread at a time. ERR_SYS, ERR_INPUT (it is not there any more). */
int journal_read(struct journal *j, off_t at, json_t **out, struct error *err);

#endif
