/* prepared.h - what `trainer prepare` leaves in data/processed: rows kept and dropped, in the data set's order, and a summary. */
#ifndef TRAINER_PREPARED_H
#define TRAINER_PREPARED_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "client/trainer/entry.h"
#include "client/trainer/output.h"
#include "client/trainer/prepare.h"
#include "common/error.h"
#include "common/hash.h"

struct prepared {
    const struct prepare_options *options;
    struct output tasks, sft, labels, dropped;
    json_t *reasons;                 /* {reason: count} */
    json_t *names;                   /* {name: true}, of what is kept */
    size_t kept, answers, levels[5]; /* kept: tasks */
    char prompt[HASH_TEXT_SIZE];     /* its digest */
};

/* options are borrowed until prepared_close(). ERR_SYS, ERR_NOMEM; prepared_close() in each case. */
int prepared_open(struct prepared *p, const struct prepare_options *options, const char *workdir,
                  struct error *err);
/* Under their names, or, where the run failed, gone. */
int prepared_close(struct prepared *p, bool is_whole, struct error *err);

/*
 * An entry that is read, with what the daemon said of it (NULL: it was not asked): dropped with its reason, or kept, as a task, for
 * fine-tuning or both.
 */
void prepared_add(struct prepared *p, struct entry *e, json_t *said);

/* The document of prepare.json: given. */
json_t *prepared_summary(const struct prepared *p, json_t *fetched, size_t rows, double seconds);
void prepared_print(json_t *summary);

#endif
