/*
 * notice.h - notices by the metadata services of the clouds that this machine will be ended. Pure: from a response to a
 * decision. An HTTP status of 0 is no response; a body may be NULL; a response that is not as documented is ignored.
 */
#ifndef TRAINER_NOTICE_H
#define TRAINER_NOTICE_H

#include <stdbool.h>

/* The time between a notice and the end of the machine, seconds. */
enum { NOTICE_AWS_S = 120, NOTICE_GCP_S = 30, NOTICE_AZURE_S = 30, NOTICE_SIGTERM_S = 30 };

enum notice_kind {
    NOTICE_NONE,
    NOTICE_ADVICE, /* one may want to move: the run goes on */
    NOTICE_LEAVE,
};

struct notice {
    enum notice_kind kind;
    int seconds;    /* that are left at least, from the notice on */
    char text[300]; /* for people */
};

/* AWS IMDSv2: the token of PUT /latest/api/token; false: it is not valid in a header. out has 256 bytes. */
bool notice_token(long status, const char *body, char *out);
/* AWS: /latest/meta-data/spot/instance-action; an action that ends the machine or its memory. */
struct notice notice_aws_action(long status, const char *body);
/* AWS: /latest/meta-data/events/recommendations/rebalance: earlier, and not certain. */
struct notice notice_aws_rebalance(long status, const char *body);
/* GCP: /computeMetadata/v1/instance/preempted. */
struct notice notice_gcp_preempted(long status, const char *body);
/* GCP: /computeMetadata/v1/instance/maintenance-event. */
struct notice notice_gcp_maintenance(long status, const char *body);
/*
 * Azure: /metadata/scheduledevents. It lists the events of all machines of a set: one whose Resources do not have
 * machine ("": not known, then any event counts) is another's.
 */
struct notice notice_azure(long status, const char *body, const char *machine);
/* How long the run may take to end, so that a last copy still fits: two thirds of the notice. */
double notice_grace_s(const struct notice *n);

#endif
