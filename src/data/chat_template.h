/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the table of built-in chat templates. A row renders conversations as one
 * published Jinja template does, which is known by its hash.
 */
#ifndef ECH_DATA_CHAT_TEMPLATE_H
#define ECH_DATA_CHAT_TEMPLATE_H

#include "data/data.h"

/* A system message is a turn like others, is an error, or stands before the first user's
 * content. */
typedef enum ech_system_use {
    ECH_SYSTEM_TURN,
    ECH_SYSTEM_REFUSED,
    ECH_SYSTEM_JOINED
} ech_system_use;

#define ECH_CHAT_JOINT "\n\n" /* between a joined system message and the user's */

/* What stands around a content. */
typedef struct ech_chat_marks {
    const char *before;
    const char *after; /* ends the turn; of an answer it is trained on */
    bool ends;         /* then comes the end-of-text token, likewise */
    const char *rest;  /* not trained on */
} ech_chat_marks;

struct ech_chat_template {
    const char *name; /* of several rows with this name the first is for --chat-template */
    /* blank-separated: ech_data_hash of the Jinja texts, without a newline at their ends */
    const char *hashes;
    const char *from;   /* whose template it is */
    const char *tokens; /* blank-separated: names that must be tokens of the vocabulary */
    const char *system; /* content of a system turn that is put before a conversation without a
                            system message; NULL: none */
    ech_system_use system_use;
    bool begins; /* begin of text first */
    bool trims;  /* without white space around contents, but not around a joined system message */
    ech_chat_marks turn[ECH_SPEAKERS];
};

extern const ech_chat_template ech_chat_templates[];
extern const int ech_chat_template_count;

#endif
