/*
 * limits.h - bounds of the wire format that daemon and clients share.
 */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#define GROUP_MAX 256 /* candidates of a group; samples of a request in a trainer's format */
#define HTTP_BODY_MAX (8 * 1024 * 1024) /* bytes of a request */

#endif
