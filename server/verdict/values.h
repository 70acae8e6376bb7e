/* values.h - numbers and members of JSON documents, where what is not known is null. Pure. */
#ifndef VERDICT_VALUES_H
#define VERDICT_VALUES_H

#include <stdint.h>

#include <jansson.h>

json_t *real_or_null(double x);                        /* given; null for what is not finite */
json_t *text_or_null(const char *text);                /* given; null for NULL and for "" */
json_t *time_json(int64_t wall_ms);                    /* given */
json_t *get_or_null(json_t *object, const char *key);  /* given */
double number_or_nan(json_t *object, const char *key); /* NAN for what is not a number */

#endif
