/* ids.h - UUIDv7 (RFC 9562): ids that sort by the time they were made. */
#ifndef COMMON_IDS_H
#define COMMON_IDS_H

#include <stdbool.h>
#include <stdint.h>

#define ID_SIZE 37 /* 36 characters and NUL */

/* Make an id from the wall clock; ids of one process never repeat and never go back. Loop thread. */
void id_new(char out[ID_SIZE]);
bool id_is_valid(const char *text);

#endif
