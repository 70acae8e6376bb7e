/*
 * score.h - what a run of the corpus came to: pure, so that its arithmetic and its exit status are tested over
 * made-up verdicts. Verdicts are documents of verifierd; what a token may not see is null there and is not judged.
 */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include <stdbool.h>

#include <jansson.h>

#include "client/cli/corpus.h"

#define SCORE_WHY_SIZE 160

/* How far an honest kernel's speedup may lie outside the interval that it had before the cheats. */
#define SCORE_SLACK 0.05
/* Of a reference shorter than this, whose calls are bound by the host and whose intervals do not cover what differs from process to process. */
#define SCORE_SHORT_MS 0.1
#define SCORE_SHORT_SLACK 0.25
/* Upper end by lower end, at most, of an interval too wide to be credited that is still compared: half its value either way. */
#define SCORE_WIDEST 2.0

struct score_kind {
    int rows, ran,
        skipped;  /* skipped: only a GPU can decide them; ran and skipped are short of rows by errors */
    int right;    /* the class, the stage and the reward are as expected */
    int refused;  /* the class is not "ok" */
    int expected; /* the class is one of those expected, whatever else is wrong */
    int other_ran, other_accepted; /* under the other policy: judged, and class "ok" */
};

/* Kinds of work that a corpus may have, and their names' length. */
#define SCORE_WORKS_MAX 32
#define SCORE_WORK_SIZE 32

/* The two ways in which a verdict errs, of the tasks of one kind of work. */
struct score_work {
    char name[SCORE_WORK_SIZE];
    int wrong,
        accepted; /* cheats and mistakes that ran; those of class "ok" though that is not expected of them */
    int right, refused; /* honest and suspicious ones that ran; those of another class */
};

struct score {
    struct score_kind kinds[CORPUS_KINDS];
    struct score_work works[SCORE_WORKS_MAX]; /* in the order in which they came */
    size_t n_works;
    int followed;       /* hostile rows after which an honest kernel was judged */
    int probes;         /* those honest kernels */
    int contaminated;   /* ... whose verdict or time was another than before */
    int times_compared; /* ... whose time was measured both times */
};

/* The class of a verdict; "" where there is none. View. */
const char *score_class(const json_t *verdict);

/* Was it what the corpus expects? Otherwise why[] says what was wrong. */
bool score_is_right(const struct corpus_expectation *expected, const json_t *verdict,
                    char why[SCORE_WHY_SIZE]);

/*
 * Count one row of a task of this kind of work: judged; skipped; or neither, when it could not be judged (verdict
 * NULL). Kinds beyond SCORE_WORKS_MAX are counted with the last one.
 */
void score_add(struct score *s, const char *work, const struct corpus_expectation *expected,
               const json_t *verdict);
void score_skip(struct score *s, const struct corpus_expectation *expected);
/* Count the row's verdict under the other policy. */
void score_add_other(struct score *s, const struct corpus_expectation *expected, const json_t *verdict);

/* How an honest kernel is judged while nothing has been tried yet: of one verdict, or of several. */
struct score_baseline {
    char class[32];
    int n, n_timed;
    double low, high; /* the speedup's interval, the widest of them */
};
/* Was each of them timed? Then those that come after must be, too. */
bool score_is_timed(const struct score_baseline *b);
void score_baseline_add(struct score_baseline *b, const json_t *verdict);

/*
 * Does a verdict of the same kernel differ from the baseline? Then why[] says in what: the class, the speedup, or
 * that there is no time any more. One that lacks its time by chance is worth another try; an interval that is still
 * too wide to be credited then, and not too wide to say anything, is compared all the same.
 */
bool score_is_contaminated(const struct score_baseline *b, const json_t *verdict, char why[SCORE_WHY_SIZE]);
/* Is there a time in both? */
bool score_has_time(const struct score_baseline *b, const json_t *verdict);
/* Count one that came after so many hostile rows. */
void score_add_probe(struct score *s, const struct score_baseline *b, const json_t *verdict, int followed);

/* All kinds of work together. */
struct score_work score_all_work(const struct score *s);
/* Wilson's 95 % interval of a share: [0, 1] where nothing was counted. */
void score_wilson(int part, int whole, double *low, double *high);

/* Shares of the rows that ran; -1 where none did. */
double score_kill_rate(const struct score *s);         /* cheats that got an expected class */
double score_false_reject_rate(const struct score *s); /* honest and suspicious ones refused */

/*
 * Did everything go as it must? Kill rate 1, no false rejects, nothing contaminated, every other row right, none
 * left unjudged. With is_whole: and at least one cheat, one honest kernel and one probe were judged.
 */
bool score_is_clean(const struct score *s, bool is_whole);

/* The figures as the last line shows them: given. */
json_t *score_document(const struct score *s);

#endif
