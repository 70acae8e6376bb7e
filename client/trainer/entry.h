/* entry.h - one row of a data set, as far as it is known: its columns, and what Python's parser says of them. */
#ifndef TRAINER_ENTRY_H
#define TRAINER_ENTRY_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "client/trainer/helper.h"
#include "client/trainer/prepare.h"
#include "common/error.h"
#include "common/hash.h"

enum { ENTRY_NAME_SIZE = 160 };

struct entry {
    size_t number;
    char name[ENTRY_NAME_SIZE], digest[HASH_TEXT_SIZE]; /* digest: "" where it could not be read */
    const char *source, *entry_point, *answer;          /* views of columns and tree; answer may be NULL */
    char *license;                                      /* NULL: the row names none */
    int level, operations, problem;                     /* problem: the row's problem_id, 0: none */
    bool is_traced;                                     /* operations: of a run, and not of the text */
    bool is_level_given;                                /* by the row */
    const char *reason;                                 /* why it is dropped: a view, or NULL */
    char detail[256];
    json_t *columns, *tree; /* what is kept of the row, and the parser's reply */
};

/*
 * Read a row (borrowed; what is not needed of it is not kept). e->reason says why it is dropped; all else is an error:
 * ERR_SYS (no parser), ERR_NOMEM. entry_release() in each case.
 */
int entry_read(struct entry *e, const struct prepare_options *o, struct helper *h, size_t number, json_t *row,
               struct error *err);
/* A row that is none; fault says why. */
void entry_is_broken(struct entry *e, size_t number, const char *fault);
/* A task of an evaluation, for its digest alone; source and entry point are borrowed. */
int entry_of_task(struct entry *e, const struct prepare_options *o, struct helper *h, const char *source,
                  const char *entry_point, struct error *err);
void entry_release(struct entry *e);

void entry_drop(struct entry *e, const char *reason, const char *detail); /* detail may be NULL */
/* Has it an answer that is Python and defines the class? Else *reason and *detail say why not, or are NULL: there is none. */
bool entry_has_answer(const struct entry *e, const char **reason, const char **detail);
/* What was seen when it ran says more than its text: a loop's calls, and those of modules that it does not define. */
void entry_relabel(struct entry *e, const struct prepare_options *o, json_t *operations);
/* How its level was found. */
const char *entry_labelled_by(const struct entry *e, const struct prepare_options *o);

#endif
