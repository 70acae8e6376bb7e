/*
 * replay.h - two verdicts on one candidate, field by field. Pure.
 *
 * Every field must be the same but for those of one table (replay.c), which has the reason for each: it belongs to the
 * submission and not to the judging, it is a time, or it depends on the machine. A figure of the machine's is compared
 * only if both machines are alike; a speed-up by the intervals.
 */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

#include <stdbool.h>

#include <jansson.h>

/*
 * Compare the verdict there (the bundle's) with the one here:
 * {"same": bool, "fields": how many are the same, "machines": "alike" | "differ",
 *  "differ": [{"field","bundle","here","why"}], "may_differ": [the same]}
 * Values are those of the documents, null for a field that one of them lacks. Given; NULL: no memory.
 */
json_t *replay_compare(json_t *bundle, json_t *here);

#endif
