#include "server/store/summary.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/stages.h"
#include "common/utf8.h"
#include "server/store/store.h"

_Static_assert(SUMMARY_FAILURES == 512 && STORE_FAILURE_SPAN_S == 7200, "the figures in docs/store.md");

const struct summary_span summary_spans[SUMMARY_NSPANS] = {
    { STORE_TREND_MINUTE_S, 2 * 3600 },
    { STORE_TREND_QUARTER_S, 2 * 86400 },
    { STORE_TREND_LONG_S, 31 * 86400 },
};

/* Part of a name, or of a character beyond ASCII. */
static bool
is_wordy(unsigned char c)
{
    return isalnum(c) || c == '_' || c >= 0x80;
}

/* How many bytes at text are one number: 12, 0x7f3a, -0.5, 1.5e-07; 0: none begins there. */
static size_t
number_size(const unsigned char *text, size_t size)
{
    size_t i = size > 1 && text[0] == '-' ? 1 : 0;

    if (i >= size || !isdigit(text[i]))
        return 0;
    if (text[i] == '0' && i + 2 < size && text[i + 1] == 'x' && isxdigit(text[i + 2])) {
        for (i += 2; i < size && isxdigit(text[i]); i++)
            ;
        return i;
    }
    while (i < size && (isdigit(text[i]) || (text[i] == '.' && i + 1 < size && isdigit(text[i + 1]))))
        i++;
    size_t e = i + 1;
    if (i < size && (text[i] == 'e' || text[i] == 'E')) {
        e += e < size && (text[e] == '-' || text[e] == '+');
        if (e < size && isdigit(text[e]))
            for (i = e; i < size && isdigit(text[i]); i++)
                ;
    }
    return i;
}

void
summary_message(const char *message, size_t size, char out[SUMMARY_MESSAGE_SIZE])
{
    const unsigned char *text = (const unsigned char *)message;
    const size_t room = SUMMARY_MESSAGE_SIZE - 1;
    size_t n = 0, i = 0, skip;

    while (i < size && n < room) {
        unsigned char c = text[i];
        bool is_inside = i > 0 && is_wordy(text[i - 1]);
        if (c <= ' ' || c == 0x7f) {
            if (n > 0 && out[n - 1] != ' ')
                out[n++] = ' ';
            i++;
        } else if (!is_inside && (skip = number_size(text + i, size - i)) > 0) {
            out[n++] = '#';
            i += skip;
        } else {
            out[n++] = message[i++];
        }
    }
    if (i < size && (text[i] & 0xc0) == 0x80) { /* in the middle of a character */
        out[n] = message[i];
        n = utf8_cut(out, n);
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

static void
take_word(json_t *verdict, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(verdict, key));
    snprintf(out, size, "%s", text ? text : "");
}

/* "strict*" */
static bool
is_starred(json_t *name)
{
    size_t size = json_string_length(name);
    return size > 0 && json_string_value(name)[size - 1] == '*';
}

/* Past "word ": the word is what up to ": " or, with has_more, ", " stands there. NULL: it is something else. */
static const char *
after_word(const char *text, const char *before, bool has_more)
{
    size_t size = strlen(before);

    if (strncmp(text, before, size) != 0)
        return NULL;
    size += strcspn(text + size, " :,\"\n");
    bool is_end = text[size] == ':' || (has_more && text[size] == ',');
    return is_end && text[size + 1] == ' ' ? text + size + 2 : NULL;
}

/* "compile: line 14, kernel k: the cause": the same cause in another kernel is the same failure (cause.h). */
static const char *
after_place(const char *text)
{
    const char *rest = strstr(text, ": ");
    char stage[SUMMARY_WORD_SIZE];

    if (!rest)
        return text;
    snprintf(stage, sizeof(stage), "%.*s", (int)(rest - text), text);
    if (stage_find(stage) == STAGE_NONE)
        return text;
    text = rest + 2;
    rest = after_word(text, "line ", true);
    text = rest ? rest : text;
    rest = after_word(text, "kernel ", false);
    return rest ? rest : text;
}

/* The first line of the feedback is the cause; without one, all of the error. */
static void
take_message(json_t *verdict, struct summary *out)
{
    json_t *error = json_object_get(json_object_get(verdict, "error"), "text");
    const char *told = json_string_value(json_object_get(json_object_get(verdict, "feedback"), "text"));

    if (told && *told) {
        told = after_place(told);
        summary_message(told, strcspn(told, "\n"), out->message);
    } else if (json_is_string(error)) {
        summary_message(json_string_value(error), json_string_length(error), out->message);
    }
}

static double
waited(json_t *stages)
{
    double sum = 0;
    json_t *stage;
    size_t i;

    json_array_foreach(stages, i, stage)
    {
        double ms = number_or_nan(stage, "wait_ms");
        sum += ms >= 0 ? ms : 0;
    }
    return sum;
}

bool
summary_read(const char *verdict, struct summary *out)
{
    AUTO_JSON json_t *v = json_of(verdict);
    json_t *timing = json_object_get(v, "timing"), *components = json_object_get(v, "components");

    *out = (struct summary){
        .speedup = NAN, .speedup_lo = NAN, .speedup_hi = NAN, .candidate_ms = NAN, .reference_ms = NAN
    };
    out->class_ = class_find(json_string_value(json_object_get(v, "class")));
    take_word(v, "failed_at", out->failed_at, sizeof(out->failed_at));
    take_word(v, "passed_stage", out->passed, sizeof(out->passed));
    take_word(json_object_get(v, "env"), "gpu", out->gpu, sizeof(out->gpu));
    if (out->class_ == CLASS_NONE)
        return false;
    out->wait_ms = waited(json_object_get(v, "stages"));
    out->is_weakened = is_starred(json_object_get(v, "policy"));
    bool is_ok = out->class_ == CLASS_OK;
    out->is_correct = is_ok && number_or_nan(components, "correct") != 0; /* 0: no stage compared anything */
    if (is_ok && number_or_nan(components, "timed") == 1) {
        out->speedup = number_or_nan(components, "speedup");
        out->speedup_lo = number_or_nan(components, "speedup_lo");
        out->speedup_hi = number_or_nan(components, "speedup_hi");
        out->candidate_ms = number_or_nan(timing, "candidate_ms");
        out->reference_ms = number_or_nan(timing, "reference_ms");
    }
    if (!is_ok)
        take_message(v, out);
    return true;
}
