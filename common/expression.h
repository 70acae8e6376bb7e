/*
 * expression.h - small bounded arithmetic over named numbers. Pure.
 *
 *   a ? b : c   || &&   < <= > >= == !=   + -   * /   ! -   ( )
 *   abs(x) clamp(x, low, high) exp(x) known(name) log(x) max(x, y) min(x, y) sqrt(x)
 *
 * Truth is 1 or 0; anything but 0 is true. A name whose value is NAN (not known)
 * counts as 0, and known(name) tests for it. Division by zero, the logarithm of
 * a number that is not above zero and the like give a result that is not finite.
 */
#ifndef COMMON_EXPRESSION_H
#define COMMON_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define EXPRESSION_TEXT_MAX 512 /* bytes, without the NUL */
#define EXPRESSION_STEPS_MAX 256
#define EXPRESSION_DEPTH_MAX 32

struct expression_step {
    uint8_t op;
    uint8_t name; /* index into the names that it was compiled with */
    double number;
};

/* A compiled expression: steps for a stack of at most EXPRESSION_STEPS_MAX numbers. */
struct expression {
    size_t n;
    struct expression_step steps[EXPRESSION_STEPS_MAX];
};

struct expression_fault {
    size_t column; /* of the text, from 1 */
    char text[96];
};

/* names: at most 255, in the order of the values. Returns 0 or ERR_INPUT with fault filled. */
int expression_compile(const char *text, const char *const *names, size_t n_names, struct expression *out,
                       struct expression_fault *fault);

/* values: one for each name that it was compiled with. */
double expression_value(const struct expression *e, const double *values);

/* Does it name names[name], in its value or in known()? */
bool expression_names(const struct expression *e, size_t name);

#endif
