/* schema.h - schema.sql inside of the binary, and what it is about. */
#ifndef BELAY_QUEUE_SCHEMA_H
#define BELAY_QUEUE_SCHEMA_H

enum {
    QUEUE_SCHEMA_VERSION = 5, /* the last "-- == version N ==" of schema.sql */
    QUEUE_NAME_MAX = 128,     /* characters of a queue's name */
    QUEUE_ENTITY_MAX = 512,   /* bytes of an entity's name */
    QUEUE_SCHEMA_MAX = 50,    /* bytes of a schema's name: channel names are made of it */
    QUEUE_GROUP_MAX = 5000,   /* requests of one group */
    QUEUE_OUTCOME_MAX = 65536 /* bytes of output that become the outcome */
};

extern const char queue_schema_sql[]; /* NUL-terminated */
#endif
