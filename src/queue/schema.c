/* schema.c - schema.sql inside of the binary. */
#include "queue/schema.h"

/* The file is read by the assembler while this one is compiled; the Makefile knows of it. */
__asm__(".pushsection .rodata\n"
        ".globl queue_schema_sql\n"
        ".hidden queue_schema_sql\n"
        "queue_schema_sql:\n"
        ".incbin \"src/queue/schema.sql\"\n"
        ".byte 0\n"
        ".popsection\n");
