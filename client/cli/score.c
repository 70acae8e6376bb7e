#include "client/cli/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/text.h"
#include "common/auto.h"
#include "common/classes.h"

const char *
score_class(const json_t *verdict)
{
    const char *class = text_member(verdict, "class");
    return class ? class : "";
}

static bool
is_ok(const json_t *verdict)
{
    return strcmp(score_class(verdict), "ok") == 0;
}

/* Where a verdict came to an end: the stage that failed. NULL: it passed, or the token may not see it. */
static const char *
failed_stage(const json_t *verdict)
{
    return text_member(verdict, "failed_at");
}

static bool
is_class_expected(const struct corpus_expectation *expected, const json_t *verdict)
{
    return (corpus_class_bit(score_class(verdict)) & expected->classes) != 0;
}

static bool
is_stage_expected(const struct corpus_expectation *expected, const json_t *verdict)
{
    const char *stage = failed_stage(verdict);
    return is_ok(verdict) || expected->stages == 0 || !stage ||
           (corpus_stage_bit(stage) & expected->stages) != 0;
}

/* A cheat earns nothing; what failed has no credit for being correct. */
static bool
is_reward_fitting(const json_t *verdict)
{
    const json_t *reward = json_object_get(verdict, "reward");
    const char *class = score_class(verdict);
    if (!json_is_number(reward))
        return true;
    if (class_info(class_find(class))->is_cheat)
        return json_number_value(reward) <= 0;
    return true;
}

bool
score_is_right(const struct corpus_expectation *expected, const json_t *verdict, char why[SCORE_WHY_SIZE])
{
    AUTO_FREE char *classes = corpus_class_names(expected->classes);
    AUTO_FREE char *stages = corpus_stage_names(expected->stages);
    const char *class = score_class(verdict);

    why[0] = '\0';
    if (!is_class_expected(expected, verdict))
        snprintf(why, SCORE_WHY_SIZE, "class %s, expected %s", class[0] ? class : "(none)",
                 classes ? classes : "?");
    else if (!is_stage_expected(expected, verdict))
        snprintf(why, SCORE_WHY_SIZE, "%s at stage %s, expected %s", class, failed_stage(verdict),
                 stages ? stages : "?");
    else if (!is_reward_fitting(verdict))
        snprintf(why, SCORE_WHY_SIZE, "class %s with a reward of %g", class,
                 json_number_value(json_object_get(verdict, "reward")));
    return why[0] == '\0';
}

static struct score_work *
work_of(struct score *s, const char *name)
{
    for (size_t i = 0; i < s->n_works; i++)
        if (strncmp(s->works[i].name, name, SCORE_WORK_SIZE - 1) == 0)
            return &s->works[i];
    if (s->n_works == SCORE_WORKS_MAX)
        return &s->works[s->n_works - 1];
    struct score_work *work = &s->works[s->n_works++];
    snprintf(work->name, sizeof(work->name), "%s", name);
    return work;
}

static void
add_to_work(struct score_work *work, const struct corpus_expectation *expected, const json_t *verdict)
{
    bool is_right = expected->kind == CORPUS_HONEST || expected->kind == CORPUS_SUSPICIOUS;

    if (is_right) {
        work->right++;
        work->refused += !is_ok(verdict);
    } else if (expected->kind != CORPUS_ROBUSTNESS) {
        work->wrong++;
        work->accepted += is_ok(verdict) && !is_class_expected(expected, verdict);
    }
}

void
score_add(struct score *s, const char *work, const struct corpus_expectation *expected, const json_t *verdict)
{
    struct score_kind *kind = &s->kinds[expected->kind];
    char why[SCORE_WHY_SIZE];

    kind->rows++;
    if (!verdict)
        return;
    kind->ran++;
    kind->right += score_is_right(expected, verdict, why);
    kind->refused += !is_ok(verdict);
    kind->expected += is_class_expected(expected, verdict);
    add_to_work(work_of(s, work), expected, verdict);
}

void
score_skip(struct score *s, const struct corpus_expectation *expected)
{
    s->kinds[expected->kind].rows++;
    s->kinds[expected->kind].skipped++;
}

void
score_add_other(struct score *s, const struct corpus_expectation *expected, const json_t *verdict)
{
    s->kinds[expected->kind].other_ran++;
    s->kinds[expected->kind].other_accepted += is_ok(verdict);
}

/* --- contamination --- */

struct interval {
    double low, point, high;
};

/* The interval of the speedup of a timing that was measured. */
static bool
read_interval(const json_t *verdict, struct interval *found)
{
    const json_t *components = json_object_get(verdict, "components");
    const char *outcome = text_member(json_object_get(verdict, "timing"), "outcome");
    const json_t *speedup = json_object_get(components, "speedup");
    const json_t *low = json_object_get(components, "speedup_lo"),
                 *high = json_object_get(components, "speedup_hi");

    if (!outcome || strcmp(outcome, "measured") != 0 || !json_is_number(speedup))
        return false;
    found->point = json_number_value(speedup);
    found->low = json_is_number(low) ? json_number_value(low) : found->point;
    found->high = json_is_number(high) ? json_number_value(high) : found->point;
    return isfinite(found->point) && found->point > 0;
}

/* The same of one that stayed too wide to be credited, and still says something. */
static bool
read_wide_interval(const json_t *verdict, struct interval *found)
{
    const json_t *timing = json_object_get(verdict, "timing");
    const char *outcome = text_member(timing, "outcome");

    *found = (struct interval){ json_number_value(json_object_get(timing, "speedup_lo")),
                                json_number_value(json_object_get(timing, "speedup")),
                                json_number_value(json_object_get(timing, "speedup_hi")) };
    return outcome && strcmp(outcome, "inconclusive") == 0 && found->low > 0 &&
           found->high <= SCORE_WIDEST * found->low;
}

void
score_baseline_add(struct score_baseline *b, const json_t *verdict)
{
    struct interval now;

    if (!b->class[0])
        snprintf(b->class, sizeof(b->class), "%s", score_class(verdict));
    b->n++;
    if (!read_interval(verdict, &now))
        return;
    b->low = b->n_timed > 0 ? fmin(b->low, now.low) : now.low;
    b->high = b->n_timed > 0 ? fmax(b->high, now.high) : now.high;
    b->n_timed++;
}

bool
score_is_timed(const struct score_baseline *b)
{
    return b->n > 0 && b->n_timed == b->n;
}

bool
score_has_time(const struct score_baseline *b, const json_t *verdict)
{
    struct interval now;
    return score_is_timed(b) && read_interval(verdict, &now);
}

static double
slack_of(const json_t *verdict)
{
    const json_t *ms = json_object_get(json_object_get(verdict, "timing"), "reference_ms");
    return json_is_number(ms) && json_number_value(ms) < SCORE_SHORT_MS ? SCORE_SHORT_SLACK : SCORE_SLACK;
}

bool
score_is_contaminated(const struct score_baseline *b, const json_t *verdict, char why[SCORE_WHY_SIZE])
{
    struct interval now;
    double slack = slack_of(verdict);

    why[0] = '\0';
    if (strcmp(score_class(verdict), b->class) != 0)
        snprintf(why, SCORE_WHY_SIZE, "class %s, was %s before", score_class(verdict), b->class);
    else if (!score_is_timed(b))
        return false;
    else if (!read_interval(verdict, &now) && !read_wide_interval(verdict, &now))
        snprintf(why, SCORE_WHY_SIZE, "not timed, was timed before");
    else if (now.high < b->low * (1 - slack) || now.low > b->high * (1 + slack))
        snprintf(why, SCORE_WHY_SIZE, "speedup %.3f [%.3f, %.3f], was within [%.3f, %.3f] before", now.point,
                 now.low, now.high, b->low, b->high);
    return why[0] != '\0';
}

void
score_add_probe(struct score *s, const struct score_baseline *b, const json_t *verdict, int followed)
{
    char why[SCORE_WHY_SIZE];
    s->followed += followed;
    s->probes++;
    s->contaminated += score_is_contaminated(b, verdict, why);
    s->times_compared += score_has_time(b, verdict);
}

/* --- figures --- */

static double
share(int part, int whole)
{
    return whole > 0 ? (double)part / whole : -1;
}

double
score_kill_rate(const struct score *s)
{
    return share(s->kinds[CORPUS_CHEAT].expected, s->kinds[CORPUS_CHEAT].ran);
}

double
score_false_reject_rate(const struct score *s)
{
    const struct score_kind *honest = &s->kinds[CORPUS_HONEST], *suspicious = &s->kinds[CORPUS_SUSPICIOUS];
    return share(honest->refused + suspicious->refused, honest->ran + suspicious->ran);
}

bool
score_is_clean(const struct score *s, bool is_whole)
{
    int ran = 0;
    for (int i = 0; i < CORPUS_KINDS; i++) {
        const struct score_kind *kind = &s->kinds[i];
        if (kind->right != kind->ran || kind->ran + kind->skipped != kind->rows)
            return false;
        ran += kind->ran;
    }
    if (s->contaminated > 0 || ran == 0)
        return false;
    return !is_whole || (s->kinds[CORPUS_CHEAT].ran > 0 && s->kinds[CORPUS_HONEST].ran > 0 && s->probes > 0);
}

struct score_work
score_all_work(const struct score *s)
{
    struct score_work all = { .name = "all" };

    for (size_t i = 0; i < s->n_works; i++) {
        all.wrong += s->works[i].wrong;
        all.accepted += s->works[i].accepted;
        all.right += s->works[i].right;
        all.refused += s->works[i].refused;
    }
    return all;
}

void
score_wilson(int part, int whole, double *low, double *high)
{
    const double z = 1.959964; /* of 95 % */

    *low = 0;
    *high = 1;
    if (whole <= 0)
        return;
    double p = (double)part / whole, spread = z * z / whole;
    double middle = (p + spread / 2) / (1 + spread);
    double half = z * sqrt(p * (1 - p) / whole + spread / (4 * whole)) / (1 + spread);
    *low = part == 0 ? 0 : middle - half;
    *high = part == whole ? 1 : middle + half;
}

static json_t *
errors_json(int part, int whole)
{
    double low, high;

    score_wilson(part, whole, &low, &high);
    return whole > 0 ? json_pack("{s:i, s:i, s:f, s:f, s:f}", "count", part, "of", whole, "rate",
                                 (double)part / whole, "low", low, "high", high)
                     : json_null();
}

static json_t *
work_json(const struct score_work *work)
{
    return json_pack("{s:o, s:o}", "false_accepts", errors_json(work->accepted, work->wrong), "false_rejects",
                     errors_json(work->refused, work->right));
}

static json_t *
works_json(const struct score *s)
{
    const struct score_work all = score_all_work(s);
    json_t *found = json_object();

    for (size_t i = 0; i < s->n_works; i++)
        json_object_set_new(found, s->works[i].name, work_json(&s->works[i]));
    json_object_set_new(found, all.name, work_json(&all));
    return found;
}

static json_t *
rate(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

json_t *
score_document(const struct score *s)
{
    json_t *kinds = json_object();
    int ran = 0, skipped = 0, unjudged = 0, surprises = 0, other_ran = 0;

    for (int i = 0; i < CORPUS_KINDS; i++) {
        const struct score_kind *k = &s->kinds[i];
        json_t *one = json_pack("{s:i, s:i, s:i, s:i, s:i}", "rows", k->rows, "ran", k->ran, "skipped",
                                k->skipped, "right", k->right, "refused", k->refused);
        if (k->other_ran > 0)
            json_object_set_new(one, "other_accepted", json_integer(k->other_accepted));
        json_object_set_new(kinds, corpus_kind_name((enum corpus_kind)i), one);
        ran += k->ran;
        skipped += k->skipped;
        unjudged += k->rows - k->ran - k->skipped;
        surprises += k->ran - k->right;
        other_ran += k->other_ran;
    }
    const struct score_kind *cheat = &s->kinds[CORPUS_CHEAT];
    int rejected = s->kinds[CORPUS_HONEST].refused + s->kinds[CORPUS_SUSPICIOUS].refused;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "ran",
                     ran, "skipped", skipped, "unjudged", unjudged, "surprises", surprises, "killed",
                     cheat->expected, "kill_rate", rate(score_kill_rate(s)), "false_rejects", rejected,
                     "false_reject_rate", rate(score_false_reject_rate(s)), "followed", s->followed, "probes",
                     s->probes, "contaminated", s->contaminated, "times_compared", s->times_compared,
                     "other_ran", other_ran, "kinds", kinds, "tasks", works_json(s));
}
