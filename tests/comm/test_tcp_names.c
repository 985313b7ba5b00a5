/* SPDX-License-Identifier: Apache-2.0
 *
 * MASTER_ADDR says where rank 0 listens, and where others look for it. The resolver is this file's.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp_state.h"
#include "unit.h"

/* ---- a resolver ---- */

static const char *addresses[2]; /* of every name; NULL: no more */
static int failures;             /* so many look-ups fail first */

static struct addrinfo *make(const char *address, const char *port)
{
    struct addrinfo *made = calloc(1, sizeof *made);
    struct sockaddr_in *at = calloc(1, sizeof *at);
    assert_true(made && at);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    assert_int_equal(inet_pton(AF_INET, address, &at->sin_addr), 1);
    *made = (struct addrinfo){.ai_family = AF_INET,
                              .ai_socktype = SOCK_STREAM,
                              .ai_addr = (struct sockaddr *)at,
                              .ai_addrlen = sizeof *at};
    return made;
}

/* In place of the C library's. */
int getaddrinfo(const char *name, const char *port, const struct addrinfo *like,
                struct addrinfo **out)
{
    (void)name;
    (void)like;
    if (failures-- > 0) return EAI_NONAME;
    *out = make(addresses[0], port);
    if (addresses[1]) (*out)->ai_next = make(addresses[1], port);
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    while (found) {
        struct addrinfo *next = found->ai_next;
        free(found->ai_addr);
        free(found);
        found = next;
    }
}

/* ---- where rank 0 listens ---- */

/* True if the loopback's other addresses reach what listens for a name with these addresses. */
static bool listens_at_all(const char *first, const char *second)
{
    int port = 0;
    ech_tcp_door *door;
    struct sockaddr_in other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000305)};
    addresses[0] = first;
    addresses[1] = second;
    assert_int_equal(ech_tcp_open_leader("name", &port, &door), ECH_OK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    other.sin_port = htons((uint16_t)port);
    bool reaches = connect(fd, (struct sockaddr *)&other, sizeof other) == 0;
    close(fd);
    ech_tcp_door_close(door);
    return reaches;
}

TEST(the_loopback_alone_stays_private)
{
    assert_false(listens_at_all("127.0.0.1", NULL));
    assert_false(listens_at_all("127.0.1.1", "127.0.0.1"));
}

TEST(other_machines_reach_the_rest)
{
    assert_true(listens_at_all("192.0.2.9", NULL));
    assert_true(listens_at_all("127.0.1.1", "192.0.2.9"));
    assert_true(listens_at_all("192.0.2.9", "127.0.1.1"));
    failures = 1;
    assert_true(listens_at_all("127.0.0.1", NULL)); /* the name is not in DNS yet */
}

/* ---- names that are not there yet ---- */

TEST(names_may_come_later)
{
    int port = 0, fd = -1;
    ech_tcp_door *door;
    addresses[0] = "127.0.0.1";
    addresses[1] = NULL;
    assert_int_equal(ech_tcp_open_leader("name", &port, &door), ECH_OK);
    failures = 1;
    assert_int_equal(ech_tcp_connect("name", port, 60, &fd), ECH_OK);
    close(fd);
    failures = 1000;
    assert_int_equal(ech_tcp_connect("name", port, 0.1, &fd), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "MASTER_ADDR name has no address"));
    ech_tcp_door_close(door);
    failures = 0;
}
