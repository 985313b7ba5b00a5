/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the table of built-in chat templates. A row renders conversations as one
 * published Jinja template does, which is known by its hash.
 */
#ifndef ECH_DATA_CHAT_TEMPLATE_H
#define ECH_DATA_CHAT_TEMPLATE_H

#include "data/data.h"

/* What becomes of a system message. */
typedef enum ech_system_use {
    ECH_SYSTEM_MESSAGE, /* a message like others */
    ECH_SYSTEM_REFUSED, /* an error */
    ECH_SYSTEM_JOINED,  /* stands before the first user's content */
    ECH_SYSTEM_LAST     /* stands before the last message's content if a user wrote that; otherwise
                           it is left out */
} ech_system_use;

/* What else a template does. */
enum {
    ECH_CHAT_BEGINS = 1,        /* begin of text first */
    ECH_CHAT_TRIMS = 2,         /* no white space around contents; a joined system message keeps
                                   its own */
    ECH_CHAT_TRIMS_ANSWERS = 4, /* the same for the assistant's contents alone */
    ECH_CHAT_THINKS = 8,        /* as Qwen3's does: <think>...</think> before the last answer, and
                                   reasoning is removed from earlier ones */
    ECH_CHAT_CLOSES = 16        /* end of text last; it belongs to the last message */
};

#define ECH_CHAT_JOINT "\n\n" /* between a joined system message and the user's */

/* What stands around a content. */
typedef struct ech_chat_marks {
    const char *before;
    const char *after; /* ends the message; of an answer it is trained on */
    bool ends;         /* then comes the end-of-text token, likewise */
    const char *rest;  /* not trained on */
} ech_chat_marks;

struct ech_chat_template {
    const char *name; /* of several rows with this name the first is for --chat-template */
    /* blank-separated: ech_data_hash of the Jinja texts, without a newline at their ends */
    const char *hashes;
    const char *from;   /* whose template it is */
    const char *tokens; /* blank-separated: names that must be tokens of the vocabulary */
    const char *system; /* content of a system message that is put before a conversation without a
                            system message; NULL: none */
    ech_system_use system_use;
    unsigned does; /* a sum of ECH_CHAT_BEGINS and others */
    ech_chat_marks message[ECH_SPEAKERS];
};

extern const ech_chat_template ech_chat_templates[];
extern const int ech_chat_template_count;

#endif
