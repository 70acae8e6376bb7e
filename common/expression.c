#include "common/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

enum op {
    OP_NUMBER,
    OP_NAME,
    OP_KNOWN,
    OP_NEGATE,
    OP_NOT,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_AND,
    OP_OR,
    OP_SELECT,
    OP_ABS,
    OP_CLAMP,
    OP_EXP,
    OP_LOG,
    OP_MAX,
    OP_MIN,
    OP_SQRT,
};

static const struct function {
    const char *name;
    enum op op;
    size_t arguments;
} functions[] = {
    { "abs", OP_ABS, 1 }, { "clamp", OP_CLAMP, 3 }, { "exp", OP_EXP, 1 }, { "known", OP_KNOWN, 1 },
    { "log", OP_LOG, 1 }, { "max", OP_MAX, 2 },     { "min", OP_MIN, 2 }, { "sqrt", OP_SQRT, 1 },
};

/* Longer spellings first. Operators of one level associate to the left. */
static const struct infix {
    const char *text;
    enum op op;
    int level;
} infixes[] = {
    { "||", OP_OR, 0 },         { "&&", OP_AND, 1 },
    { "<=", OP_LESS_EQUAL, 2 }, { ">=", OP_GREATER_EQUAL, 2 },
    { "==", OP_EQUAL, 2 },      { "!=", OP_NOT_EQUAL, 2 },
    { "<", OP_LESS, 2 },        { ">", OP_GREATER, 2 },
    { "+", OP_ADD, 3 },         { "-", OP_SUBTRACT, 3 },
    { "*", OP_MULTIPLY, 4 },    { "/", OP_DIVIDE, 4 },
};
enum { LEVELS = 5 };

struct parser {
    const char *text, *at;
    const char *const *names;
    size_t n_names;
    int depth;
    struct expression *out;
    struct expression_fault *fault;
};

/* --- compiling: recursive descent, one function for each rule --- */

static int parse_choice(struct parser *p);

__attribute__((format(printf, 2, 3))) static int
refuse(struct parser *p, const char *format, ...)
{
    va_list list;
    p->fault->column = (size_t)(p->at - p->text) + 1;
    va_start(list, format);
    vsnprintf(p->fault->text, sizeof(p->fault->text), format, list);
    va_end(list);
    return ERR_INPUT;
}

static void
skip_blanks(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n')
        p->at++;
}

static bool
take(struct parser *p, const char *token)
{
    skip_blanks(p);
    size_t size = strlen(token);
    if (strncmp(p->at, token, size) != 0)
        return false;
    p->at += size;
    return true;
}

static int
want(struct parser *p, const char *token)
{
    return take(p, token) ? 0 : refuse(p, "'%s' is missing here", token);
}

static int
emit(struct parser *p, enum op op, size_t name, double number)
{
    if (p->out->n == EXPRESSION_STEPS_MAX)
        return refuse(p, "longer than %d steps", EXPRESSION_STEPS_MAX);
    p->out->steps[p->out->n++] = (struct expression_step){ (uint8_t)op, (uint8_t)name, number };
    return 0;
}

static size_t
name_length(const char *at)
{
    size_t n = 0;
    if (isalpha((unsigned char)*at) || *at == '_')
        while (isalnum((unsigned char)at[n]) || at[n] == '_')
            n++;
    return n;
}

static int
parse_name(struct parser *p, enum op op)
{
    skip_blanks(p);
    size_t size = name_length(p->at);
    for (size_t i = 0; size > 0 && i < p->n_names; i++) {
        if (strlen(p->names[i]) == size && strncmp(p->names[i], p->at, size) == 0) {
            p->at += size;
            return emit(p, op, i, 0);
        }
    }
    return size > 0 ? refuse(p, "unknown name '%.*s'", (int)(size < 40 ? size : 40), p->at)
                    : refuse(p, "a name is missing here");
}

static int
parse_call(struct parser *p, const struct function *f)
{
    int rc = want(p, "(");
    if (rc == 0 && f->op == OP_KNOWN) {
        rc = parse_name(p, OP_KNOWN);
        return rc == 0 ? want(p, ")") : rc;
    }
    for (size_t i = 0; rc == 0 && i < f->arguments; i++) {
        rc = i > 0 ? want(p, ",") : 0;
        rc = rc == 0 ? parse_choice(p) : rc;
    }
    rc = rc == 0 ? want(p, ")") : rc;
    return rc == 0 ? emit(p, f->op, 0, 0) : rc;
}

static int
parse_number(struct parser *p)
{
    char *end;
    /* Digits, a point, an exponent: strtod() alone would also take "inf", "nan" and hexadecimal. */
    size_t n = strspn(p->at, "0123456789.");
    if ((p->at[n] == 'e' || p->at[n] == 'E') && n > 0) {
        size_t sign = p->at[n + 1] == '-' || p->at[n + 1] == '+';
        size_t digits = strspn(p->at + n + 1 + sign, "0123456789");
        n += digits > 0 ? 1 + sign + digits : 0;
    }
    char copy[64];
    if (n >= sizeof(copy))
        return refuse(p, "a number of %zu digits", n);
    memcpy(copy, p->at, n);
    copy[n] = '\0';
    double number = strtod(copy, &end);
    if (*end != '\0' || !isfinite(number))
        return refuse(p, "'%s' is not a number", copy);
    p->at += n;
    return emit(p, OP_NUMBER, 0, number);
}

static int
parse_primary(struct parser *p)
{
    skip_blanks(p);
    if (take(p, "(")) {
        int rc = parse_choice(p);
        return rc == 0 ? want(p, ")") : rc;
    }
    if (isdigit((unsigned char)*p->at) || *p->at == '.')
        return parse_number(p);
    size_t size = name_length(p->at);
    for (size_t i = 0; size > 0 && i < ARRAY_LEN(functions); i++) {
        if (strlen(functions[i].name) == size && strncmp(functions[i].name, p->at, size) == 0) {
            p->at += size;
            return parse_call(p, &functions[i]);
        }
    }
    return size > 0 ? parse_name(p, OP_NAME) : refuse(p, "a number, a name or '(' is missing here");
}

static int
parse_unary(struct parser *p)
{
    if (++p->depth > EXPRESSION_DEPTH_MAX)
        return refuse(p, "nested more than %d deep", EXPRESSION_DEPTH_MAX);
    enum op op = take(p, "-") ? OP_NEGATE : OP_NUMBER;
    if (op == OP_NUMBER && *p->at == '!' && p->at[1] != '=') {
        p->at++;
        op = OP_NOT;
    }
    int rc = op == OP_NUMBER ? parse_primary(p) : parse_unary(p);
    p->depth--;
    return rc == 0 && op != OP_NUMBER ? emit(p, op, 0, 0) : rc;
}

static const struct infix *
take_infix(struct parser *p, int level)
{
    skip_blanks(p);
    for (size_t i = 0; i < ARRAY_LEN(infixes); i++) {
        if (strncmp(p->at, infixes[i].text, strlen(infixes[i].text)) == 0) {
            if (infixes[i].level != level)
                return NULL;
            p->at += strlen(infixes[i].text);
            return &infixes[i];
        }
    }
    return NULL;
}

static int
parse_level(struct parser *p, int level)
{
    if (level == LEVELS)
        return parse_unary(p);
    int rc = parse_level(p, level + 1);
    const struct infix *infix;
    while (rc == 0 && (infix = take_infix(p, level)) != NULL) {
        rc = parse_level(p, level + 1);
        rc = rc == 0 ? emit(p, infix->op, 0, 0) : rc;
    }
    return rc;
}

static int
parse_choice(struct parser *p)
{
    if (++p->depth > EXPRESSION_DEPTH_MAX)
        return refuse(p, "nested more than %d deep", EXPRESSION_DEPTH_MAX);
    int rc = parse_level(p, 0);
    if (rc == 0 && take(p, "?")) {
        rc = parse_choice(p);
        rc = rc == 0 ? want(p, ":") : rc;
        rc = rc == 0 ? parse_choice(p) : rc;
        rc = rc == 0 ? emit(p, OP_SELECT, 0, 0) : rc;
    }
    p->depth--;
    return rc;
}

int
expression_compile(const char *text, const char *const *names, size_t n_names, struct expression *out,
                   struct expression_fault *fault)
{
    struct parser p = { text, text, names, n_names, 0, out, fault };

    out->n = 0;
    if (strlen(text) > EXPRESSION_TEXT_MAX)
        return refuse(&p, "longer than %d bytes", EXPRESSION_TEXT_MAX);
    int rc = parse_choice(&p);
    skip_blanks(&p);
    return rc == 0 && *p.at != '\0' ? refuse(&p, "what follows is not understood") : rc;
}

/* --- evaluating --- */

static size_t
arguments_of(enum op op)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (functions[i].op == op && op != OP_KNOWN)
            return functions[i].arguments;
    switch (op) {
    case OP_NUMBER:
    case OP_NAME:
    case OP_KNOWN:
        return 0;
    case OP_NEGATE:
    case OP_NOT:
        return 1;
    case OP_SELECT:
        return 3;
    default:
        return 2;
    }
}

/* As fmin() and fmax(), but NAN stays NAN. */
static double
lesser(double x, double y)
{
    return isnan(x) || isnan(y) ? NAN : fmin(x, y);
}

static double
greater(double x, double y)
{
    return isnan(x) || isnan(y) ? NAN : fmax(x, y);
}

static double
apply(const struct expression_step *step, const double *a, const double *values)
{
    switch ((enum op)step->op) {
    case OP_NUMBER:
        return step->number;
    case OP_NAME:
        return isnan(values[step->name]) ? 0 : values[step->name];
    case OP_KNOWN:
        return !isnan(values[step->name]);
    case OP_NEGATE:
        return -a[0];
    case OP_NOT:
        return a[0] == 0;
    case OP_ADD:
        return a[0] + a[1];
    case OP_SUBTRACT:
        return a[0] - a[1];
    case OP_MULTIPLY:
        return a[0] * a[1];
    case OP_DIVIDE:
        return a[0] / a[1];
    case OP_LESS:
        return a[0] < a[1];
    case OP_LESS_EQUAL:
        return a[0] <= a[1];
    case OP_GREATER:
        return a[0] > a[1];
    case OP_GREATER_EQUAL:
        return a[0] >= a[1];
    case OP_EQUAL:
        return a[0] == a[1];
    case OP_NOT_EQUAL:
        return a[0] != a[1];
    case OP_AND:
        return a[0] != 0 && a[1] != 0;
    case OP_OR:
        return a[0] != 0 || a[1] != 0;
    case OP_SELECT:
        return a[0] != 0 ? a[1] : a[2];
    case OP_ABS:
        return fabs(a[0]);
    case OP_CLAMP:
        return lesser(greater(a[0], a[1]), a[2]);
    case OP_EXP:
        return exp(a[0]);
    case OP_LOG:
        return log(a[0]);
    case OP_MAX:
        return greater(a[0], a[1]);
    case OP_MIN:
        return lesser(a[0], a[1]);
    case OP_SQRT:
        return sqrt(a[0]);
    }
    return NAN;
}

double
expression_value(const struct expression *e, const double *values)
{
    double stack[EXPRESSION_STEPS_MAX];
    size_t top = 0;

    for (size_t i = 0; i < e->n; i++) {
        top -= arguments_of((enum op)e->steps[i].op);
        stack[top] = apply(&e->steps[i], stack + top, values);
        top++;
    }
    return top == 1 ? stack[0] : NAN;
}

bool
expression_names(const struct expression *e, size_t name)
{
    for (size_t i = 0; i < e->n; i++)
        if ((e->steps[i].op == OP_NAME || e->steps[i].op == OP_KNOWN) && e->steps[i].name == name)
            return true;
    return false;
}
