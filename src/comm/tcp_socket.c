/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets of a meeting of processes (tcp_join.c).
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp_state.h"

enum { AGAIN_MS = 50 };

static ech_status fail_socket(const char *what)
{
    ECH_FAIL(ECH_ECOMM, "%s: %s", what, strerror(errno));
}

ech_status ech_tcp_write(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR)
            return fail_socket("a rank has ended its connection at the start");
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

ech_status ech_tcp_read(int fd, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = recv(fd, (char *)data + at, bytes - at, 0);
        if (n == 0) ECH_FAIL(ECH_ECOMM, "a rank has ended its connection at the start");
        if (n < 0 && errno != EINTR) return fail_socket("reading from a rank at the start");
        if (n > 0) at += (size_t)n;
    }
    return ECH_OK;
}

ech_status ech_tcp_listen(int *port, int *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t n = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_socket("making a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, ECH_TCP_MOST_RANKS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        int error = errno;
        close(fd);
        ECH_FAIL(ECH_ECOMM,
                 "rank 0 cannot listen at MASTER_PORT %d: %s; torchrun itself may have it: set "
                 "MASTER_PORT to a free port for all ranks",
                 *port, strerror(error));
    }
    *port = ntohs(at.sin_port);
    *out = fd;
    return ECH_OK;
}

/* Where nobody listens yet, the system may have chosen that very port for this end: then it is both ends. */
static bool is_own(int fd)
{
    struct sockaddr_in here, there;
    socklen_t n = sizeof here, m = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &m) == 0 && here.sin_port == there.sin_port &&
           here.sin_addr.s_addr == there.sin_addr.s_addr;
}

static int try_connect(const struct addrinfo *found)
{
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
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

ech_status ech_tcp_connect(const char *address, int port, double deadline, int *out)
{
    char text[16];
    struct addrinfo *found = NULL, like = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    double ends_at = ech_clock_now() + deadline;
    snprintf(text, sizeof text, "%d", port);
    int error = getaddrinfo(address, text, &like, &found);
    if (error)
        ECH_FAIL(ECH_EUSAGE, "MASTER_ADDR %s has no address: %s", address, gai_strerror(error));
    while ((*out = try_connect(found)) < 0 && ech_clock_now() < ends_at)
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    error = errno;
    freeaddrinfo(found);
    if (*out < 0)
        ECH_FAIL(ECH_ECOMM, "%s, port %d, does not answer: %s; see whether that rank is up",
                 address, port, strerror(error));
    return ECH_OK;
}

void ech_tcp_abort(ech_comm *comm)
{
    (void)comm;
    fflush(NULL);
    _exit(1);
}
