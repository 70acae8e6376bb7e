#include "server/verdict/values.h"

#include <math.h>

#include "common/clock.h"

json_t *
text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

json_t *
real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *
get_or_null(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value ? json_incref(value) : json_null();
}

double
number_or_nan(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

json_t *
time_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];

    clock_text(wall_ms, text);
    return json_string(text);
}
