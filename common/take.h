/* take.h - what becomes of the words of a command line: rows of a table in place of a parser of argp's. */
#ifndef COMMON_TAKE_H
#define COMMON_TAKE_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

enum take_what { TAKES_TEXT, TAKES_FLAG, TAKES_INT, TAKES_NUMBER, TAKES_CALL, TAKES_INPUT };

/* name: of the option, as "--policy"; "" for an argument. A bad value ends the program by argp_error(). */
typedef void take_cb(struct argp_state *state, const char *name, char *arg, void *out);

/* A row for each option; several rows may have the same key. Made by the macros below. */
struct take {
    int key;
    enum take_what what;
    union {
        const char **text; /* view of argv */
        bool *flag;
        int *integer;
        double *number;
        void *any;
    };
    double least, most;
    const char *unit; /* of a number, in a complaint: " of seconds", or "" */
    take_cb *call;
    const char *missing; /* NULL: it may be left out */
};

#define TAKE_TEXT(key_, out_) ((struct take){ .key = (key_), .what = TAKES_TEXT, .text = (out_) })
/* One argument of the line: rows get them in their order. NULL or "" at first; missing: the complaint if it is so at the end. */
#define TAKE_ARGUMENT(out_, missing_) \
    ((struct take){ .key = ARGP_KEY_ARG, .what = TAKES_TEXT, .text = (out_), .missing = (missing_) })
/* An option without a value, or whose value another row takes. */
#define TAKE_FLAG(key_, out_) ((struct take){ .key = (key_), .what = TAKES_FLAG, .flag = (out_) })
#define TAKE_INT(key_, out_, least_, most_) \
    ((struct take){ .key = (key_), .what = TAKES_INT, .integer = (out_), .least = (least_), .most = (most_) })
/* An optional value that was left out changes nothing. */
#define TAKE_NUMBER(key, out, least, most) TAKE_AMOUNT(key, out, least, most, "")
#define TAKE_SECONDS(key, out, least, most) TAKE_AMOUNT(key, out, least, most, " of seconds")
#define TAKE_AMOUNT(key_, out_, least_, most_, unit_) \
    ((struct take){ .key = (key_),                    \
                    .what = TAKES_NUMBER,             \
                    .number = (out_),                 \
                    .least = (least_),                \
                    .most = (most_),                  \
                    .unit = (unit_) })
/* call(state, name, arg, out): for all else; with ARGP_KEY_ARG for every argument. */
#define TAKE_CALL(key_, call_, out_) \
    ((struct take){ .key = (key_), .what = TAKES_CALL, .any = (out_), .call = (call_) })
/* The input of the argp's next child. */
#define TAKE_INPUT(out_) ((struct take){ .key = ARGP_KEY_INIT, .what = TAKES_INPUT, .any = (out_) })

/* The body of a parser of argp: does what the rows say. ARGP_ERR_UNKNOWN: none of them has the key. */
error_t take(const struct take *rows, size_t n, int key, char *arg, struct argp_state *state);

/* The value of an option, or argp_error(). unit: as in a row. A whole number is written in decimal digits. */
double take_number(struct argp_state *state, const char *name, const char *text, const char *unit,
                   double least, double most);
long take_int(struct argp_state *state, const char *name, const char *text, long least, long most);

#endif
