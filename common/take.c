#include "common/take.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double
take_number(struct argp_state *state, const char *name, const char *text, const char *unit, double least,
            double most)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= least && x <= most))
        argp_error(state, "%s takes a number%s from %.15g to %.15g, not \"%s\"", name, unit, least, most,
                   text);
    return x;
}

long
take_int(struct argp_state *state, const char *name, const char *text, long least, long most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < least || n > most)
        argp_error(state, "%s takes a whole number from %ld to %ld, not \"%s\"", name, least, most, text);
    return n;
}

/* The option of this key, of an argp or its children. */
static const char *
name_of(const struct argp *argp, int key)
{
    const char *name = NULL;

    for (const struct argp_option *o = argp->options; o && (o->name || o->key) && !name; o++)
        name = o->key == key ? o->name : NULL;
    for (const struct argp_child *c = argp->children; c && c->argp && !name; c++)
        name = name_of(c->argp, key);
    return name;
}

static bool
is_given(const struct take *row)
{
    return *row->text && **row->text;
}

/* False: an argument for which this row has no more room. */
static bool
take_one(const struct take *row, char *arg, struct argp_state *state)
{
    const char *option = name_of(state->root_argp, row->key);
    char name[64];

    snprintf(name, sizeof(name), "%s%s", option ? "--" : "", option ? option : "");
    switch (row->what) {
    case TAKES_TEXT:
        if (row->key == ARGP_KEY_ARG && is_given(row))
            return false;
        *row->text = arg;
        break;
    case TAKES_FLAG:
        *row->flag = true;
        break;
    case TAKES_INT:
        *row->integer = (int)take_int(state, name, arg, (long)row->least, (long)row->most);
        break;
    case TAKES_NUMBER:
        if (arg)
            *row->number = take_number(state, name, arg, row->unit, row->least, row->most);
        break;
    case TAKES_CALL:
        row->call(state, name, arg, row->any);
        break;
    case TAKES_INPUT:
        break;
    }
    return true;
}

error_t
take(const struct take *rows, size_t n, int key, char *arg, struct argp_state *state)
{
    bool is_taken = false;
    size_t children = 0;

    for (size_t i = 0; i < n; i++) {
        const struct take *row = &rows[i];
        if (row->key == key && row->what == TAKES_INPUT)
            state->child_inputs[children++] = row->any;
        else if (row->key == key && !(is_taken && key == ARGP_KEY_ARG))
            is_taken |= take_one(row, arg, state);
        else if (key == ARGP_KEY_END && row->missing && !is_given(row))
            argp_error(state, "%s", row->missing);
    }
    return is_taken || children > 0 ? 0 : ARGP_ERR_UNKNOWN;
}
