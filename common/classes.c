#include "common/classes.h"

#include <string.h>

static const struct class_info infos[CLASS_N] = {
#define CLASS_INFO(id, ...) [CLASS_##id] = { __VA_ARGS__ },
    VERDICT_CLASSES(CLASS_INFO)
#undef CLASS_INFO
};

const struct class_info *
class_info(enum verdict_class class_)
{
    return &infos[class_];
}

const char *
class_name(enum verdict_class class_)
{
    return infos[class_].name;
}

enum verdict_class
class_find(const char *name)
{
    for (int i = CLASS_NONE + 1; name && i < CLASS_N; i++)
        if (strcmp(infos[i].name, name) == 0)
            return (enum verdict_class)i;
    return CLASS_NONE;
}

enum verdict_class
class_reported(enum verdict_class class_, enum stage stage, enum verdict_class otherwise)
{
    const struct class_info *info = class_info(class_);

    return info->fault == FAULT_CANDIDATE && (info->stages & 1U << stage) ? class_ : otherwise;
}
