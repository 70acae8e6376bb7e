#include "common/words.h"

#include <string.h>

bool
words_have(const char *list, const char *separators, const char *word, size_t size)
{
    for (const char *at = list + strspn(list, separators); *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        if (n == size && memcmp(at, word, n) == 0)
            return true;
        at += n;
    }
    return false;
}
