/* helper.h - the part of `trainer prepare` that needs Python's parser: client/python/prepare_rows.py, carried in the program. */
#ifndef TRAINER_HELPER_H
#define TRAINER_HELPER_H

#include <jansson.h>

#include "common/error.h"

struct helper;

/* Start it. python: an interpreter, found by PATH. ERR_SYS: it cannot be started. */
int helper_new(const char *python, struct helper **out, struct error *err);
void helper_free(struct helper *h);

/*
 * Any thread. Ask for one row ({"source", "entry_point", "answer"?}, borrowed); *reply is given. ERR_PROTOCOL: this row ended the interpreter
 * (another one is there for the next row); ERR_SYS: there is none to be had; ERR_NOMEM.
 */
int helper_check(struct helper *h, json_t *row, json_t **reply, struct error *err);

/*
 * The rows of a parquet file as JSON Lines: *path is where to read them, until helper_free(). helper_ended() says afterwards
 * whether all were there.
 */
int helper_parquet(const char *python, const char *file, char path[32], struct helper **out,
                   struct error *err);
int helper_ended(struct helper *h, struct error *err);

#endif
