/* SPDX-License-Identifier: Apache-2.0
 *
 * A layout as arguments of another system: Megatron-LM, torchtitan or DeepSpeed. Each system is a
 * file with a table, one row per argument: our key, the argument, the words for our values, and the
 * condition under which it is emitted. A value that the system does not have is not emitted, but
 * named; so is each key that the run sets, or its family chooses, and no row has.
 */
#ifndef ECH_APP_ADVICE_EMIT_H
#define ECH_APP_ADVICE_EMIT_H

#include "app/setup/setup.h"

typedef struct ech_emit_row ech_emit_row;

typedef struct ech_emitted_argument {
    const char *name; /* "--seq-length", "zero_optimization.stage"; static */
    char *value;      /* owned; NULL: the argument is a flag */
} ech_emitted_argument;

typedef struct ech_emit_system {
    const char *name;        /* of --emit-for */
    const char *usage;       /* for people: how the system gets the file */
    const char *parser;      /* whose parser has read such files back (tests/app/check_emitted.py);
                           NULL: not proved */
    const char *sections;    /* blank-separated: keys of these sections are emitted or named */
    bool json;               /* the file is a JSON object, and names are paths in it */
    const ech_emit_row *row; /* ends with {0} */
    /* what the system stores that a plan does not have, and the reverse; ends with {0} */
    const struct ech_emit_memory {
        bool (*when)(const ech_design *design); /* NULL: always */
        const char *text;
    } * memory;
} ech_emit_system;

typedef struct ech_emitted {
    const ech_emit_system *system;
    const ech_design *design; /* borrowed while it is made */
    ECH_LIST(ech_emitted_argument) argument;
    ECH_LIST(char *) missing; /* what the system does not have; owned */
    ECH_LIST(const char *) memory;
    ech_text file;
    ech_status status; /* a failure: the system lacks a degree, so that it cannot run this layout */
} ech_emitted;

/* Release *out with ech_emitted_free, also after a failure. Errors: no such system; the layout has
 * servers, replicas that differ, or a degree that the system does not have. */
ech_status ech_emit(const ech_design *design, const char *system, ech_emitted *out);
void ech_emitted_free(ech_emitted *emitted);
/* Appends for people what the system does not have, and whose memory differs. */
void ech_emitted_text(const ech_emitted *emitted, ech_text *out);
/* A new JSON object of docs/formats.md; the caller releases it. */
struct json_t *ech_emitted_json(const ech_emitted *emitted);
/* Refuses a name of no system; all names are in the error. */
ech_status ech_emit_check(const char *system);
/* False if the system lacks this value of the key in every layout. */
bool ech_emit_has_value(const char *system, const char *key, const char *value);
/* True if the output names this key as one whose value the system does not have. */
bool ech_emitted_lacks(const ech_emitted *emitted, const char *key);

/* ---- for the systems' tables ---- */

struct ech_emit_row {
    const char *key;  /* of the run file */
    const char *name; /* of the argument */
    /* "ours=theirs ours=theirs": "+" emits a flag, nothing after "=" emits nothing. A value without
     * words is named as missing. NULL: the value as it is. With `emit`: the values that the system
     * has, NULL: any. */
    const char *words;
    bool (*when)(const ech_design *design); /* NULL: always */
    /* emits what the row is about; NULL: as the columns say */
    void (*emit)(ech_emitted *out, const ech_emit_row *row);
};

/* Adds an argument. value NULL: a flag. */
void ech_emit_add(ech_emitted *out, const char *name, const char *value);
void ech_emit_add_number(ech_emitted *out, const char *name, int64_t value);
/* Names a key whose value the system does not have: "KEY = VALUE: " and the text. */
void ech_emit_miss(ech_emitted *out, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes ech_emit fail: the system does not have a degree of the layout. why: what works. */
void ech_emit_refuse(ech_emitted *out, const char *key, const char *why);
enum { ECH_EMIT_STAGES = 4096 }; /* at most */
/* Layers of each virtual stage, in the order of the model; where `merged`, of each stage. Returns
 * their number; 0: blocks other than layers are between the first and the last block, or there are
 * more than ECH_EMIT_STAGES. */
int ech_emit_layers(const ech_design *design, bool merged, int layers[ECH_EMIT_STAGES]);
/* The design has more than one of these ranks. */
bool ech_emit_has_stages(const ech_design *design);
bool ech_emit_has_context(const ech_design *design);
bool ech_emit_has_experts(const ech_design *design);
bool ech_emit_has_tensor(const ech_design *design);
bool ech_emit_is_tied(const ech_design *design); /* tied embeddings on two stages */

#define X(name) extern const ech_emit_system ech_emit_##name;
#include "app/advice/systems.def"
#undef X

#endif
