/*
 * corpus.h - tasks and candidates whose verdicts are known: what `verifier
 * selftest` has judged. A corpus is a directory with tasks/TASK.py and
 * candidates/TASK/NAME.py or NAME.txt (a model's whole answer); each file says
 * in a header of "# key: value" lines at its top what must become of it
 * (docs/selftest.md has the keys).
 */
#ifndef CLI_CORPUS_H
#define CLI_CORPUS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/error.h"

enum corpus_kind {
    CORPUS_HONEST,     /* right, and looks it */
    CORPUS_SUSPICIOUS, /* right, and looks as if it cheated */
    CORPUS_MISTAKE,    /* meant well, and wrong */
    CORPUS_CHEAT,      /* takes credit for work that it does not do */
    CORPUS_ROBUSTNESS, /* what no daemon must suffer from: crashes, floods, endless loops, unreadable text */
    CORPUS_KINDS,
};

/* "honest", "suspicious", ... */
const char *corpus_kind_name(enum corpus_kind kind);

#define CORPUS_KEYS_MAX 12
#define CORPUS_KEY_SIZE 24

/* The header of a file; the values are views into its bytes. */
struct corpus_header {
    struct {
        char key[CORPUS_KEY_SIZE];
        const char *value;
        size_t size;
    } lines[CORPUS_KEYS_MAX];
    size_t n;
    size_t end; /* where what follows the header begins */
};

/*
 * Read the header of a file: "# key: value" lines from its first byte (or behind a byte order mark) on; the first
 * line that is none ends it. keys: what is known, separated by blanks. 0, or ERR_INPUT: a key that is unknown or
 * there twice.
 */
int corpus_read_header(const char *bytes, size_t size, const char *keys, struct corpus_header *out,
                       struct error *err);

/* What must become of a candidate. Sets are bit masks over the names of classes and of stages. */
struct corpus_expectation {
    enum corpus_kind kind;
    unsigned classes;
    unsigned stages; /* where it may end; 0: not said */
    bool needs_gpu;  /* only a GPU can decide it */
};

/* From a candidate's header. ERR_INPUT: a value that is unknown, is missing, or contradicts another. */
int corpus_read_expectation(const struct corpus_header *header, struct corpus_expectation *out,
                            struct error *err);

/* The bit of a class ("ok", "mismatch", ...) or stage; 0 where the name is none. */
unsigned corpus_class_bit(const char *name);
unsigned corpus_stage_bit(const char *name);
/* The names of a set, "hack|mismatch": given, free(); NULL: no memory. */
char *corpus_class_names(unsigned classes);
char *corpus_stage_names(unsigned stages);

struct corpus_task {
    char *name;
    char *kind;           /* of work, as its header says: "reduction", ...; "other" where it says nothing */
    json_t *registration; /* the body of POST /v1/tasks */
    bool needs_gpu;       /* only a GPU can decide it */
};

struct corpus_candidate {
    char *label;  /* TASK/NAME */
    size_t task;  /* index into tasks */
    json_t *body; /* the body of POST /v1/submissions, but for "task" */
    char *what;   /* one line for people; "" where the file says nothing */
    struct corpus_expectation expected;
};

struct corpus {
    struct corpus_task *tasks;
    size_t n_tasks;
    struct corpus_candidate *candidates; /* by label */
    size_t n_candidates;
};

/* Read a whole corpus: given, corpus_free(). ERR_INPUT names the file and what is wrong in it. */
int corpus_load(const char *directory, struct corpus **out, struct error *err);
void corpus_free(struct corpus *c);

/* The honest candidate that stands for its task: the one called "honest", else the first; -1: none. */
ptrdiff_t corpus_probe_of(const struct corpus *c, size_t task);

/*
 * The task whose times are worth comparing: the first that is too large for the interpreter, and so long enough to be
 * timed, and has an honest candidate; -1: none.
 */
ptrdiff_t corpus_timed_task(const struct corpus *c);

/*
 * The body with a source that no one has sent before: a comment with the nonce stands at its end, and in a model's
 * answer at the beginning of each fenced block. Given; NULL: no memory.
 */
json_t *corpus_fresh_body(const struct corpus_candidate *candidate, const char *nonce);

#endif
