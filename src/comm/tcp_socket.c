/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets of a meeting of processes (tcp_join.c).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/tcp_state.h"

enum { AGAIN_MS = 50, NAME_AGAIN_S = 1 };

ech_status ech_tcp_write(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR)
            ECH_FAIL(ECH_ECOMM, "a rank has ended its connection at the start: %s" ECH_TCP_ENDED,
                     strerror(errno));
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

ech_status ech_tcp_read(int fd, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = recv(fd, (char *)data + at, bytes - at, 0);
        if (n == 0)
            ECH_FAIL(ECH_ECOMM, "a rank has ended its connection at the start" ECH_TCP_ENDED);
        if (n < 0 && errno != EINTR)
            ECH_FAIL(ECH_ECOMM, "reading from a rank at the start: %s" ECH_TCP_ENDED,
                     strerror(errno));
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

/* ---- addresses ---- */

static bool is_mapped(const struct sockaddr_in6 *at)
{
    return IN6_IS_ADDR_V4MAPPED(&at->sin6_addr);
}

/* False: it is not an IP address. *out: in network order. */
static bool take_ipv4(const struct sockaddr *at, struct in_addr *out)
{
    const struct sockaddr_in6 *six = (const void *)at;
    if (at->sa_family == AF_INET) *out = ((const struct sockaddr_in *)(const void *)at)->sin_addr;
    if (at->sa_family == AF_INET6) memcpy(out, &six->sin6_addr.s6_addr[12], sizeof *out);
    return at->sa_family == AF_INET || (at->sa_family == AF_INET6 && is_mapped(six));
}

void ech_tcp_print(const struct sockaddr *at, char text[INET6_ADDRSTRLEN])
{
    struct in_addr four;
    text[0] = '\0';
    if (take_ipv4(at, &four))
        (void)inet_ntop(AF_INET, &four, text, INET6_ADDRSTRLEN);
    else if (at->sa_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, text,
                        INET6_ADDRSTRLEN);
}

/* True if no other machine can reach it. */
static bool is_loopback(const struct sockaddr *at)
{
    struct in_addr four;
    if (take_ipv4(at, &four)) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
    return at->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
}

/* A socket's address as one of its peer's. */
typedef union place {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} place;

/* sin_port and sin6_port are at the same place. */
static in_port_t *port_of(place *of)
{
    return of->any.sa_family == AF_INET6 ? &of->six.sin6_port : &of->four.sin_port;
}

static socklen_t length_of(const place *of)
{
    return of->any.sa_family == AF_INET6 ? sizeof of->six : sizeof of->four;
}

/* ---- listening ---- */

/* -1 and errno: it cannot. */
static int listen_at(place at, int *port)
{
    socklen_t n = length_of(&at);
    int on = 1, off = 0;
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    *port_of(&at) = htons((uint16_t)*port);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at.any.sa_family == AF_INET6) /* IPv4, too */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &at.any, n) != 0 || listen(fd, ECH_TCP_MOST_RANKS) != 0 ||
        getsockname(fd, &at.any, &n) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(*port_of(&at));
    return fd;
}

ech_status ech_tcp_listen(const struct sockaddr *at, int *port, int *out)
{
    place where = {.six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
    if (at) memcpy(&where, at, at->sa_family == AF_INET6 ? sizeof where.six : sizeof where.four);
    int fd = listen_at(where, port);
    bool lacks_ipv6 = fd < 0 && !at && errno != EADDRINUSE && errno != EACCES;
    if (lacks_ipv6) fd = listen_at((place){.four = {.sin_family = AF_INET}}, port);
    if (fd < 0 && *port == 0)
        ECH_FAIL(ECH_ECOMM, "cannot listen for other ranks: %s; check this machine's network",
                 strerror(errno));
    if (fd < 0)
        ECH_FAIL(ECH_ECOMM,
                 "rank 0 cannot listen at MASTER_PORT %d: %s; torchrun itself may have it, or "
                 "another rank 0: set MASTER_PORT to a free port for all ranks",
                 *port, strerror(errno));
    *out = fd;
    return ECH_OK;
}

/* The name's addresses; NULL: it has none now, and *why says so. */
static struct addrinfo *resolve(const char *name, int port, const char **why)
{
    char text[16];
    struct addrinfo *found = NULL, like = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(text, sizeof text, "%d", port);
    int error = getaddrinfo(name, text, &like, &found);
    *why = error ? gai_strerror(error) : NULL;
    return error ? NULL : found;
}

/* True if other machines may reach one of them. A loopback address beside it is one that /etc/hosts
 * has for the machine's own name, such as Debian's 127.0.1.1, and is not used. */
static bool is_reachable(const struct addrinfo *found)
{
    while (found && is_loopback(found->ai_addr)) found = found->ai_next;
    return found != NULL;
}

/* True if this machine has the address. */
static bool may_bind(const struct sockaddr *at)
{
    place where = {0};
    memcpy(&where, at, at->sa_family == AF_INET6 ? sizeof where.six : sizeof where.four);
    *port_of(&where) = 0;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool may = fd >= 0 && bind(fd, &where.any, length_of(&where)) == 0;
    if (fd >= 0) close(fd);
    return may;
}

ech_status ech_tcp_open_leader(const char *address, int *port, ech_tcp_door **out)
{
    const char *why; /* one that is not in DNS yet is not this machine's loopback */
    struct addrinfo *found = address && *address ? resolve(address, *port, &why) : NULL;
    const struct addrinfo *at = is_reachable(found) ? NULL : found;
    /* The others also try all of them in this order. */
    if (at && at->ai_next && !may_bind(at->ai_addr)) at = at->ai_next;
    ech_status st = ech_tcp_door_open(at ? at->ai_addr : NULL, port, out);
    if (found) freeaddrinfo(found);
    return st;
}

ech_status ech_tcp_open_follower(int to_leader, int *port, ech_tcp_door **out)
{
    place here = {0};
    socklen_t n = sizeof here;
    bool is_near = getsockname(to_leader, &here.any, &n) == 0 && is_loopback(&here.any);
    return ech_tcp_door_open(is_near ? &here.any : NULL, port, out);
}

/* ---- connecting ---- */

/* If nothing listens there yet, the system may have chosen that very port for this end, which is
 * then both ends. */
static bool is_own(int fd)
{
    place here = {0}, there = {0};
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
    socklen_t n = sizeof here, m = sizeof there;
    if (getsockname(fd, &here.any, &n) != 0 || getpeername(fd, &there.any, &m) != 0) return false;
    ech_tcp_print(&here.any, from);
    ech_tcp_print(&there.any, to);
    return *port_of(&here) == *port_of(&there) && strcmp(from, to) == 0;
}

static int try_connect(const struct addrinfo *found)
{
    int fd = -1;
    bool is_far = is_reachable(found);
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        if (is_far && is_loopback(a->ai_addr)) continue;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool connects = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd < 0 || (connects && !is_own(fd))) continue;
        int error = connects ? ECONNREFUSED : errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    return fd;
}

/* Waits for a name to be in DNS. NULL: it is not at the deadline. */
static struct addrinfo *await_name(const char *name, int port, double ends_at, const char **why)
{
    for (bool told = false;; told = true) {
        struct addrinfo *found = resolve(name, port, why);
        double now = ech_clock_now();
        if (found || now >= ends_at) return found;
        if (!told)
            ech_log_warn("MASTER_ADDR %s has no address yet: %s; it is tried again for %.0f s",
                         name, *why, ends_at - now);
        ech_clock_sleep_until(fmin(now + NAME_AGAIN_S, ends_at));
    }
}

ech_status ech_tcp_connect(const char *address, int port, double deadline, int *out)
{
    const char *why;
    double ends_at = ech_clock_now() + deadline;
    struct addrinfo *found = await_name(address, port, ends_at, &why);
    if (!found)
        ECH_FAIL(ECH_EUSAGE,
                 "MASTER_ADDR %s has no address, nor had it in %.0f s: %s; set it to the name or "
                 "address of rank 0's machine",
                 address, deadline, why);
    while ((*out = try_connect(found)) < 0 && ech_clock_now() < ends_at)
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    int error = errno;
    freeaddrinfo(found);
    if (*out < 0)
        ECH_FAIL(
            ECH_ECOMM,
            "%s, port %d, does not answer: %s; check whether that rank is running, and whether "
            "its machine's /etc/hosts gives that name a loopback address alone",
            address, port, strerror(error));
    return ECH_OK;
}

void ech_tcp_abort(ech_comm *comm, int code)
{
    (void)comm;
    fflush(NULL);
    _exit(code);
}
